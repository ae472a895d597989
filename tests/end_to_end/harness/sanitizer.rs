//! Programs of tests/programs built with a compiler's sanitizer.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::harness::folder::Folder;
use crate::harness::needs::skipped;
use crate::harness::process::finish;
use crate::harness::tool;

/// A compiler and what asks it for a sanitizer.
#[derive(Clone, Copy, Debug)]
pub struct Sanitizer {
    pub compiler: &'static str,
    pub flags: &'static [&'static str],
}

pub const CLANG: [Sanitizer; 4] = [
    Sanitizer { compiler: "clang", flags: &["-fsanitize=address"] },
    Sanitizer { compiler: "clang", flags: &["-fsanitize=thread"] },
    Sanitizer { compiler: "clang", flags: &["-fsanitize=memory"] },
    Sanitizer { compiler: "clang", flags: &["-fsanitize=undefined"] },
];

pub const GCC: [Sanitizer; 3] = [
    Sanitizer { compiler: "gcc", flags: &["-fsanitize=thread"] },
    Sanitizer { compiler: "gcc", flags: &["-fsanitize=undefined"] },
    Sanitizer { compiler: "gcc", flags: &["-fsanitize=address", "-static-libasan"] },
];

/// gcc's default: the program needs `libasan.so.N`.
pub const GCC_SHARED_ASAN: Sanitizer = Sanitizer { compiler: "gcc", flags: &["-fsanitize=address"] };

impl Sanitizer {
    /// Whether a program can be built and run with it here; where not, says that `test` is skipped.
    pub fn works(self, test: &str) -> bool {
        let folder = Folder::new();
        let (program, source) = (folder.join("works"), folder.join("works.c"));
        fs::write(&source, "int main(void) { return 0; }\n").unwrap();
        let quiet = |command: &mut Command| {
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        let mut compiler = Command::new(self.compiler);
        let built = quiet(compiler.args(self.flags).arg("-o").arg(&program).arg(&source));
        let works = built && quiet(tool::clean_command(&program).env("ASAN_OPTIONS", "detect_leaks=0"));
        if !works {
            skipped(test, &format!("{} {} does not work here", self.compiler, self.flags.join(" ")));
        }
        works
    }

    /// The program, linked against the simulated driver, in that folder.
    pub fn compiled(self, name: &str, folder: &Folder) -> PathBuf {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/programs/{name}.c"));
        let program = folder.join(name);
        let mut compiler = Command::new(self.compiler);
        compiler
            .args(["-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread"])
            .args(self.flags);
        compiler.arg("-o").arg(&program).arg(source);
        compiler.arg("-L").arg(tool::simulated_folder()).args(["-l:libcuda.so.1", "-ldl"]);
        finish(&mut compiler).expect_code(0);
        program
    }
}
