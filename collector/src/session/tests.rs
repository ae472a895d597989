//! Sessions with producers that behave, die, or lie.

pub(super) mod fake;
pub(super) mod liars;

use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use gputrace_wire::atomic::Ordering;
use gputrace_wire::call::{Call, Detail, Launch};
use gputrace_wire::cell::{Cell, kind};
use gputrace_wire::clock::mark::ThreadBegin;
use gputrace_wire::counter::Counter;
use gputrace_wire::definition::{self, kind as def};
use gputrace_wire::device::{Execution, Kernel};
use gputrace_wire::handshake::{bye, kind as message};
use gputrace_wire::segment::kind::{PRIMARY, RINGS};
use rustix::fs::SealFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::batch::{Batch, ProcessEnd, SessionBegin};
use crate::model::definitions::Definitions;
use crate::model::operation::{HostCall, Operation};
use crate::model::sink::Sink;
use crate::session::{ProcessSource, Recorder, RecorderConfig, Recording};
use crate::stream::clock::monotonic_ns;
use crate::stream::replay::read_traces;
use crate::trace_file::TraceReader;
use fake::{FakePeer, FakeSegment, RING_CELLS};
use liars::lie;

/// Everything that the model reports, as text, so that two runs can be compared.
#[derive(Default)]
pub(super) struct Log(Vec<String>);

impl Sink for Log {
    fn host_call(&mut self, call: &HostCall, _: &Definitions) {
        self.0.push(format!("{call:?}"));
    }
    fn operation(&mut self, operation: &Operation, definitions: &Definitions) {
        let name = match operation.what {
            crate::model::operation::What::Kernel(kernel) => definitions.name(kernel.name).unwrap_or("?"),
            _ => "",
        };
        self.0.push(format!("{name} {operation:?}"));
    }
}

pub(super) struct TestSession {
    folder: tempfile::TempDir,
    recorder: Recorder<Log>,
}

impl TestSession {
    pub(super) fn start() -> TestSession {
        let folder = tempfile::tempdir().unwrap();
        let source = ProcessSource::Listen { directory: folder.path().join("session") };
        let recorder = Recorder::start(config(source, folder.path()), Log::default()).unwrap();
        TestSession { folder, recorder }
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.recorder.socket_path().unwrap().to_owned()
    }

    pub(super) fn finish(self, grace: Duration) -> (Recording<Log>, tempfile::TempDir) {
        let recording = self.recorder.finish(grace).unwrap();
        assert!(recording.trace_error.is_none());
        assert_same_from_the_file(&recording);
        (recording, self.folder)
    }
}

pub(super) fn config(source: ProcessSource, folder: &Path) -> RecorderConfig {
    let begin =
        SessionBegin { recorder: "test".into(), command: vec!["a".into()], ..SessionBegin::default() };
    let trace_path = folder.join("trace.gputrace");
    RecorderConfig {
        source,
        trace_path,
        begin,
        flight: None,
        max_bytes: None,
        rotation: None,
        on_trace_event: None,
        device_sampler: None,
    }
}

/// Everything from the file is exactly as it was live.
fn assert_same_from_the_file(live: &Recording<Log>) {
    let replay = read_traces(&[&live.trace_path], Log::default(), &mut |_| {}).unwrap();
    assert_eq!(replay.damages, []);
    assert!(replay.sink.0 == live.sink.0);
    assert_eq!(replay.totals.counts, live.totals.counts);
    assert_eq!(replay.totals.losses(), live.totals.losses());
    assert_eq!(replay.totals.wall_ns(), live.totals.wall_ns());
    assert_eq!(replay.totals.sessions, live.totals.sessions);
    for (a, b) in replay.totals.processes.iter().zip(&live.totals.processes) {
        assert_eq!((&a.begin, a.end, &a.counters, &a.counts), (&b.begin, b.end, &b.counters, &b.counts));
    }
    assert_eq!(replay.totals.processes.len(), live.totals.processes.len());
}

/// Writes what a small program writes: a thread, a kernel's name, `count` launches with their records.
pub(super) fn run_program(segment: &FakeSegment, first: u32, count: u32) {
    let thread = segment.define(def::THREAD, &[7, definition::role::PROGRAM], b"main");
    let name = segment.define(def::NAME, &[], b"kernel");
    segment.push(1, &[segment.anchor()]);
    segment.push(2, &[ThreadBegin { thread, ticks: 0 }.to_cell()]);
    for correlation in first..first + count {
        let launch = Detail::Launch(Launch { grid: [1, 2, 3], ..Launch::default() });
        let call = Call {
            kind: kind::LAUNCH,
            start_ticks: monotonic_ns(),
            correlation,
            detail: launch,
            ..Call::default()
        };
        segment.push_all(2, &[call.to_cell()]);
        let now = monotonic_ns();
        let execution = Execution { correlation, start_ns: now, end_ns: now + 500, ..Execution::default() };
        segment.push_all(0, &Kernel { execution, name, ..Kernel::default() }.to_cells());
    }
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < Duration::from_secs(5), "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Whether everything published was taken.
fn is_drained(segment: &FakeSegment) -> bool {
    segment.rings.iter().all(|ring| ring.tail.load(Ordering::Acquire) == ring.head.load(Ordering::Acquire))
}

#[test]
fn program_that_says_good_bye_is_recorded_whole() {
    let session = TestSession::start();
    let peer = FakePeer::connect(&session.socket());
    let segment = FakeSegment::new(PRIMARY);
    assert_eq!(peer.join(&segment).0, message::WELCOME);
    run_program(&segment, 1, 50_000);
    segment.counter(Counter::Nested as usize).store(3, Ordering::Relaxed);
    peer.say(message::BYE, bye::EXIT, &[]);
    drop(peer);
    let (recording, _folder) = session.finish(Duration::from_secs(10));
    let totals = &recording.totals;
    assert_eq!(
        (totals.counts.launches, totals.counts.executed, totals.counts.timed),
        (50_000, 50_000, 50_000)
    );
    assert_eq!((totals.counts.device_only, totals.counts.invalid_timing), (0, 0));
    assert_eq!(totals.counter(Counter::Nested), 3);
    assert_eq!(totals.processes[0].end.unwrap().0, ProcessEnd::Exit);
    assert_eq!(totals.losses().keys().collect::<Vec<_>>(), [&"nested_calls"]);
    assert!(recording.sink.0.iter().any(|line| line.starts_with("kernel ")));
}

#[test]
fn full_ring_shows_as_a_loss() {
    let session = TestSession::start();
    let peer = FakePeer::connect(&session.socket());
    let segment = FakeSegment::new(PRIMARY);
    for _ in 0..RING_CELLS + 10 {
        segment.push(2, &[Cell::new(kind::CALL, 1, 0)]);
    }
    peer.join(&segment);
    peer.say(message::BYE, bye::EXIT, &[]);
    let (recording, _folder) = session.finish(Duration::from_secs(10));
    assert_eq!(recording.totals.losses().get("ring_full"), Some(&10));
    assert_eq!(recording.totals.counts.entries(kind::CALL), RING_CELLS as u64);
}

#[test]
fn second_segment_brings_more_rings() {
    let session = TestSession::start();
    let peer = FakePeer::connect(&session.socket());
    let segment = FakeSegment::new(PRIMARY);
    let more = FakeSegment::new(RINGS);
    peer.join(&segment);
    peer.say(message::SEGMENT, 0, &[&more.fd]);
    for ring in 0..4 {
        more.push(ring, &[Cell::new(kind::WAIT, 1, 0)]);
    }
    wait_until("the new rings are empty", || is_drained(&more));
    peer.say(message::SEGMENT, 0, &[&segment.fd]);
    peer.say(message::BYE, bye::EXEC, &[]);
    drop(peer);
    let (recording, _folder) = session.finish(Duration::from_secs(10));
    assert_eq!(recording.totals.counts.entries(kind::WAIT), 4);
    assert_eq!(recording.totals.losses().get("refused_segments"), Some(&1));
    assert_eq!(recording.totals.processes[0].end.unwrap().0, ProcessEnd::Exec);
}

/// After an exec that failed, one process says good-bye, and the other still runs at the end.
#[test]
fn announced_exec_ends_nothing_while_the_socket_is_open() {
    for says_good_bye in [true, false] {
        let session = TestSession::start();
        let peer = FakePeer::connect(&session.socket());
        let segment = FakeSegment::new(PRIMARY);
        peer.join(&segment);
        run_program(&segment, 1, 10);
        peer.say(message::BYE, bye::EXEC, &[]);
        wait_until("what came before is read", || is_drained(&segment));
        std::thread::sleep(Duration::from_millis(600));
        run_program(&segment, 11, 10);
        wait_until("what came after is read", || is_drained(&segment));
        if says_good_bye {
            peer.say(message::BYE, bye::EXIT, &[]);
        }
        drop(peer);
        let (recording, _folder) = session.finish(Duration::from_millis(100));
        let end = if says_good_bye { ProcessEnd::Exit } else { ProcessEnd::Running };
        assert_eq!((recording.totals.processes[0].end.unwrap().0, recording.totals.counts.timed), (end, 20));
    }
}

#[test]
fn process_that_runs_on_is_recorded_up_to_the_session_s_end() {
    let session = TestSession::start();
    let peer = FakePeer::connect(&session.socket());
    let segment = FakeSegment::new(PRIMARY);
    peer.join(&segment);
    run_program(&segment, 1, 10);
    let begin = Instant::now();
    let (recording, _folder) = session.finish(Duration::from_millis(100));
    assert!(begin.elapsed() < Duration::from_secs(5));
    assert_eq!(recording.totals.counts.timed, 10);
    assert_eq!(recording.totals.processes[0].end.unwrap().0, ProcessEnd::Running);
    let heartbeat = segment.words[gputrace_wire::segment::CONTROL_OFFSET / 8 + 4].load(Ordering::Relaxed);
    assert!(monotonic_ns() - heartbeat < 60_000_000_000);
}

#[test]
fn reconnection_with_the_same_memory_continues_the_process() {
    let session = TestSession::start();
    let segment = FakeSegment::new(PRIMARY);
    let peer = FakePeer::connect(&session.socket());
    peer.join(&segment);
    run_program(&segment, 1, 10);
    drop(peer);
    run_program(&segment, 11, 10);
    let peer = FakePeer::connect(&session.socket());
    peer.join(&segment);
    run_program(&segment, 21, 10);
    peer.say(message::BYE, bye::EXIT, &[]);
    let (recording, _folder) = session.finish(Duration::from_secs(10));
    assert_eq!(recording.totals.processes.len(), 1);
    assert_eq!(recording.totals.counts.timed, 30);
}

#[test]
fn second_memory_file_of_a_process_id_is_the_next_image() {
    let session = TestSession::start();
    let (first, second) = (FakeSegment::new(PRIMARY), FakeSegment::new(PRIMARY));
    let peer = FakePeer::connect(&session.socket());
    peer.join(&first);
    run_program(&first, 1, 10);
    drop(peer);
    let peer = FakePeer::connect(&session.socket());
    peer.join(&second);
    run_program(&second, 1, 20);
    peer.say(message::BYE, bye::EXIT, &[]);
    let (recording, _folder) = session.finish(Duration::from_secs(10));
    let ends: Vec<_> =
        recording.totals.processes.iter().map(|p| (p.end.unwrap().0, p.counts.timed)).collect();
    assert_eq!(ends, [(ProcessEnd::Exec, 10), (ProcessEnd::Exit, 20)]);
}

#[test]
fn single_connected_process_gets_its_answer() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    let recorder =
        Recorder::start(config(ProcessSource::Connected(ours), folder.path()), Log::default()).unwrap();
    let peer = FakePeer(theirs);
    let segment = FakeSegment::new(PRIMARY);
    assert_eq!(peer.join(&segment).0, message::WELCOME);
    run_program(&segment, 1, 100);
    peer.say(message::BYE, bye::EXIT, &[]);
    recorder.wait_for_end();
    let recording = recorder.finish(Duration::ZERO).unwrap();
    assert!(recording.reply("100 kernels, ünd a lot of text"));
    let (head, text) = peer.hear().unwrap();
    assert_eq!((head.kind, text.as_str()), (message::DONE, "100 kernels, ünd a lot of text"));
    assert_eq!(recording.totals.counts.timed, 100);
    assert_same_from_the_file(&recording);
}

#[test]
fn single_process_that_never_joins_ends_the_wait() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    let recorder =
        Recorder::start(config(ProcessSource::Connected(ours), folder.path()), Log::default()).unwrap();
    drop(theirs);
    recorder.wait_for_end();
    let recording = recorder.finish(Duration::ZERO).unwrap();
    assert!(recording.totals.processes.is_empty() && !recording.reply("nobody"));
}

#[test]
fn dropped_recorder_leaves_a_readable_file() {
    let session = TestSession::start();
    let peer = FakePeer::connect(&session.socket());
    let segment = FakeSegment::new(PRIMARY);
    peer.join(&segment);
    run_program(&segment, 1, 10);
    let TestSession { folder, recorder } = session;
    drop(recorder);
    let path = folder.path().join("trace.gputrace");
    let replay = read_traces(&[&path], (), &mut |_| {}).unwrap();
    assert_eq!(replay.totals.counts.timed, 10);
    assert_eq!(replay.totals.damages, replay.damages);
    assert_eq!(replay.damages.len(), 1, "the session's end is not in the file");
}

#[test]
fn trace_file_that_cannot_be_created_is_an_error_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let source = ProcessSource::Listen { directory: folder.path().join("session") };
    let mut config = config(source, folder.path());
    config.trace_path = PathBuf::from("/dev/full");
    match Recorder::start(config, Log::default()) {
        Err(crate::Error::TraceCreate { source, .. }) => {
            assert_eq!(source.raw_os_error(), Some(libc::ENOSPC));
        }
        _ => panic!("writing the header to a full disk must fail"),
    }
}

// Child processes that are killed: this test binary again, with an order in its environment.

const CHILD: &str = "GPUTRACE_TEST_CHILD";

fn child(what: &str, socket: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "session::tests::child_main", "--nocapture"]);
    command.env(CHILD, format!("{what}:{}", socket.display()));
    command.stdout(std::process::Stdio::null());
    command
}

/// Does nothing unless this process was started by [`child`].
#[test]
fn child_main() {
    let Ok(order) = std::env::var(CHILD) else { return };
    let (what, socket) = order.split_once(':').unwrap();
    let peer = FakePeer::connect(Path::new(socket));
    let segment = FakeSegment::new(PRIMARY);
    if let Some(seed) = what.strip_prefix("lie-") {
        let seed = seed.parse().unwrap();
        run_program(&segment, 1, 50);
        // Children with odd seeds lie from the start, the others once they have joined.
        if seed % 2 == 1 {
            lie(&segment, seed);
        }
        peer.say(message::HELLO, 0, &[&segment.fd]);
        peer.hear();
        lie(&segment, seed + 1_000);
        std::thread::sleep(Duration::from_millis(10));
        return;
    }
    assert_eq!(peer.join(&segment).0, message::WELCOME);
    run_program(&segment, 1, 1_000);
    match what {
        "exit" => {}
        "holes" => {
            // One thread was killed after it had reserved words, one while it filled them.
            segment.header.definitions_reserved.fetch_add(4, Ordering::Relaxed);
            let name = segment.define(def::NAME, &[], b"behind the hole");
            let execution = Execution { correlation: 5_000, start_ns: 1, end_ns: 2, ..Execution::default() };
            segment.push(0, &Kernel { execution, name, ..Kernel::default() }.to_cells());
            segment.header.definitions_reserved.fetch_add(7, Ordering::Relaxed);
        }
        "close" => {
            // A program that closes every descriptor it does not know, and goes on.
            drop(peer);
            std::thread::sleep(Duration::from_millis(100));
            run_program(&segment, 1_001, 500);
        }
        other => panic!("{other}"),
    }
    // SAFETY: kills this process and no other.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}

fn record_child(what: &str) -> (Recording<Log>, tempfile::TempDir) {
    let session = TestSession::start();
    let status = child(what, &session.socket()).status().unwrap();
    assert_eq!(status.signal(), Some(libc::SIGKILL));
    session.finish(Duration::from_secs(10))
}

#[test]
fn killed_process_keeps_published_entries() {
    let (recording, _folder) = record_child("exit");
    assert_eq!(recording.totals.counts.timed, 1_000);
    assert_eq!(recording.totals.processes[0].end.unwrap().0, ProcessEnd::Vanished);
    assert!(recording.totals.losses().is_empty());
}

#[test]
fn holes_of_a_killed_process_hide_nothing() {
    let (recording, _folder) = record_child("holes");
    assert_eq!(recording.totals.counts.timed, 1_001);
    assert!(recording.sink.0.iter().any(|line| line.starts_with("behind the hole ")));
    assert_eq!(recording.totals.losses().get("unfinished_definitions"), Some(&2));
}

#[test]
fn process_that_closed_the_socket_is_recorded_until_it_dies() {
    let (recording, _folder) = record_child("close");
    assert_eq!(recording.totals.counts.timed, 1_500);
    assert_eq!(recording.totals.processes[0].end.unwrap().0, ProcessEnd::Vanished);
}

#[test]
fn processes_that_start_together_are_all_recorded() {
    let session = TestSession::start();
    let mut children: Vec<_> = (0..8).map(|_| child("exit", &session.socket()).spawn().unwrap()).collect();
    children.iter_mut().for_each(|child| {
        child.wait().unwrap();
    });
    let (recording, _folder) = session.finish(Duration::from_secs(10));
    assert_eq!(recording.totals.processes.len(), 8);
    assert_eq!(recording.totals.counts.timed, 8_000);
}

#[test]
fn file_holds_the_stream_as_the_program_runs() {
    let session = TestSession::start();
    let peer = FakePeer::connect(&session.socket());
    let segment = FakeSegment::new(PRIMARY);
    peer.join(&segment);
    run_program(&segment, 1, 100);
    let path = session.folder.path().join("trace.gputrace");
    wait_until("the launches are in the file", || {
        TraceReader::open(&path)
            .unwrap()
            .any(|batch| matches!(batch, Batch::Cells { cells, .. } if cells.len() > 50))
    });
    session.finish(Duration::ZERO);
}
