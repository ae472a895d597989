//! Waits for events on all sockets at once.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Which descriptors are ready, in the order in which they were passed.
pub struct Ready {
    pub listener: bool,
    /// Peers that have not sent hello.
    pub pending: Vec<bool>,
    /// Processes whose connection is readable.
    pub tracked: Vec<bool>,
    /// Processes that are dead.
    pub dead: Vec<bool>,
}

/// A process's descriptors.
#[derive(Clone, Copy)]
pub struct ProcessSockets<'a> {
    pub connection: Option<&'a OwnedFd>,
    /// Readable once the process is dead.
    pub watch: Option<&'a OwnedFd>,
}

/// Whether the descriptor is readable now.
pub fn is_readable(fd: &OwnedFd) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
}

impl Ready {
    /// Sleeps until a descriptor is ready, or until the time is up.
    pub fn wait(
        wake: &OwnedFd,
        listener: Option<&OwnedFd>,
        pending: &[&OwnedFd],
        tracked: &[ProcessSockets<'_>],
        pause: Duration,
    ) -> Ready {
        // The wake descriptor replaces a descriptor that is missing; its result is ignored there.
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
                // Most likely for lack of memory: another call at once would fail too.
                if errno != Errno::INTR {
                    std::thread::sleep(pause);
                }
                false
            }
        };
        // After an error every socket counts as ready: receiving never blocks.
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
