//! The demo's NVTX ranges, which name the parts of its work as a program's own functions would.
//!
//! NVTX is a header for C: at the first call it loads the tool that `NVTX_INJECTION64_PATH` names and
//! offers the tool a table of function pointers to fill in. This file does the same for the two
//! functions that the demo calls, so that any tool that understands NVTX sees the ranges.

use std::ffi::{CStr, OsString, c_char, c_int, c_uint, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

use libloading::os::unix::{Library, RTLD_NOW};

/// The tool's functions; null until a tool has filled them in.
static RANGE_PUSH: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
static RANGE_POP: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

type RangePush = unsafe extern "C" fn(*const c_char) -> c_int;
type RangePop = unsafe extern "C" fn() -> c_int;

/// The table of NVTX's core functions, by their numbers; null for those that the demo does not call.
#[repr(transparent)]
struct Table([*const AtomicPtr<c_void>; 16]);

// SAFETY: the pointers are to statics, which are never moved and are written as atomics or by the tool
// while `open` waits for it.
unsafe impl Sync for Table {}

static TABLE: Table = {
    let mut functions = [null(); 16];
    functions[9] = &raw const RANGE_PUSH; // nvtxRangePushA
    functions[11] = &raw const RANGE_POP; // nvtxRangePop
    Table(functions)
};

/// What the tool asks for the table with.
#[repr(C)]
struct Callbacks {
    bytes: usize,
    get_module_function_table: unsafe extern "C" fn(c_uint, *mut *const c_void, *mut c_uint) -> c_int,
}

static CALLBACKS: Callbacks = Callbacks { bytes: size_of::<Callbacks>(), get_module_function_table };

/// NVTX's numbers of the table of callbacks and of the module of core functions.
const CALLBACKS_ID: u32 = 1;
const CORE_MODULE: c_uint = 1;

extern "C" fn get_export_table(id: u32) -> *const Callbacks {
    if id == CALLBACKS_ID { &raw const CALLBACKS } else { null() }
}

/// # Safety
/// Both pointers are null or valid for a write.
unsafe extern "C" fn get_module_function_table(
    module: c_uint,
    table: *mut *const c_void,
    count: *mut c_uint,
) -> c_int {
    if module != CORE_MODULE || table.is_null() {
        return 0;
    }
    // SAFETY: `table` is not null; the caller guarantees that both pointers can be written.
    unsafe {
        *table = (&raw const TABLE).cast();
        if !count.is_null() {
            *count = TABLE.0.len() as c_uint;
        }
    }
    1
}

/// Lets the tool that the environment names, if any, fill in its functions.
pub fn open() {
    let Some(path) = std::env::var_os("NVTX_INJECTION64_PATH").filter(|path: &OsString| !path.is_empty())
    else {
        return;
    };
    // SAFETY: every NVTX program loads that library and calls its entry, with this signature.
    unsafe {
        let Ok(library) = Library::open(Some(path), RTLD_NOW) else { return };
        type Initialize = unsafe extern "C" fn(extern "C" fn(u32) -> *const Callbacks) -> c_int;
        if let Ok(initialize) = library.get::<Initialize>(b"InitializeInjectionNvtx2\0") {
            initialize(get_export_table);
        }
        // The functions are the library's and are called until the process ends.
        std::mem::forget(library);
    }
}

/// A range that lasts as long as this value.
#[derive(Debug)]
pub struct Range(());

impl Range {
    pub fn new(name: &CStr) -> Range {
        let push = RANGE_PUSH.load(Ordering::Relaxed);
        if !push.is_null() {
            // SAFETY: the tool put an nvtxRangePushA here; the name lives through the call.
            unsafe { std::mem::transmute::<*mut c_void, RangePush>(push)(name.as_ptr()) };
        }
        Range(())
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        let pop = RANGE_POP.load(Ordering::Relaxed);
        if !pop.is_null() {
            // SAFETY: the tool put an nvtxRangePop here, which takes no arguments.
            unsafe { std::mem::transmute::<*mut c_void, RangePop>(pop)() };
        }
    }
}
