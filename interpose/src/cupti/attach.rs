//! How the tracer attaches to CUPTI: at `cuInit` it loads a libcupti, and subscribes. A session that is
//! paused until somebody orders otherwise subscribes when it first needs to: as it goes on, as a graph is
//! made, whose nodes CUPTI numbers, or as another client of CUPTI comes.
//!
//! The reason is that a program is slower where CUPTI has a subscriber, even if nothing is recorded: a
//! launch-bound step of PyTorch by 1.6 ± 1.0 % (OVERHEAD.md).
//!
//! A thread that is inside a call as CUPTI's callbacks go on is given wrong correlation ids
//! ([`launch_callbacks`]). So a late subscription needs a moment without launches, copies, fills and launches
//! of graphs. A copy may wait for the device for long, and others shall not wait for it: where there is no
//! such moment, the service thread comes again at its next turn.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::os::unix::ffi::OsStrExt;

use cupti_sys::cupti::{ApiVersion, CUptiResult, result_name};
use gputrace_producer::hook_state::{Recording, Timing};
use gputrace_producer::session::{self, Session};
use gputrace_producer::{clock, stderr, system, thread};
use gputrace_wire::definition::{kind, library_role, rung};

use super::graph_state::{self, State};
use super::root::{self, Root};
use super::switching::Switching;
use super::{callbacks, graph_times, guest, kinds, launch_callbacks, launches, library, old_torch, returned};
use crate::hook::beginning;
use crate::hook::others_under_way::{self, OthersClosed};
use crate::process::{detour, settings};
use crate::symbols::originals;
use crate::table::tables;

const IN_USE: &str = "another tool of this process uses CUPTI already";

/// How many tries the service thread makes for an order to find a moment without a copy. Together they take
/// less than `gputrace ctl` waits.
const TRIES_MOST: u32 = 8;
static TRIES: AtomicU32 = AtomicU32::new(0);
/// The last one, by CLOCK_MONOTONIC. Tries of one order come within this time of each other.
static LAST_TRY_NS: AtomicU64 = AtomicU64::new(0);
const TRIES_APART_NS: u64 = 1_000_000_000;

/// How long a thread of the program's waits for the right to switch.
const TURN_MOST_NS: u64 = 500_000_000;
const TURN_STEP_NS: u64 = 20_000;

/// What needs CUPTI now.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    /// A graph, about to be made.
    Graph,
    /// An order, or another client.
    Other,
}

/// Begins to collect device records, or puts that off. To be called with the right to switch.
pub fn begin(session: &'static Session, driver_version: c_int, is_simulated: bool) -> Result<(), String> {
    let root = libcupti(driver_version, is_simulated)?;
    if may_be_put_off(session) {
        define_library(session, root);
        root::put_off();
        // A guest that came before that found nothing put off.
        if guest::is_present() {
            subscribe_late(session, Need::Other);
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
    define_library(session, root);
    collect(session, root);
    // A guest that came before that did not turn them on.
    if guest::is_present() {
        turn_callbacks_on();
    }
    Ok(())
}

/// Whether the session is paused until an order, without windows, a guest, or graphs that are to be timed
/// whole: after a late subscription they may not be ([`subscribe_now`]).
fn may_be_put_off(session: &Session) -> bool {
    let wants_graph_level = settings::get(settings::GRAPH_TIMES).is_some_and(|value| value == c"graph");
    beginning::waits_for_order()
        && session.timing() == Timing::On
        && !wants_graph_level
        && !guest::is_present()
}

/// Subscribes if that was put off; false if it is to be tried again at the next turn. For the service thread,
/// with the right to switch.
pub fn try_subscribe_late(session: &'static Session) -> bool {
    let Some(root) = root::of_put_off() else { return true };
    let now_ns = clock::monotonic_ns();
    if now_ns - LAST_TRY_NS.swap(now_ns, Ordering::Relaxed) > TRIES_APART_NS {
        TRIES.store(0, Ordering::Relaxed);
    }
    let others = others_under_way::close();
    let is_last = TRIES.fetch_add(1, Ordering::Relaxed) + 1 >= TRIES_MOST;
    let is_done = others.is_quiet || is_last;
    if is_done {
        subscribe_now(session, root, &others, Need::Other);
    }
    is_done
}

/// Subscribes if that was put off, whether a copy returns in time or not. To be called with the right to
/// switch.
fn subscribe_late(session: &'static Session, need: Need) {
    if let Some(root) = root::of_put_off() {
        subscribe_now(session, root, &others_under_way::close(), need);
    }
}

fn subscribe_now(session: &'static Session, root: &Root, others: &OthersClosed, need: Need) {
    let mut subscribed = Ok(());
    launch_callbacks::turn_on_after(session, root, || {
        subscribed = subscribe(root);
        subscribed.is_ok()
    });
    if need != Need::Graph {
        // A graph that was made where no hook saw it was not seen by CUPTI either, which would crash over it.
        graph_state::update(State::forbid_graph_level);
    }
    match subscribed {
        Ok(()) => {
            collect(session, root);
            if !others.is_quiet || !others.are_held() {
                session.notice(
                    1,
                    0,
                    b"a copy or the launch of a graph was under way as CUPTI was to note calls: its thread's may lack device times, or have another's",
                );
            }
        }
        Err(why) => {
            leave_put_off(session);
            without_times(session, &why);
        }
    }
}

/// There will be no subscription. True for the first caller.
fn leave_put_off(session: &Session) -> bool {
    let is_first = root::leave_put_off();
    if is_first {
        session.count_no_launches_under_way();
        if let Some(tables) = tables::of(session) {
            tables.set_has_records(false);
        }
    }
    is_first
}

/// [`subscribe_late`] in the midst of a call of another client's.
pub fn subscribe_if_put_off() {
    subscribe_in_call(Need::Other);
}

/// The same before the driver makes a graph or begins to capture one: CUPTI numbers the nodes as they are
/// made.
pub fn subscribe_for_graph() {
    subscribe_in_call(Need::Graph);
}

fn subscribe_in_call(need: Need) {
    if root::of_put_off().is_some()
        && let Some(session) = session::current()
    {
        subscribe_in_turn(session, need);
    }
}

#[cold]
#[inline(never)]
fn subscribe_in_turn(session: &'static Session, need: Need) {
    thread::with(|slot| {
        // A launch by a signal handler on this thread passes through. It would wait for this thread itself.
        let _inside = slot.enter();
        detour::run(|| {
            if !while_put_off(|| subscribe_late(session, need)) {
                let text =
                    b"CUPTI could not be used within half a second: what comes now may lack device times";
                session.notice(1, 0, text);
            }
        });
    });
}

/// Waits for the right to switch, and acts with it if the subscription is still put off. False if the right
/// is not to be had.
fn while_put_off(act: impl FnOnce()) -> bool {
    let deadline_ns = clock::monotonic_ns() + TURN_MOST_NS;
    while root::of_put_off().is_some() {
        if let Some(_switching) = Switching::try_take() {
            act();
            return true;
        }
        if clock::monotonic_ns() >= deadline_ns {
            return false;
        }
        system::sleep_ns(TURN_STEP_NS);
    }
    true
}

/// For a thread that is about to have CUPTI make records other than the session's: CUPTI notes the
/// session's launches from then on. Does nothing where the tracer collects no records.
pub fn turn_callbacks_on() {
    subscribe_if_put_off();
    if let Some(root) = root::of_tracer()
        && let Some(session) = session::current()
    {
        thread::with(|slot| {
            // As in `subscribe_in_turn`.
            let _inside = slot.enter();
            launch_callbacks::turn_on(session, root);
        });
    }
}

/// Leaves CUPTI unused to a client that cannot be a guest, if the subscription is put off; false if it is
/// not.
pub fn give_way(session: &Session) -> bool {
    let mut has_left = false;
    while_put_off(|| {
        has_left = leave_put_off(session);
        if has_left {
            root::leave_unused();
        }
    });
    has_left
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

fn define_library(session: &Session, root: &Root) {
    let fields = [library_role::DEVICE_RECORDS, u64::from(root.version().0)];
    session.define(kind::LIBRARY, &fields, root.path.as_os_str().as_bytes());
}

/// From here on records are collected.
fn collect(session: &Session, root: &Root) {
    graph_times::start(session, root);
    root::begin_collecting();
    session.set_device_clock(timestamp, 1);
}

fn timestamp() -> u64 {
    root::current().map_or(0, Root::now_ns)
}
