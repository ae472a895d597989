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

/// Says on the real stderr that a test is skipped: the test runner keeps what the print macros
/// of a passing test write to itself, and it has no word for a test that skips itself.
pub fn skipped(test: &str, why: &str) {
    let _ = writeln!(stderr(), "SKIPPED {test}: {}", why.trim().replace('\n', " / "));
}
