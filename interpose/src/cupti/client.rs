//! Our one subscription to CUPTI, from `cuInit` to the end, or until somebody else wants it.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::os::unix::ffi::OsStrExt;

use cupti_sys::cupti::{
    ApiVersion, CUpti_ActivityKind, CUpti_CallbackDomain, CUpti_SubscriberHandle, CUptiResult, Cupti,
};
use gputrace_producer::session::Session;
use gputrace_producer::{session, stderr};
use gputrace_wire::definition::{kind, library_role, rung};
use once_cell::race::OnceBox;

use super::{buffers, launches, library};
use crate::settings;
use crate::tables::Tables;

/// What every trace needs. No API kinds: the hooks keep host times at a third of the price.
const KINDS: [CUpti_ActivityKind; 4] = [
    CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
    CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_MEMCPY,
    CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_MEMCPY2,
    CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_MEMSET,
];
/// CUPTI hands over what is finished this often: what a killed process loses.
const FLUSH_PERIOD_MS: u32 = 100;
const FLUSH_FORCED: u32 = 1;

static LOADED: OnceBox<(Cupti, ApiVersion)> = OnceBox::new();
static SUBSCRIBER: AtomicPtr<core::ffi::c_void> = AtomicPtr::new(core::ptr::null_mut());

mod state {
    pub const NONE: u32 = 0;
    pub const ON: u32 = 1;
    pub const GIVEN_UP: u32 = 2;
}
/// Another client of CUPTI was seen in this process.
static SOMEBODY_CAME: AtomicBool = AtomicBool::new(false);
static STATE: AtomicU32 = AtomicU32::new(state::NONE);

/// The library in use and its version.
pub fn loaded() -> Option<(&'static Cupti, ApiVersion)> {
    LOADED.get().map(|(api, version)| (api, *version))
}

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
    if SOMEBODY_CAME.load(Ordering::Acquire) {
        return Err("another tool of this process uses CUPTI already".into());
    }
    let library = library::load(driver_version, simulated)?;
    let api = library.api;
    let at = library.path.display();
    let version = api.version().map_err(|error| format!("{at} refuses ({})", name_of(error)))?;
    if version < ApiVersion::OLDEST {
        return Err(format!("{at} is version {version}, too old; 11.4 or later is needed"));
    }
    if !buffers::prepare() {
        return Err("no memory for CUPTI's buffers".into());
    }
    let mut subscriber: CUpti_SubscriberHandle = core::ptr::null_mut();
    // SAFETY: the out pointer outlives the call; the callback lives as long as the process.
    match unsafe { (api.subscribe)(&mut subscriber, Some(launches::callback), core::ptr::null_mut()) } {
        CUptiResult::CUPTI_SUCCESS => {}
        CUptiResult::CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED => {
            return Err(format!("another tool of this process uses CUPTI already ({at})"));
        }
        error => return Err(format!("{at} refuses to subscribe ({})", name_of(error))),
    }
    let _ = LOADED.set(Box::new((api, version)));
    let undo = |what: &str, error: CUptiResult| {
        // SAFETY: the subscription made above; nothing else has seen it.
        unsafe { (api.unsubscribe)(subscriber) };
        Err(format!("{at}: {what} failed ({})", name_of(error)))
    };
    // SAFETY: both callbacks live as long as the process.
    let registered =
        unsafe { (api.activity_register_callbacks)(Some(buffers::requested), Some(buffers::completed)) };
    if registered != CUptiResult::CUPTI_SUCCESS {
        return undo("registering buffers", registered);
    }
    enable_callbacks(&api, subscriber);
    for kind in KINDS {
        // SAFETY: no precondition but a driver that is up, and cuInit has succeeded.
        let enabled = unsafe { (api.activity_enable)(kind) };
        if enabled != CUptiResult::CUPTI_SUCCESS {
            for kind in KINDS {
                // SAFETY: as above.
                unsafe { (api.activity_disable)(kind) };
            }
            return undo("enabling kernel, copy and fill records", enabled);
        }
    }
    if let Some(flush_period) = api.activity_flush_period {
        // SAFETY: no precondition.
        unsafe { flush_period(FLUSH_PERIOD_MS) };
    }
    SUBSCRIBER.store(subscriber.cast(), Ordering::Release);
    let fields = [library_role::DEVICE_RECORDS, u64::from(version.0)];
    session.define(kind::LIBRARY, &fields, library.path.as_os_str().as_bytes());
    Ok(())
}

/// Asks for the callbacks that carry correlation ids.
fn enable_callbacks(api: &Cupti, subscriber: CUpti_SubscriberHandle) {
    let domain = CUpti_CallbackDomain::CUPTI_CB_DOMAIN_DRIVER_API;
    // On driver 580 CUPTI 11.8 calls back for copies and never for launches, whether asked by id
    // or for the whole domain (measured); the collector then joins launches by name and order.
    for id in launches::ids() {
        // An older library knows fewer functions: a refused id is one that cannot be called.
        // SAFETY: our own subscription.
        unsafe { (api.enable_callback)(1, subscriber, domain, id) };
    }
}

/// What the service thread does at each turn: old libraries have no flush period of their own.
/// And where the session has ended under us, because its collector has gone, CUPTI is left.
pub fn turn(session: &'static Session) {
    if !session.is_current() {
        return stop();
    }
    if let Some((api, _)) = loaded()
        && is_on()
        && api.activity_flush_period.is_none()
    {
        // SAFETY: CUPTI is up; unforced, so that running kernels are left alone.
        unsafe { (api.activity_flush_all)(0) };
    }
}

/// The session is over though the program is not: nobody reads records any more.
fn stop() {
    if STATE.compare_exchange(state::ON, state::GIVEN_UP, Ordering::AcqRel, Ordering::Acquire).is_ok() {
        take_leave();
    }
}

/// The last delivery: forced, as the process is ending.
pub fn finish(_: &'static Session) {
    if let Some((api, _)) = loaded()
        && is_on()
    {
        // SAFETY: CUPTI is up. A kernel that still runs comes back without an end, once and for
        // all, which is right at the end and nowhere else.
        unsafe { (api.activity_flush_all)(FLUSH_FORCED) };
    }
}

/// Another client of this libcupti announces itself: it gets CUPTI as if we had never been
/// there, and the hooks go on alone.
pub fn give_way(to: &str) {
    SOMEBODY_CAME.store(true, Ordering::Release);
    // In a forked child, which has no session, CUPTI is its parent's and dead.
    if session::current().is_none() {
        return;
    }
    if STATE.compare_exchange(state::ON, state::GIVEN_UP, Ordering::AcqRel, Ordering::Acquire).is_err() {
        return;
    }
    take_leave();
    if let Some(session) = session::current() {
        session.clear_device_clock();
        let text = format!("no device times from here on: {to} took CUPTI over");
        session.notice(1, rung::HOOKS, text.as_bytes());
    }
}

/// Turns our kinds off and ends our subscription.
fn take_leave() {
    let Some((api, _)) = loaded() else { return };
    let subscriber = SUBSCRIBER.swap(core::ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: CUPTI is up and the subscription is ours; it is not used again. Kinds are off
    // before the flush, so that it delivers the last of our records.
    unsafe {
        for kind in KINDS {
            (api.activity_disable)(kind);
        }
        (api.activity_flush_all)(0);
        if let Some(flush_period) = api.activity_flush_period {
            flush_period(0);
        }
        if !subscriber.is_null() {
            (api.unsubscribe)(subscriber.cast());
        }
    }
}

fn timestamp() -> u64 {
    let Some((api, _)) = loaded() else { return 0 };
    let mut now = 0;
    // SAFETY: the out pointer outlives the call.
    match unsafe { (api.get_timestamp)(&mut now) } {
        CUptiResult::CUPTI_SUCCESS => now,
        _ => 0,
    }
}

fn name_of(error: CUptiResult) -> String {
    cupti_sys::cupti::result_name(error).to_string()
}
