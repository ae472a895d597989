//! Streams: what was executed in each, and its number in device records.

use crate::aggregate::Weight;
use crate::aggregate::bounded::Bounded;
use crate::model::counted::CountedLaunches;
use crate::model::definitions::{Definitions, StreamOrder};
use crate::model::operation::Operation;

/// Streams that have a row.
const STREAMS_MAX: usize = 1 << 16;

/// A stream that calls named.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stream {
    /// Its number in device records; 0 if none came.
    pub number: u32,
    /// Ordinal of its device.
    pub device: u32,
    pub weight: Weight,
    pub order: StreamOrder,
}

#[derive(Clone, Debug, Default)]
pub struct Streams {
    /// By process and stream definition.
    known: Bounded<(u32, u32), Stream, STREAMS_MAX>,
    /// Operations of streams that have no row.
    pub beyond: u64,
    /// How often the default stream's operations followed those of a blocking stream, or they its, on one
    /// device.
    pub turns: u64,
    /// Process, device and order of the last operation on one of these.
    last: (u32, u32, StreamOrder),
}

impl Streams {
    /// Adds an operation to the stream of its call. Nodes of a graph may run on streams of the driver's own,
    /// which have other numbers.
    #[inline]
    pub fn add(&mut self, operation: &Operation, definitions: &Definitions) {
        let Some(call) = &operation.call else { return };
        if call.stream == 0 {
            return;
        }
        let new = || {
            let order = definitions.stream(call.stream).map(|stream| stream.order()).unwrap_or_default();
            Stream { device: operation.device, order, ..Stream::default() }
        };
        let Some(stream) = self.known.row((operation.process, call.stream), new) else {
            self.beyond += 1;
            return;
        };
        if stream.order != StreamOrder::Free {
            let (process, device, order) = self.last;
            let is_turn = (process, device) == (operation.process, operation.device) && order != stream.order;
            self.turns += u64::from(is_turn && order != StreamOrder::Free);
            self.last = (operation.process, operation.device, stream.order);
        }
        // The least, so that nothing depends on which record comes first.
        stream.device = stream.device.min(operation.device);
        if operation.stream != 0 && operation.graph.is_none() {
            let known = if stream.number == 0 { u32::MAX } else { stream.number };
            stream.number = known.min(operation.stream);
        }
        let ns = operation.timing.map(|timing| timing.duration_ns);
        stream.weight.add(Weight { ns: ns.unwrap_or(0), count: 1, timed: u64::from(ns.is_some()) });
    }

    /// Adds launches that were only counted.
    pub fn add_counted(&mut self, launches: &CountedLaunches, definitions: &Definitions) {
        let CountedLaunches { process, stream, device, launches, .. } = *launches;
        if stream == 0 {
            return;
        }
        let order = definitions.stream(stream).map(|stream| stream.order()).unwrap_or_default();
        match self.known.row((process, stream), || Stream { device, order, ..Stream::default() }) {
            Some(stream) => stream.weight.add(Weight { ns: 0, count: launches, timed: 0 }),
            None => self.beyond = self.beyond.saturating_add(launches),
        }
    }

    /// The number of a stream in device records, if one came.
    pub fn number(&self, process: u32, stream: u32) -> Option<u32> {
        self.known.get(&(process, stream)).map(|known| known.number).filter(|number| *number != 0)
    }

    pub fn get(&self, process: u32, stream: u32) -> Option<&Stream> {
        self.known.get(&(process, stream))
    }

    /// By process and stream definition, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = ((u32, u32), &Stream)> {
        self.known.iter().map(|(key, stream)| (*key, stream))
    }
}
