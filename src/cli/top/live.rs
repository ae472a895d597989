//! `run --live`: the screen of `top` for the program just started, whose output goes to a file meanwhile.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use gputrace_tui::{Palette, Tab, Terminal, View};

use super::sessions::Sessions;
use crate::cli::failure::{Failure, reason};
use crate::cli::output_folder::{OUTPUT_LOG, OutputFolder};
use crate::cli::talk::{self, say, say_text};
use crate::cli::{exit_code, printable};
use crate::launch::pty::{self, Pty, Streams};
use crate::launch::signals;

/// How often the screen is drawn.
const INTERVAL: Duration = Duration::from_millis(500);
/// How long keys and output are waited for before the program's end is looked for.
pub const LOOKS_EVERY: Duration = Duration::from_millis(100);
const LOOKS_EVERY_MS: libc::c_int = 100;
/// What processes that outlive the program write is waited for no longer than this.
const LAST_OUTPUT: Duration = Duration::from_millis(500);
/// How long the end waits for a terminal that takes nothing.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);
/// How much of the program's output is shown once the screen is gone.
const LAST_LINES: usize = 10;
const LAST_BYTES: u64 = 4096;

/// The failure of `--live` without any terminal.
pub fn refusal() -> Option<Failure> {
    let has_one = pty::terminals().contains(&true);
    (!has_one).then(|| {
        Failure::new("run --live needs a terminal, and none of stdin, stdout and stderr is one")
            .hint("leave --live out; gputrace top shows the program from another terminal")
            .code(exit_code::USAGE)
    })
}

/// The program's terminal, before there is a program.
#[derive(Debug)]
pub struct Prepared {
    running: Running,
    log: File,
    /// To be given to the program.
    pub streams: Streams,
}

impl Prepared {
    pub fn new(folder: &OutputFolder) -> Result<Prepared, Failure> {
        let log = folder.create(OUTPUT_LOG)?;
        let screen = [1, 2, 0].into_iter().find(|fd| pty::terminals()[*fd]).unwrap_or(1);
        let screen = RawFd::try_from(screen).unwrap_or(1);
        let (pty, streams) = Pty::open(screen).map_err(|error| {
            Failure::new(format!("cannot make a terminal for the command: {}", reason(&error)))
        })?;
        let running = Running {
            size: Mutex::new(pty.first_size),
            pty,
            screen,
            log: folder.file(OUTPUT_LOG),
            has_ended: AtomicBool::new(false),
            shows_output: AtomicBool::new(false),
        };
        Ok(Prepared { running, log, streams })
    }

    /// Shows the screen until the returned value is dropped. The program runs on whatever becomes of it.
    pub fn start(self, session: &Path) -> Showing {
        let Prepared { running, log, streams } = self;
        // The program has its own copies, and the log ends when the last one is closed.
        drop(streams);
        signals::before_own_abort(gputrace_tui::restore);
        let running = Arc::new(running);
        let held = talk::hold();
        let session = session.to_owned();
        let screen = spawned("gputrace-screen", &running, move |running| {
            running.show(&session);
            drop(held);
            running.relay();
        });
        let output = spawned("gputrace-output", &running, move |running| running.keep_output(log));
        Showing { running, ended: [screen, output] }
    }
}

/// A thread with that name; the receiver hears when it ends.
fn spawned(name: &str, running: &Arc<Running>, work: impl FnOnce(&Running) + Send + 'static) -> Receiver<()> {
    let (sender, ended) = mpsc::channel();
    let running = Arc::clone(running);
    let work = move || {
        work(&running);
        drop(sender);
    };
    if let Err(error) = thread::Builder::new().name(name.into()).spawn(work) {
        say(format_args!("gputrace: warning: cannot start a thread for --live: {}", reason(&error)));
    }
    ended
}

/// The screen is shown; dropping this restores the terminal, since the program has ended.
#[derive(Debug)]
pub struct Showing {
    running: Arc<Running>,
    /// Hears the ends of both threads.
    ended: [Receiver<()>; 2],
}

impl Drop for Showing {
    fn drop(&mut self) {
        self.running.has_ended.store(true, Ordering::SeqCst);
        for thread in &self.ended {
            // Nothing is ever sent: the wait ends with the thread.
            let _ = thread.recv_timeout(CLOSE_LIMIT);
        }
        gputrace_tui::restore();
        if !self.running.shows_output() {
            self.running.print_last_lines("the command's last output");
        }
    }
}

/// What both threads share.
#[derive(Debug)]
pub struct Running {
    pty: Pty,
    /// The descriptor of our terminal.
    screen: RawFd,
    log: PathBuf,
    has_ended: AtomicBool,
    /// Whether the user left the screen: then the output goes to the terminal as well.
    shows_output: AtomicBool,
    /// The size that the program's terminal was given last.
    size: Mutex<(u16, u16)>,
}

impl Running {
    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::SeqCst)
    }

    fn shows_output(&self) -> bool {
        self.shows_output.load(Ordering::SeqCst)
    }

    pub fn press(&self, byte: u8) {
        self.pty.press(byte);
    }

    /// Gives the program's terminal the size of ours, where that has changed.
    pub fn fit(&self, size: Option<(u16, u16)>) {
        let mut last = self.size.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(size) = size.filter(|size| *size != *last) {
            *last = size;
            self.pty.resize(size.0, size.1);
        }
    }

    /// The screen, until the program ends or the user leaves.
    fn show(&self, session: &Path) {
        let palette = Palette::new(super::wants_colours());
        let result = match Terminal::open_beside_program(self.screen, super::glyphs(), palette) {
            Ok(mut terminal) => {
                let sessions = Sessions::start(INTERVAL, Some(session.to_owned()));
                let view = View { tab: Tab::Kernels, is_of_program: true, ..View::default() };
                super::watch(&mut terminal, INTERVAL, &sessions, view, Some(self))
            }
            Err(error) => Err(Failure::new(error.to_string())),
        };
        if let Err(failure) = result {
            say(format_args!("gputrace: warning: no screen: {}", failure.message));
        }
    }

    /// Passes typed lines to the program once the screen is gone; signals come from the terminal itself.
    fn relay(&self) {
        if self.has_ended() {
            return;
        }
        self.print_last_lines("the command goes on; its last output");
        self.shows_output.store(true, Ordering::SeqCst);
        if !self.pty.has_stdin {
            return;
        }
        self.pty.hide_input();
        let mut line = [0; 4096];
        while !self.has_ended() {
            if !pty::is_ready(libc::STDIN_FILENO, libc::POLLIN, LOOKS_EVERY_MS) {
                continue;
            }
            // SAFETY: both take plain numbers.
            let is_in_foreground =
                unsafe { libc::tcgetpgrp(0) <= 0 || libc::tcgetpgrp(0) == libc::getpgrp() };
            if !is_in_foreground {
                thread::sleep(LOOKS_EVERY);
                continue;
            }
            match io::stdin().read(&mut line) {
                // Ctrl-D at the begin of a line.
                Ok(0) => self.pty.write(&[0x04]),
                Ok(count) => self.pty.write(line.get(..count).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }

    /// Writes what the program writes to the log, and to the terminal once the screen is gone.
    fn keep_output(&self, mut log: File) {
        let (mut buffer, mut lost, mut problem) = (vec![0; 1 << 16], 0, None);
        let mut end: Option<Instant> = None;
        loop {
            if self.has_ended() && end.is_none() {
                end = Some(Instant::now() + LAST_OUTPUT);
            }
            let limit_ms = if end.is_some() { 0 } else { LOOKS_EVERY_MS };
            let is_over = end.is_some_and(|end| Instant::now() > end);
            match self.pty.read(&mut buffer, limit_ms) {
                Some([]) => break,
                None if end.is_some() => break,
                Some(_) if is_over => break,
                None => {}
                Some(bytes) => {
                    if self.shows_output() {
                        say_bytes(self.screen, bytes);
                    }
                    if let Err(error) = log.write_all(bytes) {
                        (lost, problem) = (lost + bytes.len(), Some(error));
                    }
                }
            }
        }
        if let Some(error) = problem {
            say(format_args!("gputrace: warning: {OUTPUT_LOG} lacks {lost} bytes: {}", reason(&error)));
        }
    }

    fn print_last_lines(&self, what: &str) {
        let path = printable::name(&self.log);
        match last_lines(&self.log) {
            Ok(lines) if !lines.is_empty() => {
                say(format_args!("gputrace: {what} (all of it is in {path}):"));
                say_text(&lines);
            }
            Ok(_) => say(format_args!("gputrace: the command has written nothing to the terminal so far")),
            Err(error) => say(format_args!("gputrace: warning: cannot read {path}: {}", reason(&error))),
        }
    }
}

fn last_lines(log: &Path) -> io::Result<String> {
    let mut file = File::open(log)?;
    let length = fs::metadata(log)?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LAST_BYTES)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let mut lines: Vec<&str> = text.lines().rev().take(LAST_LINES).collect();
    lines.reverse();
    Ok(lines.iter().flat_map(|line| [*line, "\n"]).collect())
}

/// Writes to the terminal as much as it takes.
fn say_bytes(screen: RawFd, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        // SAFETY: a live buffer and its length.
        let count = unsafe { libc::write(screen, bytes.as_ptr().cast(), bytes.len()) };
        match usize::try_from(count) {
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(_) if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}
