//! A producer for tests: a memory file by the wire crate, and the handshake.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use gputrace_wire::atomic::{AtomicU64, Ordering};
use gputrace_wire::cell::{CELL_BYTES, CELL_WORDS, Cell};
use gputrace_wire::clock::{Anchor, tick};
use gputrace_wire::definition::Area;
use gputrace_wire::handshake::{self, Head};
use gputrace_wire::ring::{Producer, Ring};
use gputrace_wire::segment::{self, COUNTERS_OFFSET, RING_TABLE_OFFSET, RingHeader, SegmentHeader};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, recv, sendmsg, socket_with,
};

use crate::stream::clock::{monotonic_ns, realtime_ns};

pub const RINGS: usize = 4;
pub const RING_CELLS: usize = 1 << 14;
pub const DEFINITION_BYTES: usize = 1 << 20;

/// A mapped segment that a producer would write. Leaked: tests are short.
pub struct FakeSegment {
    pub fd: OwnedFd,
    pub words: &'static [AtomicU64],
    pub header: &'static SegmentHeader,
    pub rings: &'static [RingHeader],
}

fn definitions_offset() -> usize {
    (RING_TABLE_OFFSET + RINGS * size_of::<RingHeader>()).next_multiple_of(4096)
}

fn rings_offset() -> usize {
    definitions_offset() + DEFINITION_BYTES
}

impl FakeSegment {
    pub fn new(kind: u32) -> FakeSegment {
        let bytes = rings_offset() + RINGS * RING_CELLS * CELL_BYTES;
        let fd = rustix::fs::memfd_create("fake", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&fd, bytes as u64).unwrap();
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
        // SAFETY: a new mapping of a file of that size, never unmapped; atomics only.
        let (words, header, rings) = unsafe {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            let base = rustix::mm::mmap(std::ptr::null_mut(), bytes, access, MapFlags::SHARED, &fd, 0)
                .unwrap()
                .cast::<u8>();
            (
                std::slice::from_raw_parts(base.cast::<AtomicU64>(), bytes / 8),
                &*base.cast::<SegmentHeader>(),
                std::slice::from_raw_parts(base.add(RING_TABLE_OFFSET).cast::<RingHeader>(), RINGS),
            )
        };
        header.magic.store(segment::MAGIC, Ordering::Relaxed);
        header.kind.store(kind, Ordering::Relaxed);
        header.total_bytes.store(bytes as u64, Ordering::Relaxed);
        header.ring_table_offset.store(RING_TABLE_OFFSET as u64, Ordering::Relaxed);
        header.ring_count.store(RINGS as u32, Ordering::Relaxed);
        if kind == segment::kind::PRIMARY {
            header.definitions_offset.store(definitions_offset() as u64, Ordering::Relaxed);
            header.definitions_bytes.store(DEFINITION_BYTES as u64, Ordering::Relaxed);
        }
        header.pid.store(std::process::id(), Ordering::Relaxed);
        header.generation.store(1, Ordering::Relaxed);
        header.tick_kind.store(tick::MONOTONIC_NS, Ordering::Relaxed);
        header.ticks_per_second.store(1_000_000_000, Ordering::Relaxed);
        header.start_ticks.store(monotonic_ns(), Ordering::Relaxed);
        header.start_monotonic_ns.store(monotonic_ns(), Ordering::Relaxed);
        header.start_realtime_ns.store(realtime_ns(), Ordering::Relaxed);
        header.next_definition_id.store(1, Ordering::Relaxed);
        for (index, ring) in rings.iter().enumerate() {
            let offset = rings_offset() + index * RING_CELLS * CELL_BYTES;
            ring.data_offset.store(offset as u64, Ordering::Relaxed);
            ring.capacity_cells.store(RING_CELLS as u64, Ordering::Relaxed);
        }
        header.version.store(gputrace_wire::VERSION, Ordering::Release);
        FakeSegment { fd, words, header, rings }
    }

    /// Definition words.
    pub fn area_words(&self) -> &'static [AtomicU64] {
        &self.words[definitions_offset() / 8..(definitions_offset() + DEFINITION_BYTES) / 8]
    }

    pub fn define(&self, kind: u16, fields: &[u64], text: &[u8]) -> u32 {
        let area = Area {
            reserved: &self.header.definitions_reserved,
            next_id: &self.header.next_definition_id,
            words: self.area_words(),
        };
        area.append(kind, fields, text).unwrap()
    }

    pub fn producer(&self, ring: usize) -> Producer<'static> {
        let at = (rings_offset() / CELL_BYTES + ring * RING_CELLS) * CELL_WORDS;
        let words = &self.words[at..at + RING_CELLS * CELL_WORDS];
        Producer::new(Ring::new(&self.rings[ring].head, &self.rings[ring].tail, words).unwrap())
    }

    /// Writes an entry, or counts it as dropped.
    pub fn push(&self, ring: usize, cells: &[Cell]) -> bool {
        let done = self.producer(ring).push(cells);
        let count = if done { &self.rings[ring].written } else { &self.rings[ring].dropped };
        count.fetch_add(1, Ordering::Relaxed);
        done
    }

    /// Writes an entry, waiting for free slots: nothing is dropped, however late the reader is.
    pub fn push_all(&self, ring: usize, cells: &[Cell]) {
        while !self.producer(ring).has_space(cells.len() as u64) {
            std::thread::yield_now();
        }
        assert!(self.push(ring, cells));
    }

    pub fn counter(&self, index: usize) -> &AtomicU64 {
        &self.words[COUNTERS_OFFSET / 8 + index]
    }

    pub fn anchor(&self) -> Cell {
        let now = monotonic_ns();
        Anchor { ticks: now, monotonic_ns: now, device_ns: now, ..Anchor::default() }.to_cell()
    }
}

/// The socket's other end.
pub struct FakePeer(pub OwnedFd);

impl FakePeer {
    pub fn connect(path: &Path) -> FakePeer {
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
        FakePeer(socket)
    }

    pub fn send(&self, bytes: &[u8], fds: &[&OwnedFd]) {
        let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        }
        let _ = sendmsg(&self.0, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL);
    }

    pub fn say(&self, kind: u32, value: u64, fds: &[&OwnedFd]) {
        self.send(&Head::new(kind, std::process::id(), 1, value).to_bytes(), fds);
    }

    /// The next message; `None` if the collector hung up.
    pub fn hear(&self) -> Option<(Head, String)> {
        let mut packet = [0u8; 4096];
        let (got, _) = recv(&self.0, &mut packet[..], RecvFlags::empty()).ok()?;
        let (head, text) = Head::parse(&packet[..got]).ok()?;
        Some((head, String::from_utf8_lossy(text).into_owned()))
    }

    /// Joins with a segment, and returns the collector's answer.
    pub fn join(&self, segment: &FakeSegment) -> (u32, String) {
        self.say(handshake::kind::HELLO, 0, &[&segment.fd]);
        let (head, text) = self.hear().unwrap();
        (head.kind, text)
    }
}
