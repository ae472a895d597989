//! Device times in windows: the state machine of [`super::pause`] at a faster rate, run by the service thread
//! between its turns.
//!
//! ```text
//!   Off ─► Marked ─► kind on ─► On, window N ─► Marked (grace: kind stays on) ─► kind off ─► Off
//! ```
//!
//! What belongs to a window is judged by the call: it began after CUPTI's enable had returned and returned
//! before the window's end. The hook sees both in the word that it reads anyway, which has the window's
//! number; a call that sees two states is in no window. When the kernel ran does not matter: judged by
//! that, long kernels would be in windows more often than they are launched.
//!
//! CUPTI does not know the end of an operation under way when its kind goes off. Its record is refused
//! ([`super::known_end`]), and if many were, the sample would lack the long ones and those behind a long
//! queue. So the kind stays on after a window's end, while calls are marked, until as many kernels have been
//! delivered as were launched in the window, for [`GRACE_MOST_NS`] at most. Calls under way at an edge are
//! no more than the program has threads; that many launches of a window may be missed by the count.
//!
//! CUPTI is flushed only in the grace time: a flush shortly after the kind went on, or while it is off,
//! was seen to wait for ever (see [`super::pause::may_flush`]). What CUPTI holds when the kind goes off has
//! been flushed just before. `GPUTRACE_DELIVERY=full` prevents that too; the grace then has its full length.
//!
//! Only the kind of kernels is switched ([`super::kinds`] says why), so that copies and fills have device
//! times outside of windows too. The kind of whole graphs stays as it is: CUPTI crashes where it is switched
//! while graphs exist. Its records of launches outside of windows are left out by the calls' marks. Another
//! client of CUPTI keeps the kinds that it wants.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use gputrace_producer::hook_state::{Launches, Recording, Timing};
use gputrace_producer::service::NOTHING_DUE;
use gputrace_producer::session::Session;
use gputrace_producer::{clock, thread};
use gputrace_wire::budget::Budget;
use gputrace_wire::clock::{cause, mark};
use gputrace_wire::counter::Counter;
use gputrace_wire::definition::rung;
use gputrace_wire::windows::Windows;

use super::root::{self, Root};
use super::schedule::{Due, Phase, Schedule};
use super::spending::{INTERVAL_LAST_NS, INTERVAL_LEAST_NS, INTERVAL_MOST_NS, Spending};
use super::switching::Switching;
use super::{awaited, base_kinds, records, returned};
use crate::hook::saving;

/// The generation of the session that runs by windows; 0 for none.
static ACTIVE_FOR: AtomicU32 = AtomicU32::new(0);
/// Whether CUPTI is flushed for the records of a window.
static FLUSHES: AtomicBool = AtomicBool::new(true);

/// How long the machine waits where somebody else switches, or the session is paused.
const RETRY_NS: u64 = 1_000_000;
const PAUSED_NS: u64 = 20_000_000;
/// The most that one call does.
const STEPS_MOST: usize = 4;

/// What only the thread that switches uses.
struct Machine {
    schedule: Option<Schedule>,
    /// The lengths with which windows begin.
    asked: Windows,
    window: u32,
    cause: u8,
    /// Launches in windows when the last one opened while the kind was off.
    launches_before: u64,
    enable_ns: u32,
    disable_ns: u32,
    budget: Option<Budget>,
    spending: Option<Spending>,
    /// The least that was recorded of launches outside of windows so far.
    least_launches: Launches,
}

struct Shared(UnsafeCell<Machine>);

// SAFETY: `machine` is the only access, and needs the right to switch, which one thread has at a time.
unsafe impl Sync for Shared {}

static MACHINE: Shared = Shared(UnsafeCell::new(Machine {
    schedule: None,
    asked: Windows::USUAL,
    window: 0,
    cause: cause::SCHEDULED,
    launches_before: 0,
    enable_ns: 0,
    disable_ns: 0,
    budget: None,
    spending: None,
    least_launches: Launches::Whole,
}));

fn machine(_: &mut Switching) -> &mut Machine {
    // SAFETY: who has the right to switch is alone, and lends it for as long as the reference lives.
    unsafe { &mut *MACHINE.0.get() }
}

/// Whether the session runs by windows.
pub fn are_active(session: &Session) -> bool {
    ACTIVE_FOR.load(Ordering::Relaxed) == session.generation
}

/// How long windows are where the session runs by them, at first if there is a budget. Called at the
/// session's begin.
pub fn set_lengths(switching: &mut Switching, windows: Windows, budget: Option<Budget>, flushes: bool) {
    let machine = machine(switching);
    (machine.asked, machine.budget) = (windows, budget);
    FLUSHES.store(flushes, Ordering::Relaxed);
}

/// The session runs by windows from here on. Kernels' kind is off. `since_begin`: it did so from its first
/// call.
pub fn activate(session: &'static Session, switching: &mut Switching, since_begin: bool) {
    let machine = machine(switching);
    let now_ns = clock::monotonic_ns();
    let seed = clock::now() ^ u64::from(session.pid.cast_unsigned()) << 32;
    let windows = machine.asked;
    machine.schedule = Some(Schedule::new(windows, seed, now_ns));
    (machine.window, machine.cause) = (0, cause::SCHEDULED);
    machine.least_launches = Launches::Whole;
    machine.spending = machine.budget.map(|budget| Spending::new(session, budget, windows));
    // SYNC: the machine is the switching thread's; others only read whether it runs.
    ACTIVE_FOR.store(session.generation, Ordering::Release);
    let has_transfers = root::of_tracer().is_some_and(base_kinds::turn_on_transfers);
    session.set_times_transfers(has_transfers);
    let (on_ms, mean_ms) = (f64::from(windows.on_us) / 1e3, f64::from(windows.mean_us) / 1e3);
    let text = match machine.budget {
        None => format!("device times in windows of {on_ms} ms, on average every {mean_ms} ms"),
        Some(budget) => {
            let percent = budget.fraction() * 100.0;
            format!("device times in windows of {on_ms} ms, as often as a budget of {percent} % allows")
        }
    };
    session.notice(0, rung::WINDOWS, text.as_bytes());
    machine.note(session, false, if since_begin { 0 } else { clock::now() });
}

/// The session does not run by windows any more. An open one ends.
pub fn deactivate(session: &'static Session, switching: &mut Switching) {
    let machine = machine(switching);
    if let Some(schedule) = &mut machine.schedule
        && matches!(schedule.phase(), Phase::Open { .. })
    {
        machine.end(session);
    }
    machine.schedule = None;
    session.set_launches(Launches::Whole);
    session.set_times_transfers(false);
    ACTIVE_FOR.store(0, Ordering::Release);
}

/// The session's last call. Launches are recorded whole from here on, so that none is counted that is not
/// written.
pub fn finish(session: &'static Session) {
    if are_active(session)
        && let Some(mut switching) = Switching::try_take()
        && let Some(spending) = &mut machine(&mut switching).spending
    {
        // What was spent counts; how to go on does not matter any more.
        _ = spending.next(session, INTERVAL_LAST_NS);
    }
    session.set_launches(Launches::Whole);
    saving::write_counts(session);
}

/// Does what is due, and returns the time until something is, in nanoseconds.
pub fn between(session: &'static Session) -> u64 {
    if !are_active(session) {
        return NOTHING_DUE;
    }
    let Some(root) = root::of_tracer() else { return NOTHING_DUE };
    let Some(mut switching) = Switching::try_take() else { return RETRY_NS };
    let machine = machine(&mut switching);
    for _ in 0..STEPS_MOST {
        if let Some(wait_ns) = machine.step(session, root) {
            return wait_ns;
        }
    }
    RETRY_NS
}

impl Machine {
    /// One step; the time until the next one where nothing is due now.
    fn step(&mut self, session: &'static Session, root: &Root) -> Option<u64> {
        let now_ns = clock::monotonic_ns();
        let launches_before = self.launches_before;
        let Some(schedule) = &mut self.schedule else { return Some(NOTHING_DUE) };
        let recording = session.recording();
        if let Some(spending) = &mut self.spending {
            spending.note_pause(recording != Recording::On, now_ns);
        }
        if recording != Recording::On {
            schedule.postpone(now_ns);
            match schedule.phase() {
                Phase::Open { .. } => self.end(session),
                // The pause has switched the kind off.
                Phase::Draining { .. } if recording == Recording::Off => {
                    session.set_timing(Timing::Off);
                    schedule.closed();
                }
                Phase::Draining { .. } | Phase::Closed => {}
            }
            return Some(PAUSED_NS);
        }
        let first_seen = session.first_seen_untimed();
        let has_come = || has_come(session, launches_before);
        match schedule.step(now_ns, first_seen, has_come) {
            Due::Wait { until_ns } => {
                if schedule.phase() == Phase::Closed {
                    self.spend(session, INTERVAL_MOST_NS);
                }
                return Some(until_ns.saturating_sub(now_ns).max(1));
            }
            Due::Open { window, cause } => self.open(session, root, window, cause, first_seen),
            Due::End => self.end(session),
            Due::Look => {
                if FLUSHES.load(Ordering::Relaxed) {
                    // Unforced, so that running kernels are not affected.
                    returned::flush(session, root, 0, true);
                    records::read_early(root);
                    returned::catch_up();
                }
                schedule.looked(clock::monotonic_ns());
            }
            Due::Close => {
                schedule.closed();
                let begun_ns = clock::monotonic_ns();
                base_kinds::turn_off(root);
                self.disable_ns = since(begun_ns);
                session.set_timing(Timing::Off);
                session.count(Counter::SwitchOffNs, self.disable_ns.into());
                self.spend(session, INTERVAL_LEAST_NS);
            }
        }
        None
    }

    fn open(&mut self, session: &'static Session, root: &Root, window: u32, cause: u8, first_seen: u32) {
        self.spend(session, INTERVAL_LEAST_NS);
        let Some(schedule) = &mut self.schedule else { return };
        self.enable_ns = 0;
        if schedule.phase() == Phase::Closed {
            session.set_timing(Timing::Marked);
            let begun_ns = clock::monotonic_ns();
            if !base_kinds::turn_on(session, root) {
                session.set_timing(Timing::Off);
                self.schedule = None;
                session.set_times_transfers(false);
                return ACTIVE_FOR.store(0, Ordering::Release);
            }
            self.enable_ns = since(begun_ns);
        }
        session.count(Counter::Windows, 1);
        session.count(Counter::WindowsTriggered, u64::from(cause == cause::TRIGGERED));
        session.count(Counter::SwitchOnNs, self.enable_ns.into());
        let sums = session.ring_sums();
        self.launches_before = sums.window_launches;
        awaited::begin(sums.window_latest);
        (self.window, self.cause) = (window, cause);
        // Before the first call that can be in the window.
        let ticks = clock::now();
        session.begin_window(window);
        schedule.opened(window, cause, clock::monotonic_ns(), first_seen);
        self.note(session, true, ticks);
    }

    /// Chooses how to go on, where there is a budget and so much time has passed.
    fn spend(&mut self, session: &'static Session, least_ns: u64) {
        let next = self.spending.as_mut().and_then(|spending| spending.next(session, least_ns));
        let Some((windows, launches)) = next else { return };
        if let Some(schedule) = &mut self.schedule {
            schedule.go_on_with(windows, clock::monotonic_ns());
        }
        let before = session.hook_state().launches();
        if launches == before {
            return;
        }
        if launches == Launches::Counted {
            saving::begin_counts(session);
        }
        session.set_launches(launches);
        if launches > self.least_launches {
            self.least_launches = launches;
            let text: &[u8] = match launches {
                Launches::Whole => return,
                Launches::Unstacked => {
                    b"budget: from here on launches outside of windows may be recorded without their stacks"
                }
                Launches::Counted => b"budget: from here on launches outside of windows may only be counted",
            };
            session.notice(0, rung::WINDOWS, text);
        }
    }

    fn end(&mut self, session: &'static Session) {
        session.set_timing(Timing::Marked);
        // After the last call that can be in the window.
        let ticks = clock::now();
        awaited::end(session.ring_sums().window_latest);
        if let Some(schedule) = &mut self.schedule {
            schedule.ended(clock::monotonic_ns());
        }
        self.note(session, false, ticks);
    }

    fn note(&self, session: &'static Session, is_on: bool, ticks: u64) {
        let windows = self.schedule.as_ref().map_or(self.asked, Schedule::windows);
        let mark = mark::DeviceTimes {
            is_on,
            cause: self.cause,
            ticks,
            window: self.window,
            on_us: windows.on_us,
            mean_us: windows.mean_us,
            enable_ns: if is_on { self.enable_ns } else { 0 },
            disable_ns: if is_on { self.disable_ns } else { 0 },
        };
        thread::with(|slot| slot.emit(session, &[mark.to_cell()]));
    }
}

fn since(begun_ns: u64) -> u32 {
    u32::try_from(clock::monotonic_ns().saturating_sub(begun_ns)).unwrap_or(u32::MAX)
}

/// Whether as many kernels were delivered as were launched in the last window.
fn has_come(session: &Session, launches_before: u64) -> bool {
    let launched = session.ring_sums().window_launches.wrapping_sub(launches_before);
    awaited::delivered() >= launched
}
