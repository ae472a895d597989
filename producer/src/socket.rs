//! The session socket: messages that can carry a descriptor, and the check that the descriptor is still our
//! socket.
//!
//! All calls here are async-signal-safe.

use core::mem::{size_of, zeroed};
use core::ptr;

use gputrace_wire::handshake::{HEAD_BYTES, Head, TEXT_MAX};

use crate::descriptor::Descriptor;
pub(crate) use crate::descriptor::identity;
use crate::{clock, memory, ownership, system};

/// How long a connection is retried while the collector's queue is full. The program waits in `cuInit`
/// meanwhile, and a stopped collector never empties its queue.
const CONNECT_MOST_NS: u64 = 2_000_000_000;
const CONNECT_STEP_NS: u64 = 10_000_000;

/// A connected socket.
#[derive(Clone, Copy, Debug)]
pub struct Socket {
    descriptor: Descriptor,
    address: Option<&'static Address>,
}

/// Why there is no connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotConnected {
    /// Nobody listens at the path, or nobody answers.
    Nobody,
    /// The socket or its folder belongs to another user, or could.
    NotOurs,
}

/// The address of a listener. Mapped and never freed, so that it can be used again: the environment
/// variable may have changed by then.
pub struct Address(libc::sockaddr_un);

impl core::fmt::Debug for Address {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.write_str("Address")
    }
}

impl Address {
    /// `None` if the path is too long for a socket.
    fn new(path: &[u8]) -> Option<&'static Address> {
        // SAFETY: zero is a valid sockaddr_un.
        let mut address: libc::sockaddr_un = unsafe { zeroed() };
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        if path.len() >= address.sun_path.len() {
            return None;
        }
        for (to, from) in address.sun_path.iter_mut().zip(path) {
            *to = *from as libc::c_char;
        }
        let mapped = memory::map_bytes(size_of::<Address>())?.cast::<Address>();
        // SAFETY: the mapping is large enough, page-aligned, ours alone, and never unmapped.
        Some(unsafe {
            mapped.write(Address(address));
            &*mapped
        })
    }

    /// Connects, without waiting for space in the listener's queue.
    pub fn try_connect(&'static self) -> Option<Socket> {
        self.connect(0).ok()
    }

    /// The path, as it was given.
    fn path(&self) -> &[u8] {
        let path = &self.0.sun_path;
        // SAFETY: bytes are bytes, signed or not.
        let path = unsafe { core::slice::from_raw_parts(path.as_ptr().cast::<u8>(), path.len()) };
        path.split(|byte| *byte == 0).next().unwrap_or_default()
    }

    fn connect(&'static self, most_ns: u64) -> Result<Socket, NotConnected> {
        // A blocking connect would wait for ever while the listener's queue is full.
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let number = system::socket(libc::AF_UNIX, kind);
        if number < 0 {
            return Err(NotConnected::Nobody);
        }
        let answer = connect_in_time(number, &self.0, most_ns);
        let connected = if answer != 0 {
            // The session's folder is open only to the user that it belongs to.
            Err(if answer == -libc::EACCES { NotConnected::NotOurs } else { NotConnected::Nobody })
        } else if !ownership::peer_is_us(number) || !ownership::folder_is_ours(self.path()) {
            Err(NotConnected::NotOurs)
        } else {
            Descriptor::from_raw(number).ok_or(NotConnected::Nobody)
        };
        if connected.is_err() {
            // SAFETY: the descriptor was made above and is not used again.
            unsafe { system::close(number) };
        }
        Ok(Socket { descriptor: connected?, address: Some(self) })
    }
}

impl Socket {
    /// Takes ownership of a descriptor and records its identity.
    pub fn from_raw(descriptor: i32) -> Option<Socket> {
        Some(Socket { descriptor: Descriptor::from_raw(descriptor)?, address: None })
    }

    /// The same connection, from its kept descriptor.
    pub fn of(descriptor: Descriptor) -> Socket {
        Socket { descriptor, address: None }
    }

    /// Connects to the session socket at a path, if the socket belongs to this user. Fails at once if
    /// nobody listens, and after [`CONNECT_MOST_NS`] if nobody answers.
    pub fn connect(path: &[u8]) -> Result<Socket, NotConnected> {
        Address::new(path).ok_or(NotConnected::Nobody)?.connect(CONNECT_MOST_NS)
    }

    /// The address that the socket was connected to; `None` for an inherited socket.
    pub fn address(&self) -> Option<&'static Address> {
        self.address
    }

    /// Moves the connection to a descriptor number that programs do not count on.
    pub fn out_of_the_way(self) -> Socket {
        Socket { descriptor: self.descriptor.out_of_the_way(), ..self }
    }

    /// The descriptor to keep for this connection.
    pub fn kept(&self) -> Descriptor {
        self.descriptor
    }

    /// The descriptor number, if it is still our socket.
    pub fn descriptor(&self) -> Option<i32> {
        self.descriptor.number()
    }

    /// Sends one message, with a descriptor if one is given. Never raises SIGPIPE and never waits: a full
    /// socket means that the collector is stuck.
    pub fn send(&self, head: Head, text: &[u8], descriptor: Option<i32>) -> bool {
        let Some(socket) = self.descriptor() else { return false };
        let head = Head { text_bytes: text.len() as u32, ..head }.to_bytes();
        let mut parts = [
            libc::iovec { iov_base: head.as_ptr().cast_mut().cast(), iov_len: head.len() },
            libc::iovec { iov_base: text.as_ptr().cast_mut().cast(), iov_len: text.len() },
        ];
        let mut mapped = ControlBuffer::new();
        // SAFETY: zero is a valid msghdr; the pointers set below outlive the call.
        let mut message: libc::msghdr = unsafe { zeroed() };
        message.msg_iov = parts.as_mut_ptr();
        message.msg_iovlen = parts.len();
        if let Some(descriptor) = descriptor {
            message.msg_control = mapped.0.as_mut_ptr().cast();
            message.msg_controllen = ControlBuffer::BYTES;
            // SAFETY: the control buffer is live, aligned and large enough for one descriptor,
            // so CMSG_FIRSTHDR is not null and its data has room for an int.
            unsafe {
                let first = libc::CMSG_FIRSTHDR(&message);
                (*first).cmsg_level = libc::SOL_SOCKET;
                (*first).cmsg_type = libc::SCM_RIGHTS;
                (*first).cmsg_len = libc::CMSG_LEN(size_of::<i32>() as u32) as usize;
                ptr::write_unaligned(libc::CMSG_DATA(first).cast::<i32>(), descriptor);
            }
        }
        // SAFETY: the message and all it points to are live.
        let sent = unsafe { system::sendmsg(socket, &message, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) };
        sent == (head.len() + text.len()) as isize
    }

    /// Waits up to `timeout_ms` for a message and reads it into `packet`.
    pub fn receive<'p>(&self, timeout_ms: i32, packet: &'p mut [u8]) -> Received<'p> {
        let Some(socket) = self.descriptor() else { return Received::Lost };
        let mut polled = [libc::pollfd { fd: socket, events: libc::POLLIN, revents: 0 }];
        let ready = system::poll(&mut polled, timeout_ms);
        if ready <= 0 {
            return Received::Nothing;
        }
        // With MSG_TRUNC the answer is the packet's length, even where the buffer is shorter.
        let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        // The program may reuse the number at any moment, and a message for the program's own socket must
        // not be consumed. So the message is peeked at first.
        let count = system::recv(socket, packet, flags | libc::MSG_PEEK);
        if self.descriptor().is_none() {
            return Received::Lost;
        }
        match usize::try_from(count) {
            Ok(0) => Received::Gone,
            Ok(count) if parse(packet, count).is_none() => Received::Gone,
            Ok(count) => {
                // This consumes the whole packet, whatever the buffer's size.
                system::recv(socket, &mut [], flags);
                match parse(packet, count) {
                    Some((head, text)) => Received::Message(head, text),
                    None => Received::Gone,
                }
            }
            // A reset is reported once; the peer's earlier messages can still be read after it.
            Err(_) if matches!(-count as i32, libc::EAGAIN | libc::EINTR | libc::ECONNRESET) => {
                Received::Nothing
            }
            Err(_) if matches!(-count as i32, libc::EBADF | libc::ENOTSOCK) => Received::Lost,
            Err(_) => Received::Gone,
        }
    }

    pub fn close(&self) {
        self.descriptor.close();
    }
}

/// The result of [`Socket::receive`].
#[derive(Debug)]
pub enum Received<'p> {
    Message(Head, &'p [u8]),
    Nothing,
    /// The other side hung up or sent an invalid message.
    Gone,
    /// The program closed or replaced our descriptor; the other side may still exist.
    Lost,
}

/// Space for one descriptor's control message, aligned as `cmsghdr` requires.
struct ControlBuffer([u64; 4]);

impl ControlBuffer {
    // SAFETY: CMSG_SPACE only computes.
    const BYTES: usize = unsafe { libc::CMSG_SPACE(size_of::<i32>() as u32) as usize };

    fn new() -> ControlBuffer {
        const { assert!(Self::BYTES <= size_of::<[u64; 4]>()) };
        ControlBuffer([0; 4])
    }
}

const _: () = assert!(HEAD_BYTES == 32);

/// Tries at least once and until the time is over. Returns 0 once connected, else the last negated errno
/// value.
fn connect_in_time(descriptor: i32, address: &libc::sockaddr_un, most_ns: u64) -> i32 {
    let deadline = clock::monotonic_ns() + most_ns;
    loop {
        let answer = system::connect(descriptor, address);
        // EAGAIN is a unix socket's error for a full queue.
        if !matches!(-answer, libc::EAGAIN | libc::EINTR) || clock::monotonic_ns() >= deadline {
            return answer;
        }
        system::sleep_ns(CONNECT_STEP_NS);
    }
}

/// Splits a packet of `sent_bytes`, of which `packet` holds the beginning. A text longer than the buffer is
/// cut: a caller with a short buffer shows one line of the text or ignores it.
fn parse(packet: &mut [u8], sent_bytes: usize) -> Option<(Head, &[u8])> {
    const TEXT_BYTES_AT: usize = 20;
    if let Some(mapped) = packet.len().checked_sub(HEAD_BYTES)
        && sent_bytes > packet.len()
        && let Some(field) =
            packet.get_mut(TEXT_BYTES_AT..).and_then(<[u8]>::first_chunk_mut::<{ size_of::<u32>() }>)
    {
        let said = u32::from_le_bytes(*field) as usize;
        if said > TEXT_MAX || said > sent_bytes - HEAD_BYTES {
            return None;
        }
        *field = (said.min(mapped) as u32).to_le_bytes();
    }
    Head::parse(packet.get(..sent_bytes.min(packet.len()))?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gputrace_wire::handshake::kind;

    fn pair() -> (Socket, i32) {
        let mut ends = [0; 2];
        // SAFETY: room for two descriptors.
        unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0, ends.as_mut_ptr()) };
        (Socket::from_raw(ends[0]).unwrap(), ends[1])
    }

    #[test]
    fn messages_cross() {
        let (ours, theirs) = pair();
        let other = Socket::from_raw(theirs).unwrap();
        assert!(ours.send(Head::new(kind::HELLO, 1, 2, 3), b"text", Some(0)));
        let mut packet = [0; 256];
        match other.receive(1_000, &mut packet) {
            Received::Message(head, text) => {
                assert_eq!((head.kind, head.pid, head.generation, head.value), (kind::HELLO, 1, 2, 3));
                assert_eq!(text, b"text");
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(other.receive(0, &mut packet), Received::Nothing));
        ours.close();
        assert!(matches!(other.receive(100, &mut packet), Received::Gone));
    }

    #[test]
    fn descriptor_that_was_reused_is_left_alone() {
        let (ours, theirs) = pair();
        // SAFETY: the test's own descriptors: the number is given to another socket.
        unsafe { libc::dup2(theirs, ours.descriptor().unwrap()) };
        assert!(ours.descriptor().is_none());
        assert!(matches!(ours.receive(0, &mut [0; 64]), Received::Lost));
        assert!(!ours.send(Head::new(kind::BYE, 1, 1, 1), b"", None));
    }

    #[test]
    fn long_text_is_cut_and_not_taken_for_a_hang_up() {
        let (ours, theirs) = pair();
        let other = Socket::from_raw(theirs).unwrap();
        let text = vec![b'x'; TEXT_MAX];
        assert!(ours.send(Head::new(kind::REFUSED, 1, 2, 3), &text, None));
        assert!(ours.send(Head::new(kind::DONE, 1, 2, 3), b"short", None));
        let mut packet = [0; 4096];
        match other.receive(1_000, &mut packet) {
            Received::Message(head, text) => {
                assert_eq!((head.kind, head.value), (kind::REFUSED, 3));
                assert_eq!(text, [b'x'; 4096 - HEAD_BYTES]);
            }
            other => panic!("{other:?}"),
        }
        match other.receive(1_000, &mut packet) {
            Received::Message(head, text) => assert_eq!((head.kind, text), (kind::DONE, &b"short"[..])),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn cut_packet_that_lies_about_its_text_is_nonsense() {
        for said in [200, u32::MAX] {
            let head = Head { text_bytes: said, ..Head::new(kind::DONE, 1, 1, 1) };
            let mut packet = [0; 64];
            packet[..HEAD_BYTES].copy_from_slice(&head.to_bytes());
            assert!(parse(&mut packet, 100).is_none());
        }
    }

    /// A listener at its own path that accepts no connection and has one slot in its queue.
    struct Listener(std::path::PathBuf, std::os::fd::OwnedFd);

    impl Listener {
        fn new(name: &str) -> Listener {
            use std::os::fd::FromRawFd;
            use std::os::unix::ffi::OsStrExt;
            use std::os::unix::fs::DirBuilderExt;
            let folder = std::env::temp_dir().join(format!("gputrace-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&folder);
            std::fs::DirBuilder::new().mode(0o700).create(&folder).unwrap();
            let path = folder.join("socket");
            // SAFETY: zero is a valid sockaddr_un, which outlives the calls; the descriptor is new.
            let descriptor = unsafe {
                let mut address: libc::sockaddr_un = zeroed();
                address.sun_family = libc::AF_UNIX as libc::sa_family_t;
                for (to, from) in address.sun_path.iter_mut().zip(path.as_os_str().as_bytes()) {
                    *to = *from as libc::c_char;
                }
                let descriptor = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
                let length = size_of::<libc::sockaddr_un>() as u32;
                assert_eq!(libc::bind(descriptor, (&raw const address).cast(), length), 0);
                assert_eq!(libc::listen(descriptor, 0), 0);
                std::os::fd::OwnedFd::from_raw_fd(descriptor)
            };
            Listener(path, descriptor)
        }

        /// Connects on its own thread, so that a connect that never returns makes the test fail.
        fn connect(&self) -> std::sync::mpsc::Receiver<Result<Socket, NotConnected>> {
            use std::os::unix::ffi::OsStrExt;
            let (done, waits) = std::sync::mpsc::channel();
            let path = self.0.clone();
            std::thread::spawn(move || done.send(Socket::connect(path.as_os_str().as_bytes())));
            waits
        }
    }

    impl Drop for Listener {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(self.0.parent().unwrap());
        }
    }

    const ENOUGH: std::time::Duration = std::time::Duration::from_secs(20);

    #[test]
    fn connecting_to_a_listener_that_never_accepts_ends() {
        let listener = Listener::new("never");
        let first = listener.connect().recv_timeout(ENOUGH).expect("it returns").expect("there is room");
        let second = listener.connect().recv_timeout(ENOUGH).expect("it returns");
        assert_eq!(second.unwrap_err(), NotConnected::Nobody);
        first.close();
    }

    #[test]
    fn listener_that_accepts_late_is_waited_for() {
        use std::os::fd::AsRawFd;
        let listener = Listener::new("late");
        let first = listener.connect().recv_timeout(ENOUGH).expect("it returns").expect("there is room");
        let second = listener.connect();
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert!(second.try_recv().is_err(), "it waits for room");
        // SAFETY: the listener is the test's own; the descriptor that comes of it is left open.
        assert!(unsafe { libc::accept(listener.1.as_raw_fd(), ptr::null_mut(), ptr::null_mut()) } >= 0);
        let second = second.recv_timeout(ENOUGH).expect("it returns").expect("there is room now");
        first.close();
        second.close();
    }

    #[test]
    fn socket_without_a_listener_is_an_error() {
        assert_eq!(Socket::connect(b"/nonexistent/socket").unwrap_err(), NotConnected::Nobody);
        assert_eq!(Socket::connect(&[b'x'; 300]).unwrap_err(), NotConnected::Nobody);
    }

    #[test]
    fn socket_in_a_folder_that_others_enter_is_not_ours() {
        use std::os::unix::fs::PermissionsExt;
        let listener = Listener::new("open");
        let folder = listener.0.parent().unwrap();
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
        let refused = listener.connect().recv_timeout(ENOUGH).expect("it returns");
        assert_eq!(refused.unwrap_err(), NotConnected::NotOurs);
    }
}
