//! A number for each code object's life, where the interpreter gives it none (before 3.12).
//!
//! A code object that is freed leaves its address to the next one. To compare all that a stack shows
//! of a code object takes 20 ns a frame; to be told of its end takes nothing. So the code type's
//! destructor, a pointer in the interpreter's data, is replaced by one that forgets the
//! address and goes on to the interpreter's own. Only addresses that were seen in a stack are
//! known, and it touches nothing of the interpreter's.

use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use super::memory::{Memory, is_plausible};
use crate::handles::Handles;
use crate::memory;

type Destructor = unsafe extern "C" fn(*mut c_void);

/// Where a type has its name, and its destructor: the same from 3.8 to 3.11.
const TYPE_NAME: u64 = 24;
const TYPE_DESTRUCTOR: u64 = 48;
/// Room for about half as many code objects; 12 bytes each, touched where used.
const SLOTS: usize = 1 << 16;

pub struct Lives {
    numbers: Handles,
    last: AtomicU32,
    original: Destructor,
}

static LIVES: AtomicPtr<Lives> = AtomicPtr::new(core::ptr::null_mut());

/// The numbers, once they are kept.
#[inline(always)]
pub fn current() -> Option<&'static Lives> {
    // SAFETY: the pointer is null or to what was written whole before it was stored (Release in
    // `begin`) and is never freed.
    unsafe { LIVES.load(Ordering::Acquire).as_ref() }
}

impl Lives {
    fn new(original: Destructor) -> Option<Lives> {
        Some(Lives { numbers: Handles::new(SLOTS)?, last: AtomicU32::new(0), original })
    }

    /// The number of the life of the code object that is at that address now; 0 where there is no room for more.
    #[inline(always)]
    pub fn of(&self, code: u64) -> u32 {
        match self.numbers.get(code) {
            Some(number) => number,
            None => self.numbers.get_or_define(code, || self.last.fetch_add(1, Ordering::Relaxed) + 1),
        }
    }
}

/// Begins to hear of the ends of code objects; false where the type is not what it should be.
pub fn begin<M: Memory>(memory: &M, code_type: u64) -> bool {
    if current().is_some() {
        return true;
    }
    let name = memory.word(code_type, TYPE_NAME).unwrap_or(0);
    let mut letters = [0u8; 5];
    let Some(destructor) = memory.word(code_type, TYPE_DESTRUCTOR).filter(|at| is_plausible(*at & !7)) else {
        return false;
    };
    if !is_plausible(name & !7) || !memory.read(name, 0, &mut letters) || letters != *b"code\0" {
        return false;
    }
    let slot = (code_type + TYPE_DESTRUCTOR) as *mut *mut c_void;
    // SAFETY: the type's destructor: the type was told from others by its name, and has one.
    let original = unsafe { core::mem::transmute::<u64, Destructor>(destructor) };
    let (Some(lives), Some(room)) = (Lives::new(original), memory::map_bytes(size_of::<Lives>())) else {
        return false;
    };
    let room = room.cast::<Lives>();
    // SAFETY: the mapping is large enough, page-aligned, ours alone, and never unmapped.
    unsafe { room.write(lives) };
    LIVES.store(room, Ordering::Release);
    // SAFETY: an aligned word in the interpreter's writable data, which it only reads; a thread that
    // reads it meanwhile finds the one function or the other.
    let replaced = unsafe { AtomicPtr::from_ptr(slot) }.compare_exchange(
        destructor as *mut c_void,
        ended as *mut c_void,
        Ordering::AcqRel,
        Ordering::Acquire,
    );
    if replaced.is_err() {
        LIVES.store(core::ptr::null_mut(), Ordering::Release);
    }
    replaced.is_ok()
}

/// The code object ends.
unsafe extern "C" fn ended(code: *mut c_void) {
    let Some(lives) = current() else { return };
    lives.numbers.forget(code as u64);
    // SAFETY: the interpreter's own destructor, with what it gave us.
    unsafe { (lives.original)(code) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::python::memory::Checked;

    static ENDED: AtomicU32 = AtomicU32::new(0);

    unsafe extern "C" fn original(_: *mut c_void) {
        ENDED.fetch_add(1, Ordering::Relaxed);
    }

    #[test]
    fn a_life_ends_with_the_code_object() {
        let other: [u64; 8] = [0, 0, 0, c"type".as_ptr() as u64, 0, 0, original as *const () as u64, 0];
        assert!(!begin(&Checked::new(), other.as_ptr() as u64), "another type");
        let mut of_code = other;
        of_code[3] = c"code".as_ptr() as u64;
        let of_code = of_code.map(core::cell::Cell::new);
        assert!(begin(&Checked::new(), of_code.as_ptr() as u64));
        let lives = current().unwrap();
        let (one, two) = (lives.of(0x1000), lives.of(0x2000));
        assert!(one != 0 && two != 0 && one != two);
        assert_eq!(lives.of(0x1000), one);
        let end = of_code[6].get();
        assert_ne!(end, original as *const () as u64);
        // SAFETY: what `begin` put there.
        let end = unsafe { core::mem::transmute::<u64, Destructor>(end) };
        // SAFETY: neither touches the object.
        unsafe {
            end(0x1000 as *mut c_void);
            end(0x3000 as *mut c_void);
        }
        assert_eq!(ENDED.load(Ordering::Relaxed), 2);
        assert_ne!(lives.of(0x1000), one, "another one at the same address");
        assert_eq!(lives.of(0x2000), two);
    }
}
