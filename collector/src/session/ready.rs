//! What happened on the sockets: one wait for all of them.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// What a turn of the drain thread's loop found, in the order of what was asked about.
pub struct Ready {
    pub listener: bool,
    /// Peers that have not said hello.
    pub pending: Vec<bool>,
    /// Processes whose connection has something to say.
    pub tracked: Vec<bool>,
    /// Processes that are dead.
    pub dead: Vec<bool>,
}

/// A process's descriptors, as far as there are any.
#[derive(Clone, Copy)]
pub struct ProcessSockets<'a> {
    pub connection: Option<&'a OwnedFd>,
    /// Readable once the process is dead.
    pub watch: Option<&'a OwnedFd>,
}

/// Whether something is there to be read now.
pub fn is_readable(fd: &OwnedFd) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
}

impl Ready {
    /// Sleeps until something happens or the time is up.
    pub fn wait(
        wake: &OwnedFd,
        listener: Option<&OwnedFd>,
        pending: &[&OwnedFd],
        tracked: &[ProcessSockets<'_>],
        pause: Duration,
    ) -> Ready {
        // Where there is no descriptor, the wake descriptor stands in and is not looked at.
        let asked = std::iter::once(wake)
            .chain(std::iter::once(listener.unwrap_or(wake)))
            .chain(pending.iter().copied())
            .chain(tracked.iter().map(|process| process.connection.unwrap_or(wake)))
            .chain(tracked.iter().map(|process| process.watch.unwrap_or(wake)));
        let mut fds: Vec<_> = asked.map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)).collect();
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(pause.subsec_nanos()) };
        let known = match poll(&mut fds, Some(&timeout)) {
            Ok(_) => true,
            Err(errno) => {
                // Short of memory, most likely; asking again at once would not make more.
                if errno != Errno::INTR {
                    std::thread::sleep(pause);
                }
                false
            }
        };
        // If nothing is known, every socket is looked at: none of them makes us wait.
        let mut flags = fds.iter().map(|fd| !known || !fd.revents().is_empty()).skip(1);
        let listener = flags.next().unwrap_or(false) && listener.is_some();
        let pending = flags.by_ref().take(pending.len()).collect();
        let connections = flags.by_ref().take(tracked.len()).collect::<Vec<_>>();
        let both = |flag: bool, fd: Option<&OwnedFd>| flag && fd.is_some();
        Ready {
            listener,
            pending,
            dead: tracked.iter().zip(flags).map(|(p, flag)| known && both(flag, p.watch)).collect(),
            tracked: tracked.iter().zip(connections).map(|(p, flag)| both(flag, p.connection)).collect(),
        }
    }
}
