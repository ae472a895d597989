//! The `dlerror` message of a look-up that failed only because we did not count our own export.
//!
//! libc keeps its message private, and would name the wrong object or none. So we also export `dlerror`. It
//! returns a message of ours once, in libc's own words; every other message is libc's.

use core::cell::{Cell, UnsafeCell};
use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use gputrace_producer::held_back::HeldBack;

use crate::symbols::libc_symbols;

const MESSAGE_BYTES: usize = 512;

struct Message {
    is_pending: Cell<bool>,
    text: UnsafeCell<[u8; MESSAGE_BYTES]>,
}

thread_local! {
    static MESSAGE: Message =
        const { Message { is_pending: Cell::new(false), text: UnsafeCell::new([0; MESSAGE_BYTES]) } };
}

/// Stores a failed look-up of `name` in the object of a link map. `version` is null if none was given.
pub fn note(map: *mut c_void, name: *const c_char, version: *const c_char) {
    // SAFETY: a link map's second word is the object's path, empty for the program itself; the C library
    // keeps the program's name; `name` is the caller's C string.
    let (object, name) = unsafe {
        unsafe extern "C" {
            static program_invocation_name: *const c_char;
        }
        let path = if map.is_null() { core::ptr::null() } else { map.cast::<*const c_char>().add(1).read() };
        let is_program = path.is_null() || *path == 0;
        let object = if is_program { program_invocation_name } else { path };
        (CStr::from_ptr(object).to_bytes(), CStr::from_ptr(name).to_bytes())
    };
    let version = match version.is_null() {
        true => None,
        // SAFETY: the caller's C string.
        false => Some(unsafe { CStr::from_ptr(version) }.to_bytes()),
    };
    let before = if version.is_some() { &b", version "[..] } else { b"" };
    libc_dlerror();
    keep([object, b": undefined symbol: ", name, before, version.unwrap_or_default()]);
}

/// Stores the concatenated parts as the thread's unread message.
fn keep<const N: usize>(parts: [&[u8]; N]) {
    MESSAGE.with(|message| {
        // SAFETY: the thread's own buffer; the reference ends with this block, and nothing in it
        // calls anything that could come back here.
        let text = unsafe { &mut *message.text.get() };
        let mut length = 0;
        for (to, byte) in text.iter_mut().take(MESSAGE_BYTES - 1).zip(parts.into_iter().flatten()) {
            *to = *byte;
            length += 1;
        }
        if let Some(end) = text.get_mut(length) {
            *end = 0;
        }
        message.is_pending.set(true);
    });
}

/// Called at a later look-up: libc clears an error when the next call succeeds.
pub fn forget() {
    MESSAGE.with(|message| message.is_pending.set(false));
}

/// While this lives, the dynamic linker's errors are those of our own calls. A message that the program has
/// not read yet is saved and restored; messages of our calls are discarded. Signal handlers are held back,
/// because the linker allocates memory for its messages.
#[derive(Debug)]
pub struct KeepError {
    _held_back: Option<HeldBack>,
}

impl KeepError {
    pub fn new() -> KeepError {
        KeepError::with(Some(HeldBack::new()))
    }

    /// For calls that may load libraries. Their constructors may start threads, which would inherit the
    /// blocked signals, and may wait for handlers. So signals are not held back.
    pub fn while_loading() -> KeepError {
        KeepError::with(None)
    }

    fn with(_held_back: Option<HeldBack>) -> KeepError {
        let unread = libc_dlerror();
        if !unread.is_null() {
            // SAFETY: libc's C string, valid until the thread's next call of the dynamic linker.
            keep([unsafe { CStr::from_ptr(unread) }.to_bytes()]);
        }
        KeepError { _held_back }
    }
}

impl Drop for KeepError {
    fn drop(&mut self) {
        libc_dlerror();
    }
}

/// libc's own `dlerror`, which clears the message that it returns. It is found without `dlsym`, because a
/// successful look-up would clear that message.
pub fn libc_dlerror() -> *mut c_char {
    static REAL: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
    let mut real = REAL.load(Ordering::Relaxed);
    if real.is_null() {
        real = libc_symbols::in_libc(c"dlerror");
        REAL.store(real, Ordering::Relaxed);
    }
    if real.is_null() {
        return core::ptr::null_mut();
    }
    // SAFETY: libc's dlerror has this signature and no precondition.
    unsafe { core::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> *mut c_char>(real)() }
}

/// # Safety
/// The same as for libc's `dlerror`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn dlerror() -> *mut c_char {
    // libc is called even if its answer is not used, because the call clears the error.
    let own = libc_dlerror();
    // libc's message is newer: whenever ours is stored, libc's is cleared.
    MESSAGE.with(|message| {
        let is_ours = message.is_pending.replace(false) && own.is_null();
        if is_ours { message.text.get().cast() } else { own }
    })
}
