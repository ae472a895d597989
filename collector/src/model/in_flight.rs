//! The calls in flight when a process failed or vanished.
//!
//! Owns, by stream, how far the device is known to have come: by device records with times, and by waits
//! of the host that succeeded. Later calls count as in flight. Decided at the end, when the order in
//! which rings were read no longer matters; until then a record costs one comparison. State is bounded.

use std::collections::VecDeque;

use gputrace_wire::call::{Detail, direction, operation, wait};
use gputrace_wire::cell::{flag, kind};
use rustc_hash::FxHashMap;

use crate::model::definitions::{Definitions, LEGACY_STREAM, PER_THREAD_STREAM};
use crate::model::elapsed::Elapsed;
use crate::model::operation::{HostCall, Operation, What};
use crate::model::sticky::is_sticky;

/// The most streams, waits and events that are remembered. Calls on others count as not finished.
const STREAMS_MAX: usize = 4096;
const WAITS_MAX: usize = 4096;
const EVENTS_MAX: usize = 4096;
/// The most calls without a record that are remembered, the newest ones.
const RECENT_MAX: usize = 512;

/// The most streams that are listed: those with the newest calls.
pub const STREAMS_SHOWN: usize = 16;
/// The most calls of a stream that are listed: the newest and the oldest. The very oldest is what the device
/// was executing.
pub const NEWEST_SHOWN: usize = 12;
pub const OLDEST_SHOWN: usize = 4;

/// How much of a stream's work is known to be done.
#[derive(Debug)]
struct Done {
    /// The device's and the stream's numbers in device records.
    device: u32,
    record_stream: Option<u32>,
    /// Calls that began up to this time are done: a call that began at this time has its record.
    to_ns: u64,
    /// Calls that had returned by this time are done: the host waited for them.
    waited_ns: u64,
    /// The latest call of which only a part is known to be done, for example a node of a graph launch.
    in_parts: Option<HostCall>,
}

/// The calls of one process that are not known to have finished.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct InFlight {
    /// The stream with the newest call first.
    pub streams: Vec<StreamInFlight>,
    /// Over all streams, including those that are not listed.
    pub operations: u64,
    pub streams_left_out: u64,
    /// Whether there may have been older calls, which are not remembered.
    pub at_least: bool,
    /// Whether there were no device records, so that only waits show what has finished.
    pub by_waits_only: bool,
}

/// The calls of one stream that are not known to have finished.
#[derive(Clone, PartialEq, Debug)]
pub struct StreamInFlight {
    /// The stream's definition.
    pub stream: u32,
    /// The stream's number in device records, if there was one.
    pub record_stream: Option<u32>,
    /// Device ordinal.
    pub device: u32,
    pub operations: u64,
    /// Newest first. Calls that are left out lie before the last [`OLDEST_SHOWN`].
    pub calls: Vec<HostCall>,
    pub left_out: u64,
}

impl InFlight {
    /// About how many bytes of memory it takes.
    pub(super) fn held_bytes(&self) -> usize {
        let calls: usize = self.streams.iter().map(|stream| stream.calls.capacity()).sum();
        calls * size_of::<HostCall>() + self.streams.capacity() * size_of::<StreamInFlight>()
    }
}

/// What is noted while the stream is read.
#[derive(Debug, Default)]
pub(super) struct Progress {
    streams: Vec<Done>,
    indexes: FxHashMap<u32, usize>,
    /// The stream of the last record, as its id plus 1 (0: none), and its `to_ns`. Mostly the next record has
    /// the same stream.
    latest_stream: u64,
    latest_to_ns: u64,
    /// The begin of the latest successful wait, by what was waited for (of [`wait`]) and its handle.
    waits: FxHashMap<(u8, u64), u64>,
    /// The stream and time at which an event was recorded last.
    events: FxHashMap<u64, (u32, u64)>,
    /// Calls whose record did not come, or came without times.
    recent: VecDeque<HostCall>,
    forgotten: Option<HostCall>,
    /// The first call that returned a sticky error.
    failure: Option<HostCall>,
    /// Whether the device waited for something that no record shows.
    waits_elsewhere: bool,
    /// Whether the process ended in order, after all records had been delivered.
    ended_in_order: bool,
}

impl Progress {
    /// Notes a record that was joined with its call.
    #[inline]
    pub fn record(&mut self, operation: &Operation) {
        let Some(call) = &operation.call else { return };
        let stream = u64::from(call.stream) + 1;
        if stream == self.latest_stream && call.kind == kind::LAUNCH && operation.timing.is_some() {
            self.latest_to_ns = self.latest_to_ns.max(call.start_ns);
        } else {
            self.other_record(operation, call);
        }
    }

    /// Notes a record of another stream than the last one's, or of anything but a launch.
    #[inline(never)]
    fn other_record(&mut self, operation: &Operation, call: &HostCall) {
        if operation.timing.is_none() {
            if operation.graph.is_none() || operation.what == What::Graph {
                self.without_record(call);
            }
            return;
        }
        // A part of a call that is done shows that all earlier calls are done, not that the rest of this one
        // is.
        let is_part = match call.detail {
            Detail::GraphLaunch { .. } => !matches!(operation.what, What::Graph),
            Detail::Copy(copy) => copy.count > 1,
            _ => false,
        };
        self.keep_latest();
        if let Some(done) = self.done(call.stream) {
            done.to_ns = done.to_ns.max(call.start_ns.saturating_sub(u64::from(is_part)));
            done.record_stream = Some(operation.stream);
            done.device = operation.device;
            if is_part && done.in_parts.as_ref().is_none_or(|known| known.start_ns < call.start_ns) {
                done.in_parts = Some(call.clone());
            }
            self.latest_stream = u64::from(call.stream) + 1;
        }
    }

    /// Stores `latest_to_ns` with its stream, before another stream becomes the latest.
    fn keep_latest(&mut self) {
        let to_ns = std::mem::take(&mut self.latest_to_ns);
        let stream = self.latest_stream.checked_sub(1).and_then(|stream| u32::try_from(stream).ok());
        if let Some(done) = stream.and_then(|stream| self.done(stream)) {
            done.to_ns = done.to_ns.max(to_ns);
        }
    }

    fn done(&mut self, stream: u32) -> Option<&mut Done> {
        let index = self.index_of(stream)?;
        self.streams.get_mut(index)
    }

    fn index_of(&mut self, stream: u32) -> Option<usize> {
        if let Some(index) = self.indexes.get(&stream) {
            return Some(*index);
        }
        if self.streams.len() >= STREAMS_MAX {
            return None;
        }
        self.indexes.insert(stream, self.streams.len());
        self.streams.push(Done { device: 0, record_stream: None, to_ns: 0, waited_ns: 0, in_parts: None });
        Some(self.streams.len() - 1)
    }

    /// Notes any host call but a launch that succeeded.
    pub fn host_call(&mut self, call: &HostCall) {
        if call.status != 0 {
            let end_ns = |call: &HostCall| call.start_ns.saturating_add(call.duration_ns);
            let is_first = self.failure.as_ref().is_none_or(|known| end_ns(call) < end_ns(known));
            if is_first && is_sticky(call.status) {
                self.failure = Some(call.clone());
            }
            return;
        }
        match call.detail {
            Detail::Wait { what, handle } => self.waited(call, what, handle),
            // 0 is a launch on several devices, and these wait for each other.
            Detail::Other { operation: 0 | operation::HOST_FUNCTION, .. } => self.waits_elsewhere = true,
            Detail::Other { operation: operation::RECORD, value } => {
                let fits = self.events.len() < EVENTS_MAX || self.events.contains_key(&value);
                if fits && call.flags & flag::CAPTURED == 0 {
                    self.events.insert(value, (call.stream, call.start_ns));
                }
            }
            Detail::Copy(copy) if copy.direction == direction::DEVICE_TO_HOST => {
                if call.flags & (flag::ASYNC | flag::CAPTURED) == 0
                    && let Some(done) = self.done(call.stream)
                {
                    done.waited_ns = done.waited_ns.max(call.start_ns);
                }
            }
            _ => {}
        }
    }

    fn waited(&mut self, call: &HostCall, what: u8, handle: u64) {
        let handle = match (what, handle) {
            (wait::STREAM, 0) if call.flags & flag::PER_THREAD_STREAM != 0 => PER_THREAD_STREAM,
            (wait::STREAM, 0) => LEGACY_STREAM,
            _ => handle,
        };
        let fits = self.waits.len() < WAITS_MAX || self.waits.contains_key(&(what, handle));
        match what {
            wait::STREAM | wait::CONTEXT if fits => {
                let latest_ns = self.waits.entry((what, handle)).or_default();
                *latest_ns = call.start_ns.max(*latest_ns);
            }
            wait::STREAM_ON_VALUE => self.waits_elsewhere = true,
            // An event of another process, for example.
            wait::STREAM_ON_EVENT if !self.events.contains_key(&handle) => self.waits_elsewhere = true,
            wait::EVENT => {
                let recorded = self.events.get(&handle).copied();
                // If the record is later than the wait, another ring was read further and recorded the event
                // again.
                if let Some((stream, at_ns)) = recorded.filter(|(_, at_ns)| *at_ns <= call.start_ns)
                    && let Some(done) = self.done(stream)
                {
                    done.waited_ns = done.waited_ns.max(at_ns);
                }
            }
            _ => {}
        }
    }

    /// Notes a call without a record, or with one without times.
    pub fn without_record(&mut self, call: &HostCall) {
        if !returns_before_it_is_done(call) {
            return;
        }
        if self.recent.len() >= RECENT_MAX {
            self.forgotten = self.recent.pop_front();
        }
        self.recent.push_back(call.clone());
    }

    pub fn note_orderly_end(&mut self) {
        self.ended_in_order = true;
    }

    /// Whether the record of a call should have come by now: a later call of its stream has a record, or the
    /// call is done and the process ended in order after it.
    pub fn has_passed(&self, call: &HostCall, definitions: &Definitions) -> bool {
        let stream = u64::from(call.stream) + 1;
        let done = self.indexes.get(&call.stream).and_then(|index| self.streams.get(*index));
        stream == self.latest_stream && call.start_ns < self.latest_to_ns
            || done.is_some_and(|done| call.start_ns < done.to_ns)
            || self.ended_in_order && self.is_done(call, definitions, definitions.contexts() <= 1)
    }

    pub fn failure(&self) -> Option<&HostCall> {
        self.failure.as_ref()
    }

    pub fn into_failure(self) -> Option<HostCall> {
        self.failure
    }

    /// Finds the calls in flight among `left` (calls without a record at the end) and the remembered ones.
    /// `elapsed` is given for a process that vanished and had device records.
    pub fn finish(
        &mut self,
        left: impl Iterator<Item = HostCall>,
        vanished: bool,
        elapsed: Option<Elapsed<'_>>,
        definitions: &Definitions,
    ) -> InFlight {
        self.keep_latest();
        let last_ns = match &self.failure {
            Some(failure) if !vanished => failure.start_ns.saturating_add(failure.duration_ns),
            _ => u64::MAX,
        };
        let one_context = definitions.contexts() <= 1;
        let in_flight = |call: &HostCall| {
            call.start_ns <= last_ns
                && returns_before_it_is_done(call)
                && !self.is_done(call, definitions, one_context)
        };
        let in_parts = self.streams.iter().filter_map(|done| done.in_parts.as_ref());
        let kept = self.recent.iter().chain(in_parts).filter(|call| in_flight(call)).cloned();
        let mut calls: Vec<HostCall> = kept.chain(left.filter(in_flight)).collect();
        calls.sort_by_key(|call| std::cmp::Reverse((call.start_ns, call.thread)));
        // A call with several records without times was noted several times.
        calls.dedup();
        let at_least = self.forgotten.as_ref().is_some_and(in_flight);
        // Any kernel may have caused the error, however short it was before.
        let is_plain = self.failure.is_none() && !self.waits_elsewhere && !at_least;
        if let Some(elapsed) = elapsed.filter(|_| is_plain) {
            elapsed.take_ended(&mut calls);
        }
        let mut all = InFlight { operations: calls.len() as u64, at_least, ..InFlight::default() };
        let mut indexes: FxHashMap<u32, usize> = FxHashMap::default();
        let mut by_stream: Vec<(u32, Vec<HostCall>)> = Vec::new();
        for call in calls {
            let index = *indexes.entry(call.stream).or_insert_with(|| {
                by_stream.push((call.stream, Vec::new()));
                by_stream.len() - 1
            });
            if let Some((_, calls)) = by_stream.get_mut(index) {
                calls.push(call);
            }
        }
        all.streams_left_out = by_stream.len().saturating_sub(STREAMS_SHOWN) as u64;
        by_stream.truncate(STREAMS_SHOWN);
        let listed = by_stream.into_iter().map(|(stream, calls)| self.listed(stream, calls, definitions));
        all.streams = listed.collect();
        all
    }

    fn listed(&self, stream: u32, mut calls: Vec<HostCall>, definitions: &Definitions) -> StreamInFlight {
        let operations = calls.len() as u64;
        let left_out = calls.len().saturating_sub(NEWEST_SHOWN + OLDEST_SHOWN);
        if left_out > 0 {
            calls.drain(NEWEST_SHOWN..NEWEST_SHOWN + left_out);
        }
        let done = self.indexes.get(&stream).and_then(|index| self.streams.get(*index));
        let record_stream = done.and_then(|done| done.record_stream);
        let context = definitions.stream(stream).map_or(0, |stream| stream.context);
        let device = definitions.ordinal_of_context(context).or(done.map(|done| done.device)).unwrap_or(0);
        StreamInFlight { stream, record_stream, device, operations, calls, left_out: left_out as u64 }
    }

    fn is_done(&self, call: &HostCall, definitions: &Definitions, one_context: bool) -> bool {
        let end_ns = call.start_ns.saturating_add(call.duration_ns);
        let waited = |what, handle| self.waits.get(&(what, handle)).is_some_and(|at_ns| *at_ns >= end_ns);
        let done = self.indexes.get(&call.stream).and_then(|index| self.streams.get(*index));
        if done.is_some_and(|done| call.start_ns <= done.to_ns || end_ns <= done.waited_ns) {
            return true;
        }
        // A wait with handle 0 does not name its context, which is clear only if there is one.
        if one_context && waited(wait::CONTEXT, 0) {
            return true;
        }
        let Some(stream) = definitions.stream(call.stream) else { return false };
        let context = definitions.context(stream.context).map_or(0, |context| context.handle);
        (stream.handle > PER_THREAD_STREAM || one_context) && waited(wait::STREAM, stream.handle)
            || context != 0 && waited(wait::CONTEXT, context)
    }
}

/// Whether the device may still execute the call after it has returned.
fn returns_before_it_is_done(call: &HostCall) -> bool {
    match call.detail {
        Detail::Copy(copy) => {
            let within = matches!(copy.direction, direction::DEVICE_TO_DEVICE | direction::PEER);
            within || call.flags & flag::ASYNC != 0
        }
        _ => !matches!(call.kind, kind::CALL | kind::MEMORY),
    }
}
