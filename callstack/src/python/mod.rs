//! The calling thread's own Python frames, read in place.
//!
//! A hook runs on the thread whose frames it reads, below the interpreter. Until the hook returns
//! this thread runs no Python, so its frames do not move, with the GIL or without it. The module
//! calls nothing that needs the GIL, allocates nothing in the interpreter and runs no Python.
//!
//! What makes reading the frames safe, and what remains unsafe:
//!
//! * *The layout.* Offsets are known by minor version up to 3.12; from 3.13 on the interpreter
//!   publishes them. Before the first stack is trusted, the whole chain is read once by reads that
//!   cannot fault, and every object in it must have the expected type. An interpreter that fails
//!   this, or whose version is unknown, is not read again, and a notice reports that.
//! * *The thread state.* It is taken from the interpreter's own thread-local, never from a list.
//! * *The chain.* The interpreter itself follows the same pointers when the calls return; if one of
//!   them dangles, the program is about to fault without us. Each pointer is checked before it is
//!   followed (null, alignment, user space), and the length of a chain is bounded.
//! * *Code objects.* A fingerprint does not follow a frame's code object. Where one is followed, its
//!   type must be the code type.
//! * *What a code object refers to* (its name, file and line table) is read once, by reads that
//!   cannot fault.
//! * *The end of the interpreter.* Once finalisation begins no frames are read. A daemon thread
//!   that is inside a hook at that moment, without the GIL, reads a thread state that is freed some
//!   milliseconds later.
//!
//! | file | content |
//! |---|---|
//! | `runtime` | the interpreter in this process, and the calling thread's state |
//! | `memory` | ways to read: own memory, memory that may be unmapped, an image |
//! | `layout` | the offsets of each version; a script writes `layout/table.rs` |
//! | `accessor` | what the interpreter's small functions read |
//! | `thread_key` | what `pthread_getspecific` reads |
//! | `walk` | frames, from the innermost out |
//! | `known_chain` | frames as they were when their stack was found |
//! | `identity` | distinguishes a code object from a later one at the same address |
//! | `lives` | when code objects end: a number for each one's life, and counts of ends |
//! | `unicode` | a string as UTF-8 |
//! | `code` | a code object as a definition |
//! | `stacks` | frames as part of a stack: as a fingerprint, as a stable number, and written out |
//! | `callers` | the thread's active span of OpenTelemetry |
//! | `tree` | the variables of a context |
//! | `objects` | dicts, tuples, numbers and attributes |
//! | `check` | whether an interpreter has the layout of its version |

mod accessor;
pub mod callers;
pub mod check;
pub mod code;
#[cfg(test)]
mod hostile_tests;
pub mod identity;
pub(crate) mod known_chain;
pub mod layout;
pub mod lives;
pub mod memory;
pub mod objects;
pub mod runtime;
pub mod stacks;
mod thread_key;
pub(crate) mod tree;
pub mod unicode;
pub mod walk;
