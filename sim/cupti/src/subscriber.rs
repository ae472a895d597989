//! The one subscriber and its callbacks on driver functions.

use crate::alone;
use crate::driver::driver;
use crate::identity;
use crate::pointer::OutPtr;
use crate::result::*;
use crate::state;
use gputrace_sim::interface::{CallEvent, NodeEvent};
use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

/// `CUpti_CallbackFunc`: user data, domain, function number, data.
pub type Callback = extern "C" fn(*mut c_void, u32, u32, *const c_void);

/// Who subscribed.
pub struct Subscriber {
    handle: u64,
    callback: Option<Callback>,
    user_data: u64,
}

/// `CUpti_CallbackData`.
#[repr(C)]
struct CallbackData {
    site: u32,
    function_name: *const c_char,
    parameters: *const c_void,
    result: *const u32,
    symbol_name: *const c_char,
    context: u64,
    context_uid: u32,
    correlation_data: *mut u64,
    correlation_id: u32,
}

const DRIVER_API: u32 = 1;
const RESOURCE: u32 = 3;
/// A node of a graph was made.
const NODE_CREATED: u32 = 13;
/// Domains run up to this one.
const LAST_DOMAIN: u32 = 6;
/// Stands for all functions of a domain in the set of what is on.
const ALL: u32 = u32::MAX;

/// Switching it off switches off all driver functions: so does CUPTI 13.0.
const NO_FUNCTION: u32 = 0;

static NEXT_HANDLE: AtomicU64 = AtomicU64::new(0x5_0001);

/// Called by the driver on enabled functions; hands on to the subscriber.
extern "C" fn on_call(event: *const CallEvent) {
    // SAFETY: the driver hands over an event that lives for the call.
    let event = unsafe { &*event };
    alone::at_call(event.exit);
    let (callback, user_data) = match &state::lock().subscriber {
        Some(Subscriber { callback: Some(callback), user_data, .. }) => (*callback, *user_data),
        _ => return,
    };
    let data = CallbackData {
        site: event.exit,
        function_name: event.function_name,
        parameters: event.parameters,
        result: event.result,
        symbol_name: event.symbol_name,
        context: event.context,
        context_uid: event.context_uid,
        correlation_data: event.shared,
        correlation_id: event.correlation,
    };
    callback(user_data as *mut c_void, DRIVER_API, event.cbid, (&raw const data).cast());
}

/// `CUpti_ResourceData`.
#[repr(C)]
struct ResourceData {
    context: u64,
    resource: u64,
    descriptor: *const c_void,
}

/// `CUpti_GraphData`, its older layout and the newer one's beginning.
#[repr(C)]
struct GraphData {
    graph: u64,
    original_graph: u64,
    node: u64,
    original_node: u64,
    node_type: u32,
    dependency: u64,
    executable: u64,
}

/// Called by the driver when a node was made, in the call that made it.
extern "C" fn on_node(event: *const NodeEvent) {
    // SAFETY: the driver hands over an event that lives for the call.
    let event = unsafe { &*event };
    let (callback, user_data, context) = {
        let state = state::lock();
        let is_on = [NODE_CREATED, ALL].iter().any(|id| state.enabled_callbacks.contains(&(RESOURCE, *id)));
        match &state.subscriber {
            Some(Subscriber { callback: Some(callback), user_data, .. }) if is_on => {
                (*callback, *user_data, driver().map_or(0, |driver| (driver.current_context)()))
            }
            _ => return,
        }
    };
    let graph = GraphData {
        graph: event.graph,
        original_graph: 0,
        node: event.node,
        original_node: 0,
        node_type: 0,
        dependency: 0,
        executable: 0,
    };
    let data = ResourceData { context, resource: 0, descriptor: (&raw const graph).cast() };
    callback(user_data as *mut c_void, RESOURCE, NODE_CREATED, (&raw const data).cast());
}

fn subscribe(subscriber: OutPtr<u64>, callback: Option<Callback>, user_data: u64) -> CuptiResult {
    let driver = driver()?;
    let mut state = state::lock();
    if state.subscriber.is_some() {
        return Err(MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
    }
    identity::take_driver(driver)?;
    let handle = NEXT_HANDLE.fetch_add(1, Ordering::Relaxed);
    subscriber.set(handle)?;
    state.subscriber = Some(Subscriber { handle, callback, user_data });
    drop(state);
    (driver.subscribe_calls)(Some(on_call));
    (driver.subscribe_nodes)(Some(on_node));
    Ok(())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiSubscribe(subscriber: OutPtr<u64>, callback: Option<Callback>, user_data: u64) -> u32 {
    number(subscribe(subscriber, callback, user_data))
}

/// The newer form; this version of CUPTI has no use for its parameters.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiSubscribe_v2(
    subscriber: OutPtr<u64>,
    callback: Option<Callback>,
    user_data: u64,
    _parameters: u64,
) -> u32 {
    number(subscribe(subscriber, callback, user_data))
}

fn check(subscriber: u64) -> CuptiResult {
    match &state::lock().subscriber {
        Some(held) if held.handle == subscriber => Ok(()),
        _ => Err(INVALID_PARAMETER),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiUnsubscribe(subscriber: u64) -> u32 {
    number((|| {
        check(subscriber)?;
        let driver = driver()?;
        (driver.subscribe_calls)(None);
        (driver.subscribe_nodes)(None);
        (driver.enable_call)(u32::MAX, false);
        let mut state = state::lock();
        state.subscriber = None;
        state.enabled_callbacks.clear();
        Ok(())
    })())
}

fn enable(on: bool, subscriber: u64, domain: u32, number: u32) -> CuptiResult {
    check(subscriber)?;
    if (on, domain, number) == (false, DRIVER_API, NO_FUNCTION) {
        return enable(false, subscriber, domain, ALL);
    }
    if domain == 0 || domain > LAST_DOMAIN {
        return Err(INVALID_PARAMETER);
    }
    let driver = driver()?;
    if domain == DRIVER_API {
        (driver.enable_call)(number, on);
    }
    let mut state = state::lock();
    if number == ALL {
        state.enabled_callbacks.retain(|(of, _)| *of != domain);
    }
    if on {
        state.enabled_callbacks.insert((domain, number));
    } else {
        state.enabled_callbacks.remove(&(domain, number));
    }
    Ok(())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiEnableCallback(on: u32, subscriber: u64, domain: u32, cbid: u32) -> u32 {
    number(if cbid == ALL { Err(INVALID_PARAMETER) } else { enable(on != 0, subscriber, domain, cbid) })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiEnableDomain(on: u32, subscriber: u64, domain: u32) -> u32 {
    number(enable(on != 0, subscriber, domain, ALL))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiEnableAllDomains(on: u32, subscriber: u64) -> u32 {
    number((1..=LAST_DOMAIN).try_for_each(|domain| enable(on != 0, subscriber, domain, ALL)))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiGetCallbackState(
    enabled: OutPtr<u32>,
    subscriber: u64,
    domain: u32,
    cbid: u32,
) -> u32 {
    number(check(subscriber).and_then(|()| {
        let state = state::lock();
        let on = [cbid, ALL].iter().any(|number| state.enabled_callbacks.contains(&(domain, *number)));
        enabled.set(u32::from(on))
    }))
}
