//! `pprof`: calls, operations, times and bytes by stack, as `go tool pprof` and other readers of
//! `profile.proto` take them.
//!
//! There is no mapping: for a mapping's file, `go tool pprof` would start tools on a path that a trace names.
//! Functions have no system name: readers then leave the names as they are and do not demangle them again.
//! Samples are written one by one; kept are the strings, functions and locations, each once.

mod messages;
#[cfg(test)]
mod tests;

use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use prost::Message;
use rustc_hash::FxHashMap;

use crate::aggregate::{Leaf, NO_DEVICE, StackKey, Stacks, Weight};
use crate::export::by_stack::{self, ByStack, FrameNumbers};
use crate::export::{Event, Format, FormatEntry, Target, Trace};
use crate::memory::{Moment, NAMES};
use crate::names::line_safe;
use messages::{
    PprofFunction, PprofLabel, PprofLine, PprofLocation, PprofProfile, PprofSample, PprofValueType,
};

/// The sample types with their units, in the order of a sample's values.
const TYPES: [(&str, &str); VALUES] = [
    ("operations", "count"),
    ("device_time", "nanoseconds"),
    ("bytes", "bytes"),
    ("calls", "count"),
    ("host_time", "nanoseconds"),
    // These names are those of Go's heap profiles: `go tool pprof -inuse_space` asks for one.
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
    ("peak_objects", "count"),
    ("peak_space", "bytes"),
];
const VALUES: usize = 11;
/// How many values allocated memory has; they are the last ones.
const OF_MEMORY: usize = 6;

pub(super) const FORMAT: FormatEntry = FormatEntry {
    name: "pprof",
    about: "calls, times and bytes by stack, for go tool pprof; compressed if NAME.gz",
    target: Target::Stream,
    open: |destination| {
        Ok(Box::new(Pprof {
            out: BufWriter::with_capacity(1 << 16, destination.stream()?),
            sums: ByStack::default(),
            strings: Strings::default(),
            frames: FrameNumbers::default(),
            events: 0,
        }))
    },
};

struct Pprof {
    out: BufWriter<Box<dyn Write>>,
    sums: ByStack,
    strings: Strings,
    /// Locations, whose ids are one more than these numbers.
    frames: FrameNumbers,
    events: u64,
}

/// The string table.
#[derive(Debug, Default)]
struct Strings(FxHashMap<Arc<str>, i64>);

impl Strings {
    fn of(&mut self, text: &str) -> i64 {
        if text.is_empty() {
            return 0;
        }
        let next = self.0.len() as i64 + 1;
        *self.0.entry(line_safe(text).into()).or_insert(next)
    }
}

impl Format for Pprof {
    fn event(&mut self, event: Event<'_>, _: &mut Trace<'_>) -> io::Result<()> {
        self.events += u64::from(matches!(event, Event::Call(..) | Event::Operation(..)));
        self.sums.add(&event);
        Ok(())
    }

    fn finish(&mut self, trace: &mut Trace<'_>) -> io::Result<u64> {
        let sums = std::mem::take(&mut self.sums);
        let head = self.head(&sums, trace);
        self.write(&head)?;
        self.samples(&sums.device, trace, |weight| values(0, [weight.count, weight.ns]))?;
        self.samples(&sums.bytes, trace, |weight| values(2, [weight.ns]))?;
        self.samples(&sums.host, trace, |weight| values(3, [weight.count, weight.ns]))?;
        self.memory(trace)?;
        self.tables()?;
        self.out.flush()?;
        Ok(self.events)
    }
}

impl Pprof {
    /// Appends a part of the profile.
    fn write(&mut self, part: &PprofProfile) -> io::Result<()> {
        self.out.write_all(&part.encode_to_vec())
    }

    fn head(&mut self, sums: &ByStack, trace: &mut Trace<'_>) -> PprofProfile {
        let strings = &mut self.strings;
        let sample_type =
            TYPES.map(|(name, unit)| PprofValueType { r#type: strings.of(name), unit: strings.of(unit) });
        let default = if sums.device.has_times() { "device_time" } else { "host_time" };
        let mut comments = sums.losses();
        let not_followed: u64 =
            trace.aggregates.memory.iter().map(|(_, memory)| memory.not_followed.count).sum();
        if not_followed > 0 {
            comments.push(format!("allocations beyond those that are followed: {not_followed}"));
        }
        if !trace.is_whole {
            comments.push("memory is known of whole traces only".to_owned());
        }
        trace.warnings.extend(comments.iter().cloned());
        comments.extend(trace.missing.iter().cloned());
        if trace.totals.simulated {
            comments.push("simulated device".to_owned());
        }
        PprofProfile {
            sample_type: sample_type.into(),
            time_nanos: to_signed(trace.begin_unix_ns),
            duration_nanos: to_signed(trace.totals.wall_ns()),
            comment: comments.iter().map(|comment| strings.of(comment)).collect(),
            default_sample_type: strings.of(default),
            ..PprofProfile::default()
        }
    }

    /// Writes the samples of one kind, with the values that `values` makes of a weight.
    fn samples(
        &mut self,
        stacks: &Stacks,
        trace: &mut Trace<'_>,
        values: impl Fn(&Weight) -> [u64; VALUES],
    ) -> io::Result<()> {
        for (key, weight) in stacks.sorted() {
            let frames = by_stack::frames(trace, &key).into_iter().rev();
            let sample = PprofSample {
                location_id: frames.map(|frame| self.frames.of(frame) as u64 + 1).collect(),
                value: values(&weight).map(to_signed).into(),
                label: self.labels(trace, &key),
            };
            self.write(&PprofProfile { sample: vec![sample], ..PprofProfile::default() })?;
        }
        Ok(())
    }

    /// Writes a sample for each place that allocated: in all, what is live at the end, and at the peak of its
    /// process.
    fn memory(&mut self, trace: &mut Trace<'_>) -> io::Result<()> {
        let aggregates = trace.aggregates;
        if !trace.is_whole {
            return Ok(());
        }
        for (number, memory) in aggregates.memory.iter() {
            for site in memory.sites() {
                let kind = NAMES.get(site.kind).copied().unwrap_or("unknown");
                let mut frames = by_stack::frames_of_memory(trace, number, [site.stack, site.api], site.kind);
                frames.reverse();
                let [end, peak] = [Moment::End, Moment::Peak].map(|moment| memory.held(site, moment));
                let held = [site.allocated, end, peak];
                let of_memory: Vec<u64> = held.iter().flat_map(|held| [held.count, held.bytes]).collect();
                let mut value = vec![0; VALUES - OF_MEMORY];
                value.extend(of_memory.into_iter().map(to_signed));
                let process = trace.process_name(number);
                let label = [("process", &*process), ("memory", kind)].map(|(key, text)| PprofLabel {
                    key: self.strings.of(key),
                    str: self.strings.of(text),
                    num: 0,
                });
                let location_id = frames.into_iter().map(|frame| self.frames.of(frame) as u64 + 1).collect();
                let sample = PprofSample { location_id, value, label: label.into() };
                self.write(&PprofProfile { sample: vec![sample], ..PprofProfile::default() })?;
            }
        }
        Ok(())
    }

    /// A label of text that looks like a number would be taken for one, so only the stream is a number.
    fn labels(&mut self, trace: &Trace<'_>, key: &StackKey) -> Vec<PprofLabel> {
        let strings = &mut self.strings;
        let [process, thread] = by_stack::thread_names(trace, key);
        let mut text = vec![("process", process), ("thread", thread)];
        if key.device != NO_DEVICE && key.leaf != Leaf::Other {
            text.push(("device", trace.device_name(key.process, key.device).into()));
        }
        let info = trace.process(key.process).and_then(|process| process.definitions.process());
        if info.is_some_and(|info| info.rank.is_some()) {
            text.push(("rank", trace.labels.processes.rank(key.process).into()));
        }
        let ranges = by_stack::range_names(trace, key);
        if !ranges.is_empty() {
            text.push(("range", ranges.join(" > ").into()));
        }
        let mut label =
            |name: &str, text: &str, num| PprofLabel { key: strings.of(name), str: strings.of(text), num };
        let mut labels: Vec<_> = text.iter().map(|(name, text)| label(name, text, 0)).collect();
        if let Some(number) = trace.aggregates.streams.number(key.process, key.stream) {
            labels.push(label("stream", "", number.into()));
        }
        labels
    }

    /// Writes locations, functions and strings.
    fn tables(&mut self) -> io::Result<()> {
        let frames = std::mem::take(&mut self.frames);
        let mut functions: FxHashMap<(i64, i64), u64> = FxHashMap::default();
        for (number, frame) in frames.all().iter().enumerate() {
            let (name, filename) = (self.strings.of(&frame.name), self.strings.of(&frame.path));
            let next = functions.len() as u64 + 1;
            let function_id = *functions.entry((name, filename)).or_insert(next);
            let line = vec![PprofLine { function_id, line: frame.line.into() }];
            let mut part = PprofProfile {
                location: vec![PprofLocation { id: number as u64 + 1, line }],
                ..PprofProfile::default()
            };
            if function_id == next {
                part.function = vec![PprofFunction { id: next, name, filename }];
            }
            self.write(&part)?;
        }
        let mut strings: Vec<_> = std::mem::take(&mut self.strings).0.into_iter().collect();
        strings.sort_unstable_by_key(|(_, number)| *number);
        let texts = [String::new()].into_iter().chain(strings.iter().map(|(text, _)| text.to_string()));
        for text in texts {
            self.write(&PprofProfile { string_table: vec![text], ..PprofProfile::default() })?;
        }
        Ok(())
    }
}

/// Values with some of them set, from that one on.
fn values<const N: usize>(first: usize, some: [u64; N]) -> [u64; VALUES] {
    let mut values = [0; VALUES];
    for (value, of) in values.iter_mut().skip(first).zip(some) {
        *value = of;
    }
    values
}

fn to_signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
