//! The sink of the second pass: passes the selected events of the model on to a format, and keeps its first
//! error.

use std::io;

use gputrace_wire::caller::Caller;

use crate::batch::{DeviceSamples, ProcessBegin, SessionBegin};
use crate::export::early::EarlyRanges;
use crate::export::{Event, Format, Selection, Trace};
use crate::model::block::BlockEvent;
use crate::model::definitions::Definitions;
use crate::model::instances::RangeInstance;
use crate::model::operation::{HostCall, Operation};
use crate::model::sink::Sink;

pub struct Feed<'a> {
    trace: Trace<'a>,
    format: Box<dyn Format>,
    selection: Selection,
    early: EarlyRanges,
    left_out: u64,
    error: Option<io::Error>,
}

/// What became of an export.
#[derive(Debug)]
pub struct Fed {
    /// How many events the output has, or the first error.
    pub written: io::Result<u64>,
    /// Calls, operations and ranges that the selection left out.
    pub left_out: u64,
    pub warnings: Vec<String>,
}

impl<'a> Feed<'a> {
    /// Begins the output with everything in it. An error comes from [`Feed::finish`].
    pub fn new(trace: Trace<'a>, format: Box<dyn Format>) -> Feed<'a> {
        Feed::of(Selection::default(), trace, format)
    }

    /// Begins the output with what is selected.
    pub fn of(selection: Selection, mut trace: Trace<'a>, mut format: Box<dyn Format>) -> Feed<'a> {
        trace.is_whole = selection.is_everything();
        let error = format.begin(&mut trace).err();
        Feed { trace, format, selection, early: EarlyRanges::default(), left_out: 0, error }
    }

    /// Completes the output, and returns how many events it has, or the first error.
    pub fn finish(self) -> io::Result<u64> {
        self.end().written
    }

    /// Completes the output.
    pub fn end(mut self) -> Fed {
        let written = match self.error {
            Some(error) => Err(error),
            None => self.format.finish(&mut self.trace),
        };
        Fed { written, left_out: self.left_out, warnings: self.trace.warnings }
    }

    #[inline]
    fn pass_on(&mut self, event: Event<'_>) {
        if self.error.is_some() {
            return;
        }
        let is_taken = self.selection.takes(&event, &mut self.trace);
        match event {
            _ if self.selection.is_everything() => self.give(event),
            Event::RangeBegins(range, definitions) => {
                if is_taken && !self.selection.has_begun(range.process, range.start_ns, &self.trace) {
                    self.early.begins(range);
                } else if is_taken {
                    return self.give(event);
                }
                self.format.left_out_range(range, false, definitions);
            }
            Event::Range(range, definitions) if is_taken => {
                if let Some(thread) = self.early.thread_of(range) {
                    self.give_early(range.process, thread, definitions);
                }
                self.give(event);
            }
            Event::Range(range, definitions) => {
                self.early.remove(range);
                self.left_out += 1;
                self.format.left_out_range(range, true, definitions);
            }
            Event::Call(call, definitions) if is_taken => {
                self.give_early(call.process, call.thread, definitions);
                self.give(event);
            }
            _ if is_taken => self.give(event),
            Event::Call(..) | Event::Operation(..) => self.left_out += 1,
            _ => {}
        }
    }

    /// The ranges around what comes next.
    fn give_early(&mut self, process: u32, thread: u32, definitions: &Definitions) {
        for range in self.early.take(process, thread) {
            self.give(Event::RangeBegins(&range, definitions));
        }
    }

    fn give(&mut self, event: Event<'_>) {
        if self.error.is_none() {
            self.error = self.format.event(event, &mut self.trace).err();
        }
    }
}

impl Sink for Feed<'_> {
    const JUDGES: bool = true;

    fn process_begins(&mut self, number: u32, process: &ProcessBegin, session: &SessionBegin) {
        self.trace.process_begins(number, session);
        self.pass_on(Event::ProcessBegins { number, process, session });
    }

    fn defines(&mut self, number: u32, definitions: &Definitions) {
        self.pass_on(Event::Defines { number, definitions });
    }

    fn host_call(&mut self, call: &HostCall, definitions: &Definitions) {
        self.pass_on(Event::Call(call, definitions));
    }

    fn operation(&mut self, operation: &Operation, definitions: &Definitions) {
        self.pass_on(Event::Operation(operation, definitions));
    }

    fn block(&mut self, event: &BlockEvent, _: &Definitions) {
        self.pass_on(Event::Block(event));
    }

    fn caller(&mut self, process: u32, number: u32, caller: &Caller, definitions: &Definitions) {
        self.pass_on(Event::Caller { process, number, caller, definitions });
    }

    fn range_begins(&mut self, range: &RangeInstance, definitions: &Definitions) {
        self.pass_on(Event::RangeBegins(range, definitions));
    }

    fn range_ends(&mut self, range: &RangeInstance, definitions: &Definitions) {
        self.pass_on(Event::Range(range, definitions));
    }

    fn device_samples(&mut self, samples: &DeviceSamples) {
        if self.selection.is_everything() {
            return self.give(Event::Samples(samples));
        }
        if let Some(taken) = self.selection.samples(samples, &mut self.trace) {
            self.give(Event::Samples(&taken));
        }
    }

    fn process_ends(&mut self, number: u32, last_seen_ns: u64, definitions: &Definitions) {
        self.pass_on(Event::ProcessEnds { number, last_seen_ns, definitions });
    }
}
