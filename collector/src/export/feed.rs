//! The sink of the second pass: passes the model's events on to a format, and keeps its first error.

use std::io;

use gputrace_wire::caller::Caller;

use crate::batch::{ProcessBegin, SessionBegin};
use crate::export::{Event, Format, Trace};
use crate::model::definitions::Definitions;
use crate::model::instances::RangeInstance;
use crate::model::operation::{HostCall, Operation};
use crate::model::sink::Sink;

pub struct Feed<'a> {
    trace: Trace<'a>,
    format: Box<dyn Format>,
    error: Option<io::Error>,
}

impl<'a> Feed<'a> {
    /// Begins the output. An error comes from [`Feed::finish`].
    pub fn new(mut trace: Trace<'a>, mut format: Box<dyn Format>) -> Feed<'a> {
        let error = format.begin(&mut trace).err();
        Feed { trace, format, error }
    }

    /// Completes the output, and returns how many events it has, or the first error.
    pub fn finish(mut self) -> io::Result<u64> {
        match self.error {
            Some(error) => Err(error),
            None => self.format.finish(&mut self.trace),
        }
    }

    fn pass_on(&mut self, event: Event<'_>) {
        if self.error.is_none() {
            self.error = self.format.event(event, &mut self.trace).err();
        }
    }
}

impl Sink for Feed<'_> {
    fn process_begins(&mut self, number: u32, process: &ProcessBegin, session: &SessionBegin) {
        self.trace.process_begins(number, session);
        self.pass_on(Event::ProcessBegins { number, process, session });
    }

    fn host_call(&mut self, call: &HostCall, definitions: &Definitions) {
        self.pass_on(Event::Call(call, definitions));
    }

    fn operation(&mut self, operation: &Operation, definitions: &Definitions) {
        self.pass_on(Event::Operation(operation, definitions));
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

    fn process_ends(&mut self, number: u32, last_seen_ns: u64, definitions: &Definitions) {
        self.pass_on(Event::ProcessEnds { number, last_seen_ns, definitions });
    }
}
