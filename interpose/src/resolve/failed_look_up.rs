//! What `dlerror` says of a look-up that failed only because we took our own export for none.
//!
//! libc keeps its message to itself and would speak of the wrong object, or of none. So `dlerror`
//! is ours too: a message of our making is told once, in libc's own words, and everything else
//! is libc's.

use core::cell::{Cell, UnsafeCell};
use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

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

/// Notes that a look-up of `name` in the object behind a link map failed.
pub fn note(map: *mut c_void, name: *const c_char) {
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
    MESSAGE.with(|message| {
        // SAFETY: the thread's own buffer; the reference ends with this block, and nothing in it
        // calls anything that could come back here.
        let text = unsafe { &mut *message.text.get() };
        let parts = [object, b": undefined symbol: ", name].into_iter().flatten();
        let mut length = 0;
        for (to, byte) in text.iter_mut().take(MESSAGE_BYTES - 1).zip(parts) {
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

/// # Safety
/// As libc's `dlerror`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn dlerror() -> *mut c_char {
    static REAL: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
    let mut real = REAL.load(Ordering::Relaxed);
    if real.is_null() {
        real = libc_symbols::next(c"dlerror");
        REAL.store(real, Ordering::Relaxed);
    }
    let mut own = core::ptr::null_mut();
    if !real.is_null() {
        // SAFETY: libc's dlerror has this signature. It is also asked where its answer is not
        // used, since asking forgets the error.
        own = unsafe { core::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> *mut c_char>(real)() };
    }
    MESSAGE.with(|message| if message.is_pending.replace(false) { message.text.get().cast() } else { own })
}
