//! Streams: by which number the device records know what the calls name.

use rustc_hash::FxHashMap;

use crate::model::operation::Operation;

/// Streams whose numbers are kept.
const STREAMS_MAX: usize = 1 << 16;

#[derive(Clone, Debug, Default)]
pub struct Streams {
    /// By process and stream definition.
    numbers: FxHashMap<(u32, u32), u32>,
}

impl Streams {
    /// Notes the number of the stream that an operation's call was for. A graph's nodes may run on
    /// streams of the driver's own.
    #[inline]
    pub fn note(&mut self, operation: &Operation) {
        let Some(call) = &operation.call else { return };
        if call.stream == 0 || operation.stream == 0 || operation.graph.is_some() {
            return;
        }
        let key = (operation.process, call.stream);
        let is_room = self.numbers.len() < STREAMS_MAX;
        match self.numbers.get_mut(&key) {
            // The least, so that it does not depend on which record comes first.
            Some(number) => *number = operation.stream.min(*number),
            None if is_room => _ = self.numbers.insert(key, operation.stream),
            None => {}
        }
    }

    /// The number of a stream in device records, if one came.
    pub fn number(&self, process: u32, stream: u32) -> Option<u32> {
        self.numbers.get(&(process, stream)).copied()
    }
}
