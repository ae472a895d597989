//! What every exported function goes through, and the description it has in the table.

use gputrace_sim::error::{Code, Result};
use gputrace_sim::interface::CallEvent;
use gputrace_sim::{activity, calls, context, failure, status, stream, world};
use std::cell::Cell;
use std::ffi::{CStr, c_void};

/// One exported function.
pub struct Export {
    /// The name without any suffix, as `cuGetProcAddress` is asked for it.
    pub name: &'static str,
    /// The exported name.
    pub symbol: &'static CStr,
    /// First CUDA version whose programs mean this variant.
    pub version: u32,
    /// Whether stream 0 is the calling thread's own.
    pub per_thread: bool,
    /// CUPTI's number.
    pub cbid: u32,
    pub address: *const c_void,
}

// SAFETY: the pointers are to code and to constant strings.
unsafe impl Sync for Export {}

/// What a function's body may know of how it was called.
pub struct Call {
    per_thread: bool,
}

impl Call {
    /// The stream that a handle means in this variant of the function.
    #[inline]
    pub fn stream(&self, given: u64) -> u64 {
        if given != 0 { given } else { self.default_stream() }
    }

    /// The default stream of this variant.
    #[inline]
    pub fn default_stream(&self) -> u64 {
        if self.per_thread { stream::PER_THREAD } else { stream::LEGACY }
    }
}

/// Functions that need no `cuInit`.
const ALWAYS: &[&str] = &[
    "cuInit",
    "cuDriverGetVersion",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGetProcAddress",
    "cuGetExportTable",
];

fn number(result: Result) -> u32 {
    match result {
        Ok(()) => 0,
        Err(code) => code.0,
    }
}

/// Runs one call. `parameters` is the structure of its arguments that CUPTI's callbacks see.
#[inline(always)]
pub fn run(entry: &'static Export, parameters: *const c_void, body: impl FnOnce(&Call) -> Result) -> u32 {
    let call = Call { per_thread: entry.per_thread };
    // Waiting for a lock can set errno; the program must find its own value.
    // SAFETY: the C library's pointer to the calling thread's errno, valid as long as the thread is.
    let (errno, kept) = unsafe { (libc::__errno_location(), *libc::__errno_location()) };
    let answer = if status::read() == status::INITIALISED {
        let answer = number(body(&call));
        note_end(entry);
        answer
    } else {
        let mut body = Some(body);
        watched(entry, parameters, &mut || body.take().map_or(0, |body| number(body(&call))))
    };
    // SAFETY: as above.
    unsafe { *errno = kept };
    answer
}

#[inline(never)]
fn watched(entry: &'static Export, parameters: *const c_void, body: &mut dyn FnMut() -> u32) -> u32 {
    if status::read() & status::INITIALISED == 0 && failure::any() {
        status::set(status::FAILURES, true);
    }
    let status = status::read();
    let always = ALWAYS.contains(&entry.name);
    if status & status::FORKED != 0 && (!always || entry.name == "cuInit") {
        return Code::NOT_INITIALIZED.0;
    }
    if status & status::INITIALISED == 0 && !always {
        return Code::NOT_INITIALIZED.0;
    }
    let mut work = || match (status & status::FAILURES != 0).then(|| entry.symbol.to_str()) {
        Some(Ok(symbol)) => failure::check(symbol).map_or_else(&mut *body, |code| code.0),
        _ => body(),
    };
    activity::begin_call();
    if status & status::CALLBACKS != 0 && calls::enabled(entry.cbid) {
        return with_callbacks(entry, parameters, &mut work);
    }
    let answer = work();
    note_end(entry);
    answer
}

thread_local! {
    /// The correlation id that all callbacks of the thread have from now on; 0 for the calls' own.
    static STUCK: Cell<u32> = const { Cell::new(0) };
}

/// Called as a call without callbacks returns. If callbacks were turned on during the call, the thread's
/// later callbacks all get this call's correlation id, as with CUPTI 13.0.
#[inline(always)]
fn note_end(entry: &Export) {
    if status::read() & status::CALLBACKS != 0 && calls::enabled(entry.cbid) {
        STUCK.set(activity::correlation().max(1));
    }
}

/// The kernel's handle in a launch's arguments; `None` for any other call.
fn launched_function(entry: &Export, parameters: *const c_void) -> Option<u64> {
    let word = match entry.name {
        "cuLaunchKernel" | "cuLaunchCooperativeKernel" => 0,
        "cuLaunchKernelEx" => 1,
        _ => return None,
    };
    // SAFETY: `parameters` is the argument structure of one of these functions, which begins with words.
    Some(unsafe { *parameters.cast::<u64>().add(word) })
}

fn with_callbacks(entry: &'static Export, parameters: *const c_void, work: &mut dyn FnMut() -> u32) -> u32 {
    let mut shared = 0u64;
    let context = context::current().unwrap_or(0);
    let function = launched_function(entry, parameters);
    let (uid, symbol) = world::with(|world| {
        let uid = world.contexts.get(context).map_or(0, |held| held.uid);
        let held = function.and_then(|function| world.functions.get(function).ok());
        (uid, held.map_or(std::ptr::null(), |held| held.name.as_ptr()))
    });
    let mut event = CallEvent {
        cbid: entry.cbid,
        exit: 0,
        function_name: entry.symbol.as_ptr(),
        parameters,
        result: std::ptr::null(),
        symbol_name: symbol,
        context,
        context_uid: uid,
        correlation: match STUCK.get() {
            0 => activity::correlation(),
            stuck => stuck,
        },
        shared: &mut shared,
    };
    calls::deliver(&event);
    let result = work();
    event.exit = 1;
    event.result = &result;
    // The context may have come into being in the call.
    event.context = context::current().unwrap_or(context);
    calls::deliver(&event);
    result
}

/// Defines exported functions: the base name with the version that it begins with, the exported name, where
/// there is one the version and name for per-thread default streams, arguments, and a body.
macro_rules! api {
    ($(
        $name:literal $version:literal fn $symbol:ident $(/ $pt_version:literal $pt_symbol:ident)?
        ($($args:tt)*) |$call:pat_param| $body:block
    )*) => {
        $(
            $crate::entry::body!($symbol ($($args)*) |$call| $body);
            $crate::entry::exports!($symbol ($($args)*) $($pt_symbol)?);
        )*

        /// This file's part of the table.
        pub static ENTRIES: &[&$crate::entry::Export] = &[
            $(&entries::$symbol, $(&entries::$pt_symbol,)?)*
        ];

        #[allow(non_upper_case_globals)]
        mod entries {
            $(
                $crate::entry::describe!($name $version $symbol false);
                $($crate::entry::describe!($name $pt_version $pt_symbol true);)?
            )*
        }
    };
}
pub(crate) use api;

macro_rules! describe {
    ($name:literal $version:literal $symbol:ident $per_thread:literal) => {
        pub static $symbol: $crate::entry::Export = $crate::entry::Export {
            name: $name,
            symbol: match ::std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($symbol), "\0").as_bytes())
            {
                Ok(symbol) => symbol,
                Err(_) => panic!("a name without zero bytes"),
            },
            version: $version,
            per_thread: $per_thread,
            cbid: $crate::cbid::$symbol,
            address: super::$symbol as *const ::std::ffi::c_void,
        };
    };
}
pub(crate) use describe;

macro_rules! body {
    ($symbol:ident ($($arg:ident: $ty:ty),* $(,)?) |$call:pat_param| $body:block) => {
        #[allow(non_snake_case)]
        mod $symbol {
            #[allow(unused_imports)]
            use super::*;
            #[allow(clippy::too_many_arguments)]
            pub(super) fn body($call: &Call, $($arg: $ty),*) -> Result $body
        }
    };
}
pub(crate) use body;

macro_rules! exports {
    ($symbol:ident $args:tt $($pt_symbol:ident)?) => {
        $crate::entry::export!($symbol $symbol $args);
        $crate::entry::exports!(@ $symbol $args $($pt_symbol)?);
    };
    (@ $symbol:ident $args:tt) => {};
    (@ $symbol:ident $args:tt $pt_symbol:ident) => {
        $crate::entry::export!($pt_symbol $symbol $args);
    };
}
pub(crate) use exports;

macro_rules! export {
    ($symbol:ident $body:ident ($($arg:ident: $ty:ty),* $(,)?)) => {
        #[allow(non_snake_case)]
        #[allow(clippy::too_many_arguments)]
        #[unsafe(no_mangle)]
        pub extern "C" fn $symbol($($arg: $ty),*) -> u32 {
            #[repr(C)]
            struct Parameters {
                $($arg: $ty,)*
            }
            let parameters = Parameters { $($arg,)* };
            $crate::entry::run(&entries::$symbol, (&raw const parameters).cast(), |call| {
                $body::body(call, $($arg),*)
            })
        }
    };
}
pub(crate) use export;
