//! How a forked child notices that it is one, and what every hook reads of the process, in one cache line.
//!
//! The kernel zeroes a page marked wipe-on-fork in every child, whatever made the child (fork, clone, a raw
//! system call). From Linux 4.14 on this needs no handler, which could be missed. The page holds the
//! generation of the current session; a thread's slot remembers the generation that the thread attached to.
//! In a child the two differ, and the child does not touch inherited state: the rings' memory is not even
//! mapped there (`MADV_DONTFORK`). A child of `vfork` shares the page, so this check does not detect it; it
//! may only exec or exit, and both check the pid.
//!
//! The other values that every hook reads share the generation's cache line ([`OfProcess`]): between two
//! calls a program touches more memory than a core's caches hold, so each further line would be waited for.
//!
//! A signal handler that interrupted a hook may fork, and the child then returns into that hook. Code that
//! writes to a segment therefore compares the generation once the driver has returned, not only at the hook's
//! start: right before the write, or shortly before. At most the comparison of one expected stack and the
//! making of one entry lie between.
//!
//! A signal may still arrive between that comparison and the store. For this case a fork handler maps the
//! child's own memory where its parent's rings were, before the interrupted hook goes on. Nobody reads what
//! the hook writes there. `_Fork` and a raw clone run no fork handlers, and where overcommitment is forbidden
//! nothing is mapped. One case remains, as wide as that: a program that forks in this way in a signal handler
//! *and* returns from that handler in the child.

use core::mem::{offset_of, size_of};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicIsize, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::hook_state::HookState;
use crate::own_static;
use crate::system;

/// What hooks read of the process. All of it is zero in a new process and in a forked child.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct OfProcess {
    /// The generation, and above it the session's [`HookState`]: one word, so that a launch sees by one
    /// comparison whether both are what they were at the thread's last one.
    state: AtomicU64,
    /// The session; the [`session`](crate::session) module alone knows its type.
    pub(crate) session: AtomicPtr<()>,
    /// Which clock is read; 0 until that is decided.
    pub(crate) clock_kind: AtomicU32,
    /// What the layer of the GPU's vendor keeps here: how many captures of streams are under way, and its
    /// tables.
    pub vendor_count: AtomicU32,
    pub vendor: AtomicPtr<()>,
    /// What launches read of these tables.
    pub vendor_launches: AtomicPtr<()>,
    /// Whether launches are to wait, as the vendor's layer says. Rarely written, as all of this.
    pub vendor_closed: AtomicBool,
    /// Whether PyTorch's operators are observed, as the layer of stacks says. A forked child knows again once
    /// an operator begins in it.
    pub observes_operators: AtomicBool,
    /// How far a thread's slot is from its thread pointer; 0 until a session starts.
    pub(crate) slot_distance: AtomicIsize,
}

/// Where in [`PAGE`] the session's [`HookState`] is.
pub const HOOK_STATE_AT: usize = offset_of!(OfProcess, state) + 4;

/// A session's generation with what hooks do with calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StateOfProcess(u64);

const _: () = assert!(size_of::<OfProcess>() == PAGE_BYTES && offset_of!(OfProcess, slot_distance) < 64);
const PAGE_BYTES: usize = 4096;

impl StateOfProcess {
    pub fn new(generation: u32, hook_state: HookState) -> StateOfProcess {
        StateOfProcess(u64::from(hook_state.to_word()) << 32 | u64::from(generation))
    }

    #[inline(always)]
    pub fn generation(self) -> u32 {
        self.0 as u32
    }

    #[inline(always)]
    pub fn hook_state(self) -> HookState {
        HookState::from_word((self.0 >> 32) as u32)
    }

    /// All of it in one word; zeroed memory is of no process.
    #[inline(always)]
    pub fn to_word(self) -> u64 {
        !self.0
    }
}

impl OfProcess {
    /// What hooks do with calls.
    #[inline(always)]
    pub fn hook_state(&self) -> HookState {
        self.state().hook_state()
    }

    #[inline(always)]
    pub fn state(&self) -> StateOfProcess {
        // SYNC: pairs with the Release in `change`: a thread that sees a session's generation sees its
        // pointer too, also after later changes, which are of the same kind. Otherwise a thread of a forked
        // child could take its parent's session, whose memory is not mapped, for its own.
        StateOfProcess(self.state.load(Ordering::Acquire))
    }

    /// Changes what hooks do with calls.
    pub(crate) fn change_hooks(&self, change: impl Fn(HookState) -> HookState) {
        self.change(|found| StateOfProcess::new(found.generation(), change(found.hook_state())));
    }

    fn change(&self, change: impl Fn(StateOfProcess) -> StateOfProcess) {
        let change = |found: u64| Some(change(StateOfProcess(found)).0);
        // SYNC: pairs with the Acquire load in `state`.
        let _ = self.state.fetch_update(Ordering::Release, Ordering::Relaxed, change);
    }
}

/// In `.bss`, which comes from no file: only such memory can be marked.
pub static PAGE: OfProcess = OfProcess {
    state: AtomicU64::new(0),
    session: AtomicPtr::new(ptr::null_mut()),
    clock_kind: AtomicU32::new(0),
    vendor_count: AtomicU32::new(0),
    vendor: AtomicPtr::new(ptr::null_mut()),
    vendor_launches: AtomicPtr::new(ptr::null_mut()),
    vendor_closed: AtomicBool::new(false),
    observes_operators: AtomicBool::new(false),
    slot_distance: AtomicIsize::new(0),
};

/// The most mappings that a process can list for its children in its life: a session's segments, times a few
/// sessions.
const COVERED_MOST: usize = 64;
static COVERED: [(AtomicUsize, AtomicUsize); COVERED_MOST] =
    [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; COVERED_MOST];
static COVERED_COUNT: AtomicUsize = AtomicUsize::new(0);
static COUNTS_EVERY_MAPPING: AtomicBool = AtomicBool::new(false);

#[inline(always)]
pub fn of_process() -> &'static OfProcess {
    own_static!(PAGE)
}

/// Marks the page and registers the fork handler, once. Called before each session starts, by whoever has
/// the right to start it.
pub fn prepare() {
    static PREPARED: AtomicU32 = AtomicU32::new(0);
    if PREPARED.swap(1, Ordering::AcqRel) != 0 {
        return;
    }
    let page = ptr::from_ref(&PAGE).cast_mut().cast();
    // The kernel refuses before 4.14, or if its pages are larger; the fork handler alone zeroes it then.
    // SAFETY: the page is of this static alone. In children it becomes zero, which is valid for all of it.
    unsafe { system::madvise(page, PAGE_BYTES, libc::MADV_WIPEONFORK) };
    COUNTS_EVERY_MAPPING.store(counts_every_mapping(), Ordering::Relaxed);
    // SAFETY: the handler stores to a static and maps memory, which is safe in a forked child.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
}

extern "C" fn in_child() {
    PAGE.state.store(0, Ordering::Relaxed);
    PAGE.session.store(ptr::null_mut(), Ordering::Relaxed);
    PAGE.clock_kind.store(0, Ordering::Relaxed);
    PAGE.vendor_count.store(0, Ordering::Relaxed);
    PAGE.vendor.store(ptr::null_mut(), Ordering::Relaxed);
    PAGE.vendor_launches.store(ptr::null_mut(), Ordering::Relaxed);
    PAGE.vendor_closed.store(false, Ordering::Relaxed);
    PAGE.observes_operators.store(false, Ordering::Relaxed);
    PAGE.slot_distance.store(0, Ordering::Relaxed);
    let count = COVERED_COUNT.load(Ordering::Acquire);
    for (start, bytes) in COVERED.iter().take(count) {
        cover(start.load(Ordering::Acquire), bytes.load(Ordering::Acquire));
    }
}

/// Maps this process's own memory at `start` if nothing is mapped there. Only an interrupted hook touches
/// it.
fn cover(start: usize, bytes: usize) {
    if bytes == 0 {
        return;
    }
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    let wanted = ptr::without_provenance_mut::<libc::c_void>(start);
    // SAFETY: the flag makes the kernel refuse a range in which anything is mapped. Kernels before 4.17
    // ignore the flag and may map elsewhere; that mapping is then removed.
    unsafe {
        let got = system::mmap(wanted, bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1);
        if let Some(elsewhere) = got.filter(|got| *got != wanted) {
            system::munmap(elsewhere, bytes);
        }
    }
}

/// The parent's mapping at this address is not inherited: after a fork the child maps private memory there
/// instead. Does nothing where the kernel counts every mapping as used: each child would then be charged a
/// segment's size.
pub(crate) fn cover_in_children(start: *mut u8, bytes: usize) {
    if COUNTS_EVERY_MAPPING.load(Ordering::Relaxed) {
        return;
    }
    let index = COVERED_COUNT.fetch_add(1, Ordering::AcqRel);
    match COVERED.get(index) {
        Some((to_start, to_bytes)) => {
            to_start.store(start.addr(), Ordering::Release);
            to_bytes.store(bytes, Ordering::Release);
        }
        None => COVERED_COUNT.store(COVERED_MOST, Ordering::Release),
    }
}

/// Children map no memory there any more. The place in the list is not used again.
pub(crate) fn uncover_in_children(start: *mut u8) {
    for (covered, bytes) in &COVERED {
        if covered.load(Ordering::Acquire) == start.addr() {
            bytes.store(0, Ordering::Release);
        }
    }
}

/// Whether overcommitment is forbidden (`vm.overcommit_memory` 2).
fn counts_every_mapping() -> bool {
    let mut mode = [0u8; 1];
    system::read_file(c"/proc/sys/vm/overcommit_memory", &mut mode) == Some(b"2")
}

/// The generation of this process's session; 0 where there is none, as in every new child.
#[inline(always)]
pub fn generation() -> u32 {
    of_process().state().generation()
}

/// Makes a session current, after its pointer was stored; 0 for none.
pub fn set_generation(generation: u32) {
    PAGE.change(|found| StateOfProcess::new(generation, found.hook_state()));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The generation is one for the whole process, so its tests run one at a time.
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

    #[test]
    fn child_sees_zero_and_its_parent_does_not() {
        let _alone = ALONE.lock().unwrap();
        prepare();
        set_generation(7);
        // SAFETY: the child only reads an atomic and exits.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: ends the child without running anything of the parent's.
            unsafe { libc::_exit(generation() as i32) };
        }
        let mut status = 0;
        // SAFETY: waits for the child made above.
        unsafe { libc::waitpid(pid, &mut status, 0) };
        assert_eq!(libc::WEXITSTATUS(status), 0);
        assert_eq!(generation(), 7);
        set_generation(0);
    }

    #[test]
    fn child_may_write_where_its_parent_s_segment_was() {
        use crate::segment::{Segment, SegmentPlan};
        let _alone = ALONE.lock().unwrap();
        prepare();
        let (segment, descriptor) = Segment::create(SegmentPlan::PRIMARY_SMALL).unwrap();
        segment.header.pid.store(7, Ordering::Relaxed);
        // SAFETY: the child writes to one atomic and exits.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let before = segment.header.pid.swap(9, Ordering::Relaxed);
            // SAFETY: ends the child without running anything of the parent's.
            unsafe { libc::_exit(before as i32) };
        }
        let mut status = 0;
        // SAFETY: waits for the child made above; the descriptor is the test's own.
        unsafe { (libc::waitpid(pid, &mut status, 0), libc::close(descriptor)) };
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status:x}");
        assert_eq!(segment.header.pid.load(Ordering::Relaxed), 7);
    }

    /// On x86 this test cannot fail by itself. Under the thread sanitizer (`-Zsanitizer=thread`) it reports
    /// a data race as soon as one of the two orderings is weaker.
    #[test]
    fn generation_is_visible_only_after_earlier_stores() {
        struct Plain(core::cell::UnsafeCell<u64>);
        // SAFETY: the generation orders the one write before the one read.
        unsafe impl Sync for Plain {}
        static BEFORE: Plain = Plain(core::cell::UnsafeCell::new(0));
        let _alone = ALONE.lock().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while generation() != 9 {
                    core::hint::spin_loop();
                }
                // SAFETY: as above.
                assert_eq!(unsafe { *BEFORE.0.get() }, 42);
            });
            // SAFETY: as above.
            unsafe { *BEFORE.0.get() = 42 };
            set_generation(9);
        });
        set_generation(0);
    }
}
