//! Tests with line tables of real interpreters and the lines that these find: a stored set, and many more
//! from each interpreter on this machine.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::source::LineTable;

const VERSIONS: [&str; 7] = ["3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14"];

/// Compares one line of `scripts/python-line-tables`. Returns its number of instructions.
fn compare(line: &str) -> usize {
    let words: Vec<&str> = line.split(' ').collect();
    let [version, form, first_line, length, table, runs] = words[..] else { panic!("{line}") };
    let table: Vec<u8> = match table {
        "-" => Vec::new(),
        hex => {
            (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
        }
    };
    let decoded = LineTable::decode(form.parse().unwrap(), first_line.parse().unwrap(), &table, true);
    let mut runs = runs.split(',').map(|run| run.split_once(':').unwrap()).peekable();
    let length: u32 = length.parse().unwrap();
    let mut expected = None;
    for at in (0..length).step_by(2) {
        if let Some((_, line)) = runs.next_if(|(from, _)| from.parse() == Ok(at)) {
            expected = line.parse::<u32>().ok();
        }
        assert_eq!(decoded.line(at), expected, "offset {at} in Python {version}: {line}");
    }
    assert_eq!(runs.next(), None);
    length as usize / 2
}

#[test]
fn lines_are_those_that_python_finds() {
    let kept = include_str!("tests/line_tables.txt");
    for version in VERSIONS {
        let of_version = kept.lines().filter(|line| line.starts_with(&format!("{version} ")));
        let instructions: usize = of_version.map(compare).sum();
        assert!(instructions >= 1_000, "{version}: {instructions}");
    }
}

/// An interpreter of that version: of a folder in `GPUTRACE_TEST_PYTHONS`, or of pyenv.
fn interpreter(version: &str) -> Option<PathBuf> {
    let given = std::env::var_os("GPUTRACE_TEST_PYTHONS").unwrap_or_default();
    let mut given = std::env::split_paths(&given).map(|folder| folder.join(format!("python{version}")));
    given.find(|python| python.exists()).or_else(|| of_pyenv(version))
}

fn of_pyenv(version: &str) -> Option<PathBuf> {
    let root = std::env::var_os("PYENV_ROOT").map(PathBuf::from);
    let root = root.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".pyenv")))?;
    let folders = std::fs::read_dir(root.join("versions")).ok()?.flatten();
    let of_version =
        |name: &str| name.strip_prefix(version).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    let found = folders.filter(|folder| of_version(&folder.file_name().to_string_lossy()));
    found.map(|folder| folder.path().join("bin/python")).find(|python| python.exists())
}

#[test]
fn lines_are_those_that_every_python_here_finds() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/python-line-tables");
    for version in VERSIONS {
        let Some(python) = interpreter(version) else {
            eprintln!(
                "SKIPPED: no Python {version} in GPUTRACE_TEST_PYTHONS or pyenv: its line tables are not compared"
            );
            continue;
        };
        let output = Command::new(python).arg(&script).arg("many").output().unwrap();
        assert!(output.status.success(), "{version}: {}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let instructions: usize = text.lines().map(compare).sum();
        eprintln!("Python {version}: {instructions} instructions of {} codes", text.lines().count());
        assert!(instructions > 60_000, "{version}: {instructions}");
    }
}
