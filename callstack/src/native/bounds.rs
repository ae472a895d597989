//! The bounds of a thread's own stack, from sources that other code on that stack cannot change: the C
//! library's descriptor of each thread that it made, and the kernel's list of mappings for the first
//! thread.
//!
//! The C library does not publish where a thread's descriptor contains the stack, so that offset is learnt
//! from a thread with a known stack: the service thread searches its own descriptor. Unknown bounds do no
//! harm: such stacks are copied by the kernel, which takes longer and is reported. Under a seccomp filter
//! they end after the page that the hook was called on.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use core::{array, cell::UnsafeCell};

use gputrace_producer::session::Session;

use super::pages::PAGE;
use super::{maps, surroundings};
use crate::python::memory::{Checked, Lent, Memory};
pub use maps::Bounds;

const WORD: u64 = 8;
/// How much of a descriptor is searched.
const DESCRIPTOR_BYTES: u64 = 2304;
/// The most bytes above a descriptor on its stack.
const ABOVE_DESCRIPTOR_BYTES: u64 = 64 << 10;
/// How far the first thread's stack may have grown below its known bounds: the kernel keeps that much free
/// for it.
const GROWTH_BYTES: u64 = 128 << 20;

const STACKS_UNKNOWN: &[u8] =
    b"native stacks cost more: this C library does not say where the stacks of threads are, so the kernel \
      copies them, and under a seccomp filter they may be cut";

/// The low bound of the first thread's stack, which grows down.
static FIRST_LOW: AtomicU64 = AtomicU64::new(u64::MAX);
static FIRST_END: AtomicU64 = AtomicU64::new(0);
/// A thread was on that stack below the known bounds.
static HAS_GROWN: AtomicBool = AtomicBool::new(false);
/// The offset in a descriptor of the stack's start, its length and its guard's length, in this order; 0:
/// not known yet.
static DESCRIBED_AT: AtomicU32 = AtomicU32::new(0);

/// The bounds of the first thread's stack, if `sp` is inside its known part.
pub fn of_first(sp: u64) -> Option<Bounds> {
    let first = first();
    first.hold(sp).then_some(first)
}

/// The end of the first thread's stack, if `sp` is where that stack may have grown to. Its bounds are then
/// determined again soon.
pub fn end_of_grown_first(sp: u64) -> Option<u64> {
    let Bounds { low, end } = first();
    let may_be = end != 0 && sp < low && low - sp < GROWTH_BYTES;
    if may_be {
        HAS_GROWN.store(true, Ordering::Relaxed);
    }
    may_be.then_some(end)
}

fn first() -> Bounds {
    // SYNC: pairs with the Release in `look_at_first`: the end is stored before the low bound.
    let low = FIRST_LOW.load(Ordering::Acquire);
    Bounds { low, end: FIRST_END.load(Ordering::Relaxed) }
}

/// Whether the offset of the stack in descriptors is known.
pub fn are_described() -> bool {
    DESCRIBED_AT.load(Ordering::Relaxed) != 0
}

/// The calling thread's stack by its descriptor: `None` for the first thread, and for a thread that the C
/// library did not make.
pub fn described() -> Option<Bounds> {
    let at = u64::from(DESCRIBED_AT.load(Ordering::Relaxed));
    let descriptor = descriptor();
    if at == 0 || descriptor == 0 {
        return None;
    }
    // In a thread that the C library did not make this memory may have any content, or be unmapped.
    Described::read(&Lent, descriptor.checked_add(at)?)?.bounds(descriptor)
}

/// The address of the C library's descriptor of the calling thread, at the upper end of the thread's stack.
pub fn descriptor() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        let thread: u64;
        // SAFETY: the first word of what the C library keeps of a thread is its own address.
        unsafe {
            core::arch::asm!("mov {}, fs:0", out(reg) thread, options(nostack, readonly, preserves_flags))
        };
        thread
    }
    #[cfg(not(target_arch = "x86_64"))]
    0
}

/// Not the address of a variable: under a sanitizer those are elsewhere.
#[inline(always)]
pub fn stack_pointer() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        let pointer: u64;
        // SAFETY: copies a register.
        unsafe {
            core::arch::asm!("mov {}, rsp", out(reg) pointer, options(nomem, nostack, preserves_flags))
        };
        pointer
    }
    #[cfg(not(target_arch = "x86_64"))]
    0
}

/// The three words of a stack in a descriptor.
#[derive(Clone, Copy)]
struct Described {
    start: u64,
    bytes: u64,
    guard_bytes: u64,
}

impl Described {
    fn read(memory: &impl Memory, at: u64) -> Option<Described> {
        let mut words = [0; 3 * WORD as usize];
        memory.read(at, 0, &mut words).then_some(())?;
        let [start, bytes, guard_bytes] = array::from_fn(|index| {
            words.as_chunks().0.get(index).map_or(0, |word| u64::from_ne_bytes(*word))
        });
        Some(Described { start, bytes, guard_bytes })
    }

    /// The part of the stack above the guard and below the descriptor, if the descriptor is on it.
    fn bounds(self, descriptor: u64) -> Option<Bounds> {
        let low =
            self.start.checked_add(self.guard_bytes).filter(|low| self.start != 0 && *low < descriptor)?;
        let end = self.start.checked_add(self.bytes).filter(|end| descriptor < *end)?;
        (end - descriptor <= ABOVE_DESCRIPTOR_BYTES).then_some(Bounds { low, end: descriptor })
    }
}

/// Learns from the calling thread's descriptor the offset of the stack in descriptors; true if it is then
/// known. The C library must have made the thread, on a stack of its own, with a guard.
pub fn learn() -> bool {
    if !are_described()
        && let Some(at) = offset_of_stack(descriptor(), stack_pointer())
    {
        DESCRIBED_AT.store(at, Ordering::Relaxed);
    }
    are_described()
}

/// The offset of the stack, on which `here` is, in a descriptor: the only offset at which three words are
/// consistent with one another and with the mapped pages.
fn offset_of_stack(descriptor: u64, here: u64) -> Option<u32> {
    let memory = Checked::new();
    let fits = |offset: &u32| {
        let described = descriptor.checked_add((*offset).into());
        let Some(words) = described.and_then(|at| Described::read(&Lent, at)) else { return false };
        let Described { start, bytes, guard_bytes } = words;
        let is_of_pages = [start, bytes, guard_bytes].iter().all(|word| word % PAGE == 0);
        let is_here = words.bounds(descriptor).is_some_and(|bounds| bounds.hold(here));
        is_of_pages
            && is_here
            && guard_bytes != 0
            && !memory.has(start)
            && !memory.has(start + guard_bytes - PAGE)
            && memory.has(start + guard_bytes)
    };
    let mut offsets = (WORD as u32..DESCRIPTOR_BYTES as u32).step_by(WORD as usize).filter(fits);
    offsets.next().filter(|_| offsets.next().is_none())
}

/// A buffer for the kernel's list of mappings.
struct MappingsBuffer {
    is_taken: AtomicBool,
    lines: UnsafeCell<maps::LinesBuffer>,
}

// SAFETY: the lines are touched by the thread that took the buffer, one at a time.
unsafe impl Sync for MappingsBuffer {}

static MAPPINGS: MappingsBuffer =
    MappingsBuffer { is_taken: AtomicBool::new(false), lines: UnsafeCell::new(maps::NO_LINES) };

/// Determines how far the first thread's stack is mapped. No other memory grows down, so the kernel never
/// merges its mapping with another one.
pub fn look_at_first() {
    if MAPPINGS.is_taken.swap(true, Ordering::Acquire) {
        return;
    }
    HAS_GROWN.store(false, Ordering::Relaxed);
    // SAFETY: this thread took the buffer; a handler that interrupts it finds it taken.
    let buffer = unsafe { &mut *MAPPINGS.lines.get() };
    // SAFETY: only reads a table of the C library. The kernel put that value at the end of the first stack.
    let on_it = unsafe { libc::getauxval(libc::AT_RANDOM) };
    if let Some(Bounds { low, end }) = maps::stack_at(on_it, buffer) {
        FIRST_END.store(end, Ordering::Relaxed);
        // SYNC: pairs with the Acquire in `first`.
        FIRST_LOW.store(low, Ordering::Release);
    }
    // SYNC: pairs with the Acquire above: the next owner's lines come after ours.
    MAPPINGS.is_taken.store(false, Ordering::Release);
}

/// The session whose service thread has searched its own descriptor.
static LEARNT_IN: AtomicU32 = AtomicU32::new(0);

/// Called by the service thread at each turn.
pub fn turn(session: &Session) {
    // Native frames are not read at all on other processors.
    if cfg!(target_arch = "x86_64")
        && surroundings::is_asked_for()
        && LEARNT_IN.swap(session.generation, Ordering::Relaxed) != session.generation
        && !learn()
    {
        session.notice(1, 0, STACKS_UNKNOWN);
    }
    look_again();
}

/// The first thread's stack may have grown.
fn look_again() {
    if HAS_GROWN.load(Ordering::Relaxed) {
        look_at_first();
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Learns the offset in a thread of the C library, as the service thread does.
    pub fn learn_in_a_thread() {
        let is_known = std::thread::spawn(learn).join().unwrap();
        assert!(is_known, "this C library does not say where stacks are in a way that is known here");
    }

    /// The bounds that the C library itself returns, by a function that takes locks and allocates.
    fn said() -> Bounds {
        // SAFETY: the calling thread, and live values that are initialised by the calls.
        unsafe {
            let (mut start, mut bytes) = (core::ptr::null_mut(), 0);
            let mut attributes = core::mem::zeroed();
            assert_eq!(libc::pthread_getattr_np(libc::pthread_self(), &mut attributes), 0);
            assert_eq!(libc::pthread_attr_getstack(&attributes, &mut start, &mut bytes), 0);
            libc::pthread_attr_destroy(&mut attributes);
            Bounds { low: start as u64, end: start as u64 + bytes as u64 }
        }
    }

    #[test]
    fn thread_s_stack_is_where_the_c_library_says_it_is() {
        learn_in_a_thread();
        for bytes in [64 << 10, 1 << 20, 9 << 20] {
            let words = || (described().unwrap(), said());
            let (words, said) =
                std::thread::Builder::new().stack_size(bytes).spawn(words).unwrap().join().unwrap();
            assert_eq!(words.low, said.low);
            assert!(
                words.end < said.end && said.end - words.end < ABOVE_DESCRIPTOR_BYTES,
                "{words:x?} {said:x?}"
            );
        }
    }

    #[test]
    fn malformed_descriptors_are_ignored() {
        const AT: u64 = 0x7f00_0000_0000;
        let described = |start, bytes, guard_bytes| Described { start, bytes, guard_bytes }.bounds(AT);
        let low = AT - 0x10_0000;
        assert_eq!(described(low, 0x10_1000, 0x1000), Some(Bounds { low: low + 0x1000, end: AT }));
        for (start, bytes, guard_bytes) in [
            (0, AT + 0x1000, 0x1000),
            (low, 0x10_0000, 0),
            (low, 0x20_0000, 0),
            (low, u64::MAX, 0),
            (low, 0x10_1000, 0x10_0000),
            (low, 0x10_1000, u64::MAX),
            (AT, 0x1000, 0),
        ] {
            assert_eq!(described(start, bytes, guard_bytes), None, "{start:x} {bytes:x} {guard_bytes:x}");
        }
    }

    #[test]
    fn first_thread_s_stack_is_known_and_known_anew_when_it_has_grown() {
        look_at_first();
        // SAFETY: as in `look_at_first`.
        let on_it = unsafe { libc::getauxval(libc::AT_RANDOM) };
        let known = of_first(on_it).unwrap();
        assert!(known.end - known.low < 64 << 20, "{known:x?}");
        let memory = Checked::new();
        assert!((known.low..known.end).step_by(PAGE as usize).all(|page| memory.has(page)));
        let local = 0u8;
        assert_eq!(of_first((&raw const local).addr() as u64), None, "another thread's");
        assert_eq!((of_first(known.low - 1), of_first(known.end)), (None, None));

        assert_eq!(end_of_grown_first(known.low - GROWTH_BYTES), None);
        assert_eq!(end_of_grown_first(known.low), None);
        assert_eq!(end_of_grown_first(known.low - 8), Some(known.end));
        assert!(HAS_GROWN.load(Ordering::Relaxed));
        look_again();
        assert!(!HAS_GROWN.load(Ordering::Relaxed));
    }
}
