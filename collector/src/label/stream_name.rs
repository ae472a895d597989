//! What a stream is called: as the program says, else as the device records do.

use crate::model::definitions::Definitions;

/// The handles of the default streams, as their definitions have them.
pub(crate) const LEGACY_STREAM: u64 = 1;
pub(crate) const PER_THREAD_STREAM: u64 = 2;

/// The name of the stream that a definition stands for, with its number in device records; `None` where
/// neither the program nor a record says.
pub(crate) fn stream_name(definitions: &Definitions, stream: u32, number: Option<u32>) -> Option<String> {
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
