//! What one place of the program allocated: a stack, the driver's function and the kind of memory.

use std::collections::BTreeSet;

use super::growth::Growth;
use super::held_memory::HeldMemory;
use super::timeline::LiveBytes;

/// Where memory was allocated that counts as leaked: process, stack and kind of memory.
pub type LeakedSites = BTreeSet<(u32, u32, usize)>;

/// The moment at which live allocations are asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment {
    /// When the process held the most memory of the device.
    Peak,
    /// When the process ended, or where the trace ends.
    End,
    /// At the time that [`super::MemoryLedger::ask_at`] was given.
    Asked,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct SiteKey {
    pub stack: u32,
    /// Definition of the allocating function.
    pub api: u32,
    pub kind: u8,
    /// The number of the pool that it allocates from; 0 for none.
    pub pool: u32,
}

#[derive(Clone, Debug)]
pub struct Site {
    pub stack: u32,
    pub api: u32,
    pub kind: usize,
    pub(super) pool: u32,
    /// All allocations of the process's life.
    pub allocated: HeldMemory,
    pub freed: HeldMemory,
    /// Those freed before the process made two more allocations.
    pub temporary: HeldMemory,
    /// Those that ended without a free that is known: with a context, or before their address was given
    /// again.
    pub ended_unfreed: HeldMemory,
    /// Host time in the calls that allocated, and in those that freed what this line had allocated.
    pub calls_ns: u64,
    pub live: HeldMemory,
    /// The most bytes that were live at one time.
    pub live_max_bytes: u64,
    /// What is left of it once the process has ended; `None` if nothing is.
    pub at_end: Option<Box<SiteAtEnd>>,
    /// Of the first sites of all processes only.
    pub timeline: Option<Box<LiveBytes>>,
    /// What was live at the peak with this number. With another number than the process's last peak, nothing
    /// changed here since that peak, and it is what is live now.
    at_peak: (u64, HeldMemory),
    pub(super) at_asked: Option<Box<HeldMemory>>,
}

// There may be 65 536 beside a million live allocations.
const _: () = assert!(size_of::<Site>() <= 168);

/// The live allocations of a site at the end of its process.
#[derive(Clone, Copy, Debug)]
pub struct SiteAtEnd {
    /// When the oldest was made.
    pub oldest_ns: u64,
    /// Those that were made in the part that is asked for, or at any time.
    pub left: HeldMemory,
    /// When they were made.
    pub growth: Growth,
}

impl Default for SiteAtEnd {
    fn default() -> Self {
        SiteAtEnd { oldest_ns: u64::MAX, left: HeldMemory::default(), growth: Growth::default() }
    }
}

impl SiteAtEnd {
    /// Adds a live allocation of a process that lived from the first of the times to the second; `is_left` if
    /// it counts as left.
    pub(super) fn add(&mut self, bytes: u64, made_ns: u64, is_left: bool, life_ns: [u64; 2]) {
        if is_left {
            self.left.add(HeldMemory::one(bytes));
        }
        self.growth.made(made_ns, bytes, life_ns);
        self.oldest_ns = self.oldest_ns.min(made_ns);
    }
}

impl Site {
    pub(super) fn new(key: SiteKey, has_timeline: bool) -> Site {
        Site {
            stack: key.stack,
            api: key.api,
            kind: key.kind.into(),
            pool: key.pool,
            allocated: HeldMemory::default(),
            freed: HeldMemory::default(),
            temporary: HeldMemory::default(),
            ended_unfreed: HeldMemory::default(),
            calls_ns: 0,
            live: HeldMemory::default(),
            live_max_bytes: 0,
            at_end: None,
            timeline: has_timeline.then(Box::default),
            at_peak: (0, HeldMemory::default()),
            at_asked: None,
        }
    }

    /// Adds a live allocation, so long after the process's first.
    pub(super) fn hold(&mut self, bytes: u64, peak: u64, since_ns: u64) {
        self.keep_peak(peak);
        self.live.add(HeldMemory::one(bytes));
        self.live_max_bytes = self.live_max_bytes.max(self.live.bytes);
        self.changed(since_ns);
    }

    pub(super) fn release(&mut self, bytes: u64, peak: u64, since_ns: u64) {
        self.keep_peak(peak);
        self.live.remove(HeldMemory::one(bytes));
        self.changed(since_ns);
    }

    fn changed(&mut self, since_ns: u64) {
        let live = self.live.bytes;
        self.timeline.iter_mut().for_each(|timeline| timeline.change(since_ns, live));
    }

    /// Must be called before `live` changes.
    fn keep_peak(&mut self, peak: u64) {
        if self.at_peak.0 != peak {
            self.at_peak = (peak, self.live);
        }
    }

    pub(super) fn at_peak(&self, peak: u64) -> HeldMemory {
        if self.at_peak.0 == peak { self.at_peak.1 } else { self.live }
    }
}
