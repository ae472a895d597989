//! Command lines that are nearly right: what is said, and that nothing is done; and the help pages.

use std::collections::BTreeSet;

use crate::harness::folder::Folder;
use crate::harness::process::{Ended, finish};
use crate::harness::program::{Link, compiled};
use crate::harness::tool::{gputrace, run_with};

fn refused(words: &[&str]) -> Ended {
    let folder = Folder::new();
    let ended = finish(gputrace().args(words).current_dir(folder.path())).expect_code(2);
    assert_eq!(ended.stdout, "", "{words:?}");
    let made = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(made, 0, "{words:?}: nothing is started or made");
    ended
}

#[test]
fn command_line_without_run_gets_a_hint() {
    let program = compiled("ends_with_nine", Link::Nothing);
    let program = program.to_str().unwrap();
    for (words, hint) in [
        (vec!["sh", "-c", "exit 3"], "gputrace run -- sh -c 'exit 3'".to_owned()),
        (vec![program, "--flag"], format!("gputrace run -- {program} --flag")),
        (vec!["record", "--", "ls"], "gputrace run -- ls".to_owned()),
    ] {
        let ended = refused(&words);
        assert!(ended.stderr.ends_with(&format!("\n  hint: to trace it: {hint}\n")), "{}", ended.stderr);
    }
    // A mistyped subcommand is none of these.
    let ended = refused(&["reprot", "x"]);
    assert!(ended.stderr.contains("'report'") && !ended.stderr.contains("gputrace run"), "{}", ended.stderr);
}

/// A first visit's words, each of which is a command of ours.
#[test]
fn command_line_that_is_empty_gets_what_to_type_next() {
    let ended = refused(&[]);
    let lines: Vec<_> = ended.stderr.lines().filter(|line| line.starts_with("  gputrace ")).collect();
    let subcommands: Vec<_> = lines.iter().filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert_eq!(subcommands, ["demo", "doctor", "run", "report", "--help"], "{}", ended.stderr);
    for name in &subcommands[..4] {
        finish(gputrace().args([name, "--help"])).expect_code(0);
    }
    assert!(ended.stderr.lines().all(|line| line.chars().count() <= 100), "{}", ended.stderr);
}

#[test]
fn command_line_that_attaches_gets_a_hint() {
    for words in [&["attach", "12"][..], &["run", "-p", "12"], &["run", "--pid=12"], &["record", "-p", "12"]]
    {
        let ended = refused(words);
        assert!(ended.stderr.starts_with("gputrace: cannot attach to process 12: "), "{}", ended.stderr);
        for instead in ["gputrace run -- ", "LD_PRELOAD=$(gputrace lib)", "gputrace ctl 12 status"] {
            assert!(ended.stderr.contains(instead), "{}", ended.stderr);
        }
    }
    let page = finish(gputrace().args(["help", "exit-codes"])).expect_code(0).stdout;
    let row = page.lines().find(|line| line.trim_start().starts_with("2 ")).unwrap();
    assert!(row.contains("attach to a running process"), "{row}");
}

#[test]
fn command_line_with_an_option_of_ours_behind_the_command_is_warned_about() {
    let warnings = |arguments: &[&str]| {
        let program = compiled("ends_with_nine", Link::Nothing);
        let run = arguments.iter().fold(run_with(&[], program), |run, argument| run.arg(argument));
        let ended = run.go().expect_code(9).ended;
        assert_eq!(ended.stdout, "ran\n");
        let warnings: Vec<_> =
            ended.stderr.lines().filter(|line| line.contains("warning")).map(str::to_owned).collect();
        warnings
    };
    let found = warnings(&["--flight-recorder", "30", "--otlp=http://localhost:4318"]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with("gputrace: warning: --flight-recorder, --otlp come after the command"),
        "{found:?}"
    );
    // The program's own, as are -p and -o there.
    for own in [&["-o", "out", "-p", "12"][..], &["--all", "--json"], &["--stacks", "3"]] {
        assert_eq!(warnings(own), Vec::<String>::new());
    }
}

/// Of every subcommand, and `gputrace help OPTION` of every option in those pages.
#[test]
fn help_lines_fit_100_columns() {
    let page = |words: &[&str]| {
        let page = finish(gputrace().args(words)).expect_code(0).stdout;
        for line in page.lines() {
            assert!(line.chars().count() <= 100, "{words:?}: {line}");
        }
        page
    };
    let main = page(&["--help"]);
    let list = main.split_once("Commands:\n").unwrap().1.split("\n\n").next().unwrap();
    let subcommands: Vec<_> = list.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(subcommands.contains(&"run") && subcommands.len() >= 10, "{subcommands:?}");
    let pages = subcommands.iter().filter(|name| **name != "help").map(|name| page(&[name, "--help"]));
    let pages: String = pages.collect();
    assert_eq!(page(&["help", "run"]), page(&["run", "--help"]));
    let options = page(&["help", "variables"]);
    page(&["help", "exit-codes"]);
    let rows: Vec<_> = options.split("\n\n").skip(1).map(str::trim_end).collect();
    for row in &rows {
        let variable = row.split('=').next().unwrap();
        assert_eq!(page(&["help", variable]).trim_end(), *row);
    }
    let words = pages.split_whitespace().filter_map(|word| word.strip_prefix("--"));
    let names = words.map(|word| word.split(|c: char| c != '-' && !c.is_alphanumeric()).next().unwrap());
    let names: BTreeSet<_> = names.filter(|name| !["", "help"].contains(name)).collect();
    for name in &names {
        let entry = page(&["help", name]);
        assert!(entry.contains(&format!("--{name}")), "{entry}");
        assert_eq!(entry, page(&["help", &format!("--{name}")]));
    }
    assert!(names.len() >= 25 && rows.len() >= 25, "{names:?}, {} rows", rows.len());
}
