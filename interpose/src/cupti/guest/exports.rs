//! The CUPTI names that clients link to and look up, and the target of each call: the guest's own CUPTI,
//! or the real one.
//!
//! Our own calls go to the loaded library directly and do not pass through here. Neither do CUPTI's own,
//! because CUPTI is linked to itself.

use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use cupti_sys::cupti::*;
use cupti_sys::driver::CUcontext;

use super::{calls, second_library};
use crate::cupti::root::{self, Root};
use crate::cupti::{attach, client, library};
use crate::process::settings;
use crate::symbols::failed_look_up::KeepError;
use crate::symbols::libc_symbols;

macro_rules! exports {
    ($($index:literal $name:ident($($arg:ident: $type:ty),*) |$root:ident, $real:ident| $body:expr;)*) => {
        const NAMES: &[&CStr] = &[$(
            match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => c"",
            }
        ),*];

        /// The real functions; null until known.
        static REAL: [AtomicPtr<c_void>; NAMES.len()] =
            [const { AtomicPtr::new(core::ptr::null_mut()) }; NAMES.len()];

        /// Our function of the name at that index.
        fn ours(index: usize) -> *mut c_void {
            match index {
                $($index => $name as *mut c_void,)*
                _ => core::ptr::null_mut(),
            }
        }

        $(
        /// # Safety
        /// The same as for CUPTI's function of that name.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> CUptiResult {
            type Real = unsafe extern "C" fn($($type),*) -> CUptiResult;
            // SAFETY: CUPTI's function of that name has this signature; null is `None`.
            let real = unsafe { core::mem::transmute::<*mut c_void, Option<Real>>(real($index)) };
            let Some(real) = real else { return CUptiResult::CUPTI_ERROR_NOT_INITIALIZED };
            // SAFETY: the arguments are the caller's.
            let $real = || unsafe { real($($arg),*) };
            match guest_of($index) {
                Some($root) => {
                    let _: &Root = $root;
                    $body
                }
                None => $real(),
            }
        }
        )*
    };
}

exports! {
    0 cuptiSubscribe(handle: *mut CUpti_SubscriberHandle, callback: CUpti_CallbackFunc, user_data: *mut c_void)
        |root, real| calls::subscribe(root, handle, callback, user_data);
    1 cuptiUnsubscribe(handle: CUpti_SubscriberHandle)
        |root, real| calls::unsubscribe(root, handle);
    2 cuptiEnableCallback(on: u32, handle: CUpti_SubscriberHandle, domain: CUpti_CallbackDomain, id: CUpti_CallbackId)
        |root, real| calls::enable_callback(root, on, handle, domain, id);
    3 cuptiEnableDomain(on: u32, handle: CUpti_SubscriberHandle, domain: CUpti_CallbackDomain)
        |root, real| calls::enable_domain(root, on, handle, domain);
    4 cuptiEnableAllDomains(on: u32, handle: CUpti_SubscriberHandle)
        |root, real| calls::enable_all_domains(root, on, handle);
    5 cuptiGetCallbackState(enabled: *mut u32, handle: CUpti_SubscriberHandle, domain: CUpti_CallbackDomain, id: CUpti_CallbackId)
        |root, real| calls::callback_state(enabled, handle, domain, id);
    6 cuptiActivityRegisterCallbacks(request: CUpti_BuffersCallbackRequestFunc, complete: CUpti_BuffersCallbackCompleteFunc)
        |root, real| calls::register_callbacks(root, request, complete);
    7 cuptiActivityEnable(kind: CUpti_ActivityKind)
        |root, real| calls::switch(root, kind, true);
    8 cuptiActivityDisable(kind: CUpti_ActivityKind)
        |root, real| calls::switch(root, kind, false);
    9 cuptiActivityEnableContext(context: CUcontext, kind: CUpti_ActivityKind)
        |root, real| calls::switch_if_for_all_contexts(root, kind, true).unwrap_or_else(real);
    10 cuptiActivityDisableContext(context: CUcontext, kind: CUpti_ActivityKind)
        |root, real| calls::switch_if_for_all_contexts(root, kind, false).unwrap_or_else(real);
    11 cuptiActivityEnableAndDump(kind: CUpti_ActivityKind)
        |root, real| calls::switch_if_for_all_contexts(root, kind, true).unwrap_or_else(real);
    12 cuptiActivityFlushAll(flag: u32)
        |root, real| calls::flush(real);
    13 cuptiActivityFlush(context: CUcontext, stream: u32, flag: u32)
        |root, real| calls::flush(real);
    14 cuptiActivityGetNumDroppedRecords(context: CUcontext, stream: u32, dropped: *mut usize)
        |root, real| calls::dropped_records(dropped);
    15 cuptiActivityRegisterTimestampCallback(callback: CUpti_TimestampCallbackFunc)
        |root, real| calls::register_timestamp_callback(root, callback);
    16 cuptiGetTimestamp(time: *mut u64)
        |root, real| calls::timestamp(time).unwrap_or_else(real);
    17 cuptiActivitySetAttribute(attribute: CUpti_ActivityAttribute, bytes: *mut usize, value: *mut c_void)
        |root, real| calls::set_attribute(attribute, bytes, value).unwrap_or_else(real);
    18 cuptiActivityGetAttribute(attribute: CUpti_ActivityAttribute, bytes: *mut usize, value: *mut c_void)
        |root, real| calls::attribute(attribute, bytes, value).unwrap_or_else(real);
    19 cuptiFinalize()
        |root, real| calls::finalize(root);
    // The V2 interface cannot be shared: its client gets CUPTI whole, or is refused if a guest is present.
    20 cuptiSubscribe_v2(handle: *mut CUpti_SubscriberHandle, callback: CUpti_CallbackFunc, user_data: *mut c_void, parameters: *mut c_void)
        |root, real| { client::give_way("a client of CUPTI's V2 interface"); real() };
}

const SUBSCRIBE_V2: usize = 20;

/// Indices of the names by which a client announces itself.
const SUBSCRIBE: usize = 0;
const REGISTER_CALLBACKS: usize = 6;

/// The library that serves the guest's call; `None` if the call is passed on to the real CUPTI.
fn guest_of(index: usize) -> Option<&'static Root> {
    if root::is_left() {
        return None;
    }
    // One of the V2 interface is to be the only subscriber.
    if index != SUBSCRIBE_V2 {
        attach::subscribe_if_put_off();
    }
    if let Some(root) = root::current() {
        return Some(root);
    }
    // The client came before the tracer, which joins it at `cuInit`.
    if settings::is_off(settings::ENABLED) || settings::is_off(settings::DEVICE_TIMES) {
        return None;
    }
    if index == SUBSCRIBE_V2 {
        client::give_way("a client of CUPTI's V2 interface");
        return None;
    }
    let _error = KeepError::new();
    let path = library::of_function(real(index))?;
    let opened = library::open(&path).ok()?;
    root::attach(opened.api, &opened.path).ok()
}

/// The real function, from the first of: the library in use, the one that the program linked, the mapped
/// one. libcupti is rarely in the global scope.
fn real(index: usize) -> *mut c_void {
    let (Some(slot), Some(name)) = (REAL.get(index), NAMES.get(index)) else {
        return core::ptr::null_mut();
    };
    let known = slot.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    let _error = KeepError::new();
    let Some(dlsym) = libc_symbols::dlsym() else { return core::ptr::null_mut() };
    let in_use = root::current().map(|root| root.path.clone());
    let found = in_use.and_then(|path| library::find(&path, name)).or_else(|| {
        // SAFETY: a pseudo-handle, and a C string.
        let next = unsafe { dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        if next.is_null() {
            library::mapped("libcupti.so").and_then(|path| library::find(&path, name))
        } else {
            Some(next)
        }
    });
    let found = found.unwrap_or(core::ptr::null_mut());
    slot.store(found, Ordering::Relaxed);
    library::note_client(found);
    found
}

/// Our function of that name, or `None`.
pub fn own(name: &CStr) -> Option<*mut c_void> {
    NAMES.iter().position(|known| *known == name).map(ours)
}

/// The result of a look-up of a CUPTI function that found `found`: our function, for the names above.
pub fn replace(name: *const c_char, found: *mut c_void) -> *mut c_void {
    // SAFETY: the caller's C string.
    let name = unsafe { CStr::from_ptr(name) };
    if settings::is_turned_off() || !name.to_bytes().starts_with(b"cupti") {
        return found;
    }
    let index = NAMES.iter().position(|known| *known == name);
    let own = index.map(ours);
    if own == Some(found) {
        return found;
    }
    match (root::current(), library::of_function(found)) {
        (Some(root), Some(library)) if library == root.path => own.unwrap_or(found),
        (Some(root), Some(library)) if second_library::is_served_by(root, &library) => {
            own.or_else(|| library::find(&root.path, name)).unwrap_or(found)
        }
        (None, Some(library))
            if index.is_some_and(|index| library::of_function(real(index)).as_ref() == Some(&library)) =>
        {
            own.unwrap_or(found)
        }
        _ => match index {
            Some(SUBSCRIBE) => second_library::replace_subscribe(found),
            Some(SUBSCRIBE_V2) => second_library::replace_subscribe_v2(found),
            Some(REGISTER_CALLBACKS) => second_library::replace_register(found),
            _ => found,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exported_name_has_its_function() {
        for (index, name) in NAMES.iter().enumerate() {
            assert!(name.to_bytes().starts_with(b"cupti"), "{index}");
            assert!(!ours(index).is_null(), "{name:?}");
            assert!((0..index).all(|before| ours(before) != ours(index)), "{name:?}");
        }
        assert!(ours(NAMES.len()).is_null());
        assert_eq!(NAMES[SUBSCRIBE], c"cuptiSubscribe");
        assert_eq!(NAMES[REGISTER_CALLBACKS], c"cuptiActivityRegisterCallbacks");
        assert_eq!(NAMES[SUBSCRIBE_V2], c"cuptiSubscribe_v2");
    }

    #[test]
    fn unknown_name_is_not_replaced() {
        let found = 0x1000 as *mut c_void;
        assert_eq!(replace(c"cuptiGetVersion".as_ptr(), found), found);
        assert_eq!(replace(c"cudaMalloc".as_ptr(), found), found);
    }
}
