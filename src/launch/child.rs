//! The traced program as a child process: started with nothing of ours but the environment it
//! is given, waited for, and reaped only when no signal can be sent to its number any more.

use std::ffi::OsString;
use std::io;
use std::mem::zeroed;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};

use crate::launch::pty::Streams;
use crate::launch::signals::{self, Before};
use crate::launch::{descriptors, inherited};

#[derive(Debug)]
pub struct Program {
    child: Child,
}

/// Starts `command` with `environment` laid over ours, the signal state of `before`, and `streams` in place
/// of our stdin, stdout and stderr.
pub fn start(
    command: &[OsString],
    environment: &[(&str, OsString)],
    before: Before,
    streams: Streams,
) -> io::Result<Program> {
    let [program, arguments @ ..] = command else { return Err(io::ErrorKind::InvalidInput.into()) };
    let mut builder = Command::new(program);
    builder.args(arguments).envs(environment.iter().map(|(name, value)| (name, value)));
    let attach = [Command::stdin::<Stdio>, Command::stdout::<Stdio>, Command::stderr::<Stdio>];
    for (attach, stream) in attach.into_iter().zip(streams) {
        if let Some(stream) = stream {
            attach(&mut builder, stream.into());
        }
    }
    // SAFETY: the closure runs between fork and exec and makes async-signal-safe calls only:
    // sigaction, pthread_sigmask, signal, setrlimit and close on plain copied data.
    unsafe {
        builder.pre_exec(move || {
            before.restore_for_program();
            descriptors::restore_for_program();
            inherited::close_again();
            Ok(())
        });
    }
    let child = {
        let _held = signals::hold();
        builder.spawn()?
    };
    signals::program_started(child.id().cast_signed());
    Ok(Program { child })
}

impl Program {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the program has ended. `ended` gets its process id, and the signal that killed it,
    /// before it is reaped.
    pub fn wait(mut self, ended: impl FnOnce(u32, Option<i32>)) -> io::Result<ExitStatus> {
        loop {
            // SAFETY: `info` is zeroed plain data that waitid fills. WNOWAIT leaves the process
            // to be reaped below, after its number has been forgotten.
            let (rc, signal) = unsafe {
                let mut info: libc::siginfo_t = zeroed();
                let rc =
                    libc::waitid(libc::P_PID, self.child.id(), &raw mut info, libc::WEXITED | libc::WNOWAIT);
                let killed = matches!(info.si_code, libc::CLD_KILLED | libc::CLD_DUMPED);
                (rc, killed.then(|| info.si_status()))
            };
            if rc == 0 {
                ended(self.child.id(), signal);
                break;
            }
            if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                break;
            }
        }
        signals::program_ended();
        self.child.wait()
    }
}
