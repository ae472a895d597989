//! Capture ranges: a process records only a part of itself, which a call of its own begins and ends.
//!
//! ```text
//!   cuProfilerStart, an NVTX range, a launch's number ─► begins ─► Switch::record
//!   cuProfilerStop, that range's end, a launch's number ─► ends ─► Switch::pause
//! ```
//!
//! The switch happens in the calling thread, so that it holds for the next launch. One range is open at a
//! time; one that begins inside of it is no range of its own. State and settings are of the process, not of
//! the session, because an NVTX range may be pushed before the program's `cuInit`.

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering};

use gputrace_producer::hook_state::Recording;
use gputrace_producer::session::{self, Session};
use gputrace_producer::{clock, system, thread};
use gputrace_wire::capture_range::{CaptureRange, CaptureRangeEnd};
use gputrace_wire::counter::Counter;
use gputrace_wire::reported::Why;

use crate::process::link::Link;
use crate::process::settings;
use crate::symbols::entry::Entry;

/// What makes a process record, or pauses it, at once. Both are for threads that are inside a hook.
pub struct Switch {
    pub record: fn(&'static Session),
    pub pause: fn(&'static Session),
}

/// Set before the first session starts.
pub static SWITCH: Link<Switch> = Link::new(&Switch { record: |_| (), pause: |_| () });

/// What begins ranges; all but [`NONE`] only while more ranges may begin, or one is open.
static MODE: AtomicU8 = AtomicU8::new(NONE);
const NONE: u8 = 0;
const PROFILER: u8 = 1;
const NVTX: u8 = 2;
const LAUNCHES: u8 = 3;
/// Whether the setting names a range, also once all ranges are over.
static IS_ASKED_FOR: AtomicBool = AtomicBool::new(false);

/// The process that has read the settings.
static PREPARED_FOR: AtomicI32 = AtomicI32::new(0);
/// Ranges that may still begin.
static LEFT: AtomicU32 = AtomicU32::new(0);
static SHUTS_DOWN: AtomicBool = AtomicBool::new(false);
/// What ends the open range; 0 while none is open.
static OPEN: AtomicU64 = AtomicU64::new(0);
/// The first launch of the range, the last one, and how many there were.
static FROM: AtomicU64 = AtomicU64::new(0);
static TO: AtomicU64 = AtomicU64::new(0);
static COUNTED: AtomicU64 = AtomicU64::new(0);
/// Whether the range of launches has begun, with all that its launches need.
static HAS_BEGUN: AtomicBool = AtomicBool::new(false);

/// What ends a range that no NVTX range began.
const CALL: u64 = 1;
/// A thread is looking whether a range is left for it to begin; none is open yet.
const BEGINNING: u64 = 2;
/// How long a launch of the range waits for the thread that begins it, which takes a moment if it runs.
const BEGINNING_MOST_NS: u64 = 100_000_000;
/// In what ends a range that an NVTX range began which any thread may end.
const STARTED: u64 = 1 << 63;

/// The NVTX range of the setting, if ranges are recorded by one: its name, and its domain's.
pub fn nvtx_range() -> Option<(&'static str, Option<&'static str>)> {
    match CaptureRange::parse(settings::get(settings::CAPTURE_RANGE)?.to_str().ok()?) {
        Ok(CaptureRange::Nvtx { name, domain }) => Some((name, domain)),
        _ => None,
    }
}

/// Reads the settings, once a process. The command line has checked them; what makes no sense is as if unset.
pub fn prepare() {
    let pid = system::getpid();
    if PREPARED_FOR.swap(pid, Ordering::AcqRel) == pid {
        return;
    }
    OPEN.store(0, Ordering::Relaxed);
    COUNTED.store(0, Ordering::Relaxed);
    HAS_BEGUN.store(false, Ordering::Relaxed);
    let text = |name| settings::get(name).and_then(|value| value.to_str().ok());
    let range = text(settings::CAPTURE_RANGE).and_then(|text| CaptureRange::parse(text).ok());
    let end = text(settings::CAPTURE_RANGE_END).and_then(|text| CaptureRangeEnd::parse(text).ok());
    let end = end.unwrap_or(CaptureRangeEnd::Stop);
    IS_ASKED_FOR.store(range.is_some(), Ordering::Relaxed);
    LEFT.store(if range.is_some() { end.ranges() } else { 0 }, Ordering::Relaxed);
    SHUTS_DOWN.store(end == CaptureRangeEnd::StopShutdown, Ordering::Relaxed);
    let mode = match range {
        None => NONE,
        Some(CaptureRange::Profiler) => PROFILER,
        Some(CaptureRange::Nvtx { .. }) => NVTX,
        Some(CaptureRange::Launches { from, to }) => {
            FROM.store(from, Ordering::Relaxed);
            TO.store(to, Ordering::Relaxed);
            LAUNCHES
        }
    };
    MODE.store(mode, Ordering::Release);
}

/// Called before the session's first call. Returns whether it begins paused.
pub fn begin_session(session: &Session) -> bool {
    prepare();
    let mode = MODE.load(Ordering::Acquire);
    if mode == NONE {
        return false;
    }
    let is_open = is_open();
    // The session is not published yet, so it cannot count.
    WANTED.store(LEFT.load(Ordering::Relaxed) + u32::from(is_open), Ordering::Relaxed);
    session.set_counts_launches(mode == LAUNCHES);
    !is_open
}

/// Ranges that the session is to record, until they are counted.
static WANTED: AtomicU32 = AtomicU32::new(0);

/// Called once the session is published.
pub fn count_wanted(session: &'static Session) {
    session.count(Counter::CaptureRangesWanted, WANTED.swap(0, Ordering::Relaxed).into());
    if is_open() && MODE.load(Ordering::Relaxed) == NVTX {
        session.count(Counter::CaptureRangesBegun, 1);
    }
}

/// Why the process records or is paused, where ranges decide that.
pub fn why() -> Option<Why> {
    if !IS_ASKED_FOR.load(Ordering::Relaxed) {
        return None;
    }
    Some(match (OPEN.load(Ordering::Relaxed), MODE.load(Ordering::Relaxed)) {
        (0, NONE) => Why::RangesOver,
        (0, _) => Why::RangeAwaited,
        _ => Why::RangeOpen,
    })
}

pub fn profiler_starts() {
    if MODE.load(Ordering::Relaxed) == PROFILER {
        begins(CALL);
    }
}

pub fn profiler_stops() {
    if MODE.load(Ordering::Relaxed) == PROFILER {
        ends(CALL);
    }
}

/// Whether a range is open. Who switches asks once it has the right to: another thread's call may have ended
/// the range meanwhile.
pub fn is_open() -> bool {
    !matches!(OPEN.load(Ordering::Acquire), 0 | BEGINNING)
}

/// Whether an NVTX range may begin or end a range.
#[inline(always)]
pub fn is_by_nvtx() -> bool {
    MODE.load(Ordering::Relaxed) == NVTX
}

/// The range was pushed, with so many of its domain around it on the calling thread.
#[cold]
pub fn pushed(level: i32) {
    // A forked child begins anew, and may push a range before its `cuInit`.
    prepare();
    // Negative: it is not kept, so its end would not be seen.
    if let Ok(level) = u32::try_from(level) {
        begins(of_thread(level));
    }
}

/// A range of the domain was popped, with so many left on the calling thread.
#[cold]
pub fn popped(level: i32) {
    if let (Ok(level), true) = (u32::try_from(level), is_open()) {
        ends(of_thread(level));
    }
}

#[cold]
pub fn started(id: u64) {
    prepare();
    begins(STARTED | id);
}

#[cold]
pub fn ended(id: u64) {
    ends(STARTED | id);
}

fn of_thread(level: u32) -> u64 {
    (u64::from(system::gettid().cast_unsigned()) << 32) | (u64::from(level) + 2)
}

/// What a hook does with a call while launches are counted, and whether the call ends the range.
#[cold]
pub fn of_call(session: &'static Session, entry: &Entry) -> (Recording, bool) {
    let is_launch = entry.launches_kernels() || entry.base.starts_with("cuGraphLaunch");
    if !is_launch {
        return (session.recording(), false);
    }
    let number = COUNTED.fetch_add(1, Ordering::Relaxed) + 1;
    let (from, to) = (FROM.load(Ordering::Relaxed), TO.load(Ordering::Relaxed));
    let is_inside = (from..=to).contains(&number);
    if is_inside && !HAS_BEGUN.load(Ordering::Acquire) {
        if !begins(CALL) {
            // Another thread's launch has begun the range, and may not be done yet: these wait for it.
            await_beginning();
            (SWITCH.get().record)(session);
        }
        // SYNC: pairs with the Acquire above: who sees it need not wait.
        HAS_BEGUN.store(true, Ordering::Release);
    }
    let recording = match (session.recording(), is_inside) {
        // Another thread's launch has ended the range; this one is of the range by its number.
        (Recording::Marked, true) => Recording::On,
        (Recording::Off, true) if !is_open() => Recording::On,
        // Another thread's launch has begun the range, or has not ended it yet, or is just pausing the
        // process.
        (Recording::On, false) if is_open() || HAS_BEGUN.load(Ordering::Acquire) => Recording::Marked,
        (recording, _) => recording,
    };
    (recording, number == to)
}

/// The last launch of the range has returned.
#[cold]
pub fn last_launch_returned() {
    ends(CALL);
}

/// Whether a range begins by this.
#[cold]
fn begins(end: u64) -> bool {
    if OPEN.compare_exchange(0, BEGINNING, Ordering::AcqRel, Ordering::Acquire).is_err() {
        return false;
    }
    let is_left = LEFT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
    // SYNC: Release: who finds the range open finds it taken from those left.
    OPEN.store(if is_left { end } else { 0 }, Ordering::Release);
    if !is_left {
        return false;
    }
    in_session(|session| {
        session.count(Counter::CaptureRangesBegun, 1);
        (SWITCH.get().record)(session);
    });
    true
}

#[cold]
fn await_beginning() {
    let deadline_ns = clock::monotonic_ns() + BEGINNING_MOST_NS;
    while OPEN.load(Ordering::Acquire) == BEGINNING && clock::monotonic_ns() < deadline_ns {
        system::yield_now();
    }
}

#[cold]
fn ends(end: u64) {
    if end == 0 || OPEN.load(Ordering::Acquire) != end {
        return;
    }
    // Read while the range is open: as soon as it is not, another thread may begin the last one.
    let is_over = LEFT.load(Ordering::Relaxed) == 0;
    if OPEN.compare_exchange(end, 0, Ordering::AcqRel, Ordering::Acquire).is_err() {
        return;
    }
    if session::current().is_none() {
        // It ended before the program's `cuInit` and had nothing to record: another one is recorded for it.
        LEFT.fetch_add(1, Ordering::Relaxed);
        return;
    }
    in_session(|session| {
        session.count(Counter::CaptureRangesEnded, 1);
        if is_over {
            MODE.store(NONE, Ordering::Release);
        }
        (SWITCH.get().pause)(session);
        if is_over && SHUTS_DOWN.load(Ordering::Relaxed) {
            session.control().capture_over.store(1, Ordering::Release);
        }
    });
}

/// Called once the process is paused after a range. Until then launches that are not of the range are known
/// by their numbers; from here on, if no more ranges may begin, the option costs nothing.
pub fn has_paused(session: &Session) {
    if MODE.load(Ordering::Acquire) == NONE {
        session.set_counts_launches(false);
    }
}

/// Calls a function if there is a session. The thread becomes inside, or is so already.
fn in_session(act: impl FnOnce(&'static Session)) {
    let Some(session) = session::current() else { return };
    thread::with(|slot| {
        let _inside = slot.enter();
        act(session);
    });
}
