//! Compiles the programs of tests/programs, each once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use crate::harness::{folder, tool};

/// Two tests that want the same program must not compile it at the same time.
static COMPILING: Mutex<()> = Mutex::new(());

/// How a program comes by the driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Link {
    /// Linked against it, as `-lcuda` does.
    Driver,
    /// Not at all.
    Nothing,
    /// Linked against it, and a shared object.
    DriverShared,
    /// A shared object that is not.
    Shared,
}

/// The path of a program, compiled if it is new or was changed.
pub fn compiled(name: &str, link: Link) -> PathBuf {
    let _one = COMPILING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let source = sources.join(format!("{name}.c"));
    let folder = folder::base().join("programs");
    fs::create_dir_all(&folder).unwrap();
    let program = folder.join(format!("{name}{}", if is_shared(link) { ".so" } else { "" }));
    let changed = |path: &Path| fs::metadata(path).and_then(|found| found.modified()).ok();
    const INCLUDED: [&str; 5] = ["driver.h", "life.h", "cupti.h", "launches.h", "signal_safe_driver.c"];
    let newest = INCLUDED.iter().map(|name| changed(&sources.join(name))).fold(changed(&source), Option::max);
    assert!(changed(&source).is_some(), "{} is missing", source.display());
    if changed(&program) > newest {
        return program;
    }
    let temporary = folder.join(format!("{name}.{}", std::process::id()));
    let mut compiler = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    compiler.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-pthread"]);
    if is_shared(link) {
        compiler.args(["-shared", "-fPIC"]);
    }
    compiler.arg("-o").arg(&temporary).arg(&source).arg("-ldl");
    if matches!(link, Link::Driver | Link::DriverShared) {
        compiler.arg("-L").arg(tool::simulated_folder()).arg("-l:libcuda.so.1").arg("-Wl,--no-as-needed");
    }
    let output = compiler.output().expect("a C compiler (cc) is needed");
    assert!(output.status.success(), "{compiler:?}\n{}", String::from_utf8_lossy(&output.stderr));
    fs::rename(&temporary, &program).unwrap();
    program
}

fn is_shared(link: Link) -> bool {
    matches!(link, Link::DriverShared | Link::Shared)
}
