//! `torch-snapshot`: the memory of one process as PyTorch writes it of its own allocator, for the viewer at
//! pytorch.org/memory_viz and other readers of that format.
//!
//! Each allocation of the driver is a segment, of one block where blocks are not recorded. Of several
//! processes, the one with the highest peak is written.

mod history;
mod pickle;
mod segments;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};

use rustc_hash::FxHashMap;

use crate::export::by_stack::{ViewerFrame, frames_of_memory};
use crate::export::{Event, Format, FormatEntry, Target, Trace};
use crate::memory::BLOCK;
use history::{Action, MemoryHistory, MemoryStep};
use pickle::{Memo, Pickle};
use segments::{SegmentPiece, SnapshotSegment};

pub(super) const FORMAT: FormatEntry = FormatEntry {
    name: "torch-snapshot",
    about: "device memory of one process, for pytorch.org/memory_viz",
    target: Target::Stream,
    open: |destination| {
        let out = Some(destination.stream()?);
        Ok(Box::new(TorchSnapshot { out, processes: BTreeMap::new(), blocks: BTreeMap::new() }))
    },
};

/// Segments of at least so many bytes are PyTorch's large ones.
const LARGE_BYTES: u64 = 2 << 20;

struct TorchSnapshot {
    out: Option<Box<dyn Write>>,
    processes: BTreeMap<u32, MemoryHistory>,
    /// Of processes whose blocks are recorded.
    blocks: BTreeMap<u32, MemoryHistory>,
}

impl Format for TorchSnapshot {
    fn event(&mut self, event: Event<'_>, _: &mut Trace<'_>) -> io::Result<()> {
        match event {
            Event::Call(call, definitions) => {
                self.processes.entry(call.process).or_default().add(call, definitions);
            }
            Event::Block(event) => self.blocks.entry(event.process).or_default().add_block(event),
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self, trace: &mut Trace<'_>) -> io::Result<u64> {
        let Some(out) = self.out.take() else { return Ok(0) };
        let peak =
            |number: u32| trace.aggregates.memory.process(number).map_or(0, |memory| memory.peak.bytes);
        let mut using: Vec<u32> = self.processes.keys().copied().filter(|number| peak(*number) > 0).collect();
        using.sort_by_key(|number| std::cmp::Reverse(peak(*number)));
        let number = using.first().copied().unwrap_or(0);
        let mut history = self.processes.remove(&number).unwrap_or_default();
        if let [first, _, ..] = using[..] {
            trace.warnings.push(format!(
                "of {} processes with memory, {} is in the snapshot: choose with --filter process=PID",
                using.len(),
                trace.process_name(first)
            ));
        }
        let mut entries = history.finish();
        let mut blocks = self.blocks.remove(&number);
        if let Some(blocks) = &mut blocks {
            entries.extend(blocks.finish());
            entries.sort_by_key(|entry| entry.at_ns);
            history.dropped += blocks.dropped;
            history.not_followed += blocks.not_followed;
        }
        for (lost, what) in [
            (history.dropped, "earlier allocations and frees are not in device_traces"),
            (history.not_followed, "allocations beyond those that are followed are left out"),
        ] {
            if lost > 0 {
                trace.warnings.push(format!("{lost} {what}"));
            }
        }
        let mut writer = SnapshotWriter {
            pickle: Pickle::new(BufWriter::with_capacity(1 << 16, out))?,
            total_bytes: device_bytes(trace, number),
            number,
            trace,
            keys: FxHashMap::default(),
            frames: FxHashMap::default(),
            stacks: FxHashMap::default(),
            has_blocks: blocks.is_some(),
        };
        writer.snapshot(&segments::of(&history, blocks.as_ref(), &entries), &entries)?;
        writer.pickle.end()?.flush()?;
        Ok(entries.len() as u64)
    }
}

/// The memory of the process's only device; 0 where it has several, for no call says which.
fn device_bytes(trace: &Trace<'_>, number: u32) -> u64 {
    let mut devices = trace.process(number).into_iter().flat_map(|process| process.definitions.devices());
    devices.next().filter(|_| devices.next().is_none()).map_or(0, |device| device.total_memory_bytes)
}

struct SnapshotWriter<'t, 'a> {
    pickle: Pickle<BufWriter<Box<dyn Write>>>,
    trace: &'t mut Trace<'a>,
    number: u32,
    total_bytes: u64,
    /// What was written before, to be named again.
    keys: FxHashMap<&'static str, Memo>,
    frames: FxHashMap<ViewerFrame, Memo>,
    stacks: FxHashMap<(u32, u32, usize), Memo>,
    has_blocks: bool,
}

impl SnapshotWriter<'_, '_> {
    fn snapshot(&mut self, segments: &[SnapshotSegment], entries: &[MemoryStep]) -> io::Result<()> {
        self.pickle.begin_dict()?;
        self.key("segments")?;
        self.pickle.begin_list()?;
        segments.iter().try_for_each(|segment| self.segment(segment))?;
        self.pickle.end_list()?;
        // One list a device; all that is known is in the first.
        self.key("device_traces")?;
        self.pickle.begin_list()?;
        self.pickle.begin_list()?;
        entries.iter().try_for_each(|entry| self.entry(entry))?;
        self.pickle.end_list()?;
        self.pickle.end_list()?;
        self.key("allocator_settings")?;
        self.pickle.begin_dict()?;
        self.pickle.end_dict()?;
        self.key("external_annotations")?;
        self.pickle.begin_list()?;
        self.pickle.end_list()?;
        self.pickle.end_dict()
    }

    fn segment(&mut self, segment: &SnapshotSegment) -> io::Result<()> {
        self.pickle.begin_dict()?;
        self.numbers(&[("device", 0), ("address", segment.address), ("total_size", segment.bytes)])?;
        let allocated = segment.allocated_bytes();
        self.numbers(&[("allocated_size", allocated), ("active_size", allocated)])?;
        self.numbers(&[("requested_size", allocated), ("stream", 0)])?;
        self.word("segment_type", if segment.bytes >= LARGE_BYTES { "large" } else { "small" })?;
        self.key("segment_pool_id")?;
        self.pickle.number(0)?;
        self.pickle.number(0)?;
        self.pickle.pair()?;
        self.key("is_expandable")?;
        self.pickle.flag(segment.is_expandable)?;
        self.key("frames")?;
        self.stack(&segment.made)?;
        self.key("blocks")?;
        self.pickle.begin_list()?;
        segment.pieces.iter().try_for_each(|piece| self.block(piece))?;
        self.pickle.end_list()?;
        self.pickle.end_dict()
    }

    fn block(&mut self, piece: &SegmentPiece) -> io::Result<()> {
        self.pickle.begin_dict()?;
        let bytes = piece.bytes;
        self.numbers(&[("address", piece.address), ("size", bytes), ("requested_size", bytes)])?;
        self.word("state", if piece.made.is_some() { "active_allocated" } else { "inactive" })?;
        self.key("frames")?;
        match &piece.made {
            Some(made) => self.stack(made)?,
            None => {
                self.pickle.begin_list()?;
                self.pickle.end_list()?;
            }
        }
        self.pickle.end_dict()
    }

    /// Without blocks an allocation is that of a segment and of its block, and so is a free.
    fn entry(&mut self, entry: &MemoryStep) -> io::Result<()> {
        let of = |both: [&'static str; 2], is_first: bool| match (self.has_blocks, is_first) {
            (false, _) => both.to_vec(),
            (true, true) => vec![both[0]],
            (true, false) => vec![both[1]],
        };
        let is_block = entry.kind == BLOCK;
        let actions = match entry.action {
            Action::Allocated => of(["segment_alloc", "alloc"], !is_block),
            Action::Freed => of(["free_completed", "segment_free"], is_block),
            Action::Refused => vec!["oom"],
            Action::Mapped => vec![],
        };
        for action in actions {
            self.pickle.begin_dict()?;
            self.word("action", action)?;
            match entry.action {
                Action::Refused => {
                    let free = self.total_bytes.saturating_sub(entry.held_bytes);
                    self.numbers(&[("device_free", free)])?;
                }
                _ => self.numbers(&[("addr", address(entry))])?,
            }
            let time_us = self.trace.unix_ns(self.number, entry.at_ns) / 1_000;
            self.numbers(&[("size", entry.bytes), ("stream", 0), ("time_us", time_us)])?;
            self.key("frames")?;
            self.stack(entry)?;
            self.pickle.end_dict()?;
        }
        Ok(())
    }

    /// The frames of the line that allocated, innermost first; written once for each stack.
    fn stack(&mut self, entry: &MemoryStep) -> io::Result<()> {
        let key = (entry.stack, entry.api, entry.kind);
        if let Some(memo) = self.stacks.get(&key) {
            return self.pickle.again(*memo);
        }
        let frames = frames_of_memory(self.trace, self.number, [entry.stack, entry.api], entry.kind);
        self.pickle.begin_list()?;
        frames.into_iter().rev().try_for_each(|frame| self.frame(frame))?;
        self.pickle.end_list()?;
        self.stacks.insert(key, self.pickle.memoize()?);
        Ok(())
    }

    fn frame(&mut self, frame: ViewerFrame) -> io::Result<()> {
        if let Some(memo) = self.frames.get(&frame) {
            return self.pickle.again(*memo);
        }
        self.pickle.begin_dict()?;
        self.key("name")?;
        self.pickle.text(&frame.name)?;
        self.key("filename")?;
        self.pickle.text(&frame.path)?;
        self.numbers(&[("line", frame.line.into())])?;
        self.pickle.end_dict()?;
        self.frames.insert(frame, self.pickle.memoize()?);
        Ok(())
    }

    fn numbers(&mut self, values: &[(&'static str, u64)]) -> io::Result<()> {
        for (key, value) in values {
            self.key(key)?;
            self.pickle.number(*value)?;
        }
        Ok(())
    }

    fn word(&mut self, key: &'static str, value: &'static str) -> io::Result<()> {
        self.key(key)?;
        self.key(value)
    }

    /// A text of the format, written once.
    fn key(&mut self, text: &'static str) -> io::Result<()> {
        if let Some(memo) = self.keys.get(text) {
            return self.pickle.again(*memo);
        }
        self.pickle.text(text)?;
        self.keys.insert(text, self.pickle.memoize()?);
        Ok(())
    }
}

/// Of arrays, and of virtual memory that is not mapped, it is the handle: no call has their addresses.
fn address(entry: &MemoryStep) -> u64 {
    match entry.mapped_at {
        0 => entry.key.map_or(0, |(_, address)| address),
        mapped_at => mapped_at,
    }
}
