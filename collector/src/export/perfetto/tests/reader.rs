//! Reads a Perfetto trace as its trace processor does: names by sequence, times by clock, slices by track.

use std::collections::{BTreeMap, HashMap};

use crate::export::perfetto::message::tests::fields;

/// A slice or a moment.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ReadSlice {
    pub track: u64,
    pub start_ns: u64,
    /// `None` for a moment.
    pub duration_ns: Option<u64>,
    pub name: String,
    pub category: String,
    pub flows: Vec<u64>,
    /// The source's function, and annotations by key.
    pub function: Option<String>,
    pub texts: BTreeMap<String, String>,
    pub numbers: BTreeMap<String, u64>,
    /// How many slices of its track are around it.
    pub depth: usize,
    /// The packets of its begin and end, without the names that they define.
    pub bytes: usize,
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct ReadTrack {
    pub name: String,
    pub parent: u64,
    /// The process id, and the thread's for a thread.
    pub ids: Option<(u64, Option<u64>)>,
}

#[derive(Debug, Default)]
pub struct ReadTrace {
    pub slices: Vec<ReadSlice>,
    pub tracks: BTreeMap<u64, ReadTrack>,
    /// Values of counters by track, by time.
    pub counters: BTreeMap<u64, Vec<(u64, i64)>>,
    pub sequences: usize,
}

#[derive(Default)]
struct ReadSequence {
    now: u64,
    track: u64,
    /// By field of the interned data, and number.
    names: HashMap<(u32, u64), Vec<u8>>,
}

/// A text; it must be UTF-8 without control characters.
fn text(bytes: &[u8]) -> String {
    let text = std::str::from_utf8(bytes).expect("names are UTF-8");
    assert!(!text.chars().any(char::is_control), "{text:?} has control characters");
    text.to_owned()
}

fn number(message: &[u8], field: u32) -> Option<u64> {
    fields(message).into_iter().find(|(number, _)| *number == field).map(|(_, value)| value.number())
}

fn inside(message: &[u8], field: u32) -> Option<&[u8]> {
    fields(message).into_iter().find(|(number, _)| *number == field).map(|(_, value)| value.bytes())
}

impl ReadSequence {
    fn name(&self, kind: u32, number: u64) -> String {
        let entry = self.names.get(&(kind, number)).expect("a name is defined before it is used");
        text(inside(entry, 2).unwrap())
    }
}

/// Reads a trace. Panics if it is not valid, or if slices of one track do not nest.
pub fn read(bytes: &[u8]) -> ReadTrace {
    let mut read = ReadTrace::default();
    let mut sequences: HashMap<u64, ReadSequence> = HashMap::new();
    let mut open: HashMap<u64, Vec<usize>> = HashMap::new();
    let mut last: HashMap<u64, u64> = HashMap::new();
    for (field, packet) in fields(bytes) {
        assert_eq!(field, 1);
        let packet = packet.bytes();
        let id = number(packet, 10).expect("every packet names its sequence");
        let sequence = sequences.entry(id).or_default();
        if number(packet, 13) == Some(1) {
            let defaults = inside(packet, 59).unwrap();
            assert_eq!(number(defaults, 58), Some(64));
            sequence.track = number(inside(defaults, 11).unwrap(), 11).unwrap();
            sequence.names.clear();
            let clocks = fields(inside(packet, 6).unwrap());
            let times: Vec<u64> = clocks
                .iter()
                .filter(|(field, _)| *field == 1)
                .filter_map(|(_, clock)| number(clock.bytes(), 2))
                .collect();
            assert!(times.len() == 3 && times.iter().all(|time| *time == times[0]));
            sequence.now = times[0];
        }
        if let Some(track) = inside(packet, 60) {
            let name = |message: &[u8], field| inside(message, field).map(text);
            let ids = inside(track, 3)
                .map(|process| (number(process, 1).unwrap(), None))
                .or(inside(track, 4).map(|thread| (number(thread, 1).unwrap(), number(thread, 2))));
            let made = ReadTrack {
                name: name(track, 2)
                    .or_else(|| inside(track, 3).and_then(|process| name(process, 6)))
                    .or_else(|| inside(track, 4).and_then(|thread| name(thread, 5)))
                    .unwrap(),
                parent: number(track, 5).unwrap_or(0),
                ids,
            };
            assert!(
                read.tracks.insert(number(track, 1).unwrap(), made).is_none(),
                "tracks have one number each"
            );
        }
        let interned = inside(packet, 12).unwrap_or_default();
        for (kind, entry) in fields(interned) {
            let entry = entry.bytes();
            sequence.names.insert((kind, number(entry, 1).unwrap()), entry.to_vec());
        }
        let Some(event) = inside(packet, 11) else { continue };
        let stamp = number(packet, 8).unwrap();
        let at_ns = match number(packet, 58) {
            None => {
                sequence.now += stamp;
                sequence.now
            }
            Some(clock) => {
                assert_eq!(clock, 6);
                stamp
            }
        };
        let track = number(event, 11).unwrap_or(sequence.track);
        assert!(read.tracks.contains_key(&track), "a track is described before its events");
        let known_bytes = 2 + packet.len() - if interned.is_empty() { 0 } else { 2 + interned.len() };
        let mut slice = ReadSlice { track, start_ns: at_ns, bytes: known_bytes, ..ReadSlice::default() };
        for (field, value) in fields(event) {
            match field {
                3 => slice.category = sequence.name(1, value.number()),
                10 => slice.name = sequence.name(2, value.number()),
                34 => {
                    let source = &sequence.names[&(4, value.number())];
                    slice.function = inside(source, 3).map(text);
                }
                47 | 48 => slice.flows.push(value.number()),
                4 => {
                    let key = sequence.name(3, number(value.bytes(), 1).unwrap());
                    match (number(value.bytes(), 3), number(value.bytes(), 17)) {
                        (Some(number), None) => _ = slice.numbers.insert(key, number),
                        (None, Some(text)) => _ = slice.texts.insert(key, sequence.name(29, text)),
                        other => panic!("{other:?}"),
                    }
                }
                _ => {}
            }
        }
        let kind = number(event, 9).unwrap();
        if kind == 4 {
            read.counters.entry(track).or_default().push((at_ns, number(event, 30).unwrap().cast_signed()));
            continue;
        }
        // Perfetto sorts by time, and keeps the order of the file where times are equal.
        let before = last.insert(track, at_ns).filter(|_| kind != 3).unwrap_or(0);
        assert!(before <= at_ns, "events of track {track} go back by {} ns", before - at_ns);
        let stack = open.entry(track).or_default();
        match kind {
            1 => {
                slice.depth = stack.len();
                stack.push(read.slices.len());
                read.slices.push(slice);
            }
            2 => {
                let began = &mut read.slices[stack.pop().expect("an end has a begin")];
                began.duration_ns = Some(at_ns - began.start_ns);
                began.bytes += slice.bytes;
                began.numbers.append(&mut slice.numbers);
            }
            3 => read.slices.push(slice),
            other => panic!("event type {other}"),
        }
    }
    assert!(open.values().all(Vec::is_empty), "every slice ends");
    for values in read.counters.values() {
        assert!(values.is_sorted_by_key(|(at_ns, _)| *at_ns));
    }
    read.sequences = sequences.len();
    read
}

impl ReadTrace {
    pub fn of_category(&self, category: &str) -> Vec<&ReadSlice> {
        self.slices.iter().filter(|slice| slice.category == category).collect()
    }

    /// The tracks with that name.
    pub fn tracks_named(&self, name: &str) -> Vec<u64> {
        self.tracks.iter().filter(|(_, track)| track.name == name).map(|(number, _)| *number).collect()
    }
}
