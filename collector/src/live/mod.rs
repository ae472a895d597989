//! Tables of a running session, for whoever watches it: top kernels, lines, streams, copies and
//! memory.
//!
//! [`LiveAggregates`] is the session's aggregates and makes the tables twice a second, on the processing
//! thread, while somebody has asked a [`LiveView`] for them in the last seconds.

mod live_process;
mod memory_rows;
mod process;
mod row_limits;
mod shortage;
mod tables;
mod view;

use std::fmt;
use std::sync::Arc;

use rustc_hash::FxHashMap;

pub use live_process::LiveProcess;
pub use memory_rows::LiveMemoryRow;
pub use tables::{LiveRow, LiveTables};
pub use view::LiveView;

use crate::aggregate::Aggregates;
use crate::batch::{DeviceSamples, ProcessBegin, SessionBegin};
use crate::live::process::Observed;
use crate::live::shortage::Shortages;
use crate::memory::REORDERED_NS;
use crate::model::block::BlockEvent;
use crate::model::counted::CountedLaunches;
use crate::model::definitions::Definitions;
use crate::model::operation::{HostCall, Operation};
use crate::model::process_snapshot::ProcessSnapshot;
use crate::model::sink::Sink;

/// The aggregates of a running session, with the view that shows them.
#[derive(Debug, Default)]
pub struct LiveAggregates {
    pub aggregates: Aggregates,
    pub view: Arc<LiveView>,
    /// Called on the processing thread with a text that the user should see at once: who holds the memory
    /// that a program lacks.
    pub write_message: Option<MessageWriter>,
    running: FxHashMap<u32, Observed>,
    shortages: Shortages,
}

/// Writes a text for the user.
pub struct MessageWriter(pub Box<dyn Fn(&str) + Send>);

impl fmt::Debug for MessageWriter {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("MessageWriter")
    }
}

impl Sink for LiveAggregates {
    const JUDGES: bool = Aggregates::JUDGES;

    fn process_begins(&mut self, number: u32, process: &ProcessBegin, session: &SessionBegin) {
        self.aggregates.process_begins(number, process, session);
        self.running.insert(number, Observed::new(process.pid));
    }

    #[inline]
    fn host_call(&mut self, call: &HostCall, definitions: &Definitions) {
        self.aggregates.host_call(call, definitions);
        self.shortages.call(call);
    }

    #[inline]
    fn operation(&mut self, operation: &Operation, definitions: &Definitions) {
        self.aggregates.operation(operation, definitions);
    }

    fn counted(&mut self, launches: &CountedLaunches, definitions: &Definitions) {
        self.aggregates.counted(launches, definitions);
    }

    fn stream_ends(&mut self) {
        self.aggregates.stream_ends();
    }

    #[inline]
    fn block(&mut self, event: &BlockEvent, definitions: &Definitions) {
        self.aggregates.block(event, definitions);
    }

    fn snapshot(&mut self, number: u32, snapshot: &ProcessSnapshot<'_>, _: &Definitions) {
        if let Some(observed) = self.running.get_mut(&number) {
            observed.snapshot(snapshot);
        }
    }

    fn device_samples(&mut self, samples: &DeviceSamples) {
        self.aggregates.device_samples(samples);
    }

    fn time_passes(&mut self, number: u32, now_ns: u64, definitions: &Definitions) {
        let message = self.shortages.due(number, now_ns, &mut self.aggregates, definitions);
        self.write_message(message);
        let Some(observed) = self.running.get_mut(&number) else { return };
        let aggregates = &mut self.aggregates;
        let make = || {
            // What is older has arrived from all threads, so that watching changes no figure.
            let arrived_ns = now_ns.saturating_sub(REORDERED_NS);
            aggregates.memory.catch_up(number, arrived_ns);
            observed.tables(number, aggregates, arrived_ns, definitions)
        };
        self.view.refresh(number, now_ns, make);
    }

    fn process_ends(&mut self, number: u32, last_seen_ns: u64, definitions: &Definitions) {
        self.aggregates.process_ends(number, last_seen_ns, definitions);
        let message = self.shortages.ended(number, last_seen_ns, &self.aggregates, definitions);
        self.write_message(message);
        self.running.remove(&number);
        self.view.forget(number);
    }
}

impl LiveAggregates {
    fn write_message(&self, message: Option<String>) {
        if let (Some(MessageWriter(write)), Some(message)) = (&self.write_message, message) {
            write(&message);
        }
    }
}
