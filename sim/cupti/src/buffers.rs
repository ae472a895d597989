//! Activity buffers: asked of the client, filled as operations are performed, handed back when they are over.

use crate::delivery;
use crate::driver::driver;
use crate::record::{self, LARGEST, times_at};
use crate::state::{self, CHANGED, State};
use gputrace_sim::activity::{Activity, CONCURRENT_KERNEL, KERNEL};
use gputrace_sim::settings::settings;
use std::ffi::c_void;

/// Asks the client for a buffer: where, how long, and for how many records (0: any).
pub type Request = extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
/// Gives a buffer back: context and stream (unused), where, how long, and how much of it is valid.
pub type Complete = extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);

/// One record that has its place in a buffer.
struct Placed {
    kind: u32,
    at: usize,
    bytes: usize,
    record: [u8; LARGEST],
    start_ns: u64,
    end_ns: u64,
}

/// One buffer of the client.
pub struct Buffer {
    pub base: *mut u8,
    pub bytes: usize,
    most_records: usize,
    pub used: usize,
    records: Vec<Placed>,
    /// So many of them the client could read.
    shown: usize,
    /// Virtual time at which the last of its operations ends.
    pub latest_ns: u64,
}

// SAFETY: the buffer belongs to this library from request to completion; it is filled under the lock.
unsafe impl Send for Buffer {}

/// All buffers and who gives and takes them.
#[derive(Default)]
pub struct Buffers {
    pub request: Option<Request>,
    pub complete: Option<Complete>,
    pub current: Option<Buffer>,
    /// Full ones, oldest first.
    pub full: Vec<Buffer>,
    /// Asked for by two threads at once; used next.
    spare: Vec<Buffer>,
    pub dropped: u64,
    pub period_ms: u32,
    /// Flushes asked for and flushes done, and whether the next is forced.
    pub asked: u64,
    pub done: u64,
    pub forced: bool,
    pub delivers: bool,
}

impl Buffer {
    fn has_room(&self, bytes: usize) -> bool {
        self.used + bytes <= self.bytes && (self.most_records == 0 || self.records.len() < self.most_records)
    }

    fn place(&mut self, activity: &Activity, kind: u32, bytes: usize, offset_ns: u64) {
        let shown = |at: u64| at.wrapping_add(offset_ns);
        let record = record::build(activity, kind, shown(activity.start_ns), shown(activity.end_ns));
        let (start_ns, end_ns) = (activity.start_ns, activity.end_ns);
        self.records.push(Placed { kind, at: self.used, bytes, record, start_ns, end_ns });
        self.used += bytes;
        self.latest_ns = self.latest_ns.max(end_ns);
    }

    /// Writes what has ended, in the order of the launches, up to what has not (as seen of CUPTI 11.8 to 13.0); or everything.
    pub fn show(&mut self, now_ns: u64, everything: bool) {
        if everything && settings().changes_records {
            for placed in self.records.iter_mut().take(self.shown) {
                let (_, end_at) = times_at(placed.kind);
                placed.record[end_at] ^= 1;
            }
            self.shown = 0;
        }
        while let Some(placed) = self.records.get(self.shown)
            && (everything || placed.end_ns <= now_ns)
        {
            // SAFETY: `has_room` said that its bytes fit at its place, and a record is no longer than `record`.
            unsafe {
                std::ptr::copy_nonoverlapping(placed.record.as_ptr(), self.base.add(placed.at), placed.bytes);
            }
            self.shown += 1;
        }
    }

    /// Before a forced flush: what is still running has no end, and what has not begun no start.
    pub fn cut_at(&mut self, now_ns: u64) {
        for placed in &mut self.records {
            let (start_at, end_at) = times_at(placed.kind);
            for (at, time_ns) in [(start_at, placed.start_ns), (end_at, placed.end_ns)] {
                if time_ns > now_ns {
                    placed.record[at..at + 8].fill(0);
                }
            }
        }
    }
}

impl Buffers {
    /// Buffers that may be handed over now; with `with_current` also the one that is being filled.
    pub fn take_finished(&mut self, now_ns: u64, with_current: bool, forced: bool) -> Vec<Buffer> {
        // A flush closes the one that is being filled, also where what is in it goes on (as seen of CUPTI 13.0).
        if with_current {
            self.full.extend(self.current.take());
        }
        let mut finished = Vec::new();
        for mut buffer in std::mem::take(&mut self.full) {
            if forced && buffer.latest_ns > now_ns {
                buffer.cut_at(now_ns);
            } else if buffer.latest_ns > now_ns {
                if with_current {
                    buffer.show(now_ns, false);
                }
                self.full.push(buffer);
                continue;
            }
            buffer.show(now_ns, true);
            finished.push(buffer);
        }
        finished
    }
}

/// The kind under which the client wants this activity, if it does.
fn wanted_kind(state: &State, activity: &Activity) -> Option<u32> {
    let kinds = state.kinds | state.context_kinds.get(&activity.context).copied().unwrap_or(0);
    let on = |kind: u32| kinds & 1 << kind != 0;
    match activity.kind {
        CONCURRENT_KERNEL if on(CONCURRENT_KERNEL) => Some(CONCURRENT_KERNEL),
        CONCURRENT_KERNEL if on(KERNEL) => Some(KERNEL),
        kind if on(kind) => Some(kind),
        _ => None,
    }
}

fn ask_for_buffer(request: Request) -> Option<Buffer> {
    let (mut base, mut bytes, mut most_records) = (std::ptr::null_mut(), 0, 0);
    request(&mut base, &mut bytes, &mut most_records);
    let buffer = Buffer { base, bytes, most_records, used: 0, records: Vec::new(), shown: 0, latest_ns: 0 };
    (!base.is_null() && bytes > 0).then_some(buffer)
}

fn write_one(activity: &Activity) {
    let mut state = state::lock();
    let Some(kind) = wanted_kind(&state, activity) else { return };
    let Some(bytes) = record::size_of_kind(kind) else { return };
    // Twice: the second time with a new buffer.
    for attempt in 0..2 {
        let offset_ns = state.clock_offset_ns.unwrap_or_else(time_of_day_offset_ns);
        let buffers = &mut state.buffers;
        if buffers.current.as_ref().is_some_and(|held| !held.has_room(bytes)) {
            buffers.full.extend(buffers.current.take());
            CHANGED.notify_all();
        }
        if buffers.current.is_none() {
            buffers.current = buffers.spare.pop();
        }
        if let Some(held) = buffers.current.as_mut().filter(|held| held.has_room(bytes)) {
            held.place(activity, kind, bytes, offset_ns);
            return;
        }
        let Some(request) = buffers.request.filter(|_| attempt == 0) else { break };
        delivery::start(buffers);
        drop(state);
        let buffer = ask_for_buffer(request);
        state = state::lock();
        match buffer {
            Some(buffer) if state.buffers.current.is_none() => state.buffers.current = Some(buffer),
            Some(buffer) => state.buffers.spare.push(buffer),
            None => break,
        }
    }
    state.buffers.dropped += 1;
}

fn time_of_day_offset_ns() -> u64 {
    driver().map_or(0, |driver| (driver.time_of_day_offset_ns)())
}

/// Takes performed operations from the driver.
pub extern "C" fn take(activities: *const Activity, count: usize) {
    // SAFETY: the driver hands over a list of this length that lives for the call.
    let activities = unsafe { std::slice::from_raw_parts(activities, count) };
    activities.iter().for_each(write_one);
}
