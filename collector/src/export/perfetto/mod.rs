//! Traces for Perfetto: track events, as `ui.perfetto.dev` and its trace processor read them.
//!
//! Every process has a track for each thread, with calls and ranges, and one for each device, with a timeline
//! for each stream. A flow leads from a call to what it executed. What was sampled of a device has tracks
//! above the processes. Owns the encoding ([`message`],
//! [`sequence`]), the tracks, and a few executions of each stream that wait for earlier ones.

mod message;
mod process;
mod rows;
mod sampled;
mod sequence;
mod steps;
mod streams;
#[cfg(test)]
mod tests;
mod threads;
mod tracks;

use std::io;

use rustc_hash::FxHashMap;

use crate::export::memory_counters::MemoryCounters;
use crate::export::{Destination, Event, Format, FormatEntry, Target, Trace};
use process::ProcessTracks;
use sampled::SampledTracks;
use sequence::Packets;
use tracks::{SystemIds, Tracks};

pub const FORMAT: FormatEntry = FormatEntry {
    name: "perfetto",
    about: "for ui.perfetto.dev and its trace processor: timeline of threads and devices, with flows",
    target: Target::Stream,
    open,
};

struct Perfetto {
    tracks: Tracks,
    processes: FxHashMap<u32, ProcessTracks>,
    sampled: SampledTracks,
    memory: MemoryCounters,
    pids: SystemIds,
    tids: SystemIds,
}

fn open(destination: Destination) -> io::Result<Box<dyn Format>> {
    Ok(Box::new(Perfetto {
        tracks: Tracks::new(Packets::new(destination.stream()?)),
        processes: FxHashMap::default(),
        sampled: SampledTracks::default(),
        memory: MemoryCounters::default(),
        pids: SystemIds::default(),
        tids: SystemIds::default(),
    }))
}

impl Perfetto {
    /// Passes on to the process's tracks, which its begin made.
    fn process(&mut self, number: u32, trace: &Trace<'_>) -> io::Result<()> {
        if !self.processes.contains_key(&number) {
            let made = ProcessTracks::new(&mut self.tracks, number, &mut self.pids, trace)?;
            self.processes.insert(number, made);
        }
        Ok(())
    }
}

impl Format for Perfetto {
    fn begin(&mut self, trace: &mut Trace<'_>) -> io::Result<()> {
        let begins = trace.totals.sessions.iter().map(|session| session.begin.realtime_ns);
        let begin_ns = begins.min().unwrap_or(0);
        self.tracks.packets.begins(begin_ns);
        if trace.missing.is_empty() { Ok(()) } else { self.tracks.note(begin_ns, &trace.missing.join("; ")) }
    }

    fn event(&mut self, event: Event<'_>, trace: &mut Trace<'_>) -> io::Result<()> {
        let (tracks, tids) = (&mut self.tracks, &mut self.tids);
        let processes = &mut self.processes;
        match event {
            Event::ProcessBegins { number, .. } => self.process(number, trace),
            Event::Defines { .. } | Event::Block(_) => Ok(()),
            Event::Samples(samples) => self.sampled.add(tracks, samples, trace),
            Event::Call(call, definitions) => match processes.get_mut(&call.process) {
                Some(process) => {
                    process.call(tracks, call, definitions, tids, trace)?;
                    let values = self.memory.call(call, definitions, trace);
                    process.memory(tracks, &values, &self.memory, trace)
                }
                None => Ok(()),
            },
            Event::Operation(operation, _) => match processes.get_mut(&operation.process) {
                Some(process) => process.operation(tracks, operation, trace),
                None => Ok(()),
            },
            Event::Caller { process, number, caller, .. } => {
                processes.get_mut(&process).into_iter().for_each(|process| process.caller(number, caller));
                Ok(())
            }
            Event::RangeBegins(range, definitions) => match processes.get_mut(&range.process) {
                Some(process) => process.range_begins(tracks, range, definitions, tids, trace),
                None => Ok(()),
            },
            Event::Range(range, definitions) => match processes.get_mut(&range.process) {
                Some(process) => process.range_ends(tracks, range, definitions, trace),
                None => Ok(()),
            },
            Event::ProcessEnds { number, last_seen_ns, .. } => match processes.remove(&number) {
                Some(mut ended) => {
                    let values = self.memory.process_ends(number, last_seen_ns, trace);
                    ended.memory(tracks, &values, &self.memory, trace)?;
                    ended.finish(tracks, last_seen_ns, trace)
                }
                None => Ok(()),
            },
        }
    }

    fn finish(&mut self, trace: &mut Trace<'_>) -> io::Result<u64> {
        for (number, mut process) in self.processes.drain() {
            let values = self.memory.process_ends(number, 0, trace);
            process.memory(&mut self.tracks, &values, &self.memory, trace)?;
            process.finish(&mut self.tracks, 0, trace)?;
        }
        self.sampled.finish(&mut self.tracks)?;
        self.tracks.packets.finish()?;
        Ok(self.tracks.written)
    }
}
