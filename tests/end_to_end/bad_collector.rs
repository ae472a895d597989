//! Something else than a collector at the session's socket: the program does not notice.

use std::io::Write;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gputrace_wire::handshake::{Head, TEXT_MAX, kind, welcome};

use crate::harness::folder::Folder;
use crate::harness::tool;

/// Listens as a collector does, and answers whoever connects by what `answer` does to it, again
/// and again until the test ends.
struct Impostor {
    path: PathBuf,
    over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<usize>>,
}

impl Impostor {
    fn start(folder: &Folder, answer: impl Fn(i32) -> bool + Send + 'static) -> Impostor {
        let directory = folder.join("session");
        std::fs::DirBuilder::new().mode(0o700).create(&directory).unwrap();
        let path = directory.join("socket");
        let listener = listen(&path);
        let over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            let mut peers: Vec<OwnedFd> = Vec::new();
            let mut connections = 0;
            while !ends.load(Ordering::Relaxed) {
                // SAFETY: the listener is open; what comes of it is a new descriptor.
                let peer = unsafe {
                    libc::accept4(
                        listener.as_raw_fd(),
                        std::ptr::null_mut(),
                        std::ptr::null_mut(),
                        libc::SOCK_CLOEXEC,
                    )
                };
                if peer >= 0 {
                    connections += 1;
                    // SAFETY: as above.
                    peers.push(unsafe { OwnedFd::from_raw_fd(peer) });
                }
                peers.retain(|peer| answer(peer.as_raw_fd()));
                std::thread::sleep(Duration::from_millis(2));
            }
            connections
        });
        Impostor { path, over, thread: Some(thread) }
    }

    /// How often somebody connected.
    fn end(mut self) -> usize {
        self.over.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

fn listen(path: &Path) -> OwnedFd {
    // SAFETY: zero is a valid sockaddr_un, which outlives the calls; the descriptor is new.
    unsafe {
        let mut address: libc::sockaddr_un = zeroed();
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        let bytes = path.as_os_str().as_bytes();
        assert!(bytes.len() < address.sun_path.len());
        for (to, from) in address.sun_path.iter_mut().zip(bytes) {
            *to = from.cast_signed();
        }
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let listener = OwnedFd::from_raw_fd(libc::socket(libc::AF_UNIX, kind, 0));
        let length = size_of::<libc::sockaddr_un>() as u32;
        assert_eq!(libc::bind(listener.as_raw_fd(), (&raw const address).cast(), length), 0);
        assert_eq!(libc::listen(listener.as_raw_fd(), 8), 0);
        listener
    }
}

fn say(peer: i32, packet: &[u8]) {
    // SAFETY: a live buffer of that length; a full socket is no matter.
    unsafe {
        libc::send(peer, packet.as_ptr().cast(), packet.len(), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
    };
}

fn message(kind: u32, value: u64, text: &[u8]) -> Vec<u8> {
    let head = Head { text_bytes: text.len() as u32, ..Head::new(kind, 0, 0, value) };
    [&head.to_bytes()[..], text].concat()
}

/// Runs a program for a second beside it: it launches, says so, and ends well and soon. Returns
/// what it said on stderr, and how often it connected.
#[track_caller]
fn run_beside(answer: impl Fn(i32) -> bool + Send + 'static) -> (String, usize) {
    let folder = Folder::new();
    let impostor = Impostor::start(&folder, answer);
    let mut command = tool::joining("on_demand", &impostor.path);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let begin = Instant::now();
    let mut child = command.spawn().unwrap();
    let mut orders = child.stdin.take().unwrap();
    for _ in 0..20 {
        writeln!(orders, "1000").unwrap();
        std::thread::sleep(Duration::from_millis(60));
    }
    drop(orders);
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(0), "{said}");
    assert_eq!(String::from_utf8_lossy(&ended.stdout), "1000\n".repeat(20));
    assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
    assert!(said.len() < 70_000, "{} bytes on stderr", said.len());
    (said, impostor.end())
}

#[test]
fn nonsense_from_the_collector_is_not_noticed() {
    let (said, connections) = run_beside(|peer| {
        say(peer, b"HTTP/1.1 400 Bad Request\r\n\r\n");
        true
    });
    // It is as good as gone; others are looked for, ever less often.
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("the collector is gone"), "{said}");
    assert!((1..=5).contains(&connections), "{connections}");
}

#[test]
fn collector_that_never_stops_talking_is_not_noticed() {
    let texts = [b"x".repeat(TEXT_MAX), b"short".to_vec(), Vec::new()];
    let (said, _) = run_beside(move |peer| {
        for _ in 0..50 {
            for (text, kind) in texts.iter().zip([kind::DONE, 20, 0xffff_ffff]) {
                say(peer, &message(kind, u64::MAX, text));
            }
            say(peer, &message(kind::WELCOME, welcome::TAKEOVER, b""));
        }
        true
    });
    assert_eq!(said, "");
}

#[test]
fn collector_that_always_hangs_up_is_asked_ever_less_often() {
    let (said, connections) = run_beside(|peer| {
        say(peer, &message(kind::WELCOME, 0, b"")[..31]);
        false
    });
    // That it is gone; and on a slow machine, what did not fit any more.
    let others = said.lines().filter(|line| !line.ends_with("entries that it had not read are lost"));
    assert_eq!(others.count(), 1, "{said}");
    assert!((1..=5).contains(&connections), "{connections}");
}

#[test]
fn refusal_of_any_length_is_one_line() {
    let (said, _) = run_beside(|peer| {
        say(peer, &message(kind::REFUSED, 0, &b"no ".repeat(TEXT_MAX / 3)));
        true
    });
    assert!(said.starts_with("gputrace: the collector refused this process: no no no"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}
