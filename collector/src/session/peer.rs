//! The session socket: who connects, and the messages that cross it.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use gputrace_wire::handshake::{HEAD_BYTES, Head, TEXT_MAX};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags, recvmsg, send,
};
use rustix::process::{Pid, PidfdFlags};

/// The process at the other end, according to the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Credentials {
    /// 0 for a process that has no id in this namespace.
    pub pid: u32,
    pub uid: u32,
}

/// The result of [`receive`].
#[derive(Debug)]
pub enum Received {
    Message {
        head: Head,
        fd: Option<OwnedFd>,
    },
    /// There is no message now.
    Nothing,
    /// The other end is closed.
    HungUp,
    /// The peer sent something that is no message.
    Garbage,
}

/// A buffer for one packet of the greatest length that the format allows.
pub struct PacketBuffer(Box<[u8]>);

impl PacketBuffer {
    pub fn new() -> Self {
        PacketBuffer(vec![0; HEAD_BYTES + TEXT_MAX].into_boxed_slice())
    }
}

pub fn credentials(socket: &OwnedFd) -> rustix::io::Result<Credentials> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the two pointers are to live values, the second to the size of the first.
    // (rustix's own call returns a non-zero process id, and the kernel may report 0.)
    let got = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut bytes,
        )
    };
    if got != 0 {
        return Err(Errno::INVAL);
    }
    Ok(Credentials { pid: u32::try_from(credentials.pid).unwrap_or(0), uid: credentials.uid })
}

/// Whether the peer is recorded: only this user's processes are. Root's are not either: they do not join
/// another user's session.
pub fn is_welcome(peer: Credentials) -> bool {
    peer.uid == rustix::process::geteuid().as_raw()
}

/// Whether the other end of a connected socket is this user's.
pub fn is_own_peer(socket: &OwnedFd) -> bool {
    credentials(socket).is_ok_and(is_welcome)
}

/// A descriptor that becomes readable when the process ends; `None` if the kernel refuses one.
pub fn watch(peer: Credentials) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(peer.pid).ok()?)?;
    rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// Receives the next message. Does not block.
pub fn receive(socket: &OwnedFd, buffer: &mut PacketBuffer) -> Received {
    // Space for a few descriptors, so that a peer that sends more than one is noticed and all of them are
    // closed.
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let got = loop {
        match recvmsg(socket, &mut [IoSliceMut::new(&mut buffer.0)], &mut control, flags) {
            // The peer closed before it had read all that was sent. The kernel reports this once; what the
            // peer had sent before, mostly its good-bye, can still be read.
            Err(Errno::INTR | Errno::CONNRESET) => {}
            other => break other,
        }
    };
    let got = match got {
        Ok(got) => got,
        Err(Errno::AGAIN) => return Received::Nothing,
        Err(_) => return Received::HungUp,
    };
    let mut fds: Vec<OwnedFd> = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    if got.bytes == 0 && fds.is_empty() {
        return Received::HungUp;
    }
    let cut = got.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
    let packet = buffer.0.get(..got.bytes).unwrap_or(&[]);
    match Head::parse(packet) {
        Ok((head, _)) if !cut && fds.len() <= 1 => Received::Message { head, fd: fds.pop() },
        _ => Received::Garbage,
    }
}

/// Sends a message. Does not block. False if the peer does not receive it.
pub fn send_message(socket: impl AsFd, head: Head, text: &str) -> bool {
    let mut cut = text.len().min(TEXT_MAX);
    while !text.is_char_boundary(cut) {
        cut -= 1;
    }
    let text = text.get(..cut).unwrap_or("");
    let head = Head { text_bytes: u32::try_from(text.len()).unwrap_or(0), ..head };
    let packet = [&head.to_bytes()[..], text.as_bytes()].concat();
    send(socket, &packet, SendFlags::DONTWAIT | SendFlags::NOSIGNAL).is_ok()
}

#[cfg(test)]
mod tests {
    use gputrace_wire::handshake;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    /// A short program sends hello and good-bye and exits before it has read the welcome.
    #[test]
    fn messages_sent_before_a_close_with_unread_data_are_received() {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let head = |kind| Head::new(kind, 7, 1, 0);
        assert!(send_message(&ours, head(handshake::kind::WELCOME), ""));
        assert!(send_message(&theirs, head(handshake::kind::BYE), ""));
        drop(theirs);
        let mut buffer = PacketBuffer::new();
        let Received::Message { head, .. } = receive(&ours, &mut buffer) else {
            panic!("the good-bye is lost")
        };
        assert_eq!(head.kind, handshake::kind::BYE);
        assert!(matches!(receive(&ours, &mut buffer), Received::HungUp));
    }
}
