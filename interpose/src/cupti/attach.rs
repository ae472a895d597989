//! How the tracer attaches to CUPTI: at `cuInit` it loads a libcupti, and subscribes. A session that is
//! paused until somebody orders otherwise subscribes when it first needs to: as it goes on, as a graph is
//! made, whose nodes CUPTI numbers, or as another client of CUPTI comes.
//!
//! For a program in which CUPTI has a subscriber is slower even if that wants nothing: a launch-bound step of
//! PyTorch by 1.6 ± 1.0 % (OVERHEAD.md).
//!
//! A thread that is inside a call as CUPTI's callbacks go on is given wrong correlation ids
//! ([`launch_callbacks`]). So a late subscription has a moment without launches, copies, fills and launches
//! of graphs. A copy often waits for the device, so it is waited for longer where that stops nobody: the
//! service thread comes again at its next turn.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering};
use std::os::unix::ffi::OsStrExt;

use cupti_sys::cupti::{ApiVersion, CUptiResult, result_name};
use gputrace_producer::hook_state::{Recording, Timing};
use gputrace_producer::session::{self, Session};
use gputrace_producer::{stderr, thread};
use gputrace_wire::definition::{kind, library_role, rung};

use super::root::{self, Root};
use super::switching::Switching;
use super::{callbacks, graph_times, guest, kinds, launch_callbacks, launches, library, old_torch, returned};
use crate::hook::{beginning, others_under_way};
use crate::process::{detour, settings};
use crate::symbols::originals;

const IN_USE: &str = "another tool of this process uses CUPTI already";

/// How long a late subscription waits for a copy to return, and how often the service thread does: in all
/// less than the time for which `gputrace ctl` waits.
const PATIENCE_NS: u64 = 100_000_000;
const TRIES_MOST: u32 = 10;
static TRIES: AtomicU32 = AtomicU32::new(0);

/// Begins to collect device records, or puts that off. To be called with the right to switch.
pub fn begin(session: &'static Session, driver_version: c_int, is_simulated: bool) -> Result<(), String> {
    let root = libcupti(driver_version, is_simulated)?;
    if beginning::waits_for_order() && session.timing() == Timing::On && !guest::is_present() {
        root::put_off();
        // One that came before that found nothing put off.
        if guest::is_present() {
            subscribe_late(session);
        }
        return Ok(());
    }
    subscribe(root)?;
    // A session that begins paused needs no records yet, and callbacks at launches only for records. With
    // windows they are on in any case, and so they are where a range has come and gone meanwhile: launches
    // under way are not counted any more then.
    let (is_recording, has_windows) = (session.recording() == Recording::On, session.timing() != Timing::On);
    if !session.hook_state().counts_under_way() || has_windows || guest::is_present() {
        launch_callbacks::turn_on(session, root);
    }
    if is_recording
        && !has_windows
        && let Err(error) = kinds::request_base(root)
    {
        kinds::withdraw_all(root, kinds::Requester::Base);
        return Err(undone(root, "enabling kernel, copy and fill records", error));
    }
    collect(session, root);
    // One that came before that did not turn them on.
    if guest::is_present() {
        turn_callbacks_on();
    }
    Ok(())
}

/// Subscribes if that was put off; false if it is to be tried again at the next turn. For the service thread,
/// with the right to switch.
pub fn try_subscribe_late(session: &'static Session) -> bool {
    let Some(root) = root::of_put_off() else { return true };
    let others = others_under_way::close(PATIENCE_NS);
    let is_last = TRIES.fetch_add(1, Ordering::Relaxed) >= TRIES_MOST;
    let is_done = others.is_quiet || is_last;
    if is_done {
        subscribe_now(session, root, others.is_quiet);
    }
    is_done
}

/// Subscribes if that was put off, whether a copy returns in time or not. To be called with the right to
/// switch.
fn subscribe_late(session: &'static Session) {
    if let Some(root) = root::of_put_off() {
        let others = others_under_way::close(PATIENCE_NS);
        subscribe_now(session, root, others.is_quiet);
    }
}

fn subscribe_now(session: &'static Session, root: &Root, is_quiet: bool) {
    let mut subscribed = Ok(());
    launch_callbacks::turn_on_after(session, root, || subscribed = subscribe(root));
    match subscribed {
        Ok(()) => collect(session, root),
        Err(why) => {
            root::leave_put_off();
            without_times(session, &why);
        }
    }
    if !is_quiet {
        session.notice(
            1,
            0,
            b"a copy or the launch of a graph did not return as CUPTI was to note calls: its thread's may lack device times, or have another's",
        );
    }
}

/// [`subscribe_late`] in the midst of the program's own call.
pub fn subscribe_if_put_off() {
    if root::of_put_off().is_some()
        && let Some(session) = session::current()
    {
        subscribe_in_call(session);
    }
}

#[cold]
#[inline(never)]
fn subscribe_in_call(session: &'static Session) {
    thread::with(|slot| {
        // A launch by a signal handler on this thread passes through. It would wait for this thread itself.
        let _inside = slot.enter();
        detour::run(|| {
            // Who has the right subscribes, or is about to be done.
            if let Some(_switching) = Switching::take() {
                subscribe_late(session);
            }
        });
    });
}

/// For a thread that is about to have CUPTI make records other than the session's: CUPTI notes the session's
/// launches from then on. Does nothing where the tracer collects no records.
pub fn turn_callbacks_on() {
    subscribe_if_put_off();
    if let Some(root) = root::of_tracer()
        && let Some(session) = session::current()
    {
        thread::with(|slot| {
            // As above.
            let _inside = slot.enter();
            launch_callbacks::turn_on(session, root);
        });
    }
}

pub fn without_times(session: &Session, why: &str) {
    session.notice(1, rung::HOOKS, format!("no device times: {why}").as_bytes());
    stderr::line(&[b"no device times: ", why.as_bytes(), b"; host times only"]);
}

/// The libcupti to use.
fn libcupti(driver_version: c_int, is_simulated: bool) -> Result<&'static Root, String> {
    if root::is_left() {
        return Err(IN_USE.into());
    }
    let root = match root::current() {
        // A guest attached first.
        Some(root) => root,
        None => {
            if library::is_mapped(originals::OF_NSIGHT_COMPUTE) {
                root::leave_unused();
                return Err(
                    "Nsight Compute is in front of the driver; calls that it makes are not counted".into()
                );
            }
            if settings::get(settings::CUPTI).is_none()
                && let Some(version) = old_torch::version()
            {
                root::leave_unused();
                return Err(format!(
                    "PyTorch {version} has a CUPTI linked in, which ours would disturb; if it is unused, set \
                     GPUTRACE_CUPTI to a libcupti.so"
                ));
            }
            let library = library::load(driver_version, is_simulated)?;
            root::attach(library.api, &library.path)?
        }
    };
    let at = root.path.display();
    let version = root.learn_version().map_err(|error| format!("{at} refuses ({})", result_name(error)))?;
    if version < ApiVersion::OLDEST {
        root::leave_unused();
        return Err(format!("{at} is version {version}, too old; 11.4 or later is needed"));
    }
    Ok(root)
}

/// Subscribes, with all that needs to be there before kinds of records are enabled.
fn subscribe(root: &Root) -> Result<(), String> {
    let at = root.path.display();
    match callbacks::subscribe(root) {
        CUptiResult::CUPTI_SUCCESS => {}
        CUptiResult::CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED => {
            root::leave_unused();
            return Err(format!("{IN_USE} ({at})"));
        }
        error => {
            root::leave_unused();
            return Err(format!("{at} refuses to subscribe ({})", result_name(error)));
        }
    }
    match returned::register_buffers(root) {
        CUptiResult::CUPTI_SUCCESS => {}
        CUptiResult::CUPTI_ERROR_OUT_OF_MEMORY => return Err("no memory for CUPTI's buffers".into()),
        error => return Err(undone(root, "registering buffers", error)),
    }
    callbacks::enable_graphs(root);
    callbacks::enable(root, launches::ids_of_others());
    Ok(())
}

fn undone(root: &Root, what: &str, error: CUptiResult) -> String {
    if !guest::is_present() {
        root.leave();
    }
    format!("{}: {what} failed ({})", root.path.display(), result_name(error))
}

/// From here on records are collected.
fn collect(session: &Session, root: &Root) {
    let fields = [library_role::DEVICE_RECORDS, u64::from(root.version().0)];
    session.define(kind::LIBRARY, &fields, root.path.as_os_str().as_bytes());
    graph_times::start(session, root);
    root::begin_collecting();
    session.set_device_clock(timestamp, 1);
}

fn timestamp() -> u64 {
    root::current().map_or(0, Root::now_ns)
}
