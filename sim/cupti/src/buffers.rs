//! Activity buffers: requested from the client, filled with records, returned when the operations have ended.

use crate::delivery;
use crate::driver::driver;
use crate::record::{self, LARGEST, times_at};
use crate::state::{self, CHANGED, State};
use gputrace_sim::activity::{Activity, CONCURRENT_KERNEL, GRAPH_TRACE, KERNEL};
use gputrace_sim::settings::settings;
use std::ffi::c_void;

/// Requests a buffer from the client: address, length, and the most records that it may hold (0: any).
pub type RequestBuffer = extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
/// Returns a buffer: context and stream (unused), address, length, and how many bytes are valid.
pub type CompleteBuffer = extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);

/// One record with its offset in a buffer.
struct BufferedRecord {
    kind: u32,
    at: usize,
    bytes: usize,
    record: [u8; LARGEST],
    start_ns: u64,
    end_ns: u64,
    /// Whether its kind went off while the operation was under way.
    is_cut_off: bool,
}

/// One buffer of the client.
pub struct Buffer {
    pub base: *mut u8,
    pub bytes: usize,
    most_records: usize,
    pub used: usize,
    records: Vec<BufferedRecord>,
    /// How many of them are written to the client's memory.
    shown: usize,
    /// Virtual time at which the last of its operations ends.
    pub latest_ns: u64,
}

// SAFETY: the buffer belongs to this library from request to completion; it is filled under the lock.
unsafe impl Send for Buffer {}

/// All buffers, and the client's callbacks for them.
#[derive(Default)]
pub struct Buffers {
    pub request: Option<RequestBuffer>,
    pub complete: Option<CompleteBuffer>,
    pub current: Option<Buffer>,
    /// Full ones, oldest first.
    pub full: Vec<Buffer>,
    /// Left over when two threads request at once; used next.
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
    fn fits(&self, bytes: usize) -> bool {
        self.used + bytes <= self.bytes && (self.most_records == 0 || self.records.len() < self.most_records)
    }

    fn push(&mut self, activity: &Activity, kind: u32, bytes: usize, offset_ns: u64) {
        let shown = |at: u64| at.wrapping_add(offset_ns);
        let record = record::build(activity, kind, shown(activity.start_ns), shown(activity.end_ns));
        let (start_ns, end_ns) = (activity.start_ns, activity.end_ns);
        let is_cut_off = false;
        self.records.push(BufferedRecord {
            kind,
            at: self.used,
            bytes,
            record,
            start_ns,
            end_ns,
            is_cut_off,
        });
        self.used += bytes;
        self.latest_ns = self.latest_ns.max(end_ns);
    }

    /// Writes records in the order of the launches, up to the first operation that has not ended (as CUPTI
    /// 11.8 to 13.0 do), or all records.
    pub fn show(&mut self, now_ns: u64, everything: bool) {
        if everything && settings().changes_records {
            for entry in self.records.iter_mut().take(self.shown) {
                let (_, end_at) = times_at(entry.kind);
                entry.record[end_at] ^= 1;
            }
            self.shown = 0;
        }
        while let Some(entry) = self.records.get(self.shown)
            && (everything || entry.end_ns <= now_ns)
        {
            // SAFETY: `fits` checked that the bytes fit at `at`, and no record is longer than `record`.
            unsafe {
                std::ptr::copy_nonoverlapping(entry.record.as_ptr(), self.base.add(entry.at), entry.bytes);
            }
            self.shown += 1;
        }
    }

    /// Before a forced flush: what is still running has no end, and what has not begun no start.
    pub fn cut_at(&mut self, now_ns: u64) {
        for entry in &mut self.records {
            let (start_at, end_at) = times_at(entry.kind);
            for (at, time_ns) in [(start_at, entry.start_ns), (end_at, entry.end_ns)] {
                if time_ns > now_ns {
                    entry.record[at..at + 8].fill(0);
                }
            }
        }
    }
}

impl Buffers {
    /// A kind goes off: operations of it that are under way have no end until it goes on again, and then end
    /// at that time (as in CUPTI 12 and 13, kineto#1105). A graph that was launched with `GRAPH_TRACE` on
    /// keeps its record.
    pub fn kind_changes(&mut self, kind: u32, is_on: bool, now_ns: u64, offset_ns: u64) {
        if kind == GRAPH_TRACE {
            return;
        }
        for buffer in self.full.iter_mut().chain(&mut self.current) {
            for entry in buffer.records.iter_mut().filter(|entry| entry.kind == kind) {
                if !is_on && entry.end_ns > now_ns {
                    (entry.is_cut_off, entry.end_ns) = (true, u64::MAX);
                } else if is_on && entry.is_cut_off {
                    (entry.is_cut_off, entry.end_ns) = (false, now_ns);
                    let (_, end_at) = times_at(kind);
                    let shown_ns = now_ns.wrapping_add(offset_ns);
                    entry.record[end_at..end_at + 8].copy_from_slice(&shown_ns.to_ne_bytes());
                }
            }
            buffer.latest_ns = buffer.records.iter().map(|entry| entry.end_ns).max().unwrap_or(0);
        }
    }

    /// Buffers that may be handed over now; with `with_current` also the one that is being filled.
    pub fn take_finished(&mut self, now_ns: u64, with_current: bool, forced: bool) -> Vec<Buffer> {
        // A flush closes the current buffer, also if operations in it still run (as CUPTI 13.0 does).
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

fn ask_for_buffer(request: RequestBuffer) -> Option<Buffer> {
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
        if buffers.current.as_ref().is_some_and(|held| !held.fits(bytes)) {
            buffers.full.extend(buffers.current.take());
            CHANGED.notify_all();
        }
        if buffers.current.is_none() {
            buffers.current = buffers.spare.pop();
        }
        if let Some(held) = buffers.current.as_mut().filter(|held| held.fits(bytes)) {
            held.push(activity, kind, bytes, offset_ns);
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

pub fn time_of_day_offset_ns() -> u64 {
    driver().map_or(0, |driver| (driver.time_of_day_offset_ns)())
}

/// Takes performed operations from the driver.
pub extern "C" fn take(activities: *const Activity, count: usize) {
    // SAFETY: the driver hands over a list of this length that lives for the call.
    let activities = unsafe { std::slice::from_raw_parts(activities, count) };
    activities.iter().for_each(write_one);
}
