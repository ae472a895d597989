//! The operators that a thread executes: `aten::linear`, and inside of it `aten::addmm`.
//!
//! PyTorch reports the begin and the end of each, by the address of its record of the operator. An operator
//! that began here may end on another thread (a range of the program that a future ends), and the record's
//! address is then reused. So an end without a begin is announced to all threads. Each thread removes the
//! operator from its list before it uses the list again. Names are defined when operators begin, because
//! the text may be freed later.

use core::cell::Cell;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence};

use gputrace_producer::fork;

use crate::fold::fold;

/// The id of an operator that is not shown as a frame.
pub const UNNAMED: u32 = 0;

/// More deeply nested operators are not recorded.
pub const DEPTH_MAX: usize = 64;
/// How many announced ends are kept for threads that have not read them yet.
const STRAYS_MAX: usize = 64;

static STRAYS: [AtomicU64; STRAYS_MAX] = [const { AtomicU64::new(0) }; STRAYS_MAX];
#[unsafe(link_section = "gputrace_hot")]
static STRAY_COUNT: AtomicU32 = AtomicU32::new(0);

#[derive(Clone, Copy)]
struct Operator {
    record: u64,
    /// The definition of the operator's name, with the session's generation.
    name: u64,
}

struct OpenOperators {
    depth: Cell<usize>,
    strays_seen: Cell<u32>,
    operators: [Cell<Operator>; DEPTH_MAX],
}

thread_local! {
    static OPEN: OpenOperators = const {
        OpenOperators {
            depth: Cell::new(0),
            strays_seen: Cell::new(0),
            operators: [const { Cell::new(Operator { record: 0, name: 0 }) }; DEPTH_MAX],
        }
    };
}

impl OpenOperators {
    fn get(&self, index: usize) -> Operator {
        self.operators.get(index).map_or(Operator { record: 0, name: 0 }, Cell::get)
    }

    /// Whether an operator is shown as a frame: one directly inside another of the same name (another
    /// overload) is not.
    fn is_frame(&self, index: usize) -> bool {
        let name = self.get(index).name;
        name as u32 != UNNAMED && (index == 0 || self.get(index - 1).name != name)
    }

    /// Removes an operator from the list; it need not be the last.
    fn remove(&self, index: usize) {
        let depth = self.depth.get();
        for later in index + 1..depth {
            if let Some(to) = self.operators.get(later - 1) {
                to.set(self.get(later));
            }
        }
        self.depth.set(depth.saturating_sub(1));
    }

    fn index_of(&self, record: u64) -> Option<usize> {
        (0..self.depth.get()).rev().find(|index| self.get(*index).record == record)
    }

    #[inline(always)]
    fn forget_strays(&self) {
        let count = STRAY_COUNT.load(Ordering::Acquire);
        if self.strays_seen.get() != count {
            self.forget_strays_until(count);
        }
    }

    #[cold]
    fn forget_strays_until(&self, count: u32) {
        let missed = count.wrapping_sub(self.strays_seen.replace(count));
        if missed as usize > STRAYS_MAX {
            self.depth.set(0);
            return;
        }
        for back in 1..=missed {
            let stray = STRAYS.get(count.wrapping_sub(back) as usize % STRAYS_MAX);
            let record = stray.map_or(0, |stray| stray.load(Ordering::Relaxed));
            if let Some(index) = self.index_of(record) {
                self.remove(index);
            }
        }
    }
}

/// Records that an operator begins on this thread.
#[inline(always)]
pub fn begin(record: u64, name: u32, generation: u32) {
    // In a forked child nobody else says so.
    set_observed(true);
    OPEN.with(|open| {
        open.forget_strays();
        let depth = open.depth.get();
        if let Some(to) = open.operators.get(depth) {
            to.set(Operator { record, name: u64::from(generation) << 32 | u64::from(name) });
            // A signal handler on this thread sees the operator complete or not at all.
            compiler_fence(Ordering::SeqCst);
            open.depth.set(depth + 1);
        }
    });
}

/// Records that an operator ends on this thread.
#[inline(always)]
pub fn end(record: u64) {
    OPEN.with(|open| match open.index_of(record) {
        Some(index) => open.remove(index),
        None => stray(record),
    });
}

/// The operator began on another thread, or was nested too deeply, or began unnoticed.
#[cold]
fn stray(record: u64) {
    // Two threads may write the same slot at once. A thread may then keep an ended operator as long as it
    // has operators around it. That takes two such ends within some nanoseconds.
    let count = STRAY_COUNT.load(Ordering::Relaxed);
    if let Some(stray) = STRAYS.get(count as usize % STRAYS_MAX) {
        stray.store(record, Ordering::Relaxed);
    }
    // SYNC: pairs with the Acquire in `forget_strays`: a thread that sees the count sees the record.
    STRAY_COUNT.store(count.wrapping_add(1), Ordering::Release);
}

/// Whether operators are observed. Otherwise hooks need not look for the thread's.
#[inline(always)]
pub fn are_observed() -> bool {
    fork::of_process().observes_operators.load(Ordering::Relaxed)
}

/// Says so. Called again and again while they are not, since a thread may have fetched its callbacks just
/// before they were removed.
#[inline(always)]
pub fn set_observed(observed: bool) {
    if are_observed() != observed {
        fork::of_process().observes_operators.store(observed, Ordering::Relaxed);
    }
}

/// A hash of the operators that the thread executes; 0 for none.
#[inline(always)]
pub fn hash() -> u64 {
    if !are_observed() {
        return 0;
    }
    OPEN.with(|open| {
        open.forget_strays();
        let depth = open.depth.get();
        (0..depth).fold(
            0,
            |hash, index| if open.is_frame(index) { fold(hash, open.get(index).name).max(1) } else { hash },
        )
    })
}

/// Calls `put` with the definition of each operator's name, innermost first. Not to be called where
/// [`hash`](hash) was 0: the stack is then known as one without operators.
pub fn each_name(generation: u32, mut put: impl FnMut(u32)) {
    OPEN.with(|open| {
        for index in (0..open.depth.get()).rev() {
            let name = open.get(index).name;
            if open.is_frame(index) && (name >> 32) as u32 == generation {
                put(name as u32);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<u32> {
        let mut names = Vec::new();
        each_name(1, |name| names.insert(0, name));
        names
    }

    #[test]
    fn operators_end_in_any_order() {
        begin(0x10, 1, 1);
        begin(0x20, 2, 1);
        begin(0x30, 3, 1);
        let whole = hash();
        end(0x20);
        assert_eq!(names(), [1, 3]);
        assert_ne!(hash(), whole);
        end(0x30);
        begin(0x20, 2, 1);
        begin(0x30, 3, 1);
        assert_eq!((hash(), names()), (whole, vec![1, 2, 3]));
        [0x30, 0x20, 0x10].into_iter().for_each(end);
        assert_eq!((hash(), names()), (0, vec![]));
    }

    #[test]
    fn operators_too_deep_are_not_noted_and_the_others_stay_right() {
        for depth in 0..100 {
            begin(0x1000 + depth, depth as u32 + 1, 1);
        }
        assert_eq!(names().len(), DEPTH_MAX);
        for depth in (0..100).rev() {
            end(0x1000 + depth);
        }
        assert_eq!(names(), []);
    }

    #[test]
    fn operator_that_ends_on_another_thread_is_forgotten_here() {
        begin(0x51, 1, 1);
        begin(0x52, 2, 1);
        std::thread::spawn(|| end(0x51)).join().unwrap();
        let hash_now = hash();
        assert_eq!(names(), [2]);
        end(0x52);
        // Its record's address is reused now.
        begin(0x51, 3, 1);
        assert_eq!(names(), [3]);
        end(0x51);
        assert_ne!(hash_now, 0);
        assert_eq!(hash(), 0);
    }

    #[test]
    fn operator_without_a_name_is_no_frame() {
        begin(0x71, 7, 1);
        let alone = hash();
        begin(0x72, UNNAMED, 1);
        assert_eq!((hash(), names()), (alone, vec![7]));
        [0x72, 0x71].into_iter().for_each(end);
        assert_eq!(OPEN.with(|open| open.depth.get()), 0);
    }

    #[test]
    fn overload_of_the_enclosing_operator_is_no_frame() {
        begin(0x81, 7, 1);
        let alone = hash();
        begin(0x82, 7, 1);
        assert_eq!((hash(), names()), (alone, vec![7]));
        begin(0x83, 8, 1);
        begin(0x84, 7, 1);
        assert_eq!(names(), [7, 8, 7]);
        [0x84, 0x83, 0x82, 0x81].into_iter().for_each(end);
    }

    #[test]
    fn operators_of_another_session_have_no_name_here() {
        begin(0x61, 1, 1);
        let mut names = 0;
        each_name(2, |_| names += 1);
        assert_eq!(names, 0);
        end(0x61);
    }
}
