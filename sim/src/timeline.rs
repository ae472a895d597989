//! When things happen: the order of operations within and between streams.
//!
//! Nearly every operation's start and end are known the moment it is enqueued,
//! because everything before it has known times: then it is *performed* at once
//! (times computed, record made, bytes moved) and only its end lies in the
//! future. Only operations behind a host function or a memory wait have to be
//! queued; such a stream is called stalled, and `host_work` unstalls it.

use crate::activity;
use crate::clock;
use crate::device::QUEUE_LATENCY_NS;
use crate::error::{Code, Result};
use crate::fault;
use crate::handle::Handle;
use crate::host_work::{Job, Task};
use crate::stream::Role;
use crate::work::{StreamIds, Work};
use crate::world::{self, World};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The end of an operation whose time is not known yet: `u64::MAX` until it is.
pub type EndToken = Arc<AtomicU64>;

/// A token that is not set yet.
pub fn new_token() -> EndToken {
    Arc::new(AtomicU64::new(u64::MAX))
}

/// A point of virtual time that may not be known yet.
#[derive(Clone, Debug)]
pub enum Moment {
    At(u64),
    Later(EndToken),
}

impl Moment {
    /// The time, if it is known. The engine's lock orders the token's accesses.
    pub fn known(&self) -> Option<u64> {
        match self {
            Moment::At(at) => Some(*at),
            Moment::Later(token) => Some(token.load(Ordering::Relaxed)).filter(|&at| at != u64::MAX),
        }
    }
}

/// An operation that waits in a stalled stream.
pub struct Queued {
    work: Work,
    correlation: u32,
    floor_ns: u64,
    waits: Vec<EndToken>,
    token: EndToken,
}

/// What came of performing an operation.
pub enum Outcome {
    /// It ends at this time.
    Done(u64),
    /// The worker has to do something first, at this time.
    Stalled(u64, Task),
}

impl World {
    /// Enqueues `work` into a stream that is not capturing. Returns when it will have happened.
    pub fn schedule(&mut self, stream: Handle, work: Work) -> Result<Moment> {
        let correlation = match &work {
            Work::Kernel(_) | Work::Copy(_) | Work::Fill(_) | Work::Graph(_) => {
                activity::correlation_if_watched()
            }
            _ => 0,
        };
        let mut floor_ns = clock::now_ns() + QUEUE_LATENCY_NS;
        let mut waits = Vec::new();
        if let Work::WaitFor(moment) = &work {
            match (moment.known(), moment) {
                (Some(at), _) => floor_ns = floor_ns.max(at),
                (None, Moment::Later(token)) => waits.push(token.clone()),
                (None, Moment::At(_)) => {}
            }
        }
        let held = self.streams.get(stream)?;
        let context = self.contexts.get(held.context)?;
        match held.role {
            Role::Legacy => {
                floor_ns = floor_ns.max(context.blocking_ready_ns);
                if self.stalled > 0 {
                    let peers = self.streams.iter().map(|(_, peer)| peer);
                    let peers =
                        peers.filter(|peer| peer.context == held.context && peer.role == Role::Blocking);
                    waits.extend(peers.filter_map(|peer| peer.last_token()));
                }
            }
            Role::Blocking => {
                floor_ns = floor_ns.max(context.legacy_ready_ns);
                if self.stalled > 0 {
                    waits.extend(self.streams.get(context.legacy_stream)?.last_token());
                }
            }
            Role::NonBlocking => {}
        }
        if waits.is_empty() && !held.is_stalled() {
            let start_ns = floor_ns.max(held.ready_ns);
            return match self.perform(stream, start_ns, work, correlation)? {
                Outcome::Done(end_ns) => {
                    self.advance(stream, end_ns)?;
                    Ok(Moment::At(end_ns))
                }
                Outcome::Stalled(due_ns, task) => {
                    let token = new_token();
                    self.stall(stream, due_ns, task, token.clone())?;
                    Ok(Moment::Later(token))
                }
            };
        }
        let token = new_token();
        let held = self.streams.get_mut(stream)?;
        if !held.is_stalled() {
            self.stalled += 1;
        }
        held.queue.push_back(Queued { work, correlation, floor_ns, waits, token: token.clone() });
        Ok(Moment::Later(token))
    }

    /// Notes that everything in the stream so far ends at `end_ns`.
    pub fn advance(&mut self, stream: Handle, end_ns: u64) -> Result {
        let held = self.streams.get_mut(stream)?;
        held.ready_ns = held.ready_ns.max(end_ns);
        let context = self.contexts.get_mut(held.context)?;
        context.latest_ns = context.latest_ns.max(end_ns);
        match held.role {
            Role::Legacy => context.legacy_ready_ns = context.legacy_ready_ns.max(end_ns),
            Role::Blocking => context.blocking_ready_ns = context.blocking_ready_ns.max(end_ns),
            Role::NonBlocking => {}
        }
        Ok(())
    }

    fn stall(&mut self, stream: Handle, due_ns: u64, task: Task, token: EndToken) -> Result {
        let held = self.streams.get_mut(stream)?;
        if !held.is_stalled() {
            self.stalled += 1;
        }
        held.host_token = Some(token);
        self.give_to_worker(Job { stream, due_ns, task });
        Ok(())
    }

    /// Carries out one operation that starts at `start_ns`.
    pub fn perform(
        &mut self,
        stream: Handle,
        start_ns: u64,
        work: Work,
        correlation: u32,
    ) -> Result<Outcome> {
        let ids = self.stream_ids(stream)?;
        Ok(match work {
            Work::Mark | Work::WaitFor(_) => Outcome::Done(start_ns),
            Work::Kernel(kernel) => {
                Outcome::Done(self.perform_kernel(&kernel, &ids, start_ns, correlation, None))
            }
            Work::Copy(copy) => Outcome::Done(self.perform_copy(&copy, &ids, start_ns, correlation, None)),
            Work::Fill(fill) => Outcome::Done(self.perform_fill(&fill, &ids, start_ns, correlation, None)),
            Work::Host(call) => Outcome::Stalled(start_ns, Task::Call(call)),
            Work::Callback(callback) => Outcome::Stalled(start_ns, Task::Callback(callback)),
            Work::WaitValue(wait) => Outcome::Stalled(start_ns, Task::WaitValue(wait)),
            Work::WriteValue(write) => {
                self.after.write_value(write);
                Outcome::Done(start_ns)
            }
            Work::Free(address) => {
                self.free_in_stream(address);
                Outcome::Done(start_ns)
            }
            Work::Graph(plan) => self.perform_graph(plan, &ids, start_ns, correlation),
        })
    }

    /// The ids for records of a stream's operations.
    pub fn stream_ids(&self, stream: Handle) -> Result<StreamIds> {
        let held = self.streams.get(stream)?;
        Ok(StreamIds {
            stream,
            context: held.context,
            context_uid: held.context_uid,
            device: held.device,
            stream_id: held.id,
            priority: held.priority,
        })
    }

    /// Called by the worker when the task at the head of `stream` ended.
    pub fn unstall(&mut self, stream: Handle, end_ns: u64) {
        let Ok(held) = self.streams.get_mut(stream) else { return };
        if let Some(token) = held.host_token.take() {
            token.store(end_ns, Ordering::Relaxed);
        }
        if !held.is_stalled() {
            self.stalled -= 1;
        }
        // The stream was found just above.
        let _ = self.advance(stream, end_ns);
        self.pump();
        world::progress();
    }

    /// Performs whatever is no longer waiting for anything.
    fn pump(&mut self) {
        while let Some(stream) = self.next_ready() {
            let Ok(held) = self.streams.get_mut(stream) else { continue };
            let Some(queued) = held.queue.pop_front() else { continue };
            if !held.is_stalled() {
                self.stalled -= 1;
            }
            let known = queued.waits.iter().map(|token| token.load(Ordering::Relaxed));
            let start_ns = known.fold(queued.floor_ns.max(held.ready_ns), u64::max);
            match self.perform(stream, start_ns, queued.work, queued.correlation) {
                Ok(Outcome::Done(end_ns)) => {
                    queued.token.store(end_ns, Ordering::Relaxed);
                    let _ = self.advance(stream, end_ns);
                }
                Ok(Outcome::Stalled(due_ns, task)) => {
                    let _ = self.stall(stream, due_ns, task, queued.token);
                }
                Err(_) => queued.token.store(start_ns, Ordering::Relaxed),
            }
        }
        let gone = self.streams.handles_where(|held| held.destroyed && !held.is_stalled());
        for stream in gone {
            let _ = self.streams.remove(stream);
        }
    }

    fn next_ready(&self) -> Option<Handle> {
        let ready =
            |queued: &Queued| queued.waits.iter().all(|token| token.load(Ordering::Relaxed) != u64::MAX);
        self.streams
            .iter()
            .find(|(_, held)| held.host_token.is_none() && held.queue.front().is_some_and(ready))
            .map(|(stream, _)| stream)
    }

    /// When everything in the stream so far has ended; none while that is unknown.
    pub fn stream_end(&self, stream: Handle) -> Result<Option<u64>> {
        let held = self.streams.get(stream)?;
        if held.is_stalled() {
            return Ok(None);
        }
        if held.role != Role::Legacy {
            return Ok(Some(held.ready_ns));
        }
        let stalled = |peer: &crate::stream::Stream| {
            peer.context == held.context && peer.role == Role::Blocking && peer.is_stalled()
        };
        if self.stalled > 0 && self.streams.iter().any(|(_, peer)| stalled(peer)) {
            return Ok(None);
        }
        Ok(Some(held.ready_ns.max(self.contexts.get(held.context)?.blocking_ready_ns)))
    }

    /// When everything in the context so far has ended; none while that is unknown.
    pub fn context_end(&self, context: Handle) -> Result<Option<u64>> {
        let end_ns = self.contexts.get(context)?.latest_ns;
        let stalled = self.stalled > 0
            && self.streams.iter().any(|(_, held)| held.context == context && held.is_stalled());
        Ok(if stalled { None } else { Some(end_ns) })
    }
}

impl Queued {
    /// The token that is set when this operation has ended.
    pub fn token(&self) -> &EndToken {
        &self.token
    }
}

/// Waits, without the lock, until `end` knows a time and that time has come.
pub fn wait(mut end: impl FnMut(&mut World) -> Result<Option<u64>>) -> Result {
    let end_ns = world::wait_for(&mut |world: &mut World| {
        let known = end(world)?;
        Ok(if world.delivering { None } else { known })
    })?;
    if let Some(fault) = fault::by(end_ns.max(clock::now_ns())) {
        clock::wait_until(fault.at_ns);
        return Err(fault.code);
    }
    clock::wait_until(end_ns);
    Ok(())
}

/// Whether `end` knows a time that has come; `NOT_READY` if not.
pub fn query(end: impl FnOnce(&mut World) -> Result<Option<u64>>) -> Result {
    let known = world::with(|world| {
        let known = end(world)?;
        Ok(if world.delivering { None } else { known })
    })?;
    // One moment for both questions: what comes right behind a kernel that faults never happens.
    let now_ns = clock::now_ns();
    if let Some(fault) = fault::by(now_ns) {
        return Err(fault.code);
    }
    if has_come_by(known, now_ns) { Ok(()) } else { Err(Code::NOT_READY) }
}

/// Whether a time is known and has come.
pub fn has_come(at_ns: Option<u64>) -> bool {
    has_come_by(at_ns, clock::now_ns())
}

fn has_come_by(at_ns: Option<u64>, now_ns: u64) -> bool {
    at_ns.is_some_and(|at_ns| at_ns <= now_ns)
}
