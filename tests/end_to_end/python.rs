//! A real client that nobody here wrote: the PyPI package cuda-bindings, on the simulated driver.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::tool::{count, dropped, run_command};
use crate::harness::{folder, needs};

/// A virtual environment with cuda-bindings in it, made once; or why it cannot be had.
pub fn client_python() -> Result<PathBuf, String> {
    let environment = folder::base().join("cuda-bindings");
    let python = environment.join("bin/python");
    let ready = environment.join("ready");
    if !ready.exists() {
        let _ = fs::remove_dir_all(&environment);
        succeed("python3 -m venv", Command::new("python3").arg("-m").arg("venv").arg(&environment))?;
        let mut pip = Command::new(&python);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "cuda-bindings==13.0.3"]);
        succeed("pip install cuda-bindings", &mut pip)?;
        fs::write(ready, "").unwrap();
    }
    Ok(python)
}

fn succeed(what: &str, command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{what}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{what} failed: {}", said.trim().lines().next_back().unwrap_or_default()))
}

#[test]
fn cuda_bindings_runs_on_the_simulated_driver() {
    let client = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/cuda_bindings_client.py");
    assert!(client.is_file(), "{} is missing", client.display());
    let test = "python::cuda_bindings_runs_on_the_simulated_driver";
    if !needs::python(test) {
        return;
    }
    let python = match client_python() {
        Ok(python) => python,
        Err(why) => return needs::skipped(test, &why),
    };
    let traced = run_command(&python).arg(&client).succeed();
    let report = traced.report();
    assert!(count(&report, "launches") > 0, "{report:#}");
    assert_eq!(dropped(&report), 0);
    assert_eq!(report["simulated"], true);
}

#[test]
fn interpreter_without_cuda_is_left_alone() {
    if !needs::python("python::interpreter_without_cuda_is_left_alone") {
        return;
    }
    let script = "import subprocess; print(subprocess.run(['echo', 'hello'], capture_output=True).stdout)";
    let traced = run_command("python3").arg("-c").arg(script).succeed();
    assert_eq!(traced.ended.stdout, "b'hello\\n'\n");
}
