//! The implementation of CUPTI's functions for a guest.
//!
//! Results are those that CUPTI alone would have given. No launch runs code of this file.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, Ordering};

use cupti_sys::cupti::*;
use gputrace_producer::stderr::KeepErrno;

use super::{clock, delivery, subscription, windows};
use crate::cupti::kinds::{self, Requester};
use crate::cupti::root::{self, Root};
use crate::cupti::{attach, callbacks, graph_times, returned};

const OK: CUptiResult = CUptiResult::CUPTI_SUCCESS;
const INVALID_PARAMETER: CUptiResult = CUptiResult::CUPTI_ERROR_INVALID_PARAMETER;

/// Attributes of the buffers that CUPTI fills. Those buffers are ours, so the guest's values are stored and
/// returned but never passed to CUPTI. One bit is set for each attribute that was given.
static ZEROED: AtomicU64 = AtomicU64::new(0);
static PER_THREAD: AtomicU64 = AtomicU64::new(UNSET);
const UNSET: u64 = u64::MAX;

pub fn subscribe(
    root: &Root,
    handle: *mut CUpti_SubscriberHandle,
    callback: CUpti_CallbackFunc,
    user_data: *mut c_void,
) -> CUptiResult {
    let _errno = KeepErrno::new();
    if handle.is_null() {
        return INVALID_PARAMETER;
    }
    if subscription::is_there() {
        return CUptiResult::CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    }
    let result = callbacks::subscribe(root);
    if result != OK {
        return result;
    }
    match subscription::begin(callback, user_data) {
        Some(new) => {
            // SAFETY: the guest's own out parameter, and not null.
            unsafe { handle.write(new) };
            OK
        }
        None => CUptiResult::CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED,
    }
}

pub fn unsubscribe(root: &Root, handle: CUpti_SubscriberHandle) -> CUptiResult {
    let _errno = KeepErrno::new();
    if !subscription::end(handle) {
        return INVALID_PARAMETER;
    }
    callbacks::enable_all_for_guest(root, false);
    OK
}

pub fn enable_callback(
    root: &Root,
    on: u32,
    handle: CUpti_SubscriberHandle,
    domain: CUpti_CallbackDomain,
    id: CUpti_CallbackId,
) -> CUptiResult {
    let _errno = KeepErrno::new();
    if !subscription::is(handle) {
        return INVALID_PARAMETER;
    }
    if on != 0 {
        // The tracer's own must not go on in the middle of a call.
        attach::turn_callbacks_on();
    }
    callbacks::enable_for_guest(root, domain, id, on != 0)
}

pub fn enable_domain(
    root: &Root,
    on: u32,
    handle: CUpti_SubscriberHandle,
    domain: CUpti_CallbackDomain,
) -> CUptiResult {
    let _errno = KeepErrno::new();
    if !subscription::is(handle) {
        return INVALID_PARAMETER;
    }
    if on != 0 {
        attach::turn_callbacks_on();
    }
    callbacks::enable_domain_for_guest(root, domain, on != 0)
}

pub fn enable_all_domains(root: &Root, on: u32, handle: CUpti_SubscriberHandle) -> CUptiResult {
    let _errno = KeepErrno::new();
    if !subscription::is(handle) {
        return INVALID_PARAMETER;
    }
    if on != 0 {
        attach::turn_callbacks_on();
    }
    callbacks::enable_all_for_guest(root, on != 0)
}

pub fn callback_state(
    enabled: *mut u32,
    handle: CUpti_SubscriberHandle,
    domain: CUpti_CallbackDomain,
    id: CUpti_CallbackId,
) -> CUptiResult {
    if enabled.is_null() || !subscription::is(handle) {
        return INVALID_PARAMETER;
    }
    // SAFETY: the guest's own out parameter, and not null.
    unsafe { enabled.write(u32::from(callbacks::guest_has(domain.0, id))) };
    OK
}

pub fn register_callbacks(
    root: &Root,
    request: CUpti_BuffersCallbackRequestFunc,
    complete: CUpti_BuffersCallbackCompleteFunc,
) -> CUptiResult {
    let _errno = KeepErrno::new();
    if request.is_none() || complete.is_none() {
        return INVALID_PARAMETER;
    }
    let result = returned::register_buffers(root);
    if result != OK {
        return result;
    }
    delivery::register(request, complete);
    delivery::prepare();
    OK
}

/// Switches a kind for the guest.
pub fn switch(root: &Root, kind: CUpti_ActivityKind, on: bool) -> CUptiResult {
    let _errno = KeepErrno::new();
    if on {
        // The tracer's callbacks say at which launches the guest's kinds were on.
        attach::turn_callbacks_on();
    }
    let (before, bit) = (windows::kinds(), kinds::bit(kind.0));
    let after = if on { before | bit } else { before & !bit };
    graph_times::guest_changes(root, after);
    let change = if on { kinds::request } else { kinds::withdraw };
    let result = change(root, Requester::Guest, kind);
    if result == OK {
        clock::read_both(root);
        windows::change(after, root.now_ns());
        delivery::prepare();
    }
    result
}

/// Switches a kind for the guest where the tracer requests it too, or did: it is then on for all contexts.
/// Other kinds are left to CUPTI.
pub fn switch_if_for_all_contexts(root: &Root, kind: CUpti_ActivityKind, on: bool) -> Option<CUptiResult> {
    let _errno = KeepErrno::new();
    if kind == kinds::KERNEL
        || kind == kinds::CONCURRENT_KERNEL
        || kinds::was_requested(Requester::Base, kind.0)
        || kinds::is_requested(Requester::Graphs, kind.0)
    {
        return Some(switch(root, kind, on));
    }
    if on {
        attach::turn_callbacks_on();
    }
    None
}

/// Makes CUPTI deliver its records. The guest gets its part before its call returns, including records that
/// a flush of ours was just delivering.
pub fn flush(real: impl FnOnce() -> CUptiResult) -> CUptiResult {
    let _errno = KeepErrno::new();
    delivery::wait_until(|| !root::is_flushing());
    let result = real();
    delivery::wait_until(|| !root::is_flushing() && !delivery::is_under_way());
    delivery::hand_over();
    delivery::prepare();
    result
}

pub fn dropped_records(dropped: *mut usize) -> CUptiResult {
    if dropped.is_null() {
        return INVALID_PARAMETER;
    }
    // SAFETY: the guest's own out parameter, and not null.
    unsafe { dropped.write(delivery::take_dropped() as usize) };
    OK
}

pub fn register_timestamp_callback(root: &Root, callback: CUpti_TimestampCallbackFunc) -> CUptiResult {
    let _errno = KeepErrno::new();
    clock::register(root, callback)
}

/// The time in the guest's clock, if it has one.
pub fn timestamp(time: *mut u64) -> Option<CUptiResult> {
    let now = clock::now()?;
    if time.is_null() {
        return Some(INVALID_PARAMETER);
    }
    // SAFETY: the guest's own out parameter, and not null.
    unsafe { time.write(now) };
    Some(OK)
}

fn kept(attribute: CUpti_ActivityAttribute) -> Option<&'static AtomicU64> {
    match attribute {
        CUpti_ActivityAttribute::CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER => Some(&ZEROED),
        CUpti_ActivityAttribute::CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER => Some(&PER_THREAD),
        _ => None,
    }
}

/// Stores an attribute of the guest's buffers; `None` for one that is CUPTI's. The values are bytes.
pub fn set_attribute(
    attribute: CUpti_ActivityAttribute,
    bytes: *mut usize,
    value: *mut c_void,
) -> Option<CUptiResult> {
    let kept = kept(attribute)?;
    // SAFETY: the guest's own parameters; a size of 0 is refused before the value is read.
    let value = unsafe {
        if bytes.is_null() || value.is_null() || *bytes == 0 {
            return Some(INVALID_PARAMETER);
        }
        *value.cast::<u8>()
    };
    kept.store(u64::from(value), Ordering::Relaxed);
    Some(OK)
}

/// Returns a stored attribute; `None` for one that is CUPTI's or was never set.
pub fn attribute(
    attribute: CUpti_ActivityAttribute,
    bytes: *mut usize,
    value: *mut c_void,
) -> Option<CUptiResult> {
    let known = kept(attribute)?.load(Ordering::Relaxed);
    if known == UNSET {
        return None;
    }
    // SAFETY: as above; one byte is written, and the size is at least 1.
    unsafe {
        if bytes.is_null() || value.is_null() || *bytes == 0 {
            return Some(INVALID_PARAMETER);
        }
        value.cast::<u8>().write(known as u8);
        *bytes = 1;
    }
    Some(OK)
}

/// The guest finalizes its CUPTI. The real one continues.
pub fn finalize(root: &Root) -> CUptiResult {
    let _errno = KeepErrno::new();
    graph_times::guest_changes(root, 0);
    windows::change(0, root.now_ns());
    kinds::withdraw_all(root, Requester::Guest);
    delivery::give_back();
    delivery::unregister();
    subscription::clear();
    callbacks::enable_all_for_guest(root, false);
    clock::clear();
    OK
}
