//! PyTorch: for which call of `backward()` a thread works, and at what.
//!
//! A backward pass runs on threads of PyTorch's own, one a device, which have no frames of the
//! program. What links them to the program is the pass (PyTorch's `GraphTask`): the thread that calls
//! `backward()` makes one, and each thread that works for it knows which it works for. So the caller's stack is noted
//! beside the pass as it begins, and a call made by a thread that works for a pass is told with that stack,
//! then `[autograd]`, then the node that runs, then the thread's own frames.
//!
//! PyTorch's own functions answer which pass and which node a thread is at; nothing of its
//! data is read by offsets but a node's virtual table, for the name of its type, and a pass's number as it begins, whose place
//! those functions say. They read thread-locals, take no lock
//! and run no Python, on a thread that has been asked before; others are not asked ([`may_be_asked`]).
//!
//! | file | noun |
//! |---|---|
//! | `engine` | PyTorch's functions that say what the thread is at |
//! | `passes` | passes and their callers' stacks |
//! | `places` | where a pass has its number |
//! | `node` | the name of a node's type |
//! | `operators` | the operators that a thread is in, where they are asked for |

pub mod engine;
pub mod node;
pub mod operators;
pub mod passes;
mod places;

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, Ordering};

use engine::Engine;
use gputrace_producer::system;
use gputrace_wire::caller::Caller;
use node::Node;
use passes::Outside;

/// Whether stacks are told with what is known of passes.
static IS_ASKED_FOR: AtomicBool = AtomicBool::new(false);

/// At a session's start.
pub fn ask_for(asked: bool) {
    IS_ASKED_FOR.store(asked, Ordering::Relaxed);
}

/// What a thread that works for a backward pass does it for.
#[derive(Clone, Copy, Debug)]
pub struct Around {
    /// The stack of the call that began the pass; 0 where it is not known.
    pub caller: u32,
    /// Where the call was. On the calling thread itself, what is outside of it is in the caller's stack
    /// already.
    pub outside: Outside,
    /// What the thread is at.
    pub node: Option<Node>,
}

/// What the thread last found of a pass.
struct Found {
    engine: Cell<usize>,
    /// The session's generation above the pass's number; no thread has seen pass [`NONE`].
    pass: Cell<u64>,
    caller: Cell<u32>,
    outside: Cell<Outside>,
}

const NONE: u64 = u64::MAX;

/// Whether a thread may be asked, as [`may_be_asked`] has it.
mod asked {
    pub const NOT_KNOWN: u8 = 0;
    pub const YES: u8 = 1;
    pub const NO: u8 = 2;
}

thread_local! {
    static MAY_BE_ASKED: Cell<u8> = const { Cell::new(asked::NOT_KNOWN) };
    static FOUND: Found = const {
        Found {
            engine: Cell::new(0),
            pass: Cell::new(NONE),
            caller: Cell::new(0),
            outside: Cell::new(Outside { frame: 0, stack: 0, caller: Caller::NOBODY }),
        }
    };
}

/// What the calling thread works for, if it works for a backward pass.
#[inline(always)]
pub fn around(generation: u32) -> Option<Around> {
    if engine::first().is_none() || !IS_ASKED_FOR.load(Ordering::Relaxed) || !may_be_asked() {
        return None;
    }
    of_engines(generation)
}

/// The calling thread begins a pass: it may be asked from now on, and is for the first time here, where it
/// is in no call of the driver's.
pub fn begins_pass() {
    MAY_BE_ASKED.set(asked::YES);
    for (_, engine) in engine::all() {
        let _ = engine.pass_number();
    }
}

/// Whether PyTorch may be asked on this thread. A thread's first question makes its thread-locals, for which the C
/// library allocates and takes the loader's lock: in the middle of a call that can be a deadlock with another thread that
/// is loading a library. Threads that work for passes have theirs: those that began one, and PyTorch's own, which
/// it calls `pt_autograd_<device>` (from 2.6 on at the latest; not in 2.1).
#[inline(always)]
fn may_be_asked() -> bool {
    match MAY_BE_ASKED.get() {
        asked::NOT_KNOWN => is_called_as_pytorchs(),
        known => known == asked::YES,
    }
}

#[cold]
fn is_called_as_pytorchs() -> bool {
    let is_its_own = system::thread_name().starts_with(b"pt_autograd_");
    MAY_BE_ASKED.set(if is_its_own { asked::YES } else { asked::NO });
    is_its_own
}

#[inline(never)]
fn of_engines(generation: u32) -> Option<Around> {
    engine::all().find_map(|(index, engine)| of_engine(index, engine, generation))
}

fn of_engine(index: usize, engine: &'static Engine, generation: u32) -> Option<Around> {
    let number = engine.pass_number()?;
    let (caller, outside) = FOUND.with(|found| {
        let pass = u64::from(generation) << 32 | u64::from(number);
        if found.pass.get() != pass || found.engine.get() != index {
            let (caller, outside) =
                passes::find((index, engine), engine.inside_of_pass(), number, generation);
            found.engine.set(index);
            found.pass.set(pass);
            found.caller.set(caller);
            found.outside.set(outside);
        }
        (found.caller.get(), found.outside.get())
    });
    Some(Around { caller, outside, node: engine.node() })
}
