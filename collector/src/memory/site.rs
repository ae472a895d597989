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
    pub kind: usize,
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
    /// When the oldest live allocation was made; known once the process has ended.
    pub oldest_ns: Option<u64>,
    /// What is live and was allocated in the part that is asked for, or at any time; known once the process
    /// has ended.
    pub left: HeldMemory,
    /// When those that are live were made; known once the process has ended.
    pub growth: Growth,
    /// Of the first sites of all processes only.
    pub timeline: Option<Box<LiveBytes>>,
    /// What was live at the peak with this number. With another number than the process's last peak, nothing
    /// changed here since that peak, and it is what is live now.
    at_peak: (u64, HeldMemory),
    pub(super) at_asked: Option<HeldMemory>,
}

impl Site {
    pub(super) fn new(key: SiteKey, has_timeline: bool) -> Site {
        Site {
            stack: key.stack,
            api: key.api,
            kind: key.kind,
            pool: key.pool,
            allocated: HeldMemory::default(),
            freed: HeldMemory::default(),
            temporary: HeldMemory::default(),
            ended_unfreed: HeldMemory::default(),
            calls_ns: 0,
            live: HeldMemory::default(),
            live_max_bytes: 0,
            oldest_ns: None,
            left: HeldMemory::default(),
            growth: Growth::default(),
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
