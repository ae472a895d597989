//! The pytest plugin's limits on the GPU's memory, on the simulated device.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::harness::folder::{self, Folder};
use crate::harness::needs;
use crate::harness::process::{Ended, finish};
use crate::harness::tool::gputrace;

/// The newest that Python 3.8 takes.
const PACKAGE: &str = "pytest==8.3.5";

/// A Python with pytest in a virtual environment that is made once; or why it cannot be had.
fn python() -> &'static Result<PathBuf, String> {
    static MADE: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    MADE.get_or_init(made)
}

fn made() -> Result<PathBuf, String> {
    let environment = folder::base().join("pytest-8.3.5");
    let (python, ready) = (environment.join("bin/python"), environment.join("ready"));
    if ready.exists() {
        return Ok(python);
    }
    let _ = std::fs::remove_dir_all(&environment);
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", PACKAGE];
    for command in
        [Command::new("python3").args(["-m", "venv"]).arg(&environment), Command::new(&python).args(pip)]
    {
        let ended = command.output().map_err(|error| error.to_string())?;
        if !ended.status.success() {
            return Err(format!("{PACKAGE} cannot be installed: {}", String::from_utf8_lossy(&ended.stderr)));
        }
    }
    std::fs::write(ready, "").unwrap();
    Ok(python)
}

/// Runs tests/programs/test_gpu_memory.py, traced or not.
fn pytest(is_traced: bool) -> Result<Ended, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (python, folder) = (python().as_ref().map_err(String::clone)?, Folder::new());
    let mut command = gputrace();
    let tool = PathBuf::from(command.get_program());
    let mut path = OsString::from(tool.parent().unwrap());
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    if is_traced {
        command.args(["run", "--simulate", "-o"]).arg(folder.join("out")).arg("--").arg(python);
    } else {
        command = Command::new(python);
    }
    command.args(["-m", "pytest", "-p", "gputrace.pytest_plugin", "-p", "no:cacheprovider"]);
    command.arg(root.join("tests/programs/test_gpu_memory.py"));
    command.env("PATH", path).env("PYTHONPATH", root.join("packaging/wheel")).env("COLUMNS", "120");
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    Ok(finish(command.current_dir(folder.path())))
}

#[test]
fn tests_that_hold_or_leave_too_much_fail_with_the_lines() {
    let test = "pytest_limits::tests_that_hold_or_leave_too_much_fail_with_the_lines";
    if !needs::python(test) {
        return;
    }
    let ended = match pytest(true) {
        Ok(ended) => ended.expect_code(1),
        Err(why) => return needs::skipped(test, &why),
    };
    let out = &ended.stdout;
    assert!(out.contains("2 failed, 2 passed"), "{out}");
    assert!(out.contains("limit_gpu_memory: 80 MiB of GPU memory at most, more than 64 MiB"), "{out}");
    assert!(
        out.contains("limit_gpu_leaks: 6 MiB of GPU memory allocated in the test is live after it"),
        "{out}"
    );
    assert!(out.contains("6 MiB in     3 (device)  allocate "), "{out}");
    assert!(!out.contains("not traced"), "{out}");
}

#[test]
fn limits_are_not_checked_untraced_and_that_is_reported() {
    let test = "pytest_limits::limits_are_not_checked_untraced_and_that_is_reported";
    if !needs::python(test) {
        return;
    }
    let ended = match pytest(false) {
        Ok(ended) => ended,
        Err(why) => return needs::skipped(test, &why),
    };
    // There is no CUDA here: the tests themselves fail, but no limit is named.
    assert!(
        ended.stdout.contains("gputrace: not traced, limits of GPU memory are not checked"),
        "{}",
        ended.stdout
    );
    assert!(!ended.stdout.contains("of GPU memory at most"), "{}", ended.stdout);
}
