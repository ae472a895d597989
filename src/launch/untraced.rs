//! The command by itself, where it cannot be traced: what it is there for matters more.

use std::ffi::OsString;
use std::io;
use std::process::ExitStatus;

use crate::launch::{child, signals};

/// Runs it with what we were given and nothing else. The outer error: it could not be started.
pub fn run(command: &[OsString]) -> io::Result<io::Result<ExitStatus>> {
    let before = signals::take_over();
    let program = child::start(command, &[], before).inspect_err(|_| before.restore())?;
    let status = program.wait(|_, _| {});
    before.restore();
    Ok(status)
}
