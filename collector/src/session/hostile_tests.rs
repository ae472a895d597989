//! Hostile peers: the collector neither crashes, hangs, nor grows, and the data of other processes stays
//! exact.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use gputrace_wire::atomic::Ordering;
use gputrace_wire::cell::{CELL_WORDS, Cell, kind};
use gputrace_wire::definition::kind as def;
use gputrace_wire::handshake::{Head, bye, kind as message};
use gputrace_wire::segment::RING_TABLE_OFFSET;
use gputrace_wire::segment::kind::PRIMARY;
use rustix::fs::MemfdFlags;

use super::tests::fake::{FakePeer, FakeSegment, RINGS};
use super::tests::liars::beside_an_honest_process;
use super::tests::{TestSession, config, run_program};
use crate::aggregate::Aggregates;
use crate::session::{ProcessSource, Recorder};

/// How many descriptors of this process belong to a memory file of that name.
fn open_files(name: &str) -> usize {
    let wanted = format!("/memfd:{name} (deleted)");
    std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .filter(|target| target.as_os_str() == wanted.as_str())
        .count()
}

/// More descriptors than a message may have, and more than the receiver has space for.
#[test]
fn too_many_descriptors_are_closed_and_the_peer_is_refused() {
    let file = rustix::fs::memfd_create("too-many", MemfdFlags::CLOEXEC).unwrap();
    for count in [2, 8, 9, 200] {
        let recording = beside_an_honest_process(|socket| {
            let peer = FakePeer::connect(socket);
            peer.say(message::HELLO, 0, &vec![&file; count]);
            let (head, why) = peer.hear().expect("an answer before the hang-up");
            assert_eq!((head.kind, why.as_str()), (message::REFUSED, "it sent something that is no message"));
            assert!(peer.hear().is_none());
            assert_eq!(open_files("too-many"), 1, "of {count}");
        });
        assert_eq!(recording.refused.len(), 1);
    }
}

#[test]
fn half_a_message_is_refused() {
    let whole = Head::new(message::HELLO, 1, 1, 0).to_bytes();
    let long_text = Head { text_bytes: 100, ..Head::new(message::HELLO, 1, 1, 0) }.to_bytes();
    for half in [&whole[..1], &whole[..31], &long_text[..], &[0xff; 4096]] {
        let recording = beside_an_honest_process(|socket| {
            let peer = FakePeer::connect(socket);
            peer.send(half, &[]);
            assert_eq!(peer.hear().expect("an answer").0.kind, message::REFUSED);
        });
        assert_eq!(recording.refused.len(), 1, "{half:?}");
    }
}

/// What the process has published is read all the same.
#[test]
fn nonsense_after_the_hello_closes_the_connection_and_not_the_recording() {
    let session = TestSession::start();
    let peer = FakePeer::connect(&session.socket());
    let segment = FakeSegment::new(PRIMARY);
    peer.join(&segment);
    run_program(&segment, 1, 50);
    peer.send(b"nonsense", &[&segment.fd]);
    assert!(peer.hear().is_none(), "it is hung up on");
    run_program(&segment, 51, 50);
    let (recording, _folder) = session.finish(Duration::ZERO);
    assert_eq!(recording.totals.counts.timed, 100);
    assert!(recording.refused[0].ends_with("it sent something that is no message"));
}

/// Many peers connect and send nothing: a process that connects after them is recorded soon.
#[test]
fn flood_of_connections_keeps_nobody_out() {
    let recording = beside_an_honest_process(|socket| {
        let flood: Vec<_> = (0..400).map(|_| FakePeer::connect(socket)).collect();
        let begin = Instant::now();
        let late = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "session::hostile_tests::role_main", "--nocapture"])
            .env(ROLE, format!("honest:{}", socket.display()))
            .stdout(Stdio::null())
            .status();
        assert!(late.unwrap().success() && begin.elapsed() < Duration::from_secs(60));
        // Silent peers are refused once others need their slots.
        assert_eq!(flood[0].hear().map(|(head, _)| head.kind), None);
    });
    assert_eq!(recording.totals.processes.len(), 2);
    assert_eq!(recording.totals.processes[1].counts.timed, HONEST_LAUNCHES);
    assert!(recording.refused.iter().any(|line| line.ends_with("it did not say hello in time")));
    assert!(recording.refused.len() <= 101, "they are counted, not all remembered");
}

// Child processes: this test binary again, with a role in its environment.

const ROLE: &str = "TEST_ROLE_OF_GPUTRACE";
const HONEST_LAUNCHES: u64 = 20_000;
/// A collector of an honest process uses some 40 MiB.
const RESIDENT_MAX_KIB: u64 = 768 << 10;

fn role(what: &str, path: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "session::hostile_tests::role_main", "--nocapture"]);
    command.env(ROLE, format!("{what}:{}", path.display()));
    command.stdout(Stdio::null());
    command
}

/// Does nothing unless this process was given a role.
#[test]
fn role_main() {
    let Ok(order) = std::env::var(ROLE) else { return };
    let (what, path) = order.split_once(':').unwrap();
    let path = Path::new(path);
    match what {
        "collect" => collect(path),
        "honest" => {
            let peer = FakePeer::connect(path);
            let segment = FakeSegment::new(PRIMARY);
            assert_eq!(peer.join(&segment).0, message::WELCOME);
            run_program(&segment, 1, HONEST_LAUNCHES as u32);
            peer.say(message::BYE, bye::EXIT, &[]);
        }
        _ => flood(path, what.strip_prefix("flood-").unwrap().parse().unwrap()),
    }
}

/// Collects until all processes have left, and writes the result into a file.
fn collect(folder: &Path) {
    let source = ProcessSource::Daemon { directory: folder.join("session") };
    let recorder = Recorder::start(config(source, folder), Aggregates::default()).unwrap();
    while !folder.join("enough").exists() || !recorder.has_ended() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let recording = recorder.finish(Duration::ZERO).unwrap();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let resident: u64 = resident.trim().trim_end_matches(" kB").parse().unwrap();
    let honest = recording.totals.processes.iter().filter(|p| p.counts.timed == HONEST_LAUNCHES).count();
    let losses = format!("{:?}", recording.totals.losses());
    // The report can be made of any data.
    let report = crate::report::Report::new(&recording.totals, &recording.sink);
    assert!(report.to_json().len() < 64 << 20);
    std::fs::write(folder.join("result"), format!("{resident} {honest} {losses}")).unwrap();
}

/// Writes random cells and definitions of every kind, as fast as they are read: random ids, lengths, names,
/// times and positions.
fn flood(socket: &Path, seed: u64) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let peer = FakePeer::connect(socket);
    let segment = FakeSegment::new(PRIMARY);
    assert_eq!(peer.join(&segment).0, message::WELCOME);
    let kinds = [(1, 4), (kind::LAUNCH, kind::CALL), (kind::DEVICE_KERNEL, kind::DEVICE_GRAPH), (0, 0xffff)];
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(2) {
        for ring in 0..RINGS {
            for _ in 0..500 {
                let (low, high) = kinds[(next() % 4) as usize];
                let kind = low + (next() % (u64::from(high - low) + 1)) as u16;
                let cells =
                    if next() % 200 == 0 { next() as u8 } else { 1 + u8::from(kind == kind::DEVICE_KERNEL) };
                let mut entry = vec![Cell::new(kind, cells, next() as u8)];
                entry.resize(usize::from(cells).max(1), Cell::ZERO);
                let small = next() % 2 == 0;
                for cell in &mut entry {
                    for word in 1..CELL_WORDS {
                        cell.0[word] = if small { next() % 1_000 } else { next() };
                    }
                }
                // Dropped if the ring is full.
                segment.push(ring, &entry);
            }
        }
        let text: Vec<u8> = (0..next() % 300).map(|_| next() as u8).collect();
        let fields: Vec<u64> = (0..next() % 20).map(|_| next()).collect();
        // Until the area is almost full.
        if segment.header.definitions_reserved.load(Ordering::Relaxed) < 120_000 {
            segment.define(def::NAME + (next() % 14) as u16, &fields, &text);
        }
    }
    // Finally the positions and the headers.
    for _ in 0..100 {
        let from = RING_TABLE_OFFSET / 8;
        segment.words[from + next() as usize % (RINGS * 24)].store(next(), Ordering::Relaxed);
        segment.words[16 + next() as usize % 2].store(next(), Ordering::Relaxed);
    }
}

#[test]
fn hostile_producers_neither_crash_nor_bloat_the_collector() {
    let folder = tempfile::tempdir().unwrap();
    let mut collector = role("collect", folder.path()).spawn().unwrap();
    let socket: PathBuf = folder.path().join("session/socket");
    let begin = Instant::now();
    while !socket.exists() {
        assert!(begin.elapsed() < Duration::from_secs(60), "the collector does not listen");
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut others: Vec<_> =
        (1..=3).map(|seed| role(&format!("flood-{seed}"), &socket).spawn().unwrap()).collect();
    others.push(role("honest", &socket).spawn().unwrap());
    for other in &mut others {
        assert!(other.wait().unwrap().success());
    }
    std::fs::write(folder.path().join("enough"), "").unwrap();
    assert!(collector.wait().unwrap().success(), "the collector fell");
    let result = std::fs::read_to_string(folder.path().join("result")).unwrap();
    let mut words = result.split(' ');
    let resident_kib: u64 = words.next().unwrap().parse().unwrap();
    eprintln!("{result}");
    assert!(resident_kib < RESIDENT_MAX_KIB, "{result}");
    assert_eq!(words.next(), Some("1"), "the honest one is exact: {result}");
    assert!(result.contains("damaged_rings"), "{result}");
}

#[test]
fn descriptor_of_no_segment_is_closed_after_the_hello() {
    let session = TestSession::start();
    let peer = FakePeer::connect(&session.socket());
    let segment = FakeSegment::new(PRIMARY);
    peer.join(&segment);
    let file: OwnedFd = rustix::fs::memfd_create("no-segment", MemfdFlags::CLOEXEC).unwrap();
    for _ in 0..100 {
        peer.say(message::SEGMENT, 0, &[&file]);
    }
    peer.say(message::BYE, bye::EXIT, &[]);
    let (recording, _folder) = session.finish(Duration::from_secs(10));
    assert_eq!(open_files("no-segment"), 1);
    assert_eq!(recording.totals.losses().get("refused_segments"), Some(&100));
}
