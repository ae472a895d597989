//! A real client that nobody here wrote: the PyPI package cuda-bindings, on the simulated driver.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::folder;
use crate::harness::tool::{count, dropped, run_command};

/// A virtual environment with cuda-bindings in it, made once; `None` where it cannot be had.
fn python() -> Option<PathBuf> {
    let environment = folder::base().join("cuda-bindings");
    let python = environment.join("bin/python");
    let ready = environment.join("ready");
    if !ready.exists() {
        let _ = fs::remove_dir_all(&environment);
        let made = Command::new("python3").arg("-m").arg("venv").arg(&environment).output().ok()?;
        if !made.status.success() {
            eprintln!("SKIPPED: no python3 with venv: {}", String::from_utf8_lossy(&made.stderr));
            return None;
        }
        let mut pip = Command::new(&python);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "cuda-bindings==13.0.3"]);
        let installed = pip.output().ok()?;
        if !installed.status.success() {
            eprintln!(
                "SKIPPED: cuda-bindings cannot be installed: {}",
                String::from_utf8_lossy(&installed.stderr)
            );
            return None;
        }
        fs::write(ready, "").unwrap();
    }
    Some(python)
}

#[test]
fn cuda_bindings_runs_on_the_simulated_driver() {
    let client = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/cuda_bindings_client.py");
    assert!(client.is_file(), "{} is missing", client.display());
    let Some(python) = python() else { return };
    let traced = run_command(&python).arg(&client).succeed();
    let report = traced.report();
    assert!(count(&report, "launches") > 0, "{report:#}");
    assert_eq!(dropped(&report), 0);
    assert_eq!(report["simulated"], true);
}

#[test]
fn an_interpreter_without_cuda_is_left_alone() {
    let script = "import subprocess; print(subprocess.run(['echo', 'hello'], capture_output=True).stdout)";
    let traced = run_command("python3").arg("-c").arg(script).succeed();
    assert_eq!(traced.ended.stdout, "b'hello\\n'\n");
}
