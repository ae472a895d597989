//! The tracer's use of CUPTI, from `cuInit` to the end, or until CUPTI has to be left.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::os::unix::ffi::OsStrExt;

use cupti_sys::cupti::{ApiVersion, CUpti_ActivityKind, CUptiResult};
use gputrace_producer::session::Session;
use gputrace_producer::{session, stderr};
use gputrace_wire::definition::{kind, library_role, rung};

use super::root::{self, Root, Who};
use super::{callbacks, graph_times, guest, library, old_torch, postponed, records};
use crate::resolve::originals;
use crate::settings;
use crate::tables::Tables;

/// What every trace needs, beside the kind for whole graphs ([`graph_times`]). No API kinds: the hooks keep host times at a third of the price. They go
/// on once, right after `cuInit`: switching kinds while kernels run stalls the device. CUPTI's
/// device buffers keep their own sizes, since a limit on them makes it drop records.
const KINDS: [CUpti_ActivityKind; 4] = [
    CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
    CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_MEMCPY,
    CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_MEMCPY2,
    CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_MEMSET,
];
const FLUSH_FORCED: u32 = 1;

mod state {
    pub const NONE: u32 = 0;
    pub const ON: u32 = 1;
    pub const GIVEN_UP: u32 = 2;
}
static STATE: AtomicU32 = AtomicU32::new(state::NONE);
/// Whether CUPTI delivers at each turn, and not in full buffers only.
static IS_STEADY: AtomicBool = AtomicBool::new(true);

/// Whether device records are being taken.
pub fn is_on() -> bool {
    STATE.load(Ordering::Acquire) == state::ON
}

/// Begins taking device records, or says why not.
pub fn start(session: &'static Session, tables: &Tables, driver_version: c_int, simulated: bool) {
    if settings::is_off(settings::DEVICE_TIMES) {
        session.notice(0, rung::HOOKS, b"device times are off, as asked: host times only");
        return;
    }
    let in_full_buffers = settings::get(settings::DELIVERY).is_some_and(|value| value == c"full");
    IS_STEADY.store(!in_full_buffers, Ordering::Relaxed);
    match subscribe(session, driver_version, simulated) {
        Ok(()) => {
            tables.set_has_records(true);
            STATE.store(state::ON, Ordering::Release);
            session.set_device_clock(timestamp, 1);
        }
        Err(why) => {
            session.notice(1, rung::HOOKS, format!("no device times: {why}").as_bytes());
            stderr::line(&[b"no device times: ", why.as_bytes(), b"; host times only"]);
        }
    }
}

fn subscribe(session: &Session, driver_version: c_int, simulated: bool) -> Result<(), String> {
    const IN_USE: &str = "another tool of this process uses CUPTI already";
    if root::is_left() {
        return Err(IN_USE.into());
    }
    let root = match root::current() {
        // A guest came first.
        Some(root) => root,
        None => {
            if library::is_mapped(originals::OF_NSIGHT_COMPUTE) {
                root::leave_unused();
                return Err("Nsight Compute stands between the program and the driver, and calls that it \
                            keeps to itself are not counted"
                    .into());
            }
            if settings::get(settings::CUPTI).is_none()
                && let Some(version) = old_torch::version()
            {
                root::leave_unused();
                return Err(format!(
                    "PyTorch {version} has a CUPTI linked in, which ours would keep from working (if it is not \
                     used, set GPUTRACE_CUPTI to a libcupti.so)"
                ));
            }
            let library = library::load(driver_version, simulated)?;
            root::attach(library.api, &library.path)?
        }
    };
    let at = root.path.display();
    let version = root.learn_version().map_err(|error| format!("{at} refuses ({})", name_of(error)))?;
    if version < ApiVersion::OLDEST {
        root::leave_unused();
        return Err(format!("{at} is version {version}, too old; 11.4 or later is needed"));
    }
    match root.subscribe() {
        CUptiResult::CUPTI_SUCCESS => {}
        CUptiResult::CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED => {
            root::leave_unused();
            return Err(format!("{IN_USE} ({at})"));
        }
        error => {
            root::leave_unused();
            return Err(format!("{at} refuses to subscribe ({})", name_of(error)));
        }
    }
    let undo = |what: &str, error: CUptiResult| {
        if !guest::is_present() {
            root.leave();
        }
        Err(format!("{at}: {what} failed ({})", name_of(error)))
    };
    match root.register_buffers() {
        CUptiResult::CUPTI_SUCCESS => {}
        CUptiResult::CUPTI_ERROR_OUT_OF_MEMORY => return Err("no memory for CUPTI's buffers".into()),
        error => return undo("registering buffers", error),
    }
    callbacks::enable_for_tracer(root);
    for kind in KINDS {
        let enabled = root.want(Who::Tracer, kind, true);
        if enabled != CUptiResult::CUPTI_SUCCESS {
            KINDS.iter().for_each(|kind| {
                root.want(Who::Tracer, *kind, false);
            });
            return undo("enabling kernel, copy and fill records", enabled);
        }
    }
    let fields = [library_role::DEVICE_RECORDS, u64::from(version.0)];
    session.define(kind::LIBRARY, &fields, root.path.as_os_str().as_bytes());
    graph_times::start(session, root);
    Ok(())
}

/// The library whose records are being taken.
pub(super) fn in_use() -> Option<&'static Root> {
    if is_on() { root::current() } else { None }
}

/// What the service thread does at each turn: CUPTI's own flush period returns only buffers that
/// are full, and what a killed process takes with it must be little. Where the session has ended
/// under us, because its collector has gone, CUPTI is left.
pub fn turn(session: &'static Session) {
    if !session.is_current() {
        return stop();
    }
    let Some(root) = in_use() else { return };
    if IS_STEADY.load(Ordering::Relaxed) || session.is_flush_asked() {
        // Unforced, so that running kernels are left alone. From a thread of our own this is safe
        // as long as hardware tracing (HES) is off, which it is unless a program asks for it.
        root.flush(0);
        records::read_along(root);
    }
    graph_times::turn(session, root);
}

/// The session is over though the program is not: nobody reads records any more.
fn stop() {
    let Some(root) = in_use() else { return };
    if STATE.compare_exchange(state::ON, state::GIVEN_UP, Ordering::AcqRel, Ordering::Acquire).is_err() {
        return;
    }
    // A guest goes on with what it has: its windows are counted by our launch callbacks.
    if !guest::is_present() {
        graph_times::ends(root);
        root.leave();
    }
}

/// The last delivery: forced, as the process is ending.
pub fn finish(_: &'static Session) {
    if let Some(root) = in_use() {
        // A kernel that still runs comes back without an end, once and for all, which is right at
        // the end and nowhere else.
        root.flush(FLUSH_FORCED);
        postponed::catch_up();
    }
}

/// A client that cannot be a guest announces itself: it gets CUPTI as if we had never been there,
/// and the hooks go on alone. Where a guest is there already, it is refused as it would be alone.
pub fn give_way(to: &str) {
    give_way_by(to, Root::leave);
}

/// The same for a client of another libcupti.
pub fn give_way_to_another_library() {
    give_way_by("a client of another libcupti", Root::leave_to_another_library);
}

fn give_way_by(to: &str, leave: fn(&Root)) {
    if guest::is_present() {
        return;
    }
    let Some(root) = root::current() else {
        return root::leave_unused();
    };
    // In a forked child, which has no session, CUPTI is its parent's and dead.
    let Some(session) = session::current() else { return };
    if STATE.compare_exchange(state::ON, state::GIVEN_UP, Ordering::AcqRel, Ordering::Acquire).is_err() {
        return;
    }
    session.clear_device_clock();
    graph_times::ends(root);
    leave(root);
    let text = format!("no device times from here on: {to} took CUPTI over");
    session.notice(1, rung::HOOKS, text.as_bytes());
}

fn timestamp() -> u64 {
    root::current().map_or(0, Root::now_ns)
}

pub(super) fn name_of(error: CUptiResult) -> String {
    cupti_sys::cupti::result_name(error).to_string()
}
