//! How a session begins, recording or paused, and the report of what it does and why.
//!
//! A program that was started with GPUTRACE_DELAY waits for its collector's order. A collector that gives no
//! orders, because the delay is not its own, would leave the program paused for ever; then the service
//! thread ends the delay.

use core::ffi::CStr;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use gputrace_producer::hook_state::Recording;
use gputrace_producer::session::Session;
use gputrace_producer::{clock, stderr};
use gputrace_wire::reported::{Reported, Why};

use crate::hook::{capture, held_calls, others_under_way, under_way};
use crate::process::settings;

/// The [`Why`] with which the session began, of [`Why::Started`], [`Why::StartPaused`] and [`Why::Delay`].
static BEGAN: AtomicU8 = AtomicU8::new(Why::Started as u8);
/// When the delay ends, by CLOCK_MONOTONIC.
static DELAY_ENDS_NS: AtomicU64 = AtomicU64::new(u64::MAX);

/// The delays that the command line takes, in seconds.
const DELAY_MIN: f64 = 0.1;
const DELAY_MAX: f64 = 86_400.0;

/// Called before the session's first call, by the thread that starts it.
pub fn begin_session(session: &Session) {
    let is_set = |setting| settings::get(setting).is_some() && !settings::is_off(setting);
    let mut began = Why::Started;
    if let Some(delay) = settings::get(settings::DELAY).filter(|_| is_set(settings::DELAY)) {
        match seconds(delay) {
            Some(seconds) => {
                began = Why::Delay;
                let ends_ns = clock::monotonic_ns() + (seconds * 1e9) as u64;
                DELAY_ENDS_NS.store(ends_ns, Ordering::Relaxed);
            }
            None => stderr::line(&[
                b"GPUTRACE_DELAY=",
                delay.to_bytes(),
                b": seconds are a number from 0.1 to 86400, or off; recording from here on",
            ]),
        }
    }
    if is_set(settings::START_PAUSED) {
        began = Why::StartPaused;
    }
    BEGAN.store(began as u8, Ordering::Relaxed);
    held_calls::begin_session();
    if capture::begin_session(session) || began != Why::Started {
        under_way::begin_session();
        others_under_way::begin_session();
        session.begin_paused();
    }
}

fn seconds(text: &CStr) -> Option<f64> {
    let seconds: f64 = text.to_str().ok()?.trim_ascii().parse().ok()?;
    (DELAY_MIN..=DELAY_MAX).contains(&seconds).then_some(seconds)
}

/// Whether the session is paused until somebody orders otherwise: neither a delay nor a range lets it go on.
pub fn waits_for_order() -> bool {
    BEGAN.load(Ordering::Relaxed) == Why::StartPaused as u8 && capture::why().is_none()
}

/// Whether the session still waits for its delay, and nobody else ends it.
pub fn delay_is_over(session: &Session) -> bool {
    BEGAN.load(Ordering::Relaxed) == Why::Delay as u8
        && session.control().recording_wanted.load(Ordering::Relaxed) == 0
        && clock::monotonic_ns() >= DELAY_ENDS_NS.load(Ordering::Relaxed)
        && BEGAN.swap(Why::Started as u8, Ordering::Relaxed) == Why::Delay as u8
}

/// Whether the session records, or is about to, or may in any call, since a range of the program begins with
/// it. Otherwise it is paused until somebody orders otherwise.
pub fn may_record(session: &Session) -> bool {
    let control = session.control();
    // SYNC: pairs with the collector's Release store.
    let wanted = control.recording_wanted.load(Ordering::Acquire);
    let is_ordered = wanted != control.recording_done.load(Ordering::Relaxed) && wanted & 1 == 0;
    session.recording() != Recording::Off
        || is_ordered
        || matches!(capture::why(), Some(Why::RangeAwaited | Why::RangeOpen))
}

/// Writes what the process does with its calls now, and why, for the collector's status.
pub fn report(session: &Session, has_order: bool) {
    let is_recording = session.recording() == Recording::On;
    let began = BEGAN.load(Ordering::Relaxed);
    // An order may contradict the range.
    let by_range = capture::why().filter(|why| !has_order || is_recording == (*why == Why::RangeOpen));
    let why = match by_range {
        Some(why) => why,
        _ if has_order => Why::Order,
        _ if !is_recording && began == Why::Delay as u8 => Why::Delay,
        _ if !is_recording && began == Why::StartPaused as u8 => Why::StartPaused,
        _ => Why::Started,
    };
    let word = Reported { is_recording, why }.to_word();
    session.control().recording_now.store(word, Ordering::Relaxed);
}
