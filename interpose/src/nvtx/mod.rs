//! NVTX: the program's ranges, received through NVTX's injection interface for tools.
//!
//! Each copy of NVTX in a process (the headers of version 3 leave one in every module that includes them,
//! version 2 is a library) looks for NVTX_INJECTION64_PATH at its first call, loads that file and calls its
//! `InitializeInjectionNvtx2` with a function that returns its tables of functions. So this module sets the
//! variable, but only if it is unset: a tool that the program has already keeps its ranges. A program
//! without NVTX pays for the variable and nothing else.
//!
//! `calls` has the functions for the tables, `text` reads the program's arguments, `traceparent` finds span
//! contexts in names, and `naming` handles names of threads, streams, contexts and devices.
//! `gputrace_callstack::ranges` defines what a range is.

mod calls;
mod naming;
mod text;
mod traceparent;

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::sync::atomic::{AtomicBool, Ordering};

use gputrace_callstack::ranges;
use gputrace_producer::session::Session;

use crate::process::{environment, settings};
use crate::symbols::failed_look_up::KeepError;
use crate::symbols::{libc_symbols, loader, originals};

const VARIABLE: &CStr = c"NVTX_INJECTION64_PATH";

/// Whether the library was preloaded at the program's start. A child that inherited the variable but not
/// LD_PRELOAD loads it through NVTX alone, and then it sees no launches.
static PRELOADED: AtomicBool = AtomicBool::new(false);

fn own_path() -> Option<&'static CStr> {
    originals::own_path().filter(|path| path.to_bytes().contains(&b'/'))
}

fn is_asked_for() -> bool {
    !settings::is_off(settings::ENABLED) && settings::asks_for_stacks(b"nvtx", true)
}

/// Called at load: gives NVTX our path, unless another tool is set.
pub fn prepare() {
    let Some(path) = own_path() else { return };
    if !is_preloaded(path) {
        return;
    }
    PRELOADED.store(true, Ordering::Relaxed);
    if is_asked_for() && environment::value(VARIABLE).is_none() {
        // SAFETY: two C strings, copied; at load no other thread reads the environment.
        unsafe { libc::setenv(VARIABLE.as_ptr(), path.as_ptr(), 0) };
    }
}

fn is_preloaded(path: &CStr) -> bool {
    let listed = settings::get(c"LD_PRELOAD").is_some_and(|list| {
        let mut words = list.to_bytes().split(|byte| matches!(byte, b' ' | b':'));
        words.any(|word| word == path.to_bytes())
    });
    listed || is_in_global_scope()
}

/// Whether the library is preloaded by other means: /etc/ld.so.preload, or a relative path.
fn is_in_global_scope() -> bool {
    let _error = KeepError::new();
    let Some(dlsym) = libc_symbols::dlsym() else { return false };
    // SAFETY: null is the program itself, which is always there; the name is a C string.
    let found = unsafe {
        let program = loader::handle_of_mapped(core::ptr::null(), 0);
        dlsym(program, c"InitializeInjectionNvtx2".as_ptr())
    };
    found == InitializeInjectionNvtx2 as *mut c_void
}

/// Called at a session's start.
pub fn define(session: &Session) {
    naming::define_thread_names(session);
    let Some(other) = environment::value(VARIABLE) else { return };
    if !is_asked_for() || !PRELOADED.load(Ordering::Relaxed) {
        return;
    }
    let is_ours = own_path().is_some_and(|own| own == other);
    if !is_ours && !INSTALLED.load(Ordering::Relaxed) {
        session.notice(
            0,
            0,
            b"NVTX ranges are another tool's and not recorded: unset NVTX_INJECTION64_PATH to record them",
        );
    }
}

/// Whether a copy of NVTX has our functions installed.
static INSTALLED: AtomicBool = AtomicBool::new(false);

type GetModuleFunctionTable =
    unsafe extern "C" fn(module: c_uint, table: *mut *mut *mut Function, count: *mut c_uint) -> c_int;
type GetExportTable = unsafe extern "C" fn(id: u32) -> *const Callbacks;
/// A function of any type, for NVTX's tables.
type Function = *const c_void;

/// The table of callbacks, in NVTX's layout.
#[repr(C)]
pub struct Callbacks {
    bytes: usize,
    get_module_function_table: Option<GetModuleFunctionTable>,
}

/// The number of that table.
const CALLBACKS: u32 = 1;

/// Numbers of the modules whose tables we fill.
pub(super) mod module {
    pub const CORE: u32 = 1;
    pub const CUDA: u32 = 2;
    pub const CUDART: u32 = 4;
    pub const CORE2: u32 = 5;
}

/// Called once by each copy of NVTX, which holds a lock of its own meanwhile. Always returns 1: after a 0
/// NVTX would unload this library.
///
/// # Safety
/// As NVTX calls it: null, or a function that returns a table of callbacks or null.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn InitializeInjectionNvtx2(get_export_table: Option<GetExportTable>) -> c_int {
    if !PRELOADED.load(Ordering::Relaxed) || !is_asked_for() || !ranges::prepare() {
        return 1;
    }
    let Some(get_export_table) = get_export_table else { return 1 };
    calls::prepare_capture();
    // SAFETY: the caller's own function; what it returns lives as long as its module.
    let callbacks = unsafe { get_export_table(CALLBACKS).as_ref() };
    let get_table = callbacks
        .filter(|callbacks| callbacks.bytes >= size_of::<Callbacks>())
        .and_then(|callbacks| callbacks.get_module_function_table);
    let Some(get_table) = get_table else { return 1 };
    for (module, functions) in [
        (module::CORE, calls::CORE),
        (module::CORE2, calls::CORE2),
        (module::CUDA, naming::CUDA),
        (module::CUDART, naming::CUDART),
    ] {
        // SAFETY: as the interface has it.
        unsafe { fill(get_table, module, functions) };
    }
    INSTALLED.store(true, Ordering::Relaxed);
    1
}

/// # Safety
/// The function is NVTX's.
unsafe fn fill(get_table: GetModuleFunctionTable, module: u32, functions: &[(usize, Installed)]) {
    let (mut table, mut count) = (core::ptr::null_mut(), 0);
    // SAFETY: two live places to write to.
    if unsafe { get_table(module, &mut table, &mut count) } == 0 || table.is_null() {
        return;
    }
    for (index, function) in functions {
        if *index >= count as usize {
            continue;
        }
        // SAFETY: the table has `count` entries, each null or a pointer to a function pointer of
        // NVTX's, which only we write while NVTX waits for us.
        unsafe {
            let entry = *table.add(*index);
            if !entry.is_null() {
                *entry = function.0;
            }
        }
    }
}

/// A function in a static list.
#[derive(Clone, Copy)]
pub(super) struct Installed(Function);

// SAFETY: the address of code.
unsafe impl Sync for Installed {}

/// `(index, function)` rows of a table.
macro_rules! table {
    ($($index:literal $function:ident)*) => {
        &[$(($index, $crate::nvtx::Installed($function as *const ::core::ffi::c_void)),)*]
    };
}
use table;

/// The forms of a name's text: a C string or a wide-character string.
type Ascii = *const c_char;
type Wide = *const u32;
