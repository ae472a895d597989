//! Whether Python's frames are recorded, and where the interpreter is.

use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gputrace_callstack::python::runtime::{self, RuntimeSearch};
use gputrace_callstack::torch;
use gputrace_producer::held_back::HeldBack;
use gputrace_producer::session::Session;

use crate::frames::native;
use crate::process::{loaded, settings};
use crate::symbols::{libc_symbols, loader, originals};

/// Number of loaded objects at the last search for an interpreter.
static LOADED: AtomicU64 = AtomicU64::new(0);

/// Whether Python's frames are requested, as read at the session's start.
static IS_REQUESTED: AtomicBool = AtomicBool::new(false);

/// Called at a session's start: reads whether Python's frames are requested (the default). The environment
/// is not read later, because the program's threads may be changing it.
pub fn prepare() {
    request(settings::asks_for_stacks(b"python", true));
}

/// Whether Python's frames are requested, from now on. The service thread searches for the interpreter.
pub fn request(asked: bool) {
    IS_REQUESTED.store(asked, Ordering::Relaxed);
    torch::ask_for(asked);
}

pub fn are_requested() -> bool {
    IS_REQUESTED.load(Ordering::Relaxed)
}

/// Searches for an interpreter if an object was loaded since the last search. Not on the path of a call.
pub fn search(session: &Session) {
    if runtime::current().is_some() || !IS_REQUESTED.load(Ordering::Relaxed) {
        return;
    }
    let loaded = loaded::counts().loaded;
    if LOADED.swap(loaded, Ordering::Relaxed) == loaded {
        return;
    }
    // All symbols are taken from one object, because the process may have two interpreters. The object is
    // kept mapped from the moment it is known.
    let known = libc_symbols::in_mapped(c"PyCode_Type", |_| true);
    pin(known);
    let Some(object) = originals::library_of(known) else { return };
    let found = runtime::find(|name| {
        let found = libc_symbols::in_mapped(name, |_| true);
        if originals::library_of(found) == Some(object) { found } else { core::ptr::null_mut() }
    });
    match found {
        RuntimeSearch::Nothing => {}
        RuntimeSearch::Known => {
            let evaluation = libc_symbols::in_mapped(c"_PyEval_EvalFrameDefault", |_| true);
            let is_its_own = originals::library_of(evaluation) == Some(object);
            native::interpreter_is_at(known, if is_its_own { evaluation } else { core::ptr::null_mut() });
        }
        RuntimeSearch::Unknown(version) => {
            runtime::say_unread(session, version, b"is of a version that is not known")
        }
    }
}

/// Keeps the interpreter's library mapped, because its functions are called from now on.
pub fn pin(address: *mut c_void) {
    let _held_back = HeldBack::new();
    if let Some(path) = originals::path_of(address).map(CStr::as_ptr) {
        // SAFETY: a C string; only an object that is loaded already is found. The program itself is no
        // library, and then this fails.
        unsafe { loader::handle_of_mapped(path, libc::RTLD_NODELETE) };
    }
}
