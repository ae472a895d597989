//! PyTorch: which call of `backward()` a thread works for, which node it executes, and who made the node.
//!
//! A backward pass runs on threads of PyTorch's own, one a device, which have no frames of the program.
//! The pass (PyTorch's `GraphTask`) links them to the program: the thread that calls `backward()` makes
//! a pass, and each thread that works on it knows the pass. So the calling stack is recorded with the
//! pass as it begins. The stack of a call that a thread makes for the pass then consists of that calling
//! stack, `[autograd]`, the frames of the forward pass that made the node, the node itself, and the thread's
//! own frames.
//!
//! PyTorch's own functions return the pass and the node of a thread. By offsets only three things are
//! read: a node's virtual table, for the name of its type; its number and thread ([`forward`]); and a pass's
//! number as it begins, whose offset those functions contain. The functions read thread-locals, take no lock
//! and run no Python on a thread that has called them before; on other threads they are not called
//! ([`may_be_asked`]).
//!
//! | file | content |
//! |---|---|
//! | `engine` | PyTorch's functions that report what the thread executes |
//! | `passes` | passes and the stacks of the calls that began them |
//! | `pass_offsets` | the offset of a pass's number |
//! | `forward` | the stacks of the calls that made nodes |
//! | `node` | the name of a node's type |
//! | `operators` | the operators that a thread executes, if they are asked for |

pub mod engine;
mod forward;
pub mod node;
pub mod operators;
mod pass_offsets;
pub mod passes;

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, Ordering};

use engine::Engine;
use gputrace_producer::own_static;
use gputrace_producer::system;
use gputrace_producer::thread::{self, Slot};
use gputrace_wire::caller::Caller;
use node::GradNode;
use passes::Outside;

use crate::stack_slot::StackSlot;

/// Whether stacks are to include backward passes.
#[unsafe(link_section = "gputrace_hot")]
static IS_ASKED_FOR: AtomicBool = AtomicBool::new(false);

/// Called at a session's start.
pub fn ask_for(asked: bool) {
    IS_ASKED_FOR.store(asked, Ordering::Relaxed);
}

/// The backward pass that a thread works on.
#[derive(Clone, Copy, Debug)]
pub struct Around {
    /// The stack of the call that began the pass; 0 if unknown.
    pub caller: u32,
    /// The position of that call. On the calling thread itself, the frames outside of it are already in the
    /// calling stack.
    pub outside: Outside,
    /// The node that the thread executes.
    pub node: Option<GradNode>,
    /// The stacks of the forward pass between which the node was made; twice the same if the node's own call
    /// is known, zeros if nothing is.
    pub made_between: [u32; 2],
}

/// The last pass that the thread found.
struct LastPass {
    engine: Cell<usize>,
    /// The session's generation above the pass's number; [`NONE`] is no pass.
    pass: Cell<u64>,
    caller: Cell<u32>,
    outside: Cell<Outside>,
}

const NONE: u64 = u64::MAX;

/// The answers of [`may_be_asked`], in the thread's slot: every launch of a program with PyTorch reads it,
/// and the general form of a thread-local is a call.
mod asked {
    pub const NOT_KNOWN: u8 = 0;
    pub const YES: u8 = 1;
    pub const NO: u8 = 2;
}

thread_local! {
    static FOUND: LastPass = const {
        LastPass {
            engine: Cell::new(0),
            pass: Cell::new(NONE),
            caller: Cell::new(0),
            outside: Cell::new(Outside { frame: 0, stack: 0, caller: Caller::NOBODY }),
        }
    };
}

/// The backward pass that the calling thread works on, if any.
#[inline(always)]
pub fn around(generation: u32) -> Option<Around> {
    if engine::first().is_none() || !own_static!(IS_ASKED_FOR).load(Ordering::Relaxed) || !may_be_asked() {
        return None;
    }
    of_engines(generation)
}

/// Whether the calling thread is known to work on no backward pass, and nothing is to be noted of its calls.
#[inline(always)]
pub fn is_never_around(slot: &Slot) -> bool {
    StackSlot::of(slot).asked.get() == asked::NO || engine::first().is_none()
}

/// Called with the stack of a call that the calling thread makes outside of any backward pass.
#[inline(always)]
pub fn calls(generation: u32, stack: u32) {
    if answer() == asked::YES
        && let Some(engine) = engine::first()
    {
        notes(engine, generation, stack);
    }
}

#[cold]
#[inline(never)]
fn notes(engine: &'static Engine, generation: u32, stack: u32) {
    forward::note(engine, generation, stack);
}

#[inline(always)]
fn answer() -> u8 {
    thread::with(|slot| StackSlot::of(slot).asked.get())
}

fn set_answer(answer: u8) {
    thread::with(|slot| StackSlot::of(slot).asked.set(answer));
}

/// Called when the calling thread begins a pass, which is not inside a driver call. The thread may be asked
/// from now on, and is asked for the first time here.
pub fn begins_pass() {
    set_answer(asked::YES);
    for (_, engine) in engine::all() {
        let _ = (engine.pass_number(), engine.next_node(), engine.thread());
    }
}

/// Whether PyTorch's functions may be called on this thread.
///
/// Their first call on a thread makes the thread's thread-locals, for which the C library allocates and
/// takes the loader's lock. In the middle of a driver call that can deadlock with another thread that is
/// loading a library. Two kinds of threads have their thread-locals already: those that began a pass, and
/// PyTorch's own, named `pt_autograd_<device>` (from 2.6 on at the latest; not in 2.1).
#[inline(always)]
fn may_be_asked() -> bool {
    match answer() {
        asked::NOT_KNOWN => is_called_as_pytorchs(),
        known => known == asked::YES,
    }
}

#[cold]
fn is_called_as_pytorchs() -> bool {
    let is_its_own = system::thread_name().starts_with(b"pt_autograd_");
    set_answer(if is_its_own { asked::YES } else { asked::NO });
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
    let node = engine.node();
    let maker = node.filter(|_| index == 0).map(|(_, maker)| maker);
    let made_between = maker.map_or([0; 2], |maker| forward::stacks_of(maker, generation));
    Some(Around { caller, outside, node: node.map(|(node, _)| node), made_between })
}
