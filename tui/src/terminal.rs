//! The terminal's state: raw mode and the second screen, restored on every way out.
//!
//! When a signal ends the program, our handler restores both first, then raises the signal again. The handler
//! only writes fixed bytes and sets the saved attributes, since both are async-signal-safe. Beside a program
//! that gets those signals, only faults of our own end us.

use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;
use std::time::Duration;

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen};

use crate::draw::draw;
use crate::palette::{Glyphs, Palette};
use crate::scene::Scene;
use crate::view::View;

/// Signals whose default action ends a program.
const ENDING: [i32; 21] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGSEGV,
    libc::SIGSYS,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGXCPU,
    libc::SIGXFSZ,
    libc::SIGIO,
    libc::SIGPWR,
    libc::SIGSTKFLT,
];
/// Those of them that a fault of this process raises.
const FAULTS: [i32; 4] = [libc::SIGILL, libc::SIGBUS, libc::SIGFPE, libc::SIGSEGV];
/// Shows the second screen, empty, and hides the cursor.
const TAKE: &[u8] = b"\x1b[?1049h\x1b[2J\x1b[?25l";
/// Shows the cursor and leaves the second screen.
const RESTORE: &[u8] = b"\x1b[?25h\x1b[?1049l";

/// More than a frame of 400 columns takes, so that one write draws it.
const FRAME_BYTES: usize = 1 << 18;
/// How long [`Terminal::event`] waits, at most, while the screen is not shown.
const HIDDEN_PAUSE: Duration = Duration::from_millis(100);

/// How long [`restore`] waits, at most, until the terminal accepts output.
const WRITABLE_LIMIT_MS: libc::c_int = 200;

/// The descriptor of the terminal. Set once, before any handler is installed.
static SCREEN: AtomicI32 = AtomicI32::new(libc::STDOUT_FILENO);
/// The attributes before raw mode. Set once, before any handler is installed.
static SAVED: OnceLock<libc::termios> = OnceLock::new();
/// The attributes of raw mode. Set once, before any handler is installed.
static RAW: OnceLock<libc::termios> = OnceLock::new();
/// Whether the screen is blank because the program was stopped and continued: all must be drawn again.
static IS_BLANK: AtomicBool = AtomicBool::new(false);
/// Whether the second screen is shown.
static IS_SHOWN: AtomicBool = AtomicBool::new(false);

/// Why there is no dashboard.
#[derive(Debug)]
pub enum TerminalError {
    /// Stdin or stdout is no terminal.
    NoTerminal,
    System(io::Error),
}

impl fmt::Display for TerminalError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TerminalError::NoTerminal => out.write_str("stdin and stdout are not both a terminal"),
            TerminalError::System(error) => write!(out, "the terminal cannot be used: {error}"),
        }
    }
}

impl std::error::Error for TerminalError {}

impl From<io::Error> for TerminalError {
    fn from(error: io::Error) -> TerminalError {
        TerminalError::System(error)
    }
}

/// A terminal that shows the dashboard. Only one may exist at a time. Dropping it restores the terminal.
pub struct Terminal {
    inner: ratatui::Terminal<CrosstermBackend<BufWriter<File>>>,
    screen: File,
    glyphs: Glyphs,
    palette: Palette,
}

impl Terminal {
    /// Saves the terminal's attributes, sets raw mode and shows the second screen. Every signal that ends
    /// this program restores the terminal first.
    pub fn open(glyphs: Glyphs, palette: Palette) -> Result<Terminal, TerminalError> {
        let (stdin, stdout) = (io::stdin().as_raw_fd(), io::stdout().as_raw_fd());
        // SAFETY: isatty takes plain numbers.
        if unsafe { libc::isatty(stdin) == 0 || libc::isatty(stdout) == 0 } {
            return Err(TerminalError::NoTerminal);
        }
        Terminal::take(stdout, &ENDING, glyphs, palette)
    }

    /// The same on that descriptor, for a caller that passes signals on to a program. Of those signals only
    /// SIGTSTP and faults are handled here; [`restore`] is for the caller's own abort.
    pub fn open_beside_program(
        screen: RawFd,
        glyphs: Glyphs,
        palette: Palette,
    ) -> Result<Terminal, TerminalError> {
        Terminal::take(screen, &FAULTS, glyphs, palette)
    }

    fn take(fd: RawFd, ending: &[i32], glyphs: Glyphs, palette: Palette) -> Result<Terminal, TerminalError> {
        // SAFETY: the caller has this descriptor open, and it is copied at once.
        let screen = File::from(unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned()?);
        let screen_to_draw = BufWriter::with_capacity(FRAME_BYTES, screen.try_clone()?);
        // SAFETY: a termios of zeroes is a valid one.
        let mut saved: libc::termios = unsafe { std::mem::zeroed() };
        // SAFETY: tcgetattr writes one termios, which outlives the call.
        if unsafe { libc::tcgetattr(fd, &raw mut saved) } != 0 {
            return Err(io::Error::last_os_error().into());
        }
        SCREEN.store(fd, Ordering::SeqCst);
        let saved = *SAVED.get_or_init(|| saved);
        let mut raw = saved;
        // SAFETY: cfmakeraw changes the termios that it is given.
        unsafe { libc::cfmakeraw(&raw mut raw) };
        let raw = *RAW.get_or_init(|| raw);
        ending.iter().for_each(|signal| handle(*signal, ends));
        handle(libc::SIGTSTP, stops);
        // SAFETY: tcsetattr reads one termios, which outlives the call.
        if unsafe { libc::tcsetattr(fd, libc::TCSANOW, &raw const raw) } != 0 {
            return Err(io::Error::last_os_error().into());
        }
        IS_SHOWN.store(true, Ordering::SeqCst);
        let opened = execute!(&screen, EnterAlternateScreen, Hide)
            .and_then(|()| ratatui::Terminal::new(CrosstermBackend::new(screen_to_draw)));
        match opened {
            Ok(inner) => Ok(Terminal { inner, screen, glyphs, palette }),
            Err(error) => {
                restore();
                Err(error.into())
            }
        }
    }

    /// Draws, unless another program has the terminal, as after the shell's `bg`.
    pub fn show(&mut self, scene: &Scene, view: &View) -> io::Result<()> {
        let (glyphs, palette) = (self.glyphs, self.palette);
        if !IS_SHOWN.load(Ordering::SeqCst) && !take_again() {
            return Ok(());
        }
        if IS_BLANK.swap(false, Ordering::SeqCst) {
            // Makes ratatui forget what it drew, so that it draws everything again. Not by clear(), which
            // asks the terminal where its cursor is and waits for the answer.
            self.inner.swap_buffers();
        }
        self.inner.draw(|frame| draw(frame, scene, view, &glyphs, palette)).map(drop)
    }

    /// Columns and rows.
    pub fn size(&self) -> Option<(u16, u16)> {
        // SAFETY: a winsize of zeroes is a valid one, which ioctl fills.
        unsafe {
            let mut size: libc::winsize = std::mem::zeroed();
            let found = libc::ioctl(self.screen.as_raw_fd(), libc::TIOCGWINSZ, &raw mut size);
            (found == 0).then_some((size.ws_col, size.ws_row))
        }
    }

    /// Stops the program, as Ctrl-Z does elsewhere; returns when it is continued.
    pub fn stop(&self) {
        // SAFETY: raise takes a plain number.
        unsafe { libc::raise(libc::SIGTSTP) };
    }

    /// Stops the other processes of this process group first, as a terminal does that is not in raw mode.
    pub fn stop_group(&self) {
        // SAFETY: plain numbers and live locals. While SIGTSTP is ignored, kill reaches the others only.
        unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            let mut ignores: libc::sigaction = std::mem::zeroed();
            ignores.sa_sigaction = libc::SIG_IGN;
            libc::sigaction(libc::SIGTSTP, &raw const ignores, &raw mut before);
            libc::kill(0, libc::SIGTSTP);
            libc::sigaction(libc::SIGTSTP, &raw const before, std::ptr::null_mut());
        }
        self.stop();
    }

    /// Waits for a key or another event of the terminal, for `limit` at most.
    pub fn event(&self, limit: Duration) -> io::Result<Option<Event>> {
        if !IS_SHOWN.load(Ordering::SeqCst) {
            // Reading another program's terminal would stop the whole process group.
            thread::sleep(limit.min(HIDDEN_PAUSE));
            return Ok(None);
        }
        if event::poll(limit)? { event::read().map(Some) } else { Ok(None) }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if IS_SHOWN.load(Ordering::SeqCst) {
            let _ = execute!(&self.screen, Show, LeaveAlternateScreen);
        }
        restore();
    }
}

/// Restores the terminal if the second screen is shown. Async-signal-safe: it uses only poll, write,
/// tcsetattr and atomics.
pub extern "C" fn restore() {
    if !IS_SHOWN.swap(false, Ordering::SeqCst) {
        return;
    }
    let screen = SCREEN.load(Ordering::SeqCst);
    let mut polled = libc::pollfd { fd: screen, events: libc::POLLOUT, revents: 0 };
    // Poll first: a write to a terminal that nobody reads would block, and the program could not end. An
    // error of the write is ignored, since there is no other way to restore the screen.
    // SAFETY: poll gets a live pollfd, and write a live buffer and its length.
    unsafe {
        if libc::poll(&raw mut polled, 1, WRITABLE_LIMIT_MS) == 1 {
            libc::write(screen, RESTORE.as_ptr().cast(), RESTORE.len());
        }
    }
    if let Some(saved) = SAVED.get() {
        // SAFETY: tcsetattr reads one termios, which is never changed once it is set.
        unsafe { libc::tcsetattr(screen, libc::TCSANOW, saved) };
    }
}

extern "C" fn ends(signal: libc::c_int) {
    restore();
    // SAFETY: both calls take plain numbers and are async-signal-safe. The signal is blocked
    // while its handler runs, so the raised one is delivered when the handler returns. Its default action
    // then ends the program.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}

extern "C" fn stops(signal: libc::c_int) {
    let was_shown = IS_SHOWN.load(Ordering::SeqCst);
    restore();
    // SAFETY: all calls are async-signal-safe and take plain numbers and live locals. The signal is
    // unblocked first, so raise stops the program at once, and returns when the program is continued.
    unsafe {
        let mut one: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut one);
        libc::sigaddset(&raw mut one, signal);
        libc::signal(signal, libc::SIG_DFL);
        libc::sigprocmask(libc::SIG_UNBLOCK, &raw const one, std::ptr::null_mut());
        libc::raise(signal);
    }
    handle(signal, stops);
    if was_shown {
        take_again();
    }
}

/// Shows the second screen again after a stop, if this process group has the terminal. Async-signal-safe.
fn take_again() -> bool {
    let (screen, Some(raw)) = (SCREEN.load(Ordering::SeqCst), RAW.get()) else { return false };
    // SAFETY: plain numbers. A terminal that is not the controlling one is nobody's: -1.
    let owner = unsafe { libc::tcgetpgrp(screen) };
    // SAFETY: getpgrp takes nothing.
    if owner > 0 && owner != unsafe { libc::getpgrp() } {
        return false;
    }
    IS_SHOWN.store(true, Ordering::SeqCst);
    IS_BLANK.store(true, Ordering::SeqCst);
    // SAFETY: tcsetattr reads one termios, which is never changed once it is set; write gets a live
    // buffer and its length.
    unsafe {
        libc::tcsetattr(screen, libc::TCSANOW, raw);
        libc::write(screen, TAKE.as_ptr().cast(), TAKE.len());
    }
    true
}

/// Installs the handler, unless the signal is ignored: whoever started the program so (nohup, for example)
/// wants it to survive that signal.
fn handle(signal: i32, handler: extern "C" fn(libc::c_int)) {
    // SAFETY: a sigaction of zeroes is a valid one; the calls read and write live structures, and the handler
    // calls only async-signal-safe functions.
    unsafe {
        let mut before: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut before);
        if before.sa_sigaction == libc::SIG_IGN {
            return;
        }
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as libc::sighandler_t;
        // The handler runs on the alternate stack, which Rust gives to each of its threads: after a stack
        // overflow it could not run on the thread's own stack.
        action.sa_flags = libc::SA_ONSTACK;
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaction(signal, &raw const action, std::ptr::null_mut());
    }
}
