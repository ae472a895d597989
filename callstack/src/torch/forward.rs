//! Forward passes: the stack of the call that a node of a backward pass belongs to.
//!
//! PyTorch numbers the nodes that a thread makes, and makes an operator's node before it launches the
//! operator's kernels. So at a thread's first call after the next number has risen, the calling stack is
//! that of the node with the number before. It is stored under that number. When the node executes, in a
//! backward pass, its own number and the thread that made it are read from it, and the stack is looked up.
//!
//! A node whose operator launched nothing has no stack of its own. It was made between two calls, so the
//! frames that these two share are its own, and both are returned.
//!
//! PyTorch has no function that returns the number or the thread of a node as it executes. They are read at
//! offsets. A wrong offset would find nothing: the number has to be one that is stored, with all 32 bits, and
//! the thread one that was seen.
//!
//! Memory is bounded: the last 65 536 nodes of each of at most 16 threads, 512 KiB each, touched where used.
//! Stacks are stored on threads that called `backward()` before ([`super::may_be_asked`] says why), so a
//! thread's first pass finds none. Of several copies of PyTorch in a process, only the first one's nodes are
//! followed.

use core::cell::Cell;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use gputrace_producer::memory;

use super::engine::{Engine, Maker};

const THREADS_MAX: usize = 16;
const NODES_MAX: usize = 1 << 16;
/// How many nodes in a row may have launched nothing.
const APART_MAX: u32 = 32;

/// The stacks of the calls in which a thread made its last nodes.
struct MadeNodes {
    /// PyTorch's own number of the thread.
    thread: u64,
    /// Of the session that stacks are of.
    generation: AtomicU32,
    /// By the lower bits of a node's number: that number above the stack. Only the thread itself writes.
    stacks: [AtomicU64; NODES_MAX],
}

static THREADS: [AtomicPtr<MadeNodes>; THREADS_MAX] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; THREADS_MAX];

/// The calling thread as one that makes nodes.
struct Forward {
    nodes: Cell<Option<&'static MadeNodes>>,
    /// The next node's number at the last call.
    next: Cell<u64>,
    /// Whether `nodes` was looked for.
    is_known: Cell<bool>,
}

thread_local! {
    static FORWARD: Forward =
        const { Forward { nodes: Cell::new(None), next: Cell::new(0), is_known: Cell::new(false) } };
    /// The thread whose node was looked up last.
    static LAST_MAKER: Cell<Option<&'static MadeNodes>> = const { Cell::new(None) };
}

/// Stores the stack of a call with the last node that the calling thread made, unless an earlier call did.
#[inline(always)]
pub fn note(engine: &Engine, generation: u32, stack: u32) {
    let Some(next) = engine.next_node() else { return };
    FORWARD.with(|forward| {
        if forward.next.replace(next) != next {
            note_node(forward, engine, generation, (next, stack));
        }
    });
}

fn note_node(forward: &Forward, engine: &Engine, generation: u32, (next, stack): (u64, u32)) {
    if !forward.is_known.replace(true) {
        forward.nodes.set(engine.thread().and_then(|thread| of_thread(thread, generation)));
    }
    let (Some(nodes), Some(number)) = (forward.nodes.get(), next.checked_sub(1)) else { return };
    if nodes.generation.load(Ordering::Relaxed) != generation {
        // The stacks of an earlier session.
        nodes.stacks.iter().for_each(|stack| stack.store(0, Ordering::Relaxed));
        nodes.generation.store(generation, Ordering::Release);
    }
    if let Some(to) = nodes.stacks.get(number as usize % NODES_MAX) {
        // SYNC: the session's definitions, which the stack is one of, are ordered by their own means.
        to.store(u64::from(number as u32) << 32 | u64::from(stack), Ordering::Relaxed);
    }
}

/// That thread's nodes, a new table of that session if there is none yet. `None` if there are too many
/// threads.
#[cold]
fn of_thread(thread: u64, generation: u32) -> Option<&'static MadeNodes> {
    if let Some(known) = known(thread) {
        return Some(known);
    }
    THREADS.iter().find(|nodes| nodes.load(Ordering::Relaxed).is_null())?;
    let mapped = memory::map_bytes(size_of::<MadeNodes>())?.cast::<MadeNodes>();
    // SAFETY: the mapping is large enough, page-aligned, zeroed, ours alone, and never unmapped.
    unsafe {
        (&raw mut (*mapped).thread).write(thread);
        (&raw mut (*mapped).generation).write(AtomicU32::new(generation));
    }
    for nodes in &THREADS {
        let free = core::ptr::null_mut();
        // SYNC: the Release pairs with the Acquire in `known`.
        if nodes.compare_exchange(free, mapped, Ordering::Release, Ordering::Relaxed).is_ok() {
            // SAFETY: written above, and never freed.
            return unsafe { mapped.as_ref() };
        }
    }
    None
}

fn known(thread: u64) -> Option<&'static MadeNodes> {
    // SAFETY: each pointer is null, or points to a table that was made before it was stored, and is never
    // freed.
    let mut all = THREADS.iter().map_while(|nodes| unsafe { nodes.load(Ordering::Acquire).as_ref() });
    all.find(|nodes| nodes.thread == thread)
}

/// The stacks between which that thread made that node; twice the same if the node's own call is known.
/// Zeros if nothing is known.
pub fn stacks_of(maker: Maker, generation: u32) -> [u32; 2] {
    let last = LAST_MAKER.get().filter(|nodes| nodes.thread == maker.thread);
    let Some(nodes) = last.or_else(|| known(maker.thread)) else { return [0; 2] };
    LAST_MAKER.set(Some(nodes));
    if nodes.generation.load(Ordering::Acquire) != generation {
        return [0; 2];
    }
    let stack_of = |number: u64| {
        let stored = nodes.stacks.get(number as usize % NODES_MAX)?.load(Ordering::Relaxed);
        (stored >> 32 == u64::from(number as u32) && stored as u32 != 0).then_some(stored as u32)
    };
    if let Some(stack) = stack_of(maker.number) {
        return [stack; 2];
    }
    let apart = 1..=u64::from(APART_MAX);
    let after = apart.clone().find_map(|apart| stack_of(maker.number.wrapping_add(apart)));
    let before = apart.into_iter().find_map(|apart| stack_of(maker.number.checked_sub(apart)?));
    match (before, after) {
        (Some(before), Some(after)) => [before, after],
        _ => [0; 2],
    }
}

#[cfg(test)]
mod tests {
    use core::ffi::{c_int, c_void};

    use super::super::engine::{Counts, Functions};
    use super::*;

    thread_local! {
        static NEXT: Cell<u64> = const { Cell::new(0) };
        static THREAD: Cell<u64> = const { Cell::new(0) };
    }

    unsafe extern "C" fn number() -> c_int {
        -1
    }

    unsafe extern "C" fn inside() -> *const c_void {
        core::ptr::null()
    }

    unsafe extern "C" fn next_node() -> u64 {
        NEXT.get()
    }

    unsafe extern "C" fn thread() -> u64 {
        THREAD.get()
    }

    fn engine() -> Engine {
        Engine::new(Functions {
            execute: core::ptr::null(),
            number,
            inside,
            node: None,
            next_node: Some(next_node),
            thread: Some(thread),
            counts: Counts::Beside,
        })
    }

    /// One operator after the other: a node, then a call with that stack if it is not 0.
    fn operators(stacks: &[u32], generation: u32) {
        for stack in stacks {
            NEXT.set(NEXT.get() + 1);
            if *stack != 0 {
                note(&engine(), generation, *stack);
            }
        }
    }

    /// Runs on a thread of its own, which has that number.
    fn on_thread(number: u64, run: impl FnOnce() + Send) {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                THREAD.set(number);
                run();
            });
        });
    }

    fn stacks(thread: u64, number: u64, generation: u32) -> [u32; 2] {
        stacks_of(Maker { number, thread }, generation)
    }

    #[test]
    fn node_has_the_stack_of_the_first_call_after_it() {
        on_thread(1_001, || {
            operators(&[10, 11, 0, 0, 14], 7);
            note(&engine(), 7, 99);
            assert_eq!([0, 1, 4].map(|node| stacks(1_001, node, 7)), [[10; 2], [11; 2], [14; 2]]);
            assert_eq!([2, 3].map(|node| stacks(1_001, node, 7)), [[11, 14]; 2], "nothing was launched");
            assert_eq!(stacks(1_001, 5, 7), [0; 2], "nothing was launched after it");
            assert_eq!(stacks(1_001, u64::MAX, 7), [0; 2], "gradients that are added up have no number");
            assert_eq!((stacks(1_001, 0, 8), stacks(1_002, 0, 7)), ([0; 2], [0; 2]));
            // Another session.
            operators(&[20], 8);
            assert_eq!((stacks(1_001, 5, 8), stacks(1_001, 1, 8)), ([20; 2], [0; 2]));
        });
    }

    #[test]
    fn old_nodes_are_forgotten_and_not_confused_with_new_ones() {
        on_thread(2_001, || {
            let all: Vec<u32> = (1..=NODES_MAX as u32 + 100).collect();
            operators(&all, 7);
            assert_eq!((stacks(2_001, 0, 7), stacks(2_001, 50, 7)), ([0; 2], [0; 2]));
            assert_eq!(stacks(2_001, 100, 7), [101; 2]);
            assert_eq!(stacks(2_001, 1 << 32 | 200, 7), [201; 2], "numbers are compared in 32 bits");
        });
    }

    #[test]
    fn far_apart_calls_say_nothing_of_what_is_between() {
        on_thread(3_001, || {
            let quiet = vec![0; APART_MAX as usize + 2];
            operators(&[&[10], &quiet[..], &[11]].concat(), 7);
            assert_eq!(stacks(3_001, 1, 7), [0; 2]);
        });
    }
}
