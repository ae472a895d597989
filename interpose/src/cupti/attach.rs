//! When the tracer takes CUPTI up, and how: at `cuInit`; or, in a session that is paused until it is asked to
//! go on, when it is first needed. That is as it goes on, as a graph is made, whose nodes CUPTI numbers, or as
//! another client of CUPTI comes.
//!
//! A program in which CUPTI has a subscriber is slower even if that wants nothing: a launch-bound step of
//! PyTorch by 1.9 ± 1.3 % (OVERHEAD.md).

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::os::unix::ffi::OsStrExt;

use cupti_sys::cupti::{ApiVersion, CUptiResult, result_name};
use gputrace_producer::hook_state::{Recording, Timing};
use gputrace_producer::session::{self, Session};
use gputrace_producer::{stderr, thread};
use gputrace_wire::definition::{kind, library_role, rung};

use super::root::{self, Root};
use super::switching::Switching;
use super::{callbacks, graph_times, guest, kinds, launch_callbacks, library, old_torch, returned};
use crate::process::{detour, settings};
use crate::symbols::originals;
use crate::table::tables::{self, Tables};

/// The driver that device times are collected from.
#[derive(Clone, Copy)]
pub struct Driver {
    pub version: c_int,
    pub is_simulated: bool,
}

/// The session that does without CUPTI so far: its generation; 0 for none.
static WITHOUT: AtomicU32 = AtomicU32::new(0);
static VERSION: AtomicI32 = AtomicI32::new(0);
static IS_SIMULATED: AtomicBool = AtomicBool::new(false);

/// The session does without CUPTI until somebody takes it up.
pub fn put_off(session: &'static Session, tables: &Tables, driver: Driver) {
    VERSION.store(driver.version, Ordering::Relaxed);
    IS_SIMULATED.store(driver.is_simulated, Ordering::Relaxed);
    // What is defined from now on is defined as for records.
    tables.set_has_records(true);
    // SYNC: pairs with the exchange in `take_up`.
    WITHOUT.store(session.generation, Ordering::Release);
}

/// Whether the session does without CUPTI so far, and may take it up.
pub fn is_put_off(session: &Session) -> bool {
    WITHOUT.load(Ordering::Relaxed) == session.generation
}

/// Takes CUPTI up if that was put off. To be called with the right to switch.
pub fn take_up(session: &'static Session) {
    let found = WITHOUT.compare_exchange(session.generation, 0, Ordering::AcqRel, Ordering::Relaxed);
    if found.is_ok()
        && let Some(tables) = tables::of(session)
    {
        let (version, is_simulated) = (VERSION.load(Ordering::Relaxed), IS_SIMULATED.load(Ordering::Relaxed));
        attach(session, tables, Driver { version, is_simulated }, true);
    }
}

/// Takes CUPTI up in the midst of the program's own call, before a graph or as another client comes.
pub fn take_up_if_put_off() {
    if let Some(session) = session::current().filter(|session| is_put_off(session)) {
        take_up_in_call(session);
    }
}

#[cold]
#[inline(never)]
fn take_up_in_call(session: &'static Session) {
    thread::with(|slot| {
        let _inside = slot.enter();
        detour::run(|| {
            // Who has the right takes CUPTI up, or is about to be done.
            if let Some(_switching) = Switching::take() {
                take_up(session);
            }
        });
    });
}

/// For a thread that is about to have CUPTI make records other than the session's: CUPTI notes the session's
/// launches from then on. Where the tracer collects none, nothing is needed.
pub fn note_launches_for_others() {
    take_up_if_put_off();
    if let Some(root) = root::of_tracer()
        && let Some(session) = session::current()
    {
        thread::with(|slot| {
            // A launch by a signal handler on this thread must not wait for it.
            let _inside = slot.enter();
            launch_callbacks::turn_on(session, root);
        });
    }
}

/// Begins to collect device records; false, and said, if that cannot be. `is_late`: other calls have come since
/// `cuInit`.
pub fn attach(session: &'static Session, tables: &Tables, driver: Driver, is_late: bool) -> bool {
    match subscribe(session, driver, is_late) {
        Ok(()) => {
            tables.set_has_records(true);
            root::begin_collecting();
            // One that came before that did not turn them on.
            if guest::is_present() {
                note_launches_for_others();
            }
            session.set_device_clock(timestamp, 1);
            true
        }
        Err(why) => {
            without_times(session, &why);
            session.count_none_under_way();
            false
        }
    }
}

pub fn without_times(session: &Session, why: &str) {
    session.notice(1, rung::HOOKS, format!("no device times: {why}").as_bytes());
    stderr::line(&[b"no device times: ", why.as_bytes(), b"; host times only"]);
}

fn subscribe(session: &Session, driver: Driver, is_late: bool) -> Result<(), String> {
    const IN_USE: &str = "another tool of this process uses CUPTI already";
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
            let library = library::load(driver.version, driver.is_simulated)?;
            root::attach(library.api, &library.path)?
        }
    };
    let at = root.path.display();
    let version = root.learn_version().map_err(|error| format!("{at} refuses ({})", result_name(error)))?;
    if version < ApiVersion::OLDEST {
        root::leave_unused();
        return Err(format!("{at} is version {version}, too old; 11.4 or later is needed"));
    }
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
    let undo = |what: &str, error: CUptiResult| {
        if !guest::is_present() {
            root.leave();
        }
        Err(format!("{at}: {what} failed ({})", result_name(error)))
    };
    match returned::register_buffers(root) {
        CUptiResult::CUPTI_SUCCESS => {}
        CUptiResult::CUPTI_ERROR_OUT_OF_MEMORY => return Err("no memory for CUPTI's buffers".into()),
        error => return undo("registering buffers", error),
    }
    callbacks::enable_graphs(root);
    if !is_late {
        launch_callbacks::begin_with_others(root);
        // A session that begins paused needs no records yet, and callbacks at launches only for records. With
        // windows they are on in any case.
        let is_recording = session.recording() == Recording::On;
        let has_windows = session.timing() != Timing::On;
        if is_recording || has_windows || guest::is_present() {
            launch_callbacks::turn_on(session, root);
        }
        if is_recording
            && !has_windows
            && let Err(error) = kinds::request_base(root)
        {
            kinds::withdraw_all(root, kinds::Requester::Base);
            return undo("enabling kernel, copy and fill records", error);
        }
    }
    let fields = [library_role::DEVICE_RECORDS, u64::from(version.0)];
    session.define(kind::LIBRARY, &fields, root.path.as_os_str().as_bytes());
    graph_times::start(session, root);
    Ok(())
}

fn timestamp() -> u64 {
    root::current().map_or(0, Root::now_ns)
}
