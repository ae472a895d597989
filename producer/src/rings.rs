//! A session's rings: which rings exist, which thread takes them, and the segments that are added when all
//! are taken.
//!
//! Ring 0 of the primary segment is for device records and ring 1 for the service thread; the code that
//! writes to them ensures that each has one owner. The program's threads take and return the others.
//!
//! Where another collector may take over, the memory files stay open. They are then handed over again in
//! the same order, because a ring is identified by its number.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::OnceLock;

use gputrace_wire::definition::role;
use gputrace_wire::handshake::Head;
use gputrace_wire::ring::{Consumer, Ring};
use gputrace_wire::segment::{RingHeader, ring_state};

use crate::clock;
use crate::connection::Connection;
use crate::descriptor::{self, Descriptor};
use crate::segment::{Segment, SegmentPlan};
use crate::system;

/// At most this many segments for further threads: 16 × 64 rings besides the first 62.
const MORE_SEGMENTS: usize = 16;
/// Rings of the primary segment that the program's threads do not take.
const RESERVED: usize = 2;
/// How many times a second a failed attempt to make or hand over a segment is repeated. An attempt at every
/// event of every thread without a ring would cost several system calls each.
const TRIES_PER_SECOND: u64 = 20;

/// A ring and its header, taken by the holder.
pub type OwnedRing = (&'static RingHeader, Ring<'static>);

/// A segment that was added after the primary one.
#[derive(Debug)]
struct Further {
    segment: OnceLock<Segment>,
    /// The segment's memory file, as long as it may have to be handed over again.
    file: descriptor::DescriptorSlot,
    /// The number of the connection that the segment was handed over on; 0 before.
    handed_over_on: AtomicU32,
}

#[derive(Debug)]
pub struct Rings {
    primary: Segment,
    plan: SegmentPlan,
    /// The primary segment's memory file, as long as it may have to be handed over again.
    file: descriptor::DescriptorSlot,
    /// Filled from the front and handed over by the thread that holds `growing`.
    more: [Further; MORE_SEGMENTS],
    growing: AtomicBool,
    /// No segment is added before this tick.
    grow_after_ticks: AtomicU64,
    retry_ticks: u64,
}

impl Rings {
    pub fn new(primary: Segment, plan: SegmentPlan, ticks_per_second: u64) -> Rings {
        Rings {
            primary,
            plan,
            file: descriptor::DescriptorSlot::empty(),
            more: [const {
                Further {
                    segment: OnceLock::new(),
                    file: descriptor::DescriptorSlot::empty(),
                    handed_over_on: AtomicU32::new(0),
                }
            }; MORE_SEGMENTS],
            growing: AtomicBool::new(false),
            grow_after_ticks: AtomicU64::new(0),
            retry_ticks: ticks_per_second / TRIES_PER_SECOND,
        }
    }

    /// Keeps the primary segment's file and owns it from here on.
    pub fn keep(&self, file: Descriptor) {
        self.file.set(Some(file.out_of_the_way()));
    }

    /// The primary segment's file; `None` if it was not kept, or if the program closed it.
    pub fn primary_file(&self) -> Option<i32> {
        self.file.get().number()
    }

    /// Closes the files: nothing will be handed over again.
    pub fn close_files(&self) {
        for file in core::iter::once(&self.file).chain(self.more.iter().map(|further| &further.file)) {
            file.clear();
        }
    }

    /// Closes the files that the connection's other end has already received, where no other collector
    /// takes over. The caller must hold `growing`.
    fn close_files_handed_over(&self, connection: &Connection) {
        let number = connection.number();
        let seen =
            self.more.iter().filter(|further| further.handed_over_on.load(Ordering::Relaxed) == number);
        for file in core::iter::once(&self.file).chain(seen.map(|further| &further.file)) {
            file.clear();
        }
    }

    /// The number of entries, dropped ones included, in segments that no collector ever received.
    pub fn seen_by_nobody(&self) -> u64 {
        let entries =
            |ring: &RingHeader| ring.written.load(Ordering::Relaxed) + ring.dropped.load(Ordering::Relaxed);
        self.unseen_rings().map(entries).sum()
    }

    /// The number of launches that were passed over, paused, and counted in such segments.
    pub fn paused_launches_seen_by_nobody(&self) -> u64 {
        self.unseen_rings().map(|ring| ring.paused_launches.load(Ordering::Relaxed)).sum()
    }

    fn unseen_rings(&self) -> impl Iterator<Item = &RingHeader> {
        let unseen = |further: &&Further| further.handed_over_on.load(Ordering::Relaxed) == 0;
        let segments = self.more.iter().filter(unseen).filter_map(|further| further.segment.get());
        segments.flat_map(|segment| segment.rings.iter())
    }

    /// The number of entries that nobody reads any more: those in all rings, and the dropped ones.
    pub fn left_behind(&self) -> u64 {
        let further = self.more.iter().filter_map(|further| further.segment.get());
        let further = further.map(|segment| (segment, SegmentPlan::MORE_THREADS));
        let all = core::iter::once((&self.primary, self.plan)).chain(further);
        all.flat_map(|(segment, plan)| {
            segment.rings.iter().enumerate().map(move |(index, header)| {
                let unread = segment.ring(plan, index).map_or(0, unread);
                unread + header.dropped.load(Ordering::Relaxed)
            })
        })
        .sum()
    }

    /// Calls `does` while no thread adds, hands over or sends a segment. `None` if that is not possible
    /// within some milliseconds: the thread that holds `growing` may be the one that a signal handler
    /// interrupted, and the handler would wait for its own thread.
    pub fn while_nobody_grows<R>(&self, does: impl FnOnce() -> R) -> Option<R> {
        const TRIES: usize = 20;
        for tried in 0..TRIES {
            if !self.growing.swap(true, Ordering::Acquire) {
                let done = does();
                // SYNC: as in `grow`.
                self.growing.store(false, Ordering::Release);
                return Some(done);
            }
            if tried + 1 < TRIES {
                system::sleep_ns(1_000_000);
            }
        }
        None
    }

    /// The ring reserved for device records, or for the service thread.
    pub fn reserved(&self, role: u64) -> Option<OwnedRing> {
        let index = if role == role::DEVICE_RECORDS { 0 } else { 1 };
        Some((self.primary.rings.get(index)?, self.primary.ring(self.plan, index)?))
    }

    /// Takes a free ring. If there is none, makes another segment and hands it over.
    pub fn take(&self, connection: &Connection, head: Head) -> Option<OwnedRing> {
        if let Some(found) = take_from(&self.primary, self.plan, RESERVED) {
            return Some(found);
        }
        loop {
            let mut seen = 0;
            for segment in self.more.iter().map_while(|further| further.segment.get()) {
                if let Some(found) = take_from(segment, SegmentPlan::MORE_THREADS, 0) {
                    return Some(found);
                }
                seen += 1;
            }
            if !self.grow(seen, connection, head) {
                return None;
            }
        }
    }

    /// Adds a segment to the `seen` ones, or waits for another thread that is adding one: otherwise each of
    /// several threads that start at once would lose an event. False if that takes too long, if it failed a
    /// moment ago, or if there can be no more segments.
    fn grow(&self, seen: usize, connection: &Connection, head: Head) -> bool {
        let Some(further) = self.more.get(seen) else { return false };
        if clock::now() < self.grow_after_ticks.load(Ordering::Relaxed) {
            return false;
        }
        let waits = self.growing.swap(true, Ordering::Acquire);
        let grown = if waits {
            self.is_grown_soon(further)
        } else {
            further.segment.get().is_some() || self.add(further, connection, head)
        };
        if !grown {
            self.grow_after_ticks.store(clock::now().saturating_add(self.retry_ticks), Ordering::Relaxed);
        }
        if !waits {
            // SYNC: pairs with the Acquire swap above: the next thread that grows sees the segment.
            self.growing.store(false, Ordering::Release);
        }
        grown
    }

    /// Waits until the segment exists, or no thread is adding it any more. At most 50 ms, because the
    /// thread that adds it may be off its core.
    fn is_grown_soon(&self, further: &Further) -> bool {
        const TRIES: usize = 50;
        for _ in 0..TRIES {
            if further.segment.get().is_some() || !self.growing.load(Ordering::Acquire) {
                return true;
            }
            system::sleep_ns(1_000_000);
        }
        false
    }

    /// Makes a segment and hands it over; if that fails, leaves nothing behind. Where another collector may
    /// take over, the segment stays even if it was not handed over: there may be no collector just now.
    fn add(&self, further: &Further, connection: &Connection, head: Head) -> bool {
        if !descriptor::has_free_number() {
            return false;
        }
        let Some((segment, number)) = Segment::create(SegmentPlan::MORE_THREADS) else { return false };
        segment.publish();
        // A collector can only take over if it receives the primary segment, and the program may have
        // closed that file.
        let lasts = connection.may_be_taken_over() && self.primary_file().is_some();
        let file = if lasts { Descriptor::from_raw(number) } else { None };
        if let Some(file) = file {
            further.file.set(Some(file.out_of_the_way()));
            // No other thread fills it: we hold `growing`.
            let added = further.segment.set(segment).is_ok();
            self.hand_over_in_order(connection, head);
            return added;
        }
        // Earlier segments that were not sent yet go first, because rings are identified by their number.
        let socket = connection.socket();
        let taken = self.hand_over_in_order(connection, head) && socket.send(head, b"", Some(number));
        // SAFETY: the descriptor was made above and is not used again.
        unsafe { system::close(number) };
        if !taken {
            // SAFETY: the segment was made above and no thread has seen it.
            unsafe { segment.discard() };
            return false;
        }
        further.handed_over_on.store(connection.number(), Ordering::Relaxed);
        further.segment.set(segment).is_ok()
    }

    /// Hands over the segments that the current connection has not received. Closes files once no other
    /// collector will need them.
    ///
    /// The service thread calls this every turn. If another thread is adding a segment, that thread hands
    /// over the rest itself. Segments that a full socket does not take are tried again.
    pub fn hand_over(&self, connection: &Connection, head: Head) {
        if !self.growing.swap(true, Ordering::Acquire) {
            self.hand_over_while_held(connection, head);
            // SYNC: as in `grow`.
            self.growing.store(false, Ordering::Release);
        }
    }

    /// As [`hand_over`](Rings::hand_over), for a caller inside `while_nobody_grows`.
    pub fn hand_over_while_held(&self, connection: &Connection, head: Head) {
        self.hand_over_in_order(connection, head);
        if !connection.may_be_taken_over() {
            self.close_files_handed_over(connection);
        }
    }

    /// Hands over in order, and returns true if no segment is left. The caller must hold `growing`. Stops
    /// at the first segment that cannot be sent: the collector would take a later one for it.
    fn hand_over_in_order(&self, connection: &Connection, head: Head) -> bool {
        let number = connection.number();
        for further in self.more.iter().take_while(|further| further.segment.get().is_some()) {
            if further.handed_over_on.load(Ordering::Relaxed) == number {
                continue;
            }
            let Some(file) = further.file.get().number() else { return false };
            if !connection.socket().send(head, b"", Some(file)) {
                return false;
            }
            further.handed_over_on.store(number, Ordering::Relaxed);
        }
        true
    }

    /// Populates what threads of the primary segment will write next: definitions, and entries of a ring that
    /// was not written to its end yet. What was not written to since the previous call gets no more memory.
    pub fn populate(&self, last: &mut Populated) {
        /// 512 KiB: enough for 160 000 launches a second, with a call every 50 ms.
        const AHEAD_CELLS: u64 = 8192;
        /// 128 KiB: a few hundred kernels' names, or frames of new Python stacks.
        const AHEAD_WORDS: u64 = 1 << 14;
        let rings = self.primary.rings.iter().zip(last.heads.iter_mut()).enumerate();
        for (index, (ring, last)) in rings.skip(RESERVED) {
            let head = ring.head.load(Ordering::Relaxed);
            if head != *last && head < ring.capacity_cells.load(Ordering::Relaxed) {
                self.primary.populate(self.plan, index, head, AHEAD_CELLS);
            }
            *last = head;
        }
        let defined = self.primary.area().reserved.load(Ordering::Relaxed);
        if defined != last.defined {
            self.primary.populate_definitions(self.plan, defined, AHEAD_WORDS);
        }
        last.defined = defined;
    }
}

/// How far rings and definitions were written when [`Rings::populate`] was last called.
#[derive(Debug)]
pub struct Populated {
    heads: [u64; 64],
    /// In words.
    defined: u64,
}

impl Populated {
    pub const NOTHING: Populated = Populated { heads: [0; 64], defined: 0 };
}

/// What threads count in their rings' headers, summed over all threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RingSums {
    /// Entries of the program's threads.
    pub written: u64,
    /// The number of hooks whose own cost was measured, and their total cost.
    pub sampled_hooks: u64,
    pub sampled_ticks: u64,
    /// Launches made in windows of device times.
    pub window_launches: u64,
    /// The last of CUPTI's correlation ids for these; 0 for none.
    pub window_latest: u32,
    /// Sampled launch calls inside and outside of windows, and their total duration.
    pub inside_calls: u64,
    pub inside_ticks: u64,
    pub outside_calls: u64,
    pub outside_ticks: u64,
    /// The cost of the hooks of those inside.
    pub inside_hook_ticks: u64,
    /// Launches that were counted instead of recorded.
    pub counted_launches: u64,
}

impl RingSums {
    fn add(&mut self, ring: &RingHeader) {
        let load = |field: &AtomicU64| field.load(Ordering::Relaxed);
        self.written = self.written.wrapping_add(load(&ring.written));
        self.sampled_hooks = self.sampled_hooks.wrapping_add(load(&ring.sampled_hooks));
        self.sampled_ticks = self.sampled_ticks.wrapping_add(load(&ring.sampled_ticks));
        self.window_launches = self.window_launches.wrapping_add(load(&ring.window_launches));
        self.inside_calls = self.inside_calls.wrapping_add(load(&ring.inside_calls));
        self.inside_ticks = self.inside_ticks.wrapping_add(load(&ring.inside_ticks));
        self.outside_calls = self.outside_calls.wrapping_add(load(&ring.outside_calls));
        self.outside_ticks = self.outside_ticks.wrapping_add(load(&ring.outside_ticks));
        self.inside_hook_ticks = self.inside_hook_ticks.wrapping_add(load(&ring.inside_hook_ticks));
        self.counted_launches = self.counted_launches.wrapping_add(load(&ring.counted_launches));
        let latest = ring.window_latest.load(Ordering::Relaxed);
        // Ids grow and wrap around.
        if latest != 0
            && (self.window_latest == 0 || latest.wrapping_sub(self.window_latest).cast_signed() > 0)
        {
            self.window_latest = latest;
        }
    }
}

impl Rings {
    /// Sums over the rings of the program's threads.
    pub fn sums(&self) -> RingSums {
        let mut sums = RingSums::default();
        self.of_program().for_each(|ring| sums.add(ring));
        sums
    }

    /// When the calls began that threads are inside of.
    pub fn calls_under_way(&self) -> impl Iterator<Item = u32> {
        // SYNC: Acquire pairs with the Release of `Slot::call_ends`: what the call did comes before what the
        // caller does.
        self.of_program().map(|ring| ring.in_call.load(Ordering::Acquire)).filter(|begun| *begun != 0)
    }

    /// All rings that threads of the program's take.
    fn of_program(&self) -> impl Iterator<Item = &RingHeader> {
        let more = self.more.iter().filter_map(|further| further.segment.get());
        self.primary.rings.iter().skip(RESERVED).chain(more.flat_map(|segment| segment.rings.iter()))
    }
}

/// The number of entries that were published and not read.
fn unread(ring: Ring<'static>) -> u64 {
    let (mut entries, mut within) = (0, 0);
    // Reads without consuming: a later consumer, if there is one, finds the ring unchanged.
    let read = Consumer::new(ring).read(u64::MAX, |cell| {
        if within == 0 {
            entries += 1;
            within = cell.cells().max(1);
        }
        within -= 1;
    });
    read.map_or(0, |_| entries)
}

fn take_from(segment: &Segment, plan: SegmentPlan, first: usize) -> Option<OwnedRing> {
    use ring_state::{FREE, OWNED};
    for (index, header) in segment.rings.iter().enumerate().skip(first) {
        // SYNC: Acquire pairs with the Release store of FREE by the ring's last owner: its positions and
        // cells come before ours.
        if header.state.load(Ordering::Relaxed) == FREE
            && header.state.compare_exchange(FREE, OWNED, Ordering::Acquire, Ordering::Relaxed).is_ok()
        {
            return Some((header, segment.ring(plan, index)?));
        }
    }
    None
}
