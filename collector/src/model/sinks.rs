//! Several sinks as one, since the model feeds exactly one, of a static type.

use gputrace_wire::caller::Caller;

use crate::batch::{DeviceSamples, ProcessBegin, SessionBegin};
use crate::model::block::BlockEvent;
use crate::model::counted::CountedLaunches;
use crate::model::definitions::Definitions;
use crate::model::instances::RangeInstance;
use crate::model::operation::{HostCall, Operation};
use crate::model::process_snapshot::ProcessSnapshot;
use crate::model::sink::Sink;

impl Sink for () {
    fn host_call(&mut self, _: &HostCall, _: &Definitions) {}
    fn operation(&mut self, _: &Operation, _: &Definitions) {}
}

/// Every method of [`Sink`]; the macro `$hand_on` passes each call to the inner sinks.
macro_rules! methods {
    ($self:ident, $hand_on:ident) => {
        fn process_begins(&mut $self, number: u32, process: &ProcessBegin, session: &SessionBegin) {
            $hand_on!($self.process_begins(number, process, session));
        }
        fn defines(&mut $self, number: u32, definitions: &Definitions) {
            $hand_on!($self.defines(number, definitions));
        }
        #[inline]
        fn host_call(&mut $self, call: &HostCall, definitions: &Definitions) {
            $hand_on!($self.host_call(call, definitions));
        }
        #[inline]
        fn operation(&mut $self, operation: &Operation, definitions: &Definitions) {
            $hand_on!($self.operation(operation, definitions));
        }
        fn counted(&mut $self, launches: &CountedLaunches, definitions: &Definitions) {
            $hand_on!($self.counted(launches, definitions));
        }
        fn stream_ends(&mut $self) {
            $hand_on!($self.stream_ends());
        }
        #[inline]
        fn block(&mut $self, event: &BlockEvent, definitions: &Definitions) {
            $hand_on!($self.block(event, definitions));
        }
        fn caller(&mut $self, process: u32, number: u32, caller: &Caller, definitions: &Definitions) {
            $hand_on!($self.caller(process, number, caller, definitions));
        }
        fn range_begins(&mut $self, range: &RangeInstance, definitions: &Definitions) {
            $hand_on!($self.range_begins(range, definitions));
        }
        fn range_ends(&mut $self, range: &RangeInstance, definitions: &Definitions) {
            $hand_on!($self.range_ends(range, definitions));
        }
        fn snapshot(&mut $self, number: u32, snapshot: &ProcessSnapshot<'_>, definitions: &Definitions) {
            $hand_on!($self.snapshot(number, snapshot, definitions));
        }
        fn process_ends(&mut $self, number: u32, last_seen_ns: u64, definitions: &Definitions) {
            $hand_on!($self.process_ends(number, last_seen_ns, definitions));
        }
        fn device_samples(&mut $self, samples: &DeviceSamples) {
            $hand_on!($self.device_samples(samples));
        }
        fn time_passes(&mut $self, number: u32, now_ns: u64, definitions: &Definitions) {
            $hand_on!($self.time_passes(number, now_ns, definitions));
        }
    };
}

macro_rules! to_items {
    ($self:ident.$method:ident($($argument:expr),*)) => {
        $self.iter_mut().for_each(|sink| sink.$method($($argument),*))
    };
}

macro_rules! to_pair {
    ($self:ident.$method:ident($($argument:expr),*)) => {
        $self.0.$method($($argument),*);
        $self.1.$method($($argument),*);
    };
}

macro_rules! to_triple {
    ($self:ident.$method:ident($($argument:expr),*)) => {
        to_pair!($self.$method($($argument),*));
        $self.2.$method($($argument),*);
    };
}

impl<S: Sink> Sink for Option<S> {
    const JUDGES: bool = S::JUDGES;
    methods!(self, to_items);
}

impl<A: Sink, B: Sink> Sink for (A, B) {
    const JUDGES: bool = A::JUDGES || B::JUDGES;
    methods!(self, to_pair);
}

impl<A: Sink, B: Sink, C: Sink> Sink for (A, B, C) {
    const JUDGES: bool = A::JUDGES || B::JUDGES || C::JUDGES;
    methods!(self, to_triple);
}
