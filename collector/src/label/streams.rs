//! Names of streams: the program's label if there is one, else the number in device records.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use crate::aggregate::{Aggregates, MANY_STREAMS};
use crate::label::ProcessNames;
use crate::model::definitions::{Definitions, LEGACY_STREAM, PER_THREAD_STREAM};

const UNKNOWN: &str = "(no stream known)";

/// The name of a stream definition; `number` is the stream's number in device records. `None` if there is
/// neither a label nor a number.
pub fn stream_name(definitions: &Definitions, stream: u32, number: Option<u32>) -> Option<String> {
    let label = definitions.label(stream);
    if !label.is_empty() {
        return Some(format!("stream {label}"));
    }
    match definitions.stream(stream)?.handle {
        LEGACY_STREAM => Some("default stream".to_owned()),
        PER_THREAD_STREAM => Some("per-thread default stream".to_owned()),
        _ => number.map(|number| format!("stream {number}")),
    }
}

/// Names of the streams of one output by process and definition.
#[derive(Debug)]
pub struct StreamNames(FxHashMap<(u32, u32), String>);

impl StreamNames {
    /// `shown` has the (process, stream definition) pairs that the output shows. Streams of one process that
    /// share a name get numbers in order of definition.
    pub fn new(
        processes: &ProcessNames<'_>,
        aggregates: &Aggregates,
        shown: &BTreeSet<(u32, u32)>,
    ) -> StreamNames {
        let mut uses: FxHashMap<(u32, String), Vec<u32>> = FxHashMap::default();
        let mut unnamed: FxHashMap<u32, u32> = FxHashMap::default();
        for (process, stream) in shown.iter().copied() {
            let name = processes.definitions(process).and_then(|known| {
                known.stream(stream)?;
                stream_name(known, stream, aggregates.streams.number(process, stream))
            });
            let name = match name {
                _ if stream == 0 => UNKNOWN.to_owned(),
                _ if stream == MANY_STREAMS => "(more streams than are told apart)".to_owned(),
                Some(name) => name,
                None => {
                    let count = unnamed.entry(process).or_default();
                    *count += 1;
                    format!("stream #{count}")
                }
            };
            uses.entry((process, name)).or_default().push(stream);
        }
        let mut names = FxHashMap::default();
        for ((process, name), streams) in uses {
            for (index, stream) in streams.iter().enumerate() {
                let text = if streams.len() > 1 { format!("{name} [{}]", index + 1) } else { name.clone() };
                names.insert((process, *stream), text);
            }
        }
        StreamNames(names)
    }

    pub fn stream(&self, process: u32, stream: u32) -> &str {
        self.0.get(&(process, stream)).map_or(UNKNOWN, String::as_str)
    }
}
