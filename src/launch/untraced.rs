//! The command by itself, where it cannot be traced: what it is there for matters more.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::launch::{descriptors, inherited, signals};

/// Becomes the command, with `environment` laid over ours and otherwise with what this program was started
/// with: no other process and no further descriptor is needed. Returns only if the command cannot be started.
pub fn become_the_command(command: &[OsString], environment: &[(&str, OsString)]) -> io::Error {
    let [program, arguments @ ..] = command else { return io::ErrorKind::InvalidInput.into() };
    signals::restore_inherited();
    descriptors::restore_for_program();
    inherited::close_again();
    let environment = environment.iter().map(|(name, value)| (name, value));
    Command::new(program).args(arguments).envs(environment).exec()
}
