//! A session's connection to its collector, and to the collector that takes over from it.
//!
//! A collector's WELCOME message says whether the session may outlive the collector. Before that message, a
//! process that joined by a path assumes so, and keeps the files that it would have to hand over again.
//!
//! The service thread and the thread that ends the session make and close connections, both while no thread
//! adds a segment. Every thread may send.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use gputrace_wire::handshake::welcome;

use crate::descriptor::DescriptorSlot;
use crate::socket::{Address, Socket};

/// Whether another collector may take over.
mod takeover {
    pub const UNKNOWN: u32 = 0;
    pub const YES: u32 = 1;
    pub const NO: u32 = 2;
}

#[derive(Debug)]
pub struct Connection {
    socket: DescriptorSlot,
    /// `None` for a collector that this process started: no other collector can be found there.
    address: Option<&'static Address>,
    /// Counts the connections, from 1.
    number: AtomicU32,
    takeover: AtomicU32,
    /// Whether the other end hung up and there was no new connection since.
    is_hung_up: AtomicBool,
}

impl Connection {
    pub fn new(socket: Socket) -> Connection {
        let address = socket.address();
        let takeover = if address.is_some() { takeover::UNKNOWN } else { takeover::NO };
        Connection {
            socket: DescriptorSlot::new(socket.kept()),
            address,
            number: AtomicU32::new(1),
            takeover: AtomicU32::new(takeover),
            is_hung_up: AtomicBool::new(false),
        }
    }

    /// The current socket, which may be none.
    pub fn socket(&self) -> Socket {
        Socket::of(self.socket.get())
    }

    /// The number of the connection; it changes with each new connection.
    pub fn number(&self) -> u32 {
        self.number.load(Ordering::Acquire)
    }

    /// Whether the session may outlive its collector, as far as known.
    pub fn may_be_taken_over(&self) -> bool {
        self.takeover.load(Ordering::Relaxed) != takeover::NO
    }

    /// Whether a collector confirmed that the session may outlive it.
    pub fn is_takeover_promised(&self) -> bool {
        self.takeover.load(Ordering::Relaxed) == takeover::YES
    }

    /// Applies the value of a WELCOME message.
    pub fn apply_welcome(&self, value: u64) {
        let lasting = value & welcome::TAKEOVER != 0 && self.address.is_some();
        self.takeover.store(if lasting { takeover::YES } else { takeover::NO }, Ordering::Relaxed);
    }

    /// Connects to the collector that listens now. The connection is not in use yet.
    pub fn another(&self) -> Option<Socket> {
        self.address?.try_connect()
    }

    /// Uses `socket` from here on.
    pub fn replace(&self, socket: Socket) {
        self.socket.clear();
        self.socket.set(Some(socket.kept()));
        self.is_hung_up.store(false, Ordering::Relaxed);
        self.number.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether nobody is at the other end any more, asked after a message could not be sent. False if the
    /// program closed our descriptor: the collector watches the process and keeps reading.
    pub fn has_nobody(&self) -> bool {
        self.is_hung_up.load(Ordering::Relaxed) || self.socket().descriptor().is_some()
    }

    /// Marks that the other end hung up.
    pub fn hang_up(&self) {
        self.is_hung_up.store(true, Ordering::Relaxed);
        self.socket.clear();
    }

    pub fn close(&self) {
        self.socket.clear();
    }
}
