//! The tracer's use of CUPTI, from `cuInit` until the session ends or CUPTI must be left.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering};

use gputrace_producer::hook_state::Timing;
use gputrace_producer::session::{self, Session};
use gputrace_wire::definition::rung;
use gputrace_wire::windows::{DeviceTimesMode, Windows};

use super::root::{self, Root};
use super::switching::Switching;
use super::{attach, graph_times, guest, kinds, open, pause, records, returned, windows};
use crate::hook::saving;
use crate::process::settings;
use crate::table::tables::Tables;

const FLUSH_FORCED: u32 = 1;

/// Whether CUPTI is flushed, so that records do not only come in full buffers.
static IS_STEADY: AtomicBool = AtomicBool::new(true);

/// How many turns of the service thread pass between two readings of counted launches.
const TURNS_COUNTING: u32 = 5;

/// Starts collecting device records, puts that off, or reports why it cannot.
pub fn start(session: &'static Session, tables: &Tables, driver_version: c_int, simulated: bool) {
    begin(session, tables, driver_version, simulated);
    if root::of_tracer().is_none() && root::of_put_off().is_none() {
        session.count_no_launches_under_way();
    }
}

fn begin(session: &'static Session, tables: &Tables, driver_version: c_int, simulated: bool) {
    let budget = settings::budget();
    let mode = match (asked_mode(), budget) {
        (DeviceTimesMode::Full, Some(_)) => DeviceTimesMode::Windows(Windows::USUAL),
        (mode, _) => mode,
    };
    if mode == DeviceTimesMode::Off {
        session.notice(0, rung::HOOKS, b"device times are off, as asked: host times only");
        return;
    }
    let in_full_buffers = settings::get(settings::DELIVERY).is_some_and(|value| value == c"full");
    IS_STEADY.store(!in_full_buffers, Ordering::Relaxed);
    let lengths = if let DeviceTimesMode::Windows(windows) = mode { windows } else { Windows::USUAL };
    // Held until CUPTI is there: a range that begins meanwhile waits for its device times.
    let Some(mut switching) = Switching::take() else {
        return attach::without_times(
            session,
            "another thread is switching what is recorded, and is not done",
        );
    };
    windows::set_lengths(&mut switching, lengths, budget, !in_full_buffers);
    let is_by_windows = matches!(mode, DeviceTimesMode::Windows(_));
    if is_by_windows {
        session.set_timing(Timing::Off);
    }
    match attach::begin(session, driver_version, simulated) {
        Ok(()) => {
            let has_records = root::of_tracer().is_some() || root::of_put_off().is_some();
            tables.set_has_records(has_records);
            if is_by_windows {
                windows::activate(session, &mut switching, true);
            }
        }
        Err(why) => {
            session.set_timing(Timing::On);
            attach::without_times(session, &why);
        }
    }
    // A range may have waited in vain meanwhile.
    pause::make_up(session, root::of_tracer());
}

/// What the variable asks for. One that makes no sense is as if unset, as the command line warns.
fn asked_mode() -> DeviceTimesMode {
    let text = settings::get(settings::DEVICE_TIMES).and_then(|value| value.to_str().ok());
    text.and_then(|text| DeviceTimesMode::parse(text).ok()).unwrap_or(DeviceTimesMode::Full)
}

/// The periodic work of the service thread. CUPTI's own flush period returns only full buffers, and a
/// killed process should lose little, so this flushes whenever [`returned`] says that it is due. If the
/// session ended because its collector is gone, CUPTI is left.
pub fn turn(session: &'static Session) {
    if !session.is_current() {
        return stop();
    }
    let root = root::of_tracer();
    pause::turn(session, root);
    let turn = open::begin_turn();
    if turn % TURNS_COUNTING == 1 || session.is_flush_asked() {
        saving::write_counts(session);
    }
    let Some(root) = root else { return };
    let is_wanted = IS_STEADY.load(Ordering::Relaxed) || session.is_flush_asked();
    if pause::may_flush(session) && is_wanted {
        // Unforced, so that running kernels are not affected. A flush from our own thread is safe as long as
        // hardware tracing (HES) is off, and it is off unless a program asks for it.
        let is_asked = session.is_flush_asked();
        if returned::is_flush_due(turn) || is_asked {
            returned::flush(session, root, 0, is_asked);
        }
        records::read_early(root);
        // Buffers may have come back meanwhile.
        returned::catch_up();
    } else if is_wanted && windows::are_active(session) {
        // Between rare windows, records of copies and fills would come so late that their calls are
        // forgotten, and fill the buffers. What CUPTI has written is read without a flush.
        records::read_early(root);
        returned::catch_up();
    }
    graph_times::turn(session, root);
}

/// Stops collecting: the session is over although the program is not, and nobody reads records.
fn stop() {
    let Some(root) = root::of_tracer() else { return };
    if !root::end_collecting() {
        return;
    }
    // A guest continues: our launch callbacks count its windows.
    if !guest::is_present() {
        leave(root, Root::leave_unread);
    }
}

fn leave(root: &Root, how: fn(&Root)) {
    graph_times::ends(root);
    kinds::leave(root);
    how(root);
}

/// The last delivery. It is forced, because the process is ending.
pub fn finish(session: &'static Session) {
    windows::finish(session);
    if let Some(root) = root::of_tracer() {
        // A forced flush delivers a running kernel without an end, permanently. That is right only at the
        // process's end.
        returned::flush(session, root, FLUSH_FORCED, true);
    }
}

/// Leaves CUPTI to a client that cannot be a guest; the hooks go on alone. If a guest is present, nothing
/// happens here, and CUPTI refuses the client as it would without us.
pub fn give_way(to: &str) {
    give_way_by(to, Root::leave);
}

/// The same for a client of another libcupti.
pub fn give_way_to_another_library() {
    give_way_by("a client of another libcupti", Root::leave_to_another_library);
}

fn give_way_by(to: &str, how: fn(&Root)) {
    if guest::is_present() {
        return;
    }
    let Some(root) = root::current() else {
        return root::leave_unused();
    };
    // A forked child has no session; CUPTI belongs to its parent and does not work in the child.
    let Some(session) = session::current() else { return };
    if !attach::give_way(session) {
        if !root::end_collecting() {
            return;
        }
        session.clear_device_clock();
        leave(root, how);
    }
    let text = format!("no device times from here on: {to} took CUPTI over");
    session.notice(1, rung::HOOKS, text.as_bytes());
}
