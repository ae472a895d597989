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

/// Who is at the other end, as the kernel says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Credentials {
    /// 0 for a process that has no number in our namespace.
    pub pid: u32,
    pub uid: u32,
}

/// One message, or why there is none.
#[derive(Debug)]
pub enum Received {
    Message {
        head: Head,
        fd: Option<OwnedFd>,
    },
    /// Nothing now.
    Nothing,
    /// The other end is closed.
    HungUp,
    /// What came is no message; the peer is not listened to any longer.
    Garbage,
}

/// Room for one packet; the longest the format allows.
pub struct PacketBuffer(Box<[u8]>);

impl PacketBuffer {
    pub fn new() -> Self {
        PacketBuffer(vec![0; HEAD_BYTES + TEXT_MAX].into_boxed_slice())
    }
}

pub fn credentials(socket: &OwnedFd) -> rustix::io::Result<Credentials> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the two pointers are to live values, the second says how large the first is.
    // (rustix's own call makes a non-zero process id of it, which 0 is not.)
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

/// Whether we record for that user: for ourselves only. Not for root either, whose programs do
/// not join the session of somebody else.
pub fn is_welcome(peer: Credentials) -> bool {
    peer.uid == rustix::process::geteuid().as_raw()
}

/// Whether the other end of a connected socket is this user's.
pub fn is_own_peer(socket: &OwnedFd) -> bool {
    credentials(socket).is_ok_and(is_welcome)
}

/// A descriptor that becomes readable when the process ends; `None` if that cannot be had.
pub fn watch(peer: Credentials) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(peer.pid).ok()?)?;
    rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// Takes the next message, without waiting.
pub fn receive(socket: &OwnedFd, buffer: &mut PacketBuffer) -> Received {
    // Room for a few descriptors, so that a peer that sends more than one is noticed and those
    // it sent are closed.
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let got = loop {
        match recvmsg(socket, &mut [IoSliceMut::new(&mut buffer.0)], &mut control, flags) {
            // A peer that closed before it had read all that we sent: said once, and what it had sent
            // before, its good-bye mostly, is still there.
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

/// Sends a message, without waiting. False if the peer does not take it.
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

    /// A short program sends hello and good-bye and is gone before it has read the welcome.
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
