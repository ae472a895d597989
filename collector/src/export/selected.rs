//! A sink before another one: passes on what is selected. The other sink gets every definition, process and
//! range, so that names are right, and no sample of a device.

use std::collections::BTreeMap;

use gputrace_wire::caller::Caller;

use crate::batch::{ProcessBegin, SessionBegin};
use crate::export::{Event, Selection, Trace};
use crate::model::Counts;
use crate::model::block::BlockEvent;
use crate::model::counted::CountedLaunches;
use crate::model::definitions::Definitions;
use crate::model::instances::RangeInstance;
use crate::model::operation::{HostCall, Operation};
use crate::model::sink::Sink;

/// The second pass over a trace, of which `trace` has the names.
pub struct Selected<'a, S> {
    selection: Selection,
    trace: Trace<'a>,
    /// What was passed on, by process.
    pub counts: BTreeMap<u32, Counts>,
    pub sink: S,
}

impl<'a, S: Sink> Selected<'a, S> {
    pub fn new(selection: Selection, trace: Trace<'a>, sink: S) -> Selected<'a, S> {
        Selected { selection, trace, counts: BTreeMap::new(), sink }
    }

    fn takes(&mut self, event: &Event<'_>) -> bool {
        self.selection.takes(event, &mut self.trace)
    }
}

impl<S: Sink> Sink for Selected<'_, S> {
    const JUDGES: bool = S::JUDGES;

    fn process_begins(&mut self, number: u32, process: &ProcessBegin, session: &SessionBegin) {
        self.trace.process_begins(number, session);
        self.sink.process_begins(number, process, session);
    }

    fn defines(&mut self, number: u32, definitions: &Definitions) {
        self.sink.defines(number, definitions);
    }

    fn host_call(&mut self, call: &HostCall, definitions: &Definitions) {
        if self.takes(&Event::Call(call, definitions)) {
            self.counts.entry(call.process).or_default().select_call(call);
            self.sink.host_call(call, definitions);
        }
    }

    fn operation(&mut self, operation: &Operation, definitions: &Definitions) {
        if self.takes(&Event::Operation(operation, definitions)) {
            self.counts.entry(operation.process).or_default().select_operation(operation);
            self.sink.operation(operation, definitions);
        }
    }

    fn counted(&mut self, launches: &CountedLaunches, definitions: &Definitions) {
        if self.selection.takes_counted(launches, definitions, &mut self.trace) {
            self.counts.entry(launches.process).or_default().counted_launches(launches.launches);
            self.sink.counted(launches, definitions);
        }
    }

    fn stream_ends(&mut self) {
        self.sink.stream_ends();
    }

    fn block(&mut self, event: &BlockEvent, definitions: &Definitions) {
        if self.takes(&Event::Block(event)) {
            self.sink.block(event, definitions);
        }
    }

    fn caller(&mut self, process: u32, number: u32, caller: &Caller, definitions: &Definitions) {
        self.sink.caller(process, number, caller, definitions);
    }

    fn range_begins(&mut self, range: &RangeInstance, definitions: &Definitions) {
        // Also where nothing comes of it: filters by range look at what is open.
        self.takes(&Event::RangeBegins(range, definitions));
        self.sink.range_begins(range, definitions);
    }

    fn range_ends(&mut self, range: &RangeInstance, definitions: &Definitions) {
        self.takes(&Event::Range(range, definitions));
        self.sink.range_ends(range, definitions);
    }

    fn process_ends(&mut self, number: u32, last_seen_ns: u64, definitions: &Definitions) {
        self.sink.process_ends(number, last_seen_ns, definitions);
    }
}
