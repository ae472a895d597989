//! The handshake: the few messages that cross the session socket.
//!
//! The socket is SOCK_SEQPACKET, so a message is a packet: a fixed head and a text. Segments
//! travel beside it as file descriptors. Nothing here is on a hot path.
//!
//! ```text
//!  program                                  collector
//!     │ HELLO pid, generation  + primary fd     │
//!     ├────────────────────────────────────────►│
//!     │ WELCOME  or  REFUSED reason             │
//!     │◄────────────────────────────────────────┤
//!     │ SEGMENT + fd        (more threads)      │
//!     ├────────────────────────────────────────►│
//!     │ SAY text                                │
//!     │◄────────────────────────────────────────┤
//!     │ BYE reason                              │
//!     ├────────────────────────────────────────►│
//!     │ DONE summary    (auto-collect waits)    │
//!     │◄────────────────────────────────────────┤
//! ```

/// "GTS1": first word of every message.
pub const MAGIC: u32 = u32::from_le_bytes(*b"GTS1");
pub const HEAD_BYTES: usize = 32;
/// The longest text in a message; a longer summary is cut.
pub const TEXT_MAX: usize = 60 * 1024;

/// The longest text of a SAY: the service thread receives into its stack.
pub const SAY_MAX: usize = 4000;

/// Message kinds.
pub mod kind {
    pub const HELLO: u32 = 1;
    pub const SEGMENT: u32 = 2;
    pub const BYE: u32 = 3;
    pub const WELCOME: u32 = 16;
    pub const REFUSED: u32 = 17;
    pub const DONE: u32 = 18;
    /// A text for the user, at most [`SAY_MAX`](super::SAY_MAX) bytes. The process writes it to its
    /// standard error.
    pub const SAY: u32 = 19;
}

/// Further facts in a WELCOME, as bits of [`Head::value`].
pub mod welcome {
    /// The session may outlive its collector: another collector may listen at the same path later. It will
    /// want the same segments, handed over in the same order.
    pub const TAKEOVER: u64 = 1;
}

/// Why a producer ends the session ([`Head::value`] of `BYE`).
pub mod bye {
    pub const EXIT: u64 = 1;
    /// The program calls exec. If the exec succeeds the socket closes, and the process counts as ended. If
    /// it fails, the process continues its session and sends nothing.
    pub const EXEC: u64 = 2;
    /// The program unloaded or disabled the tracer.
    pub const STOPPED: u64 = 3;
}

/// The head of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Head {
    pub version: u32,
    pub kind: u32,
    pub pid: u32,
    pub generation: u32,
    pub text_bytes: u32,
    pub value: u64,
}

/// Why bytes are not a valid message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadMessage {
    Short,
    Magic,
    /// The text is longer than allowed or than the packet.
    Length,
}

impl Head {
    pub fn new(kind: u32, pid: u32, generation: u32, value: u64) -> Head {
        Head { version: crate::VERSION, kind, pid, generation, text_bytes: 0, value }
    }

    pub fn to_bytes(&self) -> [u8; HEAD_BYTES] {
        let words = [MAGIC, self.version, self.kind, self.pid, self.generation, self.text_bytes];
        let mut bytes = [0; HEAD_BYTES];
        let (small, large) = bytes.split_at_mut(24);
        for (to, word) in small.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        large.copy_from_slice(&self.value.to_le_bytes());
        bytes
    }

    /// Splits a packet into head and text.
    pub fn parse(packet: &[u8]) -> Result<(Head, &[u8]), BadMessage> {
        let (head, rest) = packet.split_first_chunk::<HEAD_BYTES>().ok_or(BadMessage::Short)?;
        let mut words = [0u32; 6];
        for (word, from) in words.iter_mut().zip(head.chunks_exact(4)) {
            *word = u32::from_le_bytes(from.try_into().unwrap_or([0; 4]));
        }
        let [magic, version, kind, pid, generation, text_bytes] = words;
        if magic != MAGIC {
            return Err(BadMessage::Magic);
        }
        let value = head.last_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let length = text_bytes as usize;
        if length > TEXT_MAX {
            return Err(BadMessage::Length);
        }
        let text = rest.get(..length).ok_or(BadMessage::Length)?;
        Ok((Head { version, kind, pid, generation, text_bytes, value }, text))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn messages_round_trip() {
        let head = Head { text_bytes: 3, ..Head::new(kind::HELLO, 42, 1, u64::MAX - 7) };
        let mut packet = head.to_bytes().to_vec();
        packet.extend_from_slice(b"abcdef");
        assert_eq!(Head::parse(&packet), Ok((head, &b"abc"[..])));
    }

    #[test]
    fn garbage_is_refused() {
        assert_eq!(Head::parse(b"short"), Err(BadMessage::Short));
        assert_eq!(Head::parse(&[0xff; 64]), Err(BadMessage::Magic));
        let long = Head { text_bytes: 10, ..Head::default() };
        assert_eq!(Head::parse(&long.to_bytes()), Err(BadMessage::Length));
        let huge = Head { text_bytes: u32::MAX, ..Head::default() };
        assert_eq!(Head::parse(&huge.to_bytes()), Err(BadMessage::Length));
    }
}
