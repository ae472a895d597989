//! When code objects end: a number for each one's life, and counts of ends that are cheap to read.
//!
//! The address of a freed code object is reused. Comparing the contents of a code object costs 20 ns a
//! frame; a notification of its end costs nothing. So the code type's destructor, a pointer in the
//! interpreter's data, is replaced by one that forgets the address and calls the interpreter's own. It
//! knows only addresses that were seen in a stack, and changes nothing else of the interpreter's.
//!
//! *Numbers* distinguish the lives at one address, in a table of all addresses that were seen
//! ([`Lives::of`]). *Ends* are counted by a few bits of the address ([`ends_near`]), for the
//! fingerprint of a stack: the same addresses with the same counts are the same code objects, since a
//! count only rises. (While none has ended, an instruction's address says in which one it lies.) An end
//! also changes the fingerprints of stacks with neighbouring code objects. Those stacks are then looked up
//! by the numbers, which did not change.
//!
//! A count that is read includes every earlier end, in whatever order memory is seen:
//!
//! * A thread reads the counts for code objects of its own live frames. The frames hold references, so
//!   none of these objects can end before the thread's hook returns, with or without the GIL.
//! * A code object is entered in the table before a stack with it is cached by its counts, on the thread
//!   whose frames hold it. Its end comes after that thread has released the frame, so it finds the entry.
//! * The count rises before the interpreter's own destructor runs, that is, before the address is free.
//!   A thread with another code object at that address got the memory from the interpreter and the
//!   object from its creator. Both happen after the rise (by the GIL, or by the locks and atomics of the
//!   allocator and of the hand-over). So a relaxed load reads the risen count.
//! * Once the table had no slot for a code object, every end counts.
//!
//! The count of all ends rises together with the one by address. In most programs code objects that launch
//! do not end, and then this one number says what the counts of thirty frames say, which are as many cache
//! lines. So a thread's walk takes it instead, unless a code object has ended lately ([`SeenEnds`]).

use core::cell::Cell;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use gputrace_producer::handles::Handles;
use gputrace_producer::memory;
use gputrace_producer::own_static;

use super::layout::Layout;
use super::memory::{Memory, is_plausible};

type Destructor = unsafe extern "C" fn(*mut c_void);

/// Where a type has its name and its destructor, after the header of all objects of variable size.
const NAME_BEHIND_SIZE: u64 = 8;
const DESTRUCTOR_BEHIND_SIZE: u64 = 32;
/// Slots for about half as many code objects; 12 bytes each, touched where used.
const SLOTS: usize = 1 << 16;
/// Counts of ends: 4 KiB. A stack of 30 code objects has one of its counts raised by one end in 17.
const COUNTS: usize = 512;
/// No two code objects are closer together than 2^6 bytes.
const NEAR_BITS: u32 = 6;
/// How many walks a thread makes by the counts of single addresses after an end. An end then makes it look up
/// each of its stacks once more; a program in which code objects go on ending keeps what it has found.
const WALKS_AFTER_END: u32 = 1 << 16;

pub struct Lives {
    numbers: Handles,
    last: AtomicU32,
    /// Some code object found no slot.
    is_full: AtomicBool,
}

#[unsafe(link_section = "gputrace_hot")]
static LIVES: AtomicPtr<Lives> = AtomicPtr::new(ptr::null_mut());

/// The interpreter's own destructor, set before it is replaced.
static ORIGINAL: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Counts of ends by address. They have 64 bits and do not wrap.
static ENDS: [AtomicU64; COUNTS] = [const { AtomicU64::new(0) }; COUNTS];

/// How many known code objects have ended at any address.
#[unsafe(link_section = "gputrace_hot")]
static ALL_ENDS: AtomicU64 = AtomicU64::new(0);

/// The table of life numbers, once it is used.
#[inline(always)]
pub fn current() -> Option<&'static Lives> {
    let lives = own_static!(LIVES).load(Ordering::Acquire);
    // SAFETY: the pointer is null, or points to a table that was written completely before it was stored
    // (Release in `begin`) and is never freed.
    unsafe { lives.as_ref() }
}

#[inline(always)]
fn ends_at(code: u64) -> &'static AtomicU64 {
    // The index is always valid, which the compiler sees too.
    ENDS.get((code >> NEAR_BITS) as usize % COUNTS).unwrap_or(&ENDS[0])
}

/// How many known code objects have ended at that address, and at those that share its count. Any address
/// may be passed; no memory at it is read.
#[inline(always)]
pub fn ends_near(code: u64) -> u64 {
    ends_at(code).load(Ordering::Relaxed)
}

/// How many known code objects have ended.
#[inline(always)]
pub fn all_ends() -> u64 {
    own_static!(ALL_ENDS).load(Ordering::Relaxed)
}

/// A thread's view of the ends of code objects. Zeroed memory is valid.
#[derive(Clone, Copy, Debug, Default)]
pub struct SeenEnds {
    /// The count of all ends with which the thread's walks go on.
    settled: u64,
    /// The latest count that was another one, and the walks since.
    latest: u64,
    walks: u32,
}

impl SeenEnds {
    /// The count of all ends, if it is to stand for those of single addresses.
    #[inline(always)]
    pub fn all(seen: &Cell<SeenEnds>) -> Option<u64> {
        let all = all_ends();
        if seen.get().settled == all || SeenEnds::settles(seen, all) { Some(all) } else { None }
    }

    #[cold]
    #[inline(never)]
    fn settles(seen: &Cell<SeenEnds>, all: u64) -> bool {
        let SeenEnds { settled, latest, walks } = seen.get();
        if latest != all {
            seen.set(SeenEnds { settled, latest: all, walks: 0 });
            return false;
        }
        let settles = walks + 1 >= WALKS_AFTER_END;
        seen.set(SeenEnds { settled: if settles { all } else { settled }, latest, walks: walks + 1 });
        settles
    }
}

impl Lives {
    fn new() -> Option<Lives> {
        let numbers = Handles::new(SLOTS)?;
        Some(Lives { numbers, last: AtomicU32::new(0), is_full: AtomicBool::new(false) })
    }

    /// The life number of the code object now at that address; 0 if the table is full.
    #[inline(always)]
    pub fn of(&self, code: u64) -> u32 {
        match self.numbers.get(code) {
            Some(number) => number,
            None => self.begun(code),
        }
    }

    #[cold]
    #[inline(never)]
    fn begun(&self, code: u64) -> u32 {
        let number = self.numbers.get_or_define(code, || self.last.fetch_add(1, Ordering::Relaxed) + 1);
        if number == 0 {
            // SYNC: stored before any stack with that code object is cached, as an entry in the table would
            // be.
            self.is_full.store(true, Ordering::Relaxed);
        }
        number
    }

    /// Records that the code object at that address ends.
    fn end(&self, code: u64) {
        // SYNC: not this order but the object's memory carries the count to the thread that gets the
        // address next.
        if self.numbers.get(code).is_some() || self.is_full.load(Ordering::Relaxed) {
            ends_at(code).fetch_add(1, Ordering::Relaxed);
            ALL_ENDS.fetch_add(1, Ordering::Relaxed);
            self.numbers.forget(code);
        }
    }
}

/// Begins to observe the ends of code objects; false if the type is not as expected.
pub fn begin<M: Memory>(memory: &M, layout: &Layout, code_type: u64) -> bool {
    if current().is_some() {
        return true;
    }
    let size = u64::from(layout.object_size);
    let name = memory.word(code_type, size + NAME_BEHIND_SIZE).unwrap_or(0);
    let mut letters = [0u8; 5];
    let destructor = memory.word(code_type, size + DESTRUCTOR_BEHIND_SIZE);
    let Some(destructor) = destructor.filter(|at| is_plausible(*at & !7)) else {
        return false;
    };
    if !is_plausible(name & !7) || !memory.read(name, 0, &mut letters) || letters != *b"code\0" {
        return false;
    }
    let (Some(lives), Some(mapped)) = (Lives::new(), memory::map_bytes(size_of::<Lives>())) else {
        return false;
    };
    let mapped = mapped.cast::<Lives>();
    // SAFETY: the mapping is large enough, page-aligned, ours alone, and never unmapped.
    unsafe { mapped.write(lives) };
    let destructor = destructor as *mut c_void;
    // One thread tries, once: another one may find our own destructor in the type.
    let before = ORIGINAL.compare_exchange(ptr::null_mut(), destructor, Ordering::AcqRel, Ordering::Relaxed);
    if before.is_err() {
        return false;
    }
    let slot = (code_type + size + DESTRUCTOR_BEHIND_SIZE) as *mut *mut c_void;
    // SAFETY: an aligned word in the interpreter's writable data, which the interpreter only reads. A
    // thread that reads it at the same time gets one function or the other.
    let replaced = unsafe { AtomicPtr::from_ptr(slot) }.compare_exchange(
        destructor,
        ended as *mut c_void,
        Ordering::AcqRel,
        Ordering::Acquire,
    );
    if replaced.is_ok() {
        // From here on no code object that is read can end unnoticed.
        LIVES.store(mapped, Ordering::Release);
    }
    replaced.is_ok()
}

/// The destructor of code objects that replaces the interpreter's.
unsafe extern "C" fn ended(code: *mut c_void) {
    if let Some(lives) = current() {
        lives.end(code as u64);
    }
    let original = ORIGINAL.load(Ordering::Acquire);
    // SAFETY: the type's own destructor, stored before this one replaced it; the type was recognised by its
    // name, and had a destructor. It gets the argument that the interpreter passed.
    unsafe { core::mem::transmute::<*mut c_void, Destructor>(original)(code) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::python::memory::Checked;

    static ENDED: AtomicU32 = AtomicU32::new(0);

    unsafe extern "C" fn original(_: *mut c_void) {
        ENDED.fetch_add(1, Ordering::Relaxed);
    }

    /// How many ends were counted near that address since the last call.
    fn risen(code: u64, before: &mut u64) -> u64 {
        let now = ends_near(code);
        now - core::mem::replace(before, now)
    }

    #[test]
    fn life_ends_with_the_code_object() {
        let layout = Layout::of_minor(8).unwrap();
        let other: [u64; 8] = [0, 0, 0, c"type".as_ptr() as u64, 0, 0, original as *const () as u64, 0];
        assert!(!begin(&Checked::new(), &layout, other.as_ptr() as u64), "another type");
        let mut of_code = other;
        of_code[3] = c"code".as_ptr() as u64;
        let of_code = of_code.map(core::cell::Cell::new);
        assert!(begin(&Checked::new(), &layout, of_code.as_ptr() as u64));
        let lives = current().unwrap();
        let (one, two) = (lives.of(0x1000), lives.of(0x2000));
        assert!(one != 0 && two != 0 && one != two);
        assert_eq!(lives.of(0x1000), one);
        let mut near = [0x1000, 0x2000, 0x3000].map(ends_near);
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
        let risen = [0x1000, 0x2000, 0x3000].map(|code| risen(code, &mut near[code as usize / 0x1000 - 1]));
        assert_eq!(risen, [1, 0, 0], "the end of what nobody saw counts nowhere");
    }

    #[test]
    fn count_of_all_ends_is_taken_once_it_stays() {
        let seen = Cell::new(SeenEnds::default());
        assert!(!SeenEnds::settles(&seen, 3));
        let settles = |all| (0..WALKS_AFTER_END).filter(|_| SeenEnds::settles(&seen, all)).count();
        assert_eq!((settles(3), seen.get().settled), (1, 3));
        // Another end begins anew, and until then no count stands for those of single addresses.
        assert!(!SeenEnds::settles(&seen, 4));
        assert!((1..WALKS_AFTER_END).all(|_| !SeenEnds::settles(&seen, 4)) && seen.get().settled == 3);
        assert!(!SeenEnds::settles(&seen, 5));
        assert_eq!((settles(5), seen.get().settled), (1, 5));
    }

    #[test]
    fn ends_count_once_the_table_was_full() {
        const SEEN: u64 = 0x7000_0000_0040;
        const UNSEEN: u64 = 0x7000_0000_0080;
        let lives = Lives { numbers: Handles::new(16).unwrap(), ..Lives::new().unwrap() };
        let (mut near_seen, mut near_unseen) = (ends_near(SEEN), ends_near(UNSEEN));
        assert_ne!(lives.of(SEEN), 0);
        lives.end(UNSEEN);
        assert_eq!(risen(UNSEEN, &mut near_unseen), 0);
        lives.end(SEEN);
        assert_eq!(risen(SEEN, &mut near_seen), 1);
        let numbers: Vec<u32> = (0..32u64).map(|at| lives.of(0x7100_0000_0000 + at * 4096)).collect();
        assert!(numbers.contains(&0));
        lives.end(UNSEEN);
        assert_eq!(risen(UNSEEN, &mut near_unseen), 1);
        assert_eq!(lives.of(UNSEEN), 0);
    }
}
