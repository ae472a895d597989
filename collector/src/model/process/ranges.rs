//! Entries of ranges and of active spans: they change a ring's lists and are reported to the sinks.

use gputrace_wire::caller::Caller;
use gputrace_wire::cell::kind;
use gputrace_wire::range::{RangeBegin, RangeEnd};

use crate::model::instances::{Open, RangeInstance};
use crate::model::process::ProcessState;
use crate::model::process::ring::RingState;
use crate::model::sink::Sink;

impl ProcessState {
    /// From here on `caller` is the active span of the ring's thread.
    pub(super) fn active_span_changes<S: Sink>(
        &mut self,
        ring: &mut RingState,
        caller: &Caller,
        sink: &mut S,
    ) {
        ring.thread_caller = self.number_of(caller, sink);
        ring.update_caller();
    }

    fn number_of<S: Sink>(&mut self, caller: &Caller, sink: &mut S) -> u32 {
        let (number, is_new) = self.callers.number(caller);
        if is_new {
            sink.caller(self.number, number, caller, &self.definitions);
        }
        number
    }

    pub(super) fn range_begin<S: Sink>(
        &mut self,
        ring: &mut RingState,
        begin: &RangeBegin,
        named: &Caller,
        sink: &mut S,
    ) {
        match begin.kind {
            kind::RANGE_PUSH => {
                ring.ranges = self.ranges.push(ring.ranges, begin.position, begin.range, &self.definitions);
                // A repeated begin is the same instance.
                let further = begin.position.saturating_add(u32::from(ring.instances.has(begin)));
                let now_ns = self.clocks.monotonic_ns(begin.start_ticks);
                self.cut(ring, further, now_ns, sink);
                let named = self.number_of(named, sink);
                if let Some(open) =
                    ring.instances.push(begin, (ring.thread_caller, named), &mut self.instances)
                {
                    ring.update_caller();
                    let instance = self.instance(ring.thread, &open, now_ns, false);
                    sink.range_begins(&instance, &self.definitions);
                }
            }
            kind::RANGE_START => self.ranges.by_number(begin.range, false, &self.definitions),
            _ => self.ranges.mark(begin.range, &self.definitions),
        }
    }

    pub(super) fn range_end<S: Sink>(&mut self, ring: &mut RingState, end: &RangeEnd, sink: &mut S) {
        let is_pop = end.kind == kind::RANGE_POP;
        let end_ns = self.clocks.monotonic_ns(end.end_ticks);
        if end.start_ticks != 0 {
            let ticks = end.end_ticks.saturating_sub(end.start_ticks);
            let list = is_pop.then_some((ring.ranges, end.position));
            self.ranges.ended(end.range, self.clocks.duration_ns(ticks), list, &self.definitions);
            self.last_seen_ns = self.last_seen_ns.max(end_ns);
            let there = if is_pop { ring.instances.take(end.position) } else { None };
            let known = there.filter(|open| open.start_ticks == end.start_ticks);
            if let (Some(stale), None) = (there, known) {
                let instance = self.instance(ring.thread, &stale, end_ns, false);
                sink.range_ends(&instance, &self.definitions);
            }
            // A range whose begin was lost, or that is in no list, is reported by its end alone.
            let open = known.unwrap_or_else(|| Open {
                number: self.instances.take(),
                around: if is_pop { ring.instances.around(end.position, ring.caller) } else { 0 },
                range: end.range,
                start_ticks: end.start_ticks,
                position: end.position,
                caller: ring.caller,
                pushed_under: None,
            });
            let duration_ns = self.clocks.duration_ns(ticks);
            let instance = RangeInstance { duration_ns, ..self.instance(ring.thread, &open, end_ns, true) };
            sink.range_ends(&instance, &self.definitions);
        }
        if is_pop {
            // If no range ended, the list is only cut.
            let position = if end.start_ticks == 0 { u32::MAX } else { end.position };
            ring.ranges = self.ranges.pop(ring.ranges, position, end.open);
            self.cut(ring, end.open, end_ns, sink);
        } else if end.id != 0 {
            self.ranges.by_number(end.range, true, &self.definitions);
        }
    }

    /// Closes the ring's ranges and forgets its active span: neither is known any more.
    pub(super) fn leave_ranges<S: Sink>(&mut self, ring: &mut RingState, sink: &mut S) {
        self.ranges.left_open(ring.ranges);
        ring.ranges = 0;
        ring.thread_caller = 0;
        self.cut(ring, 0, self.last_seen_ns, sink);
    }

    /// Closes the open instances of all rings at the process's end. The tree of names counts them as open.
    pub(super) fn close_ranges<S: Sink>(&mut self, sink: &mut S) {
        let mut rings = std::mem::take(&mut self.rings);
        let mut numbers: Vec<u32> =
            rings.iter().filter(|(_, ring)| !ring.instances.is_empty()).map(|(number, _)| *number).collect();
        numbers.sort_unstable();
        for number in numbers {
            if let Some(ring) = rings.get_mut(&number) {
                self.cut(ring, 0, self.last_seen_ns, sink);
            }
        }
        self.rings = rings;
    }

    /// Closes the instances at that position of a ring's list and inside it.
    fn cut<S: Sink>(&mut self, ring: &mut RingState, position: u32, now_ns: u64, sink: &mut S) {
        while let Some(open) = ring.instances.cut(position) {
            let instance = self.instance(ring.thread, &open, now_ns, false);
            sink.range_ends(&instance, &self.definitions);
        }
        ring.update_caller();
    }

    fn instance(&mut self, thread: u32, open: &Open, end_ns: u64, is_whole: bool) -> RangeInstance {
        let start_ns = self.clocks.monotonic_ns(open.start_ticks);
        RangeInstance {
            process: self.number,
            thread,
            number: open.number,
            around: open.around,
            caller: open.caller,
            range: open.range,
            start_ns,
            end_ns: end_ns.max(start_ns),
            duration_ns: end_ns.saturating_sub(start_ns),
            is_whole,
        }
    }
}
