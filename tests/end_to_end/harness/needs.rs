//! What a test needs and a machine may lack: the test is then skipped, and that is seen.

use std::io::{Write, stderr};
use std::process::{Command, Stdio};

/// Whether python3 runs here; where not, says that `test` is skipped.
pub fn python(test: &str) -> bool {
    let mut command = Command::new("python3");
    command.args(["-c", ""]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let runs = command.status().is_ok_and(|status| status.success());
    if !runs {
        skipped(test, "there is no python3");
    }
    runs
}

/// How a program can be given another root folder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChangeOfRoot {
    Plain,
    /// As the root of a user namespace of its own.
    InNamespace,
    Impossible,
}

/// How that works here; where it does not, says that `test` is skipped.
pub fn change_of_root(test: &str) -> ChangeOfRoot {
    let works = |words: &[&str]| {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    if works(&["chroot", "/", "/bin/true"]) {
        return ChangeOfRoot::Plain;
    }
    if works(&["unshare", "-r", "--", "chroot", "/", "/bin/true"]) {
        return ChangeOfRoot::InNamespace;
    }
    skipped(test, "neither root nor a user namespace is to be had, so no chroot");
    ChangeOfRoot::Impossible
}

/// Whether a program can be process 1 of a namespace here; where not, says that `test` is skipped.
pub fn process_one(test: &str) -> bool {
    let mut command = Command::new("unshare");
    command.args(["-Urpf", "true"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let works = command.status().is_ok_and(|status| status.success());
    if !works {
        skipped(test, "no namespace of processes is to be had");
    }
    works
}

/// Says on the real stderr that a test is skipped: the test runner keeps what the print macros
/// of a passing test write to itself, and it has no word for a test that skips itself.
pub fn skipped(test: &str, why: &str) {
    let _ = writeln!(stderr(), "SKIPPED {test}: {}", why.trim().replace('\n', " / "));
}
