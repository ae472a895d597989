//! A terminal of the traced program's own, for as long as ours shows the screen of `run --live`.
//!
//! The program stays in our process group and keeps its controlling terminal: the shell's job control sees
//! one job, as without --live, and what outlives the program is sent no SIGHUP. Only those of stdin, stdout
//! and stderr that are terminals become the new one, which has the size and the settings of ours.

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::null_mut;

/// What stdin, stdout and stderr become; `None` stays as it is.
pub type Streams = [Option<OwnedFd>; 3];

/// Whether stdin, stdout and stderr are terminals.
pub fn terminals() -> [bool; 3] {
    // SAFETY: isatty takes a plain number.
    [0, 1, 2].map(|fd| unsafe { libc::isatty(fd) } == 1)
}

/// Our end of the program's terminal.
#[derive(Debug)]
pub struct Pty {
    ours: OwnedFd,
    /// Columns and rows that it began with.
    pub first_size: (u16, u16),
    /// Whether the program's stdin is this terminal.
    pub has_stdin: bool,
}

impl Pty {
    /// A terminal like `screen`, and the program's streams on it.
    pub fn open(screen: RawFd) -> io::Result<(Pty, Streams)> {
        // SAFETY: zeroed termios and winsize are valid values, filled by the calls; openpty writes two
        // descriptors, which are then ours.
        let (ours, theirs, first_size) = unsafe {
            let (mut settings, mut size): (libc::termios, libc::winsize) = (zeroed(), zeroed());
            check(libc::tcgetattr(screen, &raw mut settings))?;
            check(libc::ioctl(screen, libc::TIOCGWINSZ, &raw mut size))?;
            // So that the log has the lines as the program wrote them.
            settings.c_oflag &= !libc::OPOST;
            let (mut ours, mut theirs) = (-1, -1);
            let (settings, size) = (&raw const settings, &raw const size);
            check(libc::openpty(&raw mut ours, &raw mut theirs, null_mut(), settings, size))?;
            let first_size = ((*size).ws_col, (*size).ws_row);
            (OwnedFd::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs), first_size)
        };
        for fd in [&ours, &theirs] {
            // SAFETY: plain numbers.
            check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) })?;
        }
        let moved = terminals();
        let mut streams = [None, None, None];
        for (stream, is_moved) in streams.iter_mut().zip(moved) {
            *stream = is_moved.then(|| theirs.try_clone()).transpose()?;
        }
        Ok((Pty { ours, first_size, has_stdin: moved[0] }, streams))
    }

    /// Gives the terminal another size, and tells the process group, as a terminal does.
    pub fn resize(&self, columns: u16, rows: u16) {
        let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: ioctl reads a live winsize; kill takes plain numbers. Our own handler knows that the signal
        // is ours and passes nothing on.
        unsafe {
            libc::ioctl(self.ours.as_raw_fd(), libc::TIOCSWINSZ, &raw const size);
            libc::kill(0, libc::SIGWINCH);
        }
    }

    /// What the control character of a pressed key does: in a terminal that makes signals of them it signals
    /// the process group, of which the program is part, and otherwise the program reads it.
    pub fn press(&self, byte: u8) {
        let signal = match byte {
            0x03 => Some(libc::SIGINT),
            0x1c => Some(libc::SIGQUIT),
            _ => None,
        };
        match signal.filter(|_| self.settings().is_none_or(|settings| settings.c_lflag & libc::ISIG != 0)) {
            // SAFETY: kill takes plain numbers. Our own handler knows that the signal is ours.
            Some(signal) => drop(unsafe { libc::kill(0, signal) }),
            None => self.write(&[byte]),
        }
    }

    /// What the program reads. What its terminal does not take is lost, as typed letters are elsewhere.
    pub fn write(&self, bytes: &[u8]) {
        if self.has_stdin && self.is_ready(libc::POLLOUT, 0) {
            // SAFETY: a live buffer and its length.
            unsafe { libc::write(self.ours.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
        }
    }

    /// The next bytes that the program wrote: `None` if there are none so far, empty if nobody has the
    /// terminal open any more.
    pub fn read<'b>(&self, buffer: &'b mut [u8], limit_ms: libc::c_int) -> Option<&'b [u8]> {
        if !self.is_ready(libc::POLLIN, limit_ms) {
            return None;
        }
        // SAFETY: a live buffer and its length.
        let count = unsafe { libc::read(self.ours.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
        if count < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted {
            return None;
        }
        buffer.get(..usize::try_from(count).unwrap_or(0))
    }

    /// From now on it does not show what it reads: our terminal does.
    pub fn hide_input(&self) {
        if let Some(mut settings) = self.settings() {
            settings.c_lflag &= !libc::ECHO;
            // SAFETY: tcsetattr reads a live termios.
            unsafe { libc::tcsetattr(self.ours.as_raw_fd(), libc::TCSANOW, &raw const settings) };
        }
    }

    fn settings(&self) -> Option<libc::termios> {
        // SAFETY: a zeroed termios is a valid value, which tcgetattr fills.
        unsafe {
            let mut settings: libc::termios = zeroed();
            (libc::tcgetattr(self.ours.as_raw_fd(), &raw mut settings) == 0).then_some(settings)
        }
    }

    fn is_ready(&self, events: libc::c_short, limit_ms: libc::c_int) -> bool {
        is_ready(self.ours.as_raw_fd(), events, limit_ms)
    }
}

/// Whether one of the events comes within so many milliseconds, or the other end has gone.
pub fn is_ready(fd: RawFd, events: libc::c_short, limit_ms: libc::c_int) -> bool {
    let mut polled = libc::pollfd { fd, events, revents: 0 };
    // SAFETY: a live pollfd, and one of them.
    unsafe { libc::poll(&raw mut polled, 1, limit_ms) == 1 }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
