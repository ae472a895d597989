//! The collector's end: the socket, and the primary segment as the collector sees it.

use std::mem::{size_of, zeroed};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::ptr;

use gputrace_producer::session::{self, Session};
use gputrace_producer::socket::Socket;
use gputrace_wire::atomic::{AtomicU64, Ordering};
use gputrace_wire::cell::{CELL_WORDS, Cell};
use gputrace_wire::control::Control;
use gputrace_wire::counter::Counter;
use gputrace_wire::handshake::{HEAD_BYTES, Head};
use gputrace_wire::ring::{Consumer, Ring};
use gputrace_wire::segment::{CONTROL_OFFSET, COUNTERS_OFFSET, Layout, RingHeader, SegmentHeader};

/// A socket of this process's and its other end.
pub fn pair() -> (Socket, i32) {
    let mut ends = [-1; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: room for two descriptors.
    assert_eq!(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) }, 0);
    (Socket::from_raw(ends[0]).unwrap(), ends[1])
}

/// Starts this process's session, with a peer that has taken the hand-over.
pub fn begin() -> (&'static Session, Peer) {
    gputrace_producer::thread::prepare();
    let (ours, theirs) = pair();
    let session = session::start(session::claim().unwrap(), ours, b"test", |_| ()).unwrap();
    (session, Peer::new(theirs))
}

/// The same with a peer that listens at a path, whom another may take over from.
pub fn begin_by_path() -> (&'static Session, Peer) {
    gputrace_producer::thread::prepare();
    let folder = std::env::temp_dir().join(format!("gputrace-peer-{}", std::process::id()));
    std::fs::DirBuilder::new().mode(0o700).create(&folder).unwrap();
    let path = folder.join("socket");
    let bytes = path.as_os_str().as_bytes();
    // SAFETY: zero is a valid address; it outlives the calls, and the descriptors are the test's.
    let (socket, accepted) = unsafe {
        let mut address: libc::sockaddr_un = zeroed();
        address.sun_family = libc::AF_UNIX as u16;
        address.sun_path.iter_mut().zip(bytes).for_each(|(to, from)| *to = from.cast_signed());
        let listener = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
        let length = size_of::<libc::sockaddr_un>() as u32;
        assert_eq!(libc::bind(listener, (&raw const address).cast(), length), 0);
        assert_eq!(libc::listen(listener, 1), 0);
        let socket = Socket::connect(bytes).unwrap();
        let accepted = libc::accept4(listener, ptr::null_mut(), ptr::null_mut(), libc::SOCK_CLOEXEC);
        libc::close(listener);
        (socket, accepted)
    };
    std::fs::remove_dir_all(&folder).unwrap();
    let session = session::start(session::claim().unwrap(), socket, b"test", |_| ()).unwrap();
    (session, Peer::new(accepted))
}

pub struct Peer {
    socket: i32,
    base: *const u8,
    bytes: usize,
    layout: Layout,
}

// SAFETY: `base` is only used to make references to atomics in a mapping that stays.
unsafe impl Sync for Peer {}

impl Peer {
    pub fn new(socket: i32) -> Peer {
        let (_, descriptor) = receive(socket).unwrap();
        // SAFETY: the descriptor is the segment's; the mapping is never unmapped.
        let (base, bytes) = unsafe {
            let mut stat: libc::stat = zeroed();
            assert_eq!(libc::fstat(descriptor.unwrap(), &mut stat), 0);
            let bytes = stat.st_size as usize;
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let base =
                libc::mmap(ptr::null_mut(), bytes, protection, libc::MAP_SHARED, descriptor.unwrap(), 0);
            assert_ne!(base, libc::MAP_FAILED);
            libc::close(descriptor.unwrap());
            (base.cast::<u8>().cast_const(), bytes)
        };
        // SAFETY: a segment begins with its header.
        let layout = Layout::read(unsafe { &*base.cast::<SegmentHeader>() }, bytes).unwrap();
        Peer { socket, base, bytes, layout }
    }

    pub fn header(&self) -> &'static SegmentHeader {
        // SAFETY: the mapping begins with the header and is never unmapped.
        unsafe { &*self.base.cast::<SegmentHeader>() }
    }

    pub fn ring(&self, index: usize) -> &'static RingHeader {
        assert!(index < self.layout.ring_count);
        // SAFETY: the table has so many headers and lies in the mapping.
        unsafe { &*self.base.add(self.layout.ring_table_offset).cast::<RingHeader>().add(index) }
    }

    pub fn rings(&self) -> usize {
        self.layout.ring_count
    }

    pub fn control(&self) -> &'static Control {
        // SAFETY: every segment reaches past the control block, and the mapping stays.
        unsafe { &*self.base.add(CONTROL_OFFSET).cast::<Control>() }
    }

    pub fn counter(&self, counter: Counter) -> u64 {
        // SAFETY: every segment reaches past the counters.
        let word = unsafe { &*self.base.add(COUNTERS_OFFSET).cast::<AtomicU64>().add(counter as usize) };
        word.load(Ordering::Relaxed)
    }

    /// Takes all cells out of a ring.
    pub fn empty(&self, index: usize) -> Vec<Cell> {
        let header = self.ring(index);
        let (offset, cells) = Layout::ring_extent(header, self.bytes).unwrap();
        // SAFETY: the layout was checked against the mapping.
        let words = unsafe {
            std::slice::from_raw_parts(self.base.add(offset).cast::<AtomicU64>(), cells * CELL_WORDS)
        };
        let mut consumer = Consumer::new(Ring::new(&header.head, &header.tail, words).unwrap());
        let mut taken = Vec::new();
        let count = consumer.read(u64::MAX, |cell| taken.push(cell)).unwrap();
        consumer.release(count);
        taken
    }

    /// The next message, with whether a descriptor came beside it. `None` after a hang-up.
    pub fn hear(&self) -> Option<(Head, bool)> {
        let (head, descriptor) = receive(self.socket)?;
        if let Some(descriptor) = descriptor {
            // SAFETY: it has just come with the message.
            unsafe { libc::close(descriptor) };
        }
        Some((head, descriptor.is_some()))
    }

    pub fn hang_up(&self) {
        // SAFETY: the test's own descriptor.
        assert_eq!(unsafe { libc::close(self.socket) }, 0);
    }
}

fn receive(socket: i32) -> Option<(Head, Option<i32>)> {
    let mut packet = [0u8; 4096];
    let mut control = [0u64; 8];
    // SAFETY: zero is a valid msghdr; what is set below outlives the call, and the one control
    // message is looked at only where the kernel says that it is there.
    unsafe {
        let mut part = libc::iovec { iov_base: packet.as_mut_ptr().cast(), iov_len: packet.len() };
        let mut message: libc::msghdr = zeroed();
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of::<[u64; 8]>();
        let count = libc::recvmsg(socket, &mut message, libc::MSG_CMSG_CLOEXEC);
        assert!(count >= 0, "{}", std::io::Error::last_os_error());
        if count == 0 {
            return None;
        }
        assert!(count as usize >= HEAD_BYTES);
        let first = libc::CMSG_FIRSTHDR(&message);
        let descriptor =
            (!first.is_null()).then(|| ptr::read_unaligned(libc::CMSG_DATA(first).cast::<i32>()));
        Some((Head::parse(&packet[..count as usize]).unwrap().0, descriptor))
    }
}
