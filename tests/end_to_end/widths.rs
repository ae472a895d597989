//! How wide the summary is: as the terminal, 80 columns elsewhere, and never less than 60.

use std::path::{Path, PathBuf};

use crate::harness::folder::Folder;
use crate::harness::process::finish;
use crate::harness::terminal::finish_on_terminal;
use crate::harness::tool::{gputrace, run_with};

/// What only experts look for.
const JARGON: [&str; 3] = ["Lag  ", "  occ", "too few calls to tell what a hook costs"];

fn fixtures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let traces: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "gputrace")).collect();
    assert!(traces.len() >= 2, "{traces:?}");
    traces
}

fn widest(text: &str) -> usize {
    text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
}

#[test]
fn summary_of_every_fixture_fits_its_terminal() {
    for trace in fixtures() {
        let report = || {
            let mut command = gputrace();
            command.arg("report").arg(&trace);
            command
        };
        let piped = finish(&mut report()).expect_code(0).stdout;
        assert!(widest(&piped) <= 80, "{piped}");
        // A terminal of 40 columns gets 60: fewer hold no table.
        for (columns, fits) in [(40, 60), (60, 60), (70, 70), (80, 80), (120, 120)] {
            let (status, text) = finish_on_terminal(&mut report(), columns);
            assert!(status.success() && widest(&text) <= fits, "{columns} columns:\n{text}");
            assert!(text.contains("Counted") && text.contains("Transfers"), "{text}");
            assert!(JARGON.iter().all(|words| !text.contains(words)), "{text}");
        }
        let (_, wide) = finish_on_terminal(&mut report(), 120);
        assert!(widest(&wide) > 80, "a wide terminal is used:\n{wide}");
    }
}

#[test]
fn summary_of_the_demo_fits_its_terminal() {
    for columns in [60, 80] {
        let folder = Folder::new();
        let mut command = gputrace();
        let command = command.current_dir(folder.path()).args(["demo", "-o", "out"]);
        let (status, text) = finish_on_terminal(command, columns);
        assert!(status.success(), "{text}");
        let begin = text.find("gputrace  gputrace demo-workload").unwrap_or_else(|| panic!("{text}"));
        let summary = &text[begin..text.rfind("gputrace: wrote").unwrap()];
        assert!(widest(summary) <= usize::from(columns), "{summary}");
        assert!(JARGON.iter().all(|words| !summary.contains(words)), "{summary}");
        // The file is for any reader.
        let file = std::fs::read_to_string(folder.join("out/summary.txt")).unwrap();
        assert!(widest(&file) <= 80 && widest(&file) > 60, "{file}");
    }
}

#[test]
fn verbose_shows_expert_terms() {
    let report = |options: &[&str]| {
        let trace = fixtures().into_iter().find(|path| path.ends_with("demo-h200.gputrace")).unwrap();
        finish(gputrace().arg("report").args(options).arg(trace)).expect_code(0).stdout
    };
    for option in ["-v", "--verbose"] {
        let text = report(&[option]);
        assert!(text.contains(JARGON[1]) && text.contains(JARGON[2]), "{text}");
        assert!(widest(&text) <= 80, "{text}");
    }
    let program = crate::harness::program::compiled("basic", crate::harness::program::Link::Driver);
    let traced = run_with(&["-v"], program).succeed();
    for words in &JARGON[..2] {
        assert!(traced.ended.stderr.contains(words), "{words}: {}", traced.ended.stderr);
        assert!(traced.read("summary.txt").contains(words), "{words}");
    }
}
