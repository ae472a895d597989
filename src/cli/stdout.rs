//! Data goes to stdout. A reader that went away (`| head`) is no error and is not reported.

use std::io::{self, Write};

use crate::cli::exit_code;
use crate::cli::failure::{Failure, reason};

/// Writes all of it to stdout and flushes.
pub fn print(data: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(data).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            let failure = Failure::new(format!("cannot write to stdout: {}", reason(&error)));
            Err(failure.code(exit_code::collector::WRITE_FAILED))
        }
        _ => Ok(()),
    }
}
