//! Streams: creation, roles, and what a handle given by a program means.

use crate::capture::StreamCapture;
use crate::error::{Code, Result};
use crate::handle::Handle;
use crate::timeline::{EndToken, Moment, Queued};
use crate::work::Work;
use crate::world::World;
use std::collections::VecDeque;

/// The handle that means the legacy default stream.
pub const LEGACY: Handle = 1;
/// The handle that means the calling thread's default stream.
pub const PER_THREAD: Handle = 2;

/// Least urgent priority; the number falls as urgency rises.
pub const LEAST_PRIORITY: i32 = 0;
pub const GREATEST_PRIORITY: i32 = -5;

/// How a stream relates to the legacy default stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    Legacy,
    Blocking,
    NonBlocking,
}

/// One stream.
pub struct Stream {
    pub context: Handle,
    pub context_uid: u32,
    pub device: u32,
    /// Id within the context, as CUPTI reports it.
    pub id: u32,
    pub role: Role,
    pub flags: u32,
    pub priority: i32,
    /// When all that was performed so far ends.
    pub ready_ns: u64,
    /// What waits behind something of unknown length.
    pub queue: VecDeque<Queued>,
    /// Set while the worker owes this stream something.
    pub host_token: Option<EndToken>,
    /// The handle is dead, but work is left.
    pub destroyed: bool,
    pub capture: Option<Box<StreamCapture>>,
    pub synchronisation_policy: u32,
}

impl Stream {
    pub fn new(
        context: Handle,
        context_uid: u32,
        device: u32,
        id: u32,
        role: Role,
        flags: u32,
        priority: i32,
    ) -> Stream {
        Stream {
            context,
            context_uid,
            device,
            id,
            role,
            flags,
            priority,
            ready_ns: 0,
            queue: VecDeque::new(),
            host_token: None,
            destroyed: false,
            capture: None,
            synchronisation_policy: 1,
        }
    }

    /// Whether the end of this stream's work is unknown.
    pub fn is_stalled(&self) -> bool {
        self.host_token.is_some() || !self.queue.is_empty()
    }

    /// What is set when the stream's work so far has ended, while that is unknown.
    pub fn last_token(&self) -> Option<EndToken> {
        self.queue.back().map(|queued| queued.token().clone()).or_else(|| self.host_token.clone())
    }
}

impl World {
    /// The stream that a program's handle means in the current context.
    #[inline]
    pub fn stream(&mut self, given: Handle) -> Result<Handle> {
        match given {
            0 | LEGACY => Ok(self.contexts.get(self.current()?)?.legacy_stream),
            PER_THREAD => {
                let context = self.current()?;
                self.per_thread_stream(context)
            }
            _ => {
                if self.streams.get(given)?.destroyed {
                    Err(Code::INVALID_HANDLE)
                } else {
                    Ok(given)
                }
            }
        }
    }

    /// `cuStreamCreateWithPriority`.
    pub fn create_stream(&mut self, flags: u32, priority: i32) -> Result<Handle> {
        if flags & !1 != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let role = if flags & 1 != 0 { Role::NonBlocking } else { Role::Blocking };
        let context = self.current()?;
        self.new_stream(context, role, flags, priority.clamp(GREATEST_PRIORITY, LEAST_PRIORITY))
    }

    /// `cuStreamDestroy`: the handle dies now, its work goes on.
    pub fn destroy_stream(&mut self, given: Handle) -> Result {
        if given <= PER_THREAD {
            return Err(Code::INVALID_HANDLE);
        }
        let stream = self.stream(given)?;
        let held = self.streams.get_mut(stream)?;
        if held.role == Role::Legacy {
            return Err(Code::INVALID_HANDLE);
        }
        let capturing = held.capture.take().is_some();
        if held.is_stalled() {
            held.destroyed = true;
        } else {
            self.streams.remove(stream)?;
        }
        if capturing {
            self.captures -= 1;
        }
        Ok(())
    }

    /// Enqueues work, or adds it to the graph that the stream is capturing into.
    /// Returns when it will have happened; nothing of the kind is known of captured work.
    #[inline]
    pub fn submit(&mut self, stream: Handle, work: Work) -> Result<Option<Moment>> {
        if self.captures > 0 && self.capture_applies(stream)? {
            return self.capture_work(stream, work).map(|()| None);
        }
        self.schedule(stream, work).map(Some)
    }
}
