//! What is defined of a process when its session starts.

use core::ffi::{CStr, c_int};

use gputrace_producer::session::Session;
use gputrace_producer::system;
use gputrace_wire::definition::{kind, library_role};

use crate::process::{origin, rank, settings};
use crate::symbols::{driver, originals};
use crate::table::device;
use crate::table::tables::Tables;

/// Defines the process, its driver and its devices. Returns the driver's version and whether it is simulated.
pub fn define(session: &Session, tables: &Tables, command: &[u8]) -> (c_int, bool) {
    let mut version = 0;
    driver::driver_version(&mut version);
    let parent = system::getppid();
    let simulated = device::is_simulated();
    let [rank, local_rank] = rank::fields();
    let fields = [
        session.pid as u64,
        parent as u64,
        version as u64,
        u64::from(simulated),
        rank,
        local_rank,
        u64::from(redacts()),
    ];
    session.define(kind::PROCESS, &fields, command);
    origin::define(session, redacts());
    let driver = originals::path_of(originals::find_in_driver("cuInit\0")).map_or(&b""[..], CStr::to_bytes);
    session.define(kind::LIBRARY, &[library_role::DRIVER, version as u64], driver);
    let mut count = 0;
    driver::device_count(&mut count);
    for ordinal in 0..count {
        tables.device(session, ordinal);
    }
    (version, simulated)
}

/// The command line, redacted if the user asked for that. The redacted form is the first word only: a
/// process that sets its title has all its arguments in its first argument.
pub fn command_line(buffer: &mut [u8; 4096]) -> &[u8] {
    const TAKEN_OUT: &[u8] = b"\0[redacted]";
    let length = system::read_file(c"/proc/self/cmdline", buffer.as_mut_slice()).map_or(0, <[u8]>::len);
    let line = buffer.get(..length).unwrap_or_default();
    let word = line.iter().position(|byte| *byte == 0 || byte.is_ascii_whitespace());
    match word {
        Some(end) if redacts() && end + 1 < length => match buffer.get_mut(end..end + TAKEN_OUT.len()) {
            Some(target) => {
                target.copy_from_slice(TAKEN_OUT);
                buffer.get(..end + TAKEN_OUT.len()).unwrap_or_default()
            }
            None => buffer.get(..end).unwrap_or_default(),
        },
        _ => buffer.get(..length).unwrap_or_default(),
    }
}

/// Whether command lines, and titles that are set later, are reduced to the program's name.
fn redacts() -> bool {
    settings::get(settings::REDACT).is_some() && !settings::is_off(settings::REDACT)
}
