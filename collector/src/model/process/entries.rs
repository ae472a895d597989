//! What an entry of each kind changes in the process's state.

use gputrace_wire::block::{Block, Blocks};
use gputrace_wire::call::Call;
use gputrace_wire::caller::{Caller, CallerEntry};
use gputrace_wire::cell::{Cell, flag, kind};
use gputrace_wire::clock::Anchor;
use gputrace_wire::clock::mark::{DeviceTimes, EpochBegin, Recording, ThreadBegin};
use gputrace_wire::counted::Counted;
use gputrace_wire::device::{self, DeviceCopy, DeviceFill, DeviceGraph};
use gputrace_wire::graph::NodesMade;
use gputrace_wire::range::{RangeBegin, RangeEnd};

use crate::batch::{Gap, GapReason};
use crate::model::block::{BlockEvent, BlockWhat};
use crate::model::executed::{direction_of_record, peers_of_record};
use crate::model::loss::Loss;
use crate::model::operation::{Kernel, What};
use crate::model::process::ProcessState;
use crate::model::process::ring::RingState;
use crate::model::since_launch::SinceLaunch;
use crate::model::sink::Sink;

impl ProcessState {
    #[inline]
    pub(super) fn entry<S: Sink>(&mut self, ring: &mut RingState, entry: &[Cell], sink: &mut S) {
        let Some(first) = entry.first() else { return };
        let kind = first.kind();
        if matches!(kind, kind::LAUNCH..=kind::CALL | kind::MEMORY) && first.flags() & flag::PAUSED != 0 {
            if let Some(call) = Call::from_cell(first) {
                self.paused_call(ring, &call, sink);
            }
            return;
        }
        self.counts.entry(kind);
        match kind {
            kind::LAUNCH..=kind::CALL | kind::MEMORY => {
                if let Some(call) = Call::from_cell(first) {
                    self.host_call(ring, &call, sink);
                }
            }
            kind::DEVICE_KERNEL => match entry.get(1) {
                Some(second) => {
                    let kernel = device::Kernel::from_cells(first, second);
                    let what = What::Kernel(Kernel {
                        name: kernel.name,
                        grid: kernel.grid,
                        block: kernel.block.map(u32::from),
                        cluster: kernel.cluster.map(u32::from),
                        registers: kernel.registers.into(),
                        static_shared_bytes: kernel.static_shared_bytes,
                        dynamic_shared_bytes: kernel.dynamic_shared_bytes,
                    });
                    self.device_record(ring, &kernel.execution, what, sink);
                }
                None => self.lose(Loss::DamagedEntries, 1),
            },
            kind::DEVICE_COPY => {
                let copy = DeviceCopy::from_cell(first);
                let what = What::Copy {
                    direction: direction_of_record(copy.copy_kind),
                    bytes: copy.bytes,
                    source_memory: copy.source_memory,
                    target_memory: copy.target_memory,
                    devices: peers_of_record(&copy),
                };
                self.device_record(ring, &copy.execution, what, sink);
            }
            kind::DEVICE_FILL => {
                let fill = DeviceFill::from_cell(first);
                self.device_record(ring, &fill.execution, What::Fill { bytes: fill.bytes }, sink);
            }
            kind::DEVICE_GRAPH => {
                self.device_record(ring, &DeviceGraph::from_cell(first).execution, What::Graph, sink);
            }
            kind::RANGE_PUSH | kind::RANGE_START | kind::MARK => {
                if let Some(begin) = RangeBegin::from_cell(first) {
                    let named = entry.get(1).map_or(Caller::NOBODY, Caller::of_cell);
                    self.range_begin(ring, &begin, &named, sink);
                }
            }
            kind::RANGE_POP | kind::RANGE_END => {
                if let Some(end) = RangeEnd::from_cell(first) {
                    self.range_end(ring, &end, sink);
                }
            }
            kind::CALLER => self.active_span_changes(ring, &CallerEntry::from_cell(first).caller, sink),
            kind::GRAPH_NODE => {
                self.graphs.nodes_made(&NodesMade::from_cell(first), ring.ranges, &self.definitions);
            }
            kind::BLOCK => {
                let block = Block::from_cell(first);
                let at_ns = self.clocks.monotonic_ns(block.ticks);
                self.last_seen_ns = self.last_seen_ns.max(at_ns);
                self.block(ring, at_ns, BlockWhat::Changed(block), sink);
            }
            kind::BLOCKS => {
                let switched = Blocks::from_cell(first);
                let at_ns = match switched.ticks {
                    0 => self.begin.start_monotonic_ns,
                    ticks => self.clocks.monotonic_ns(ticks),
                };
                self.block(ring, at_ns, BlockWhat::Switched { is_on: switched.is_on }, sink);
            }
            kind::COUNTED => self.counted(&Counted::from_cell(first), sink),
            kind::THREAD_BEGIN => {
                self.leave_ranges(ring, sink);
                ring.thread = ThreadBegin::from_cell(first).thread;
                ring.since_launch = SinceLaunch::default();
            }
            kind::ANCHOR => {
                let anchor = Anchor::from_cell(first);
                self.clocks.anchor(&anchor);
                self.last_seen_ns = self.last_seen_ns.max(anchor.monotonic_ns);
            }
            kind::RECORDING => {
                let change = Recording::from_cell(first);
                let at_ns = match change.ticks {
                    0 => self.begin.start_monotonic_ns,
                    ticks => self.clocks.monotonic_ns(ticks),
                };
                self.definitions.recorded.changes(change.is_on, at_ns);
            }
            kind::DEVICE_TIMES => {
                let change = DeviceTimes::from_cell(first);
                let at_ns = match change.ticks {
                    0 => self.begin.start_monotonic_ns,
                    ticks => self.clocks.monotonic_ns(ticks),
                };
                let timed = &mut self.definitions.timed;
                match change.window {
                    0 => timed.changes(change.is_on, at_ns),
                    _ => timed.window_changes(change.is_on, at_ns),
                }
            }
            kind::EPOCH_BEGIN => self.epoch_begin(ring, &EpochBegin::from_cell(first)),
            kind::GAP => match Gap::from_cell(first) {
                Some(gap) => match gap.loss() {
                    Some(loss) => {
                        self.lose(loss, gap.count);
                        if gap.reason == GapReason::NotStored {
                            // Ranges may have begun or ended in the gap, so none is known to be open.
                            self.leave_ranges(ring, sink);
                        }
                    }
                    None => self.taken_over(ring, gap.count),
                },
                None => self.counts.unknown_kinds += 1,
            },
            _ => self.counts.unknown_kinds += 1,
        }
    }

    fn block<S: Sink>(&self, ring: &RingState, at_ns: u64, what: BlockWhat, sink: &mut S) {
        let event = BlockEvent { process: self.number, thread: ring.thread, at_ns, what };
        sink.block(&event, &self.definitions);
    }

    /// The ring is read from `position` on. The collector before this one released cells of the ring mostly
    /// after it had stored them: cells that it had stored and not released come again, and cells that it had
    /// released and not stored are lost.
    fn taken_over(&mut self, ring: &mut RingState, position: u64) {
        if self.resumed {
            let seen = ring.seen();
            ring.repeated = seen.saturating_sub(position);
            self.lose(Loss::LostWithCollector, position.saturating_sub(seen));
        }
        self.began_before |= !self.resumed && position > 0;
        ring.position = position;
    }

    fn epoch_begin(&mut self, ring: &mut RingState, begin: &EpochBegin) {
        ring.epoch = Some(begin.epoch);
        // Calls of this epoch whose ring was read first were filed under the epoch before.
        if self.epochs.begin(begin) {
            let since_ns = self.clocks.monotonic_ns(begin.ticks);
            self.join.move_to_epoch(begin.epoch, |call| call.start_ns >= since_ns);
        }
    }
}
