//! Peers that lie: in their hello, in their rings, in their definitions.

use super::*;

/// Runs `lie` beside a process that behaves, and checks that the latter is recorded whole.
pub fn beside_an_honest_process(lie: impl FnOnce(&Path)) -> Recording<Log> {
    let session = TestSession::start();
    let honest = FakePeer::connect(&session.socket());
    let segment = FakeSegment::new(PRIMARY);
    honest.join(&segment);
    run_program(&segment, 1, 100);
    lie(&session.socket());
    run_program(&segment, 101, 100);
    wait_until("the honest process's rings are empty", || is_drained(&segment));
    let (recording, _folder) = session.finish(Duration::ZERO);
    assert_eq!(recording.totals.processes[0].counts.timed, 200);
    recording
}

fn refused(lie: impl FnOnce(&FakePeer)) -> String {
    let mut why = String::new();
    let recording = beside_an_honest_process(|socket| {
        let peer = FakePeer::connect(socket);
        lie(&peer);
        let (head, text) = peer.hear().expect("an answer before the hang-up");
        assert_eq!(head.kind, message::REFUSED);
        assert!(peer.hear().is_none(), "a refused peer is hung up on");
        why = text;
    });
    assert_eq!(recording.refused.len(), 1);
    assert!(recording.refused[0].ends_with(&why));
    why
}

fn memory_file(bytes: u64, seals: SealFlags) -> OwnedFd {
    let flags = rustix::fs::MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create("lie", flags).unwrap();
    rustix::fs::ftruncate(&fd, bytes).unwrap();
    rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
    fd
}

#[test]
fn invalid_hello_is_refused_with_the_reason() {
    let hello = |fds: &[&OwnedFd]| refused(|peer| peer.say(message::HELLO, 0, fds));
    let good = FakeSegment::new(PRIMARY);
    assert!(refused(|peer| peer.send(b"GET / HTTP/1.1\r\n\r\n", &[])).contains("no message"));
    assert!(hello(&[]).contains("hello"));
    assert!(hello(&[&good.fd, &good.fd]).contains("no message"));
    assert!(refused(|peer| peer.say(message::BYE, 0, &[&good.fd])).contains("hello"));
    let pipe = rustix::pipe::pipe().unwrap().0;
    assert!(hello(&[&pipe]).contains("sealed"));
    assert!(hello(&[&memory_file(1 << 20, SealFlags::GROW)]).contains("sealed"));
    let sealed = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    for one in [SealFlags::SHRINK, SealFlags::GROW, SealFlags::SEAL] {
        assert!(hello(&[&memory_file(1 << 20, sealed - one)]).contains("sealed"), "without {one:?}");
    }
    assert!(hello(&[&memory_file(4096, sealed)]).contains("4096 bytes"));
    assert!(hello(&[&memory_file(5 << 30, sealed)]).contains("bytes"));
    assert!(hello(&[&memory_file(1 << 20, sealed)]).contains("not a segment"));
    assert!(hello(&[&FakeSegment::new(RINGS).fd]).contains("primary"));
}

#[test]
fn library_of_another_version_is_refused_with_a_hint() {
    let segment = FakeSegment::new(PRIMARY);
    segment.header.version.store(9 << 16 | 4, Ordering::Release);
    let why = refused(|peer| peer.say(message::HELLO, 0, &[&segment.fd]));
    assert!(why.contains("version 9.4") && why.contains("gputrace lib"), "{why}");
}

#[test]
fn damaged_rings_are_left_and_the_others_are_read() {
    let session = TestSession::start();
    let peer = FakePeer::connect(&session.socket());
    let segment = FakeSegment::new(PRIMARY);
    segment.rings[3].capacity_cells.store(12_345, Ordering::Relaxed);
    peer.join(&segment);
    run_program(&segment, 1, 100);
    // An entry without cells in ring 1; an invalid head in ring 0 after valid entries.
    wait_until("all is read", || is_drained(&segment));
    segment.push(1, &[Cell::new(kind::CALL, 1, 0), Cell::new(kind::CALL, 0, 0)]);
    segment.rings[0].head.store(u64::MAX / 2, Ordering::Release);
    run_program_calls_only(&segment, 7);
    peer.say(message::BYE, bye::EXIT, &[]);
    let (recording, _folder) = session.finish(Duration::from_secs(10));
    assert_eq!(recording.totals.losses().get("damaged_rings"), Some(&3));
    assert_eq!(recording.totals.counts.timed, 100);
    assert_eq!(recording.totals.counts.entries(kind::FREE), 7);
    assert_eq!(recording.totals.counts.entries(kind::CALL), 1);
}

#[test]
fn entry_that_was_not_published_whole_is_damage() {
    let session = TestSession::start();
    let peer = FakePeer::connect(&session.socket());
    let segment = FakeSegment::new(PRIMARY);
    peer.join(&segment);
    segment.push(2, &[Cell::new(kind::FREE, 1, 0), Cell::new(kind::CALL, 2, 0)]);
    let length = 5_000;
    for _ in 0..length {
        segment.push(3, &[Cell::new(kind::WAIT, 3, 0), Cell::ZERO, Cell::ZERO]);
    }
    peer.say(message::BYE, bye::EXIT, &[]);
    let (recording, _folder) = session.finish(Duration::from_secs(10));
    assert_eq!(recording.totals.losses().get("damaged_rings"), Some(&1));
    assert_eq!(recording.totals.counts.entries(kind::FREE), 1);
    assert_eq!(recording.totals.counts.entries(kind::CALL), 0);
    assert_eq!(recording.totals.counts.entries(kind::WAIT), length);
}

fn run_program_calls_only(segment: &FakeSegment, count: usize) {
    for _ in 0..count {
        segment.push(2, &[Cell::new(kind::FREE, 1, 0)]);
    }
}

#[test]
fn damaged_definitions_area_is_left_and_the_rings_are_read() {
    let session = TestSession::start();
    let peer = FakePeer::connect(&session.socket());
    let segment = FakeSegment::new(PRIMARY);
    segment.define(def::NAME, &[], b"good");
    let at = segment.header.definitions_reserved.fetch_add(3, Ordering::Relaxed);
    segment.area_words()[at as usize].store(0x1234, Ordering::Release);
    peer.join(&segment);
    run_program(&segment, 1, 100);
    peer.say(message::BYE, bye::EXIT, &[]);
    let (recording, _folder) = session.finish(Duration::from_secs(10));
    assert_eq!(recording.totals.losses().get("damaged_definitions"), Some(&1));
    assert_eq!(recording.totals.counts.timed, 100);
    assert_eq!(recording.totals.processes[0].definitions.len(), 1);
}

#[test]
fn lasting_hole_delays_the_cells_for_a_moment_only() {
    let session = TestSession::start();
    let peer = FakePeer::connect(&session.socket());
    let segment = FakeSegment::new(PRIMARY);
    peer.join(&segment);
    segment.header.definitions_reserved.fetch_add(3, Ordering::Relaxed);
    segment.push(2, &[Cell::new(kind::FREE, 1, 0)]);
    wait_until("the cells are taken all the same", || is_drained(&segment));
    let (recording, _folder) = session.finish(Duration::ZERO);
    assert_eq!(recording.totals.counts.entries(kind::FREE), 1);
}

/// No word that a process stores in its memory affects other processes.
#[test]
fn hostile_memory_harms_no_other_process() {
    for seed in 1..25 {
        beside_an_honest_process(|socket| {
            child(&format!("lie-{seed}"), socket).status().unwrap();
        });
    }
}

/// Stores random words in headers, control, counters, ring headers, definitions and cells.
pub fn lie(segment: &FakeSegment, seed: u64) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..next() % 40 + 1 {
        let (from, to) = [(0, 64), (1024, 1104), (1536, 3000), (135_000, 300_000)][(next() % 4) as usize];
        let at = from + next() as usize % (to - from);
        let value = [next(), next() % 70_000, u64::MAX, 0][(next() % 4) as usize];
        segment.words[at].store(value, Ordering::Relaxed);
    }
}
