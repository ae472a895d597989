//! What a caching allocator gave out of a process's memory, and how the rest is cut up.

use serde::Serialize;

use crate::aggregate::Aggregates;
use crate::label::units::{bytes, duration, percent};
use crate::memory::{BlockDevice, BlockSegment, BlockSegments, HeldMemory, Site};
use crate::model::Process;
use crate::report::words::plural;

/// The blocks of one process. All figures are of those that came and went while blocks were recorded, but for
/// those of `devices`.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BlocksReport {
    /// The most bytes that were given out at one time, and when they first were.
    pub peak_bytes: u64,
    pub peak_allocations: u64,
    pub peak_at_ns: u64,
    /// What is given out at the process's end, or when blocks were last recorded.
    pub end_bytes: u64,
    pub end_allocations: u64,
    pub allocations: u64,
    pub allocated_bytes: u64,
    pub frees: u64,
    pub freed_bytes: u64,
    /// Blocks that were taken back and were given out before blocks were recorded.
    pub unknown_frees: u64,
    /// Blocks of which it is not known when they were taken back.
    pub ended_unfreed: u64,
    /// Blocks beyond those that are followed.
    pub not_followed: u64,
    /// When recording was switched off for the rest, since tracing of the process began.
    pub off_since_ns: Option<u64>,
    /// How often recording was switched on again.
    pub interruptions: u64,
    /// By number.
    pub devices: Vec<BlockDeviceReport>,
    /// When the most was given out, or nearly: `allocated_bytes` has how much.
    pub at_peak: Option<SegmentsReport>,
    pub at_end: Option<SegmentsReport>,
}

/// The allocator's own count of one device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BlockDeviceReport {
    pub device: u32,
    /// Given out, at last and at most, and when that was first.
    pub allocated_bytes: u64,
    pub peak_bytes: u64,
    pub peak_at_ns: u64,
    /// Taken from the driver, at last, at most, and when the most was given out.
    pub reserved_bytes: u64,
    pub reserved_peak_bytes: u64,
    pub reserved_at_peak_bytes: u64,
    /// The most that was taken from the driver and not given out.
    pub cached_most_bytes: u64,
    /// Given out before blocks were recorded: by whom is not known.
    pub before_bytes: u64,
    /// How often this count was not the one that follows from the blocks, and by how much in all.
    pub differences: u64,
    pub different_bytes: u64,
}

/// The driver allocations in which blocks are, at one moment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SegmentsReport {
    pub at_ns: u64,
    pub allocated_bytes: u64,
    pub blocks: u64,
    /// Segments with at least one block, their bytes, and what of these is given out to nobody: in how many
    /// pieces, and the largest one.
    pub segments: u64,
    pub bytes: u64,
    pub free_bytes: u64,
    pub free_pieces: u64,
    pub largest_free_bytes: u64,
    /// Blocks in memory whose allocation is not known.
    pub outside_blocks: u64,
    pub outside_bytes: u64,
    /// Those with the most free bytes, at most 64.
    pub most_free: Vec<SegmentReport>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SegmentReport {
    pub address: String,
    pub bytes: u64,
    pub allocated_bytes: u64,
    pub blocks: u64,
    pub free_pieces: u64,
    pub largest_free_bytes: u64,
}

impl BlocksReport {
    /// `None` where blocks were not recorded.
    pub(super) fn new(process: &Process, aggregates: &Aggregates) -> Option<BlocksReport> {
        let blocks = aggregates.memory.blocks(process.number)?;
        let memory = &blocks.memory;
        let since = |at_ns: u64| process.since_begin_ns(at_ns);
        let sum = |of: fn(&Site) -> HeldMemory| {
            let mut all = HeldMemory::default();
            memory.sites().iter().for_each(|site| all.add(of(site)));
            all
        };
        let [allocated, freed] = [sum(|site| site.allocated), sum(|site| site.freed)];
        let unfreed = sum(|site| site.ended_unfreed);
        let segments = |segments: &Option<BlockSegments>| {
            segments.as_ref().map(|segments| SegmentsReport::new(segments, since(segments.at_ns)))
        };
        Some(BlocksReport {
            peak_bytes: memory.peak.bytes,
            peak_allocations: memory.peak.count,
            peak_at_ns: if memory.peak.count == 0 { 0 } else { since(memory.peak_ns) },
            end_bytes: memory.on_device.bytes,
            end_allocations: memory.on_device.count,
            allocations: allocated.count,
            allocated_bytes: allocated.bytes,
            frees: freed.count,
            freed_bytes: freed.bytes,
            unknown_frees: memory.unmatched.unknown,
            ended_unfreed: unfreed.count,
            not_followed: memory.not_followed.count,
            off_since_ns: blocks.off_since_ns.map(since),
            interruptions: blocks.interruptions,
            devices: blocks
                .devices()
                .map(|(number, device)| BlockDeviceReport::new(number, device, since(device.peak_ns)))
                .collect(),
            at_peak: segments(&blocks.at_peak),
            at_end: segments(&blocks.at_end),
        })
    }

    /// Lines for the head of a page, each with its end.
    pub(super) fn text(&self, pid: Option<u32>) -> String {
        let process = pid.map_or_else(String::new, |pid| format!("process {pid}: "));
        let facts = self.facts();
        facts.iter().map(|fact| format!("{process}{fact}\n")).collect()
    }

    /// What is to be known of the blocks, a sentence each.
    pub(super) fn facts(&self) -> Vec<String> {
        if self.devices.is_empty() {
            return vec![
                "no block was reported: PyTorch 2.0 or later reports its blocks to gputrace unless it is linked \
                 statically, uses backend:cudaMallocAsync or an allocator of the program's"
                    .to_owned(),
            ];
        }
        let (peak, at) = (bytes(self.peak_bytes), duration(self.peak_at_ns));
        let held = plural(self.end_allocations, "block", "blocks");
        let end = match (self.end_allocations, self.off_since_ns) {
            (0, None) => "all taken back at the end".to_owned(),
            (_, None) => format!("{} in {held} at the end", bytes(self.end_bytes)),
            (_, Some(off_ns)) => {
                format!(
                    "{} in {held} after {}, not recorded from then on",
                    bytes(self.end_bytes),
                    duration(off_ns)
                )
            }
        };
        let mut facts = vec![format!("at most {peak} given out, after {at}; {end}")];
        facts.extend(self.at_peak.as_ref().map(|segments| segments.text(self.peak_bytes, self.reserved())));
        for device in &self.devices {
            facts.extend(device.notes(self.devices.len() > 1));
        }
        if self.interruptions > 0 {
            let times = plural(self.interruptions, "time", "times");
            facts.push(format!(
                "recording was switched on again {times}: what was given out before is not known by line"
            ));
        }
        facts
    }

    /// Taken from the driver when the most was given out, on all devices.
    fn reserved(&self) -> u64 {
        self.devices.iter().map(|device| device.reserved_at_peak_bytes).fold(0, u64::saturating_add)
    }
}

impl BlockDeviceReport {
    fn new(number: u32, device: &BlockDevice, peak_at_ns: u64) -> BlockDeviceReport {
        BlockDeviceReport {
            device: number,
            allocated_bytes: device.allocated_bytes,
            peak_bytes: device.peak_bytes,
            peak_at_ns,
            reserved_bytes: device.reserved_bytes,
            reserved_peak_bytes: device.reserved_peak_bytes,
            reserved_at_peak_bytes: device.reserved_at_peak_bytes,
            cached_most_bytes: device.cached_most_bytes,
            before_bytes: device.before_bytes,
            differences: device.differences,
            different_bytes: device.different_bytes,
        }
    }

    /// What keeps the blocks from being all that the allocator gave out.
    fn notes(&self, names_device: bool) -> Vec<String> {
        let device = if names_device { format!(" on device {}", self.device) } else { String::new() };
        let mut notes = Vec::new();
        if self.before_bytes > 0 {
            let before = bytes(self.before_bytes);
            notes.push(format!(
                "{before}{device} were given out before blocks were recorded, by unknown lines"
            ));
        }
        if self.differences > 0 {
            notes.push(format!(
                "PyTorch's own count{device} differs from the blocks {}, by {} in all",
                plural(self.differences, "time", "times"),
                bytes(self.different_bytes)
            ));
        }
        notes
    }
}

impl SegmentsReport {
    pub(super) fn new(segments: &BlockSegments, at_ns: u64) -> SegmentsReport {
        SegmentsReport {
            at_ns,
            allocated_bytes: segments.allocated.bytes,
            blocks: segments.allocated.count,
            segments: segments.count,
            bytes: segments.bytes,
            free_bytes: segments.free_bytes,
            free_pieces: segments.free_pieces,
            largest_free_bytes: segments.largest_free_bytes,
            outside_blocks: segments.outside.count,
            outside_bytes: segments.outside.bytes,
            most_free: segments.kept.iter().map(SegmentReport::new).collect(),
        }
    }

    /// `1.50 GiB taken from the driver then: 80% given out, 100 MiB free in 30 pieces between blocks (the
    /// largest 20.0 MiB), 200 MiB in segments without a block`.
    fn text(&self, peak_bytes: u64, reserved_bytes: u64) -> String {
        let then = match self.allocated_bytes == peak_bytes {
            true => "then".to_owned(),
            false => format!("when {} were given out", bytes(self.allocated_bytes)),
        };
        let part = percent(self.allocated_bytes as f64 / reserved_bytes.max(1) as f64);
        let free = bytes(self.free_bytes);
        let pieces = plural(self.free_pieces, "piece", "pieces");
        let largest = bytes(self.largest_free_bytes);
        let unused = reserved_bytes.saturating_sub(self.bytes);
        format!(
            "{} taken from the driver {then}: {part} given out, {free} free in {pieces} beside blocks (the largest \
             {largest}), {} in segments without a block",
            bytes(reserved_bytes),
            bytes(unused)
        )
    }
}

impl SegmentReport {
    fn new(segment: &BlockSegment) -> SegmentReport {
        SegmentReport {
            address: format!("{:#x}", segment.address),
            bytes: segment.bytes,
            allocated_bytes: segment.allocated.bytes,
            blocks: segment.allocated.count,
            free_pieces: segment.free_pieces,
            largest_free_bytes: segment.largest_free_bytes,
        }
    }
}
