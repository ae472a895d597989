//! Looks up PyTorch's own function behind ours, and its functions that describe a thread.

use core::ffi::{CStr, c_void};

use gputrace_callstack::torch::engine::{
    self, Counts, CurrentNode, Functions, Inside, NextNode, Number, ThreadNumber,
};
use gputrace_producer::stderr;
use gputrace_producer::system;

use super::Form;
use super::call_sites::CallSites;
use crate::symbols::failed_look_up::KeepError;
use crate::symbols::{libc_symbols, loader, originals};

static CALL_SITES: CallSites = CallSites::new();

/// PyTorch's function of that form, as the loader would have bound it for the caller.
pub fn of(form: &Form, own: *mut c_void, caller: *const c_void) -> *const c_void {
    CALL_SITES.known(caller).unwrap_or_else(|| first_sight(form, own, caller))
}

#[cold]
fn first_sight(form: &Form, own: *mut c_void, caller: *const c_void) -> *const c_void {
    let found = find(form.symbol, own, caller);
    if found.is_null() {
        // Without us the loader would have ended the program here, in the same way.
        stderr::line(&[b"symbol lookup error: undefined symbol: ", form.symbol.to_bytes()]);
        // SAFETY: ends the process.
        unsafe { system::call(libc::SYS_exit_group, [127, 0, 0, 0, 0, 0]) };
    }
    follow(form, found);
    CALL_SITES.keep(caller, found);
    found
}

/// The next definition after ours that the caller would have been bound to: in the global scope, or else in
/// the caller's own scope. A library may also be loaded by another one that depends on PyTorch.
fn find(symbol: &CStr, own: *mut c_void, caller: *const c_void) -> *mut c_void {
    let _error = KeepError::new();
    let Some(dlsym) = libc_symbols::dlsym() else { return core::ptr::null_mut() };
    // SAFETY: a pseudo-handle, asked from our own frame, and a C string.
    let next = unsafe { dlsym(libc::RTLD_NEXT, symbol.as_ptr()) };
    if !next.is_null() && next != own {
        return next;
    }
    let local = originals::in_own_scope_of(caller, symbol.as_ptr(), own);
    if !local.is_null() {
        return local;
    }
    let beside = libc_symbols::in_mapped(symbol, |file| file.starts_with(b"libtorch"));
    if beside == own { core::ptr::null_mut() } else { beside }
}

/// Registers this copy of PyTorch as the source of the threads' state. A copy that lacks one of the
/// functions, as those before 2.0 do, is not registered.
fn follow(form: &Form, original: *mut c_void) {
    let Some(library) = originals::library_of(original) else { return };
    let of_library = |name: &CStr| {
        let found = in_library(original, name);
        (originals::library_of(found) == Some(library)).then_some(found)
    };
    let (Some(number), Some(inside)) = (
        of_library(c"_ZN5torch8autograd25get_current_graph_task_idEv"),
        of_library(c"_ZN5torch8autograd32get_current_graph_task_exec_infoEv"),
    ) else {
        return;
    };
    let node = of_library(c"_ZN5torch8autograd16get_current_nodeEv");
    let counts = if form.counts_within { Counts::Within } else { Counts::Beside };
    let next_node = of_library(c"_ZN2at15sequence_number4peekEv");
    let thread = of_library(c"_ZN2at14RecordFunction15currentThreadIdEv");
    // SAFETY: PyTorch's functions of these names have these types, in every version that has them; the form
    // determines what a reference to a node is.
    let functions = unsafe {
        Functions {
            execute: original,
            number: core::mem::transmute::<*mut c_void, Number>(number),
            inside: core::mem::transmute::<*mut c_void, Inside>(inside),
            node: node.map(|node| core::mem::transmute::<*mut c_void, CurrentNode>(node)),
            next_node: next_node.map(|next| core::mem::transmute::<*mut c_void, NextNode>(next)),
            thread: thread.map(|thread| core::mem::transmute::<*mut c_void, ThreadNumber>(thread)),
            counts,
        }
    };
    engine::add(functions);
}

/// A symbol of the library that contains an address. The library stays mapped from then on.
fn in_library(address: *mut c_void, name: &CStr) -> *mut c_void {
    let _error = KeepError::new();
    let (Some(dlsym), Some(path)) = (libc_symbols::dlsym(), originals::path_of(address)) else {
        return core::ptr::null_mut();
    };
    // SAFETY: a C string; only an object that is loaded already is found. For the program itself, which no
    // path finds, the global scope is searched. The library stays mapped, and so does the symbol.
    unsafe {
        let mut handle = loader::handle_of_mapped(path.as_ptr(), libc::RTLD_NODELETE);
        if handle.is_null() {
            handle = loader::handle_of_mapped(core::ptr::null(), libc::RTLD_NODELETE);
        }
        if handle.is_null() { core::ptr::null_mut() } else { dlsym(handle, name.as_ptr()) }
    }
}
