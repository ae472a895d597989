//! What other code provides about the process: whether native frames are asked for, the loader's answers,
//! the interpreter, and the notice that a library closes. The code that hooks the process sets all of it.

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

static IS_ASKED_FOR: AtomicBool = AtomicBool::new(false);
static FIND_OBJECT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static INTERPRETER: AtomicU64 = AtomicU64::new(0);
static EVALUATION: AtomicU64 = AtomicU64::new(0);
static EPOCH: AtomicU32 = AtomicU32::new(0);

/// glibc's `_dl_find_object` (from 2.35): the image that contains an address. It takes no lock, because
/// unwinders use it.
type FindObject = unsafe extern "C" fn(*mut c_void, *mut Object) -> i32;

/// Its answer, `struct dl_find_object`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Object {
    flags: u64,
    pub start: u64,
    pub end: u64,
    pub link_map: u64,
    pub frames: u64,
    reserved: [u64; 11],
}

pub fn ask_for(asked: bool) {
    IS_ASKED_FOR.store(asked, Ordering::Relaxed);
}

pub fn is_asked_for() -> bool {
    IS_ASKED_FOR.load(Ordering::Relaxed)
}

/// # Safety
/// Null, or glibc's `_dl_find_object`, which stays mapped.
pub unsafe fn set_find_object(found: *mut c_void) {
    FIND_OBJECT.store(found, Ordering::Relaxed);
}

/// The image that contains an address, from the loader; `None` if the loader has no such function.
pub fn find_object(address: u64) -> Option<Option<Object>> {
    let known = FIND_OBJECT.load(Ordering::Relaxed);
    if known.is_null() {
        return None;
    }
    // SAFETY: by `set_find_object`'s contract.
    let find = unsafe { core::mem::transmute::<*mut c_void, FindObject>(known) };
    let mut object = Object::default();
    // SAFETY: any address may be asked about; the answer is shorter than the room for it.
    let status = unsafe { find(address as *mut c_void, &mut object) };
    Some((status == 0).then_some(object))
}

/// The interpreter's frames are read as Python frames from now on. Native frames of the image at `image`
/// are left out; `evaluation` is its function that runs Python frames, 0 if unknown.
pub fn interpreter_is_at(image: u64, evaluation: u64) {
    EVALUATION.store(evaluation, Ordering::Relaxed);
    INTERPRETER.store(image, Ordering::Relaxed);
    // Rules worked out before do not contain this.
    library_closes();
}

/// An address in the interpreter's image, and the address of its function; zeros if there is none.
pub fn interpreter() -> (u64, u64) {
    (INTERPRETER.load(Ordering::Relaxed), EVALUATION.load(Ordering::Relaxed))
}

/// Invalidates all rules: a library was unloaded.
pub fn library_closes() {
    // SYNC: pairs with the Acquire in `epoch`. Code mapped at the library's addresses after this is looked
    // up in a new epoch.
    EPOCH.fetch_add(1, Ordering::Release);
}

#[inline(always)]
pub fn epoch() -> u32 {
    EPOCH.load(Ordering::Acquire)
}
