//! The session's collector: the one that `gputrace run` started, or else one of our own.

use core::ffi::{CStr, c_char};
use std::io::Write as _;

use gputrace_producer::held_back::HeldBack;
use gputrace_producer::socket::{NotConnected, Socket};
use gputrace_producer::{collector_process, system};

use crate::process::{environment, settings};
use crate::symbols::originals;

/// Connects to the session's collector, or starts one if no session is given.
pub fn connect(session_path: Option<&CStr>) -> Result<Socket, &'static [u8]> {
    let Some(path) = session_path else {
        return start_collector()
            .ok_or(b"the collector could not be started: set GPUTRACE_COLLECTOR to the gputrace program");
    };
    Socket::connect(path.to_bytes()).map_err(|error| match error {
        NotConnected::Nobody => {
            &b"nobody answers at GPUTRACE_SESSION: `gputrace run` has ended, or sockets are forbidden"[..]
        }
        NotConnected::NotOurs => {
            b"the session at GPUTRACE_SESSION is another user's or open to others: put `gputrace run` behind a \
              change of user"
        }
    })
}

/// Starts `gputrace collect` for auto-collect (LD_PRELOAD alone).
fn start_collector() -> Option<Socket> {
    let mut path = [0u8; 4096];
    let executable: &CStr = match settings::get(settings::COLLECTOR) {
        Some(path) => path,
        None => beside_us(&mut path)?,
    };
    // SAFETY: access only looks at the file; the path is a C string.
    if unsafe { system::access(executable.as_ptr(), libc::X_OK) } != 0 {
        return None;
    }
    let mut pid = [0u8; 16];
    write!(&mut pid[..], "{}\0", system::getpid()).ok()?;
    let arguments = [
        executable.as_ptr(),
        c"collect".as_ptr(),
        c"--fd".as_ptr(),
        c"3".as_ptr(),
        c"--pid".as_ptr(),
        pid.as_ptr().cast(),
        core::ptr::null(),
    ];
    // The environment array is memory that is allocated and freed here.
    let _held_back = HeldBack::new();
    let environment = environment_without(&[b"LD_PRELOAD=", b"GPUTRACE_SESSION=", b"NVTX_INJECTION64_PATH="]);
    // SAFETY: both arrays are null-terminated and live across the call, and so do their strings: those of
    // the environment belong to the program.
    unsafe { collector_process::start(executable, arguments.as_ptr(), environment.as_ptr()) }
}

/// The program's environment without some variables.
fn environment_without(prefixes: &[&[u8]]) -> Vec<*const c_char> {
    let mut kept = Vec::with_capacity(128);
    kept.extend(environment::entries().filter(|entry| {
        // SAFETY: a C string of the environment's.
        let text = unsafe { CStr::from_ptr(*entry) }.to_bytes();
        !prefixes.iter().any(|prefix| text.starts_with(prefix))
    }));
    kept.push(core::ptr::null());
    kept
}

/// The `gputrace` in the folder that this library was loaded from.
fn beside_us(path: &mut [u8; 4096]) -> Option<&CStr> {
    let own = originals::own_path()?.to_bytes();
    let folder = own.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    let name = b"gputrace\0";
    path.get_mut(..folder)?.copy_from_slice(own.get(..folder)?);
    path.get_mut(folder..folder + name.len())?.copy_from_slice(name);
    CStr::from_bytes_until_nul(path).ok()
}
