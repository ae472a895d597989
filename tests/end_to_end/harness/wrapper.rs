//! A library that wraps the functions which the built `libgputrace.so` imports
//! (tests/programs/wraps_imports.c).

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::harness::process::finish;
use crate::harness::{folder, tool};

/// What is not wrapped, and why. A name that ends with `*` stands for all that begin so.
pub const EXEMPT: [(&str, &str); 8] = [
    ("mem*", "compilers emit calls of it"),
    ("bcmp", "compilers emit calls of it"),
    ("str*", "compilers emit calls of it"),
    ("__errno_location", "every access to errno calls it"),
    ("__tls_get_addr", "every access to a thread-local of a library calls it, the lookup's own too"),
    ("_Unwind_*", "the unwinder reads its caller's frame, and a wrapper is no caller"),
    ("_ITM_*", "the C runtime of each library asks for it and calls it only where it is there"),
    ("__gmon_start__", "the C runtime of each library asks for it and calls it only where it is there"),
];

/// The functions that the library imports and that are wrapped, in the order of their names.
pub fn wrapped() -> &'static [String] {
    static NAMES: OnceLock<Vec<String>> = OnceLock::new();
    NAMES.get_or_init(|| imports().into_iter().filter(|name| exemption(name).is_none()).collect())
}

/// All functions that it imports. Data is left out: nobody calls it.
pub fn imports() -> Vec<String> {
    const DATA: [&str; 3] = ["environ", "program_invocation_name", "_r_debug"];
    let library = tool::library();
    let symbols =
        finish(Command::new("readelf").args(["-W", "--dyn-syms"]).arg(library)).expect_code(0).stdout;
    let undefined = symbols.lines().filter_map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        (words.get(6) == Some(&"UND")).then(|| words.get(7).and_then(|name| name.split('@').next())).flatten()
    });
    let mut names: Vec<_> = undefined.filter(|name| !DATA.contains(name)).map(str::to_owned).collect();
    names.sort();
    names.dedup();
    names
}

/// Why a function is not wrapped; `None` if it is.
pub fn exemption(name: &str) -> Option<&'static str> {
    let is_meant = |pattern: &str| match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == pattern,
    };
    EXEMPT.iter().find(|(pattern, _)| is_meant(pattern)).map(|(_, reason)| *reason)
}

/// The library, built from the imports of this build once a test process.
pub fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let folder = folder::base().join("programs");
        fs::create_dir_all(&folder).unwrap();
        let names = folder.join(format!("wrapped_names.{}.h", std::process::id()));
        let mut text = String::new();
        for (number, name) in wrapped().iter().enumerate() {
            writeln!(text, "WRAP({number}, {name})").unwrap();
        }
        fs::write(&names, text).unwrap();
        let library = folder.join("wraps_imports.so");
        let temporary = folder.join(format!("wraps_imports.{}.so", std::process::id()));
        let mut compiler = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
        compiler.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]);
        // The wrappers are written in assembly, in the order of the file; nothing else may call libc.
        compiler.args(["-fno-toplevel-reorder", "-fno-stack-protector", "-fno-builtin"]);
        compiler.arg(format!("-DCOUNT={}", wrapped().len())).arg(format!("-DNAMES=\"{}\"", names.display()));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/wraps_imports.c");
        finish(compiler.arg("-o").arg(&temporary).arg(source).arg("-ldl")).expect_code(0);
        fs::remove_file(names).unwrap();
        fs::rename(&temporary, &library).unwrap();
        library
    })
}

/// LD_PRELOAD with the wrapper before the tracer, and after it.
pub fn orders() -> [String; 2] {
    let (ours, other) = (tool::library().display(), library().display());
    [format!("{other}:{ours}"), format!("{ours}:{other}")]
}
