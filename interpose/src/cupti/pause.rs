//! Pausing a session, and going on, with or without device times: what changes in the hooks and in CUPTI, in
//! which order.
//!
//! ```text
//!  On ──► Marked ──(some turns of the service thread)──► kernels' kind off ──► Off
//!  Off ──► Marked ──► kernels' kind on ──► On
//! ```
//!
//! [`Recording`] takes these steps as the session is paused, and [`Timing`] as device times are switched. The
//! kernels' kind is on only while neither is off.
//!
//! While calls are marked, CUPTI may still deliver records of them; the mark says which these are, so that a
//! reader of the trace leaves out the records of all calls that were not recorded. The kinds of whole graphs,
//! copies and fills never go off: CUPTI crashes where the first is switched while graphs exist, and where
//! those of kernels and copies are switched together ([`super::kinds`], `scripts/bench-cupti-switch`). Their
//! records go on, so these calls are marked also while the session is off. The launch callbacks, which may go
//! on with the first recorded call ([`launch_callbacks`]), stay on: a thread that is inside a call as its
//! callback goes off or on gets that call's correlation id for all its later calls too (seen with CUPTI
//! 13.0).

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use gputrace_producer::hook_state::{Recording, Timing};
use gputrace_producer::session::Session;
use gputrace_producer::{clock, thread};
use gputrace_wire::clock::mark;
use gputrace_wire::run_settings::TimesSetting;

use super::base_kinds::{turn_off, turn_on};
use super::root::{self, Root};
use super::switching::Switching;
use super::{attach, launch_callbacks, windows};
use crate::frames::torch::operators;
use crate::hook::beginning;
use crate::hook::capture::{self, Switch};

/// Turns of the service thread between the last recorded call and the switch of CUPTI's kinds. What was
/// launched before it has mostly ended by then.
const TURNS_MARKED: u32 = 3;

/// The generation of the session of which it is written that it began paused.
static NOTED_FOR: AtomicU32 = AtomicU32::new(0);
static TURNS_LEFT: AtomicU32 = AtomicU32::new(0);
/// The same for device times.
static TIMING_TURNS_LEFT: AtomicU32 = AtomicU32::new(0);
/// Turns without a flush after device times are switched on, and those that are left.
const TURNS_QUIET: u32 = 10;
static QUIET_TURNS_LEFT: AtomicU32 = AtomicU32::new(0);

/// A hook could not switch in time. The service thread does it, as the range is then open or not.
static IS_LATE: AtomicBool = AtomicBool::new(false);

/// What hooks switch by.
pub static SWITCH: Switch = Switch { record: record_now, pause: pause_now };

/// Makes the process record from the calling thread's next call on.
fn record_now(session: &'static Session) {
    switch_or_leave(|root| {
        if capture::is_open() {
            go_on_in_range(session, root);
        }
    });
}

/// Pauses the process from the calling thread's next call on. Kernels' kind goes off some turns later.
fn pause_now(session: &'static Session) {
    switch_or_leave(|root| {
        // Another thread may have begun the next range meanwhile.
        if !capture::is_open() {
            pause_after_range(session, root);
        }
    });
}

/// Waits for the right to switch. Without it the service thread is left to switch, and until it has, nobody
/// else waits.
fn switch_or_leave(switch: impl FnOnce(Option<&Root>)) {
    let is_late = IS_LATE.load(Ordering::Relaxed);
    match if is_late { Switching::try_take() } else { Switching::take() } {
        Some(_switching) => switch(root::of_tracer()),
        None => IS_LATE.store(true, Ordering::Release),
    }
}

/// Switches for the hooks that could not in time. Called with the right to switch.
pub fn make_up(session: &'static Session, root: Option<&Root>) {
    match IS_LATE.swap(false, Ordering::Acquire) {
        true if capture::is_open() => go_on_in_range(session, root),
        true => pause_after_range(session, root),
        false => {}
    }
}

fn go_on_in_range(session: &'static Session, root: Option<&Root>) {
    note_begin(session);
    go_on(session, root);
}

fn pause_after_range(session: &'static Session, root: Option<&Root>) {
    if session.recording() == Recording::On {
        note_begin(session);
        pause(session, root);
    }
    capture::has_paused(session);
}

/// Writes, once a session, that it began paused if it did.
fn note_begin(session: &'static Session) {
    if NOTED_FOR.swap(session.generation, Ordering::Relaxed) != session.generation
        && session.recording() == Recording::Off
        && session.control().recording_done.load(Ordering::Relaxed) == 0
    {
        let since_begin = mark::Recording { is_on: false, ticks: 0 };
        thread::with(|slot| slot.emit(session, &[since_begin.to_cell()]));
    }
}

/// A turn of the service thread. `root`: CUPTI, where device times are recorded.
pub fn turn(session: &'static Session, root: Option<&Root>) {
    // A hook that switches now is done by the next turn.
    let Some(_switching) = Switching::try_take() else { return };
    note_begin(session);
    make_up(session, root);
    if beginning::delay_is_over(session) {
        operators::go_on(session);
        go_on(session, root);
    }
    let control = session.control();
    // SYNC: pairs with the collector's Release store.
    let wanted = control.recording_wanted.load(Ordering::Acquire);
    let done = control.recording_done.load(Ordering::Relaxed);
    if wanted == done {
        // What a hook has begun.
        if session.recording() == Recording::Marked {
            pause(session, root);
        }
        return beginning::report(session, done != 0);
    }
    let is_done = if wanted & 1 == 1 {
        let is_paused = pause(session, root);
        if is_paused {
            operators::turn(session);
        }
        is_paused
    } else {
        operators::go_on(session);
        go_on(session, root)
    };
    beginning::report(session, is_done || done != 0);
    if is_done {
        // SYNC: pairs with the collector's Acquire load: it sees the report of this order.
        control.recording_done.store(wanted, Ordering::Release);
    }
}

/// A step towards device times, towards none, or towards windows; called at turns of the service thread until
/// it returns true. Where CUPTI is not used, there is nothing to switch.
pub fn switch_times(session: &'static Session, wanted: TimesSetting) -> bool {
    // A hook that switches now is done by the next turn, and so is a pause, after some.
    let Some(mut switching) = Switching::try_take() else { return false };
    if root::of_put_off().is_some() && wanted != TimesSetting::Windows {
        // The session is paused, and device times go on with it.
        let timing = if wanted == TimesSetting::On { Timing::On } else { Timing::Off };
        if session.timing() != timing {
            session.set_timing(timing);
            note_times(session, timing == Timing::On);
        }
        return true;
    }
    if !attach::try_subscribe_late(session) {
        return false;
    }
    let Some(root) = root::of_tracer() else { return true };
    if windows::are_active(session) {
        if wanted == TimesSetting::Windows {
            return true;
        }
        windows::deactivate(session, &mut switching);
        TIMING_TURNS_LEFT.store(TURNS_MARKED, Ordering::Relaxed);
    }
    let is_done = switch_to(session, root, wanted == TimesSetting::On);
    if is_done && wanted == TimesSetting::Windows {
        windows::activate(session, &mut switching, false);
    }
    is_done
}

fn switch_to(session: &'static Session, root: &Root, is_on: bool) -> bool {
    let recording = session.recording();
    match (session.timing(), is_on) {
        (Timing::On, true) | (Timing::Off, false) => return true,
        _ if recording == Recording::Marked => return false,
        (Timing::Marked | Timing::Off, true) => {
            if recording == Recording::On {
                session.set_timing(Timing::Marked);
                if !turn_on(session, root) {
                    session.set_timing(Timing::Off);
                    return true;
                }
                QUIET_TURNS_LEFT.store(TURNS_QUIET, Ordering::Relaxed);
            }
            session.set_timing(Timing::On);
            note_times(session, true);
        }
        (Timing::On, false) => {
            note_times(session, false);
            session.set_timing(Timing::Marked);
            TIMING_TURNS_LEFT.store(TURNS_MARKED, Ordering::Relaxed);
            return false;
        }
        (Timing::Marked, false) => {
            let left = TIMING_TURNS_LEFT.load(Ordering::Relaxed);
            // While the session is paused the kind is off already.
            if recording == Recording::On {
                if left > 0 {
                    TIMING_TURNS_LEFT.store(left - 1, Ordering::Relaxed);
                    return false;
                }
                turn_off(root);
            }
            session.set_timing(Timing::Off);
        }
    }
    true
}

/// Whether operations that are recorded now get device times, or will once the session goes on.
pub fn times_now(session: &Session) -> TimesSetting {
    match root::of_tracer() {
        None if root::of_put_off().is_none() => TimesSetting::Off,
        _ if windows::are_active(session) => TimesSetting::Windows,
        _ if session.timing() == Timing::On => TimesSetting::On,
        _ => TimesSetting::Off,
    }
}

fn pause(session: &'static Session, root: Option<&Root>) -> bool {
    match (session.recording(), root) {
        (Recording::Off, _) => return true,
        (Recording::On, Some(_)) if session.timing() != Timing::Off => {
            session.set_recording(Recording::Marked);
            note(session, false);
            TURNS_LEFT.store(TURNS_MARKED, Ordering::Relaxed);
            return false;
        }
        (Recording::On, _) => note(session, false),
        (Recording::Marked, Some(root)) => {
            let left = TURNS_LEFT.load(Ordering::Relaxed);
            if left > 0 {
                TURNS_LEFT.store(left - 1, Ordering::Relaxed);
                return false;
            }
            turn_off(root);
        }
        // CUPTI was left meanwhile.
        (Recording::Marked, None) => {}
    }
    session.set_recording(Recording::Off);
    true
}

/// A step towards recording; false if there is another to come, at the next turn of the service thread. That
/// is only where CUPTI has no subscriber yet, and so never in a range.
fn go_on(session: &'static Session, root: Option<&Root>) -> bool {
    if !attach::try_subscribe_late(session) {
        return false;
    }
    let subscribed: Option<&Root> = root::of_tracer();
    let root = root.or(subscribed);
    match (session.recording(), root) {
        (Recording::On, _) => return true,
        // From the first time on CUPTI has ids for launches; there is no going back.
        (_, Some(root)) if session.timing() == Timing::Off => launch_callbacks::turn_on(session, root),
        _ if session.timing() == Timing::Off => {}
        (Recording::Off, Some(root)) => {
            launch_callbacks::turn_on(session, root);
            session.set_recording(Recording::Marked);
            _ = turn_on(session, root);
        }
        // Asked to go on before the pause was complete.
        (Recording::Marked, Some(root)) => _ = turn_on(session, root),
        (_, None) => {}
    }
    session.set_recording(Recording::On);
    note(session, true);
    true
}

/// Whether the service thread may flush in this turn. It does not while device times are switched off, nor
/// just after: a flush then waited for ever for CUPTI's own thread (driver 580, CUPTI 13.0, eight threads
/// that launch and make graphs: after 14 to 46 switches; without such flushes never in 249).
pub fn may_flush(session: &Session) -> bool {
    let left = QUIET_TURNS_LEFT.load(Ordering::Relaxed);
    if left > 0 {
        QUIET_TURNS_LEFT.store(left - 1, Ordering::Relaxed);
    }
    // Windows flush by themselves, unless the session is being paused or somebody needs everything now.
    let is_by_windows =
        windows::are_active(session) && session.recording() == Recording::On && !session.is_flush_asked();
    left == 0 && session.timing() != Timing::Off && !is_by_windows
}

/// Writes from when on the process takes device times, or none.
fn note_times(session: &'static Session, is_on: bool) {
    let mark = mark::DeviceTimes { is_on, ticks: clock::now(), ..mark::DeviceTimes::default() };
    thread::with(|slot| slot.emit(session, &[mark.to_cell()]));
}

/// Writes from when on the process records, or is paused.
fn note(session: &'static Session, is_on: bool) {
    let mark = mark::Recording { is_on, ticks: clock::now() };
    thread::with(|slot| slot.emit(session, &[mark.to_cell()]));
}
