//! The control socket of a session, where `gputrace ctl` asks for its status and for dumps.
//!
//! One thread waits for it and for the flight recorder's signal. The socket lies in the session's
//! private folder, and who connects must be this user: what programs do is nobody else's business.
//! A question is a line of one word, or `set KEY=VALUE`; the answer is one JSON document.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use gputrace_collector::flight_recorder::DumpReason;
use gputrace_collector::live::LiveView;
use gputrace_collector::otlp::Sender;
use gputrace_collector::session::{Handle, OrderedBy, is_own_peer, listen_for_talk};
use serde_json::{Value, json};

use crate::launch::live_settings::{Change, LiveSettings};

/// The socket's name in the session's folder.
pub const SOCKET: &str = "control";
pub const STATUS: &str = "status";
pub const DUMP: &str = "dump";
/// Makes the session's programs record, or pauses them.
pub const START: &str = "start";
pub const STOP: &str = "stop";
/// Changes a setting; `KEY=VALUE` follows.
pub const SET: &str = "set";
/// How long programs may take to begin, to pause, or to change a setting.
pub const CHANGE_LIMIT: Duration = Duration::from_secs(10);
/// Asks for the live tables, which `gputrace top` shows.
pub const TABLES: &str = "tables";
/// How long a dump may take that somebody waits for.
pub const DUMP_LIMIT: Duration = Duration::from_secs(60);
/// How long a client may take to send its question, and to read the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Questions that are answered at a time.
const ASKING_MAX: usize = 8;
const QUESTION_BYTES_MAX: usize = 64;
/// The pause after a connection could not be accepted: there are no descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What the session is, for those who ask.
#[derive(Debug)]
pub struct About {
    /// `run` or `collect`.
    pub kind: &'static str,
    /// What is run; empty where programs come by themselves.
    pub command: Vec<String>,
    pub output: PathBuf,
    /// Has the status of sending by OTLP, where it is used.
    pub sender: Option<Sender>,
    /// The live tables; empty where the model does not run live.
    pub live_view: Arc<LiveView>,
    pub settings: LiveSettings,
}

/// The socket in a session's folder.
pub fn listen(folder: &Path) -> io::Result<UnixListener> {
    listen_for_talk(folder, SOCKET).map_err(|error| io::Error::other(error.to_string()))
}

/// The thread that answers. Dropping this value ends it.
#[derive(Debug)]
pub struct Control {
    stop: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

impl Control {
    /// Answers at `listener`. `dumps` becomes readable when a dump is wanted by signal.
    pub fn start(
        listener: Option<UnixListener>,
        dumps: Option<OwnedFd>,
        about: About,
        handle: Handle,
    ) -> io::Result<Control> {
        // SAFETY: eventfd takes plain numbers, and what it returns is ours if it is a descriptor.
        let stop = unsafe {
            let stop = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
            if stop < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(stop)
        };
        let stopped = stop.try_clone()?;
        let builder = Builder::new().name("gputrace-control".into());
        let thread = builder
            .spawn(move || serve(listener.as_ref(), dumps.as_ref(), &stopped, &Arc::new(about), &handle))?;
        Ok(Control { stop, thread: Some(thread) })
    }
}

impl Drop for Control {
    /// Those who were asking still get their answer.
    fn drop(&mut self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: a live buffer of eight bytes and a descriptor of ours.
        unsafe { libc::write(self.stop.as_raw_fd(), one.as_ptr().cast(), one.len()) };
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(
    listener: Option<&UnixListener>,
    dumps: Option<&OwnedFd>,
    stop: &OwnedFd,
    about: &Arc<About>,
    handle: &Handle,
) {
    let mut answering: Vec<JoinHandle<()>> = Vec::new();
    let dumps = dumps.map_or(-1, AsRawFd::as_raw_fd);
    let connections = listener.map_or(-1, AsRawFd::as_raw_fd);
    let mut deaf_until: Option<Instant> = None;
    loop {
        // Waiting clients keep the socket readable, so it is not polled during the pause.
        let pause = deaf_until.and_then(|until| until.checked_duration_since(Instant::now()));
        let connections = if pause.is_some() { -1 } else { connections };
        let [connects, dump, stops] = wait([connections, dumps, stop.as_raw_fd()], pause);
        if stops {
            break;
        }
        if dump {
            let mut count = [0; 8];
            // SAFETY: a live buffer of eight bytes; the counter does not block.
            unsafe { libc::read(dumps, count.as_mut_ptr().cast(), count.len()) };
            handle.dump(DumpReason::Signal);
        }
        answering.retain(|thread| !thread.is_finished());
        if !connects {
            continue;
        }
        let Some(accepted) = listener.map(UnixListener::accept) else { continue };
        if let Err(error) = &accepted
            && !matches!(
                error.kind(),
                io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionAborted
            )
        {
            deaf_until = Some(Instant::now() + ACCEPT_PAUSE);
        }
        if let Ok((peer, _)) = accepted {
            let peer = OwnedFd::from(peer);
            if !is_own_peer(&peer) || answering.len() >= ASKING_MAX {
                continue;
            }
            let (about, handle) = (Arc::clone(about), handle.clone());
            let answer = move || drop(answer(peer.into(), &about, &handle));
            answering.extend(Builder::new().name("gputrace-answer".into()).spawn(answer));
        }
    }
    answering.into_iter().for_each(|thread| drop(thread.join()));
}

/// Which of the descriptors can be read, after so long at most; -1 stands for none.
fn wait(fds: [RawFd; 3], limit: Option<Duration>) -> [bool; 3] {
    let limit_ms = limit.map_or(-1, |limit| libc::c_int::try_from(limit.as_millis() + 1).unwrap_or(-1));
    let mut polled = fds.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    // SAFETY: a live array and its length.
    let found = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, limit_ms) };
    polled.map(|polled| found > 0 && polled.revents != 0)
}

/// Reads one line. Whoever sends it byte by byte has no more time than others.
fn question(mut peer: &UnixStream) -> io::Result<String> {
    let deadline = Instant::now() + PATIENCE;
    let mut line = Vec::new();
    while line.len() < QUESTION_BYTES_MAX && !line.ends_with(b"\n") {
        let rest = deadline.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        peer.set_read_timeout(Some(rest))?;
        let mut byte = [0];
        match peer.read(&mut byte) {
            Ok(0) => break,
            Ok(_) => line.push(byte[0]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    String::from_utf8(line).map_err(io::Error::other)
}

fn answer(peer: UnixStream, about: &About, handle: &Handle) -> io::Result<()> {
    peer.set_write_timeout(Some(PATIENCE))?;
    let question = question(&peer)?;
    let question = question.trim_end();
    if let Some(change) = question.strip_prefix(SET).and_then(|rest| rest.strip_prefix(' ')) {
        let answer =
            Change::parse(change).and_then(|change| about.settings.set(change, handle, CHANGE_LIMIT));
        let answer = answer.unwrap_or_else(|why| json!({ "error": why }));
        return (&peer).write_all(format!("{answer}\n").as_bytes());
    }
    let answer = match question {
        STATUS => status(about, handle),
        TABLES => json!({ "tables": about.live_view.tables() }),
        START | STOP => {
            let change = handle.set_recording(question == START, OrderedBy::Ctl, CHANGE_LIMIT);
            serde_json::to_value(change).unwrap_or_default()
        }
        DUMP => match handle.dump_and_wait(DumpReason::Request, DUMP_LIMIT) {
            Ok(path) => json!({ "dump": std::path::absolute(&path).unwrap_or(path) }),
            Err(why) => json!({ "error": why }),
        },
        _ => json!({ "error": "it does not know that question" }),
    };
    (&peer).write_all(format!("{answer}\n").as_bytes())
}

fn status(about: &About, handle: &Handle) -> Value {
    // Brings what processes report up to date.
    let recording = serde_json::to_value(handle.status()).unwrap_or_default();
    json!({
        "pid": std::process::id(),
        "kind": about.kind,
        "command": about.command,
        "settings": about.settings.values(handle),
        "state": serde_json::to_value(handle.recording_now()).unwrap_or_default(),
        "output": std::path::absolute(&about.output).unwrap_or_else(|_| about.output.clone()),
        "resident_bytes": resident_bytes(),
        "otlp": about.sender.as_ref().and_then(|sender| serde_json::to_value(sender.status()).ok()),
        "recording": recording,
    })
}

/// The memory of this process that is in use now.
fn resident_bytes() -> Option<u64> {
    let pages: u64 = fs::read_to_string("/proc/self/statm").ok()?.split(' ').nth(1)?.parse().ok()?;
    // SAFETY: sysconf takes a plain number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    Some(pages * u64::try_from(page).ok()?)
}

/// Asks a session. An answer longer than any that it gives is cut off.
pub fn ask(socket: &Path, question: &str, limit: Duration) -> io::Result<Value> {
    const ANSWER_BYTES_MAX: u64 = 4 << 20;
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))?;
    stream.write_all(format!("{question}\n").as_bytes())?;
    let mut answer = String::new();
    stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer)?;
    serde_json::from_str(&answer).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who asks byte by byte holds a session's end up for no longer than who asks nothing.
    #[test]
    fn question_has_one_deadline() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let slow = std::thread::spawn(move || {
            while theirs.write_all(b"s").is_ok() {
                std::thread::sleep(PATIENCE / 8);
            }
        });
        let begin = Instant::now();
        question(&ours).unwrap_err();
        // By reads alone it would be sixty-four of them.
        assert!(begin.elapsed() < 3 * PATIENCE, "{:?}", begin.elapsed());
        drop(ours);
        slow.join().unwrap();
    }

    #[test]
    fn question_is_a_line_or_what_there_is() {
        for (sent, heard) in [("status\ndump\n", "status\n"), ("dump", "dump"), ("", "")] {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            theirs.write_all(sent.as_bytes()).unwrap();
            drop(theirs);
            assert_eq!(question(&ours).unwrap(), heard);
        }
    }
}
