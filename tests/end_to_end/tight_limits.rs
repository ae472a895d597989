//! `run` where the limits that it was started with leave gputrace itself hardly anything: the command runs
//! with its own output, exit code and limits, and one line says so where it is not traced.

use std::process::Command;

use crate::harness::folder::Folder;
use crate::harness::process::{Ended, finish};
use crate::harness::program::{Link, compiled};
use crate::harness::tool::{clean, count, gputrace, report, simulated_folder};

const NOT_ENOUGH: &str = "gputrace: warning: the command runs untraced: only ";

/// `script` with the tool as `$0`, the output folder as `$1` and the program that ends with nine as `$2`.
fn shell(script: &str, folder: &Folder) -> Ended {
    let tool = gputrace();
    let mut command = Command::new("sh");
    clean(&mut command);
    command.args(["-c", script]).arg(tool.get_program()).arg(folder.join("out"));
    finish(command.arg(compiled("ends_with_nine", Link::Nothing)))
}

fn limited(ulimit: &str) -> Ended {
    let folder = Folder::new();
    shell(&format!("ulimit {ulimit} || exit 99; exec \"$0\" run -o \"$1\" -- \"$2\""), &folder)
}

/// With three there is none beside stdin, stdout and stderr, and the loader starts neither the command nor
/// us.
#[test]
fn tight_limits_of_descriptors_leave_the_command_as_it_is() {
    for number in (3..=20).chain([24, 32, 40]) {
        let ended = limited(&format!("-n {number}"));
        if number == 3 {
            assert_eq!(ended.code(), Some(127), "{}", ended.stderr);
            continue;
        }
        let ended = ended.expect_code(9);
        assert_eq!(ended.stdout, "ran\n", "{number}: {}", ended.stderr);
        // Another test's thread may have a descriptor open that this shell inherits: a few numbers are not
        // decided.
        let untraced = ended.stderr.starts_with(NOT_ENOUGH);
        assert!(untraced || number > 22, "{number}: {}", ended.stderr);
        assert!(!untraced || number < 30, "{number}: {}", ended.stderr);
        let lines = ended.stderr.lines().count();
        assert!(!untraced || lines == 1, "{number}: {}", ended.stderr);
    }
}

/// A soft limit is no limit on us: we raise our own, and the command has the one that we were started with.
#[test]
fn tight_soft_limits_of_descriptors_are_the_commands_alone() {
    for number in 4..=20 {
        let folder = Folder::new();
        let script = "ulimit -S -n NUMBER || exit 99; \
                      exec \"$0\" run -o \"$1\" -- sh -c 'ulimit -S -n; ulimit -H -n; exec \"$0\"' \"$2\"";
        let hard = shell("ulimit -H -n", &folder).stdout;
        let ended = shell(&script.replace("NUMBER", &number.to_string()), &folder).expect_code(9);
        assert_eq!(ended.stdout, format!("{number}\n{hard}ran\n"), "{}", ended.stderr);
        assert!(!ended.stderr.contains("untraced"), "{number}: {}", ended.stderr);
        assert!(ended.stderr.contains("nothing lost"), "{number}: {}", ended.stderr);
    }
}

#[test]
fn tight_limits_of_the_stack_are_none_on_us() {
    for ulimit in ["-s 64", "-s 128", "-S -s 64", "-S -s 128"] {
        let ended = limited(ulimit).expect_code(9);
        assert_eq!(ended.stdout, "ran\n", "{ulimit}: {}", ended.stderr);
        assert!(ended.stderr.contains("nothing lost"), "{ulimit}: {}", ended.stderr);
    }
}

/// Whoever asked for a simulation gets it, traced or not.
#[test]
fn tight_limits_leave_the_simulated_driver() {
    let folder = Folder::new();
    let script = |limit: &str| {
        let mut command = Command::new("sh");
        clean(&mut command);
        let line = format!("{limit}; exec \"$0\" run --simulate -o \"$1\" -- \"$2\"");
        command.args(["-c", &line]).arg(gputrace().get_program()).arg(folder.join("out"));
        finish(command.arg(compiled("basic", Link::Driver)))
    };
    assert!(simulated_folder().is_dir());
    let untraced = script("ulimit -n 16 || exit 99").expect_code(0);
    assert!(untraced.stderr.starts_with(NOT_ENOUGH), "{}", untraced.stderr);
    let traced = script(":").expect_code(0);
    assert_eq!(untraced.stdout, traced.stdout);
    assert_eq!(count(&report(&[folder.join("out/trace.gputrace")]), "launches"), 10);
}
