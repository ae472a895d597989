//! What `dlerror` says of a look-up that failed only because we took our own export for none.
//!
//! libc keeps its message to itself and would speak of the wrong object, or of none. So `dlerror`
//! is ours too: a message of our making is told once, in libc's own words, and everything else
//! is libc's.

use core::cell::{Cell, UnsafeCell};
use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use gputrace_producer::held_back::HeldBack;

use super::libc_symbols;

const MESSAGE_BYTES: usize = 512;

struct Message {
    is_pending: Cell<bool>,
    text: UnsafeCell<[u8; MESSAGE_BYTES]>,
}

thread_local! {
    static MESSAGE: Message =
        const { Message { is_pending: Cell::new(false), text: UnsafeCell::new([0; MESSAGE_BYTES]) } };
}

/// Notes that a look-up of `name`, in that version unless it is null, failed in the object behind
/// a link map.
pub fn note(map: *mut c_void, name: *const c_char, version: *const c_char) {
    // SAFETY: a link map's second word is the object's path, empty for the program itself; the C
    // library keeps the program's name; `name` is the caller's C string.
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

/// Makes the parts, one after the other, the thread's unread message.
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

/// A later look-up came by: libc forgets an error when the next call succeeds.
pub fn forget() {
    MESSAGE.with(|message| message.is_pending.set(false));
}

/// While it lives, what the dynamic linker says is about our own calls: what the program has not
/// read yet is kept for it, and what our calls leave behind is thrown away. Handlers are held back:
/// it allocates for what it says.
#[derive(Debug)]
pub struct KeepError {
    _held_back: Option<HeldBack>,
}

impl KeepError {
    pub fn new() -> KeepError {
        KeepError::with(Some(HeldBack::new()))
    }

    /// Where libraries may be loaded: their constructors may start threads, which would keep what is held back, and wait for
    /// handlers.
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

/// libc's own `dlerror`, which forgets what it returns. It is found without `dlsym`: a look-up
/// that succeeds would forget the very message that is being asked for.
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
/// As libc's `dlerror`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn dlerror() -> *mut c_char {
    // libc is asked also where its answer is not used, since asking forgets the error.
    let own = libc_dlerror();
    // libc's is newer: whenever ours is noted or kept, libc's is forgotten.
    MESSAGE.with(|message| {
        let is_ours = message.is_pending.replace(false) && own.is_null();
        if is_ours { message.text.get().cast() } else { own }
    })
}

/// At load: finding libc's function later could meet a lock.
pub fn prepare() {
    libc_dlerror();
    libc_symbols::next_dlsym();
    libc_symbols::next_dlvsym();
}
