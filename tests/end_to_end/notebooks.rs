//! `%%gputrace` in a real IPython shell, on the simulated device: a cell's flamegraph has the cell's kernels.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;

use crate::harness::folder::{self, Folder};
use crate::harness::needs;
use crate::harness::process::{Ended, finish};
use crate::harness::tool::{count, gputrace};

/// The oldest that Python 3.8 takes and that 3.14 still runs.
const PACKAGE: &str = "ipython==8.12.3";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A virtual environment with IPython, made once; or why it cannot be had.
fn python() -> &'static Result<PathBuf, String> {
    static MADE: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    MADE.get_or_init(made)
}

fn made() -> Result<PathBuf, String> {
    let environment = folder::base().join("ipython-8.12.3");
    let (python, ready) = (environment.join("bin/python"), environment.join("ready"));
    if ready.exists() {
        return Ok(python);
    }
    let _ = std::fs::remove_dir_all(&environment);
    let succeed = |command: &mut Command| {
        let ended = command.output().map_err(|error| error.to_string())?;
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        if ended.status.success() { Ok(()) } else { Err(format!("IPython cannot be installed: {said}")) }
    };
    succeed(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", PACKAGE];
    succeed(Command::new(&python).args(pip))?;
    std::fs::write(ready, "").unwrap();
    Ok(python)
}

/// The cells of tests/programs/notebook_cells.py, what they showed, and the folder of the session.
fn cells(
    test: &str,
    change: impl FnOnce(&mut Command, &Folder, PathBuf),
) -> Option<(Folder, Ended, Vec<Value>)> {
    if !needs::python(test) {
        return None;
    }
    let python = match python() {
        Ok(python) => python,
        Err(why) => {
            needs::skipped(test, why);
            return None;
        }
    };
    let folder = Folder::new();
    let mut command = gputrace();
    let tool = PathBuf::from(command.get_program());
    let mut path = OsString::from(tool.parent().unwrap());
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    change(&mut command, &folder, python.clone());
    command.arg(root().join("tests/programs/notebook_cells.py"));
    command.env("PATH", path).env("PYTHONPATH", root().join("packaging/wheel"));
    command.env("IPYTHONDIR", folder.join("ipython"));
    let ended = finish(&mut command).expect_code(0);
    let shown = ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    Some((folder, ended, shown))
}

fn recorded(test: &str, options: &[&str]) -> Option<(Folder, Ended, Vec<Value>)> {
    cells(test, |command, folder, python| {
        command.args(["run", "--simulate", "-o"]).arg(folder.join("out")).args(options);
        command.arg("--").arg(python);
    })
}

#[track_caller]
fn assert_shows(shown: &Value, kernel: &str, others: &[&str]) {
    let (svg, text) = (shown["svg"].as_str().unwrap(), shown["text"].as_str().unwrap());
    assert!(svg.contains(kernel), "{kernel} is not in {text}");
    assert!(svg.contains("launch "), "the cell's own function is not in {text}");
    for other in others {
        assert!(!svg.contains(other), "{other} is in the flamegraph of {kernel}");
    }
    assert!(text.starts_with("GPU time ") && text.ends_with("; nothing lost"), "{text}");
}

#[test]
fn cell_of_a_traced_kernel_shows_its_own_flamegraph() {
    let Some((folder, ended, shown)) =
        recorded("notebooks::cell_of_a_traced_kernel_shows_its_own_flamegraph", &[])
    else {
        return;
    };
    let [early, one, two, failed, failure, misspelt, filtered, last] = &shown[..] else {
        panic!("{shown:#?}")
    };
    assert_shows(early, "early", &["cell_one", "between", "cell_two"]);
    assert_shows(one, "cell_one", &["early", "between", "cell_two"]);
    assert_shows(two, "cell_two", &["early", "between", "cell_one"]);
    assert!(ended.stderr.contains("gputrace: the GPU did nothing in this cell"), "{}", ended.stderr);
    // A cell that fails has a flamegraph, and the notebook stops there.
    assert_shows(failed, "cell_one", &["early", "between", "cell_two"]);
    assert_eq!(failure["error"], "the cell ended with an error");
    assert!(misspelt["error"].as_str().unwrap().contains("--no-such-option"), "{misspelt}");
    assert_shows(filtered, "cell_two", &["early", "between", "cell_one"]);
    assert_shows(last, "cell_two", &["early", "between", "cell_one"]);
    let report = finish(gputrace().args(["report", "--json"]).arg(folder.join("out"))).expect_code(0).stdout;
    let report: Value = serde_json::from_str(&report).unwrap();
    // The session records on between its cells.
    assert_eq!(count(&report, "launches"), 3 + 5 + 7 + 11 + 2 + 1 + 10 + 8, "{report:#}");
    assert_eq!(count(&report["recording"], "paused_launches"), 16, "it was paused by hand");
    assert_eq!(report["complete"], true);
}

#[test]
fn session_that_began_paused_records_the_cells_alone() {
    let Some((folder, _, shown)) =
        recorded("notebooks::session_that_began_paused_records_the_cells_alone", &["--start-paused"])
    else {
        return;
    };
    let has_it = |cell: &&Value| cell["svg"].as_str().is_some_and(|svg| svg.contains("cell_one"));
    assert_shows(shown.iter().find(has_it).unwrap(), "cell_one", &["early", "between", "cell_two"]);
    let report = finish(gputrace().args(["report", "--json"]).arg(folder.join("out"))).expect_code(0).stdout;
    let report: Value = serde_json::from_str(&report).unwrap();
    let paused = count(&report["recording"], "paused_launches");
    // A program that joins a session begins to record some 50 ms later.
    assert!((7 + 16..=3 + 7 + 16).contains(&paused), "{report:#}");
    assert_eq!(count(&report, "launches") + paused, 3 + 5 + 7 + 11 + 2 + 1 + 10 + 8 + 16);
}

#[test]
fn cell_of_another_kernel_runs_and_says_how_to_start_one() {
    let test = "notebooks::cell_of_another_kernel_runs_and_says_how_to_start_one";
    let Some((_, ended, shown)) = cells(test, |command, _, python| {
        *command = Command::new(python);
        command.env("LD_LIBRARY_PATH", crate::harness::tool::simulated_folder());
    }) else {
        return;
    };
    assert!(ended.stderr.contains("this kernel is not traced"), "{}", ended.stderr);
    assert!(ended.stderr.contains("gputrace run --start-paused -- jupyter lab"), "{}", ended.stderr);
    assert!(ended.stderr.contains("no GPU here"), "the cells ran: {}", ended.stderr);
    assert!(shown.iter().all(|line| line.get("svg").is_none()), "{shown:#?}");
}
