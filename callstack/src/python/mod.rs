//! The launching thread's own Python frames, read where they are.
//!
//! A hook runs on the thread whose frames it reads, below the interpreter: until the hook returns
//! this thread runs no Python, so its frames do not move, with the GIL or without it. Nothing is
//! called that needs the GIL, nothing is allocated in the interpreter, no Python runs.
//!
//! What makes reading them safe, and what it cannot be safe from:
//!
//! * *The layout.* Offsets are known by minor version up to 3.12 and told by the interpreter itself
//!   from 3.13. Before the first stack is believed, the whole chain is read once by reads that
//!   cannot fault, and every object in it must be of the type that it should be. An interpreter
//!   that fails this, or whose version is unknown, is left alone for good, and that is said.
//! * *The thread state.* It is taken from the interpreter's own thread-local, never from a list.
//! * *The chain.* Its pointers are those that the interpreter itself follows when the calls
//!   return; if one of them dangles, the program is about to fault without us. Each is looked at
//!   before it is followed (null, alignment, user space), and a chain is followed for so many frames and no further.
//! * *Code objects.* A glance does not follow a frame's code object. Where it must be followed, it must be of the code type.
//! * *What a code object names* (its name, file and line table) is read once, by reads that cannot
//!   fault.
//! * *The end of the interpreter.* From the moment that finalisation begins no frames are read.
//!   A daemon thread that is inside a hook in that very moment, without the GIL, reads a thread state that is
//!   freed some milliseconds later.
//!
//! | file | noun |
//! |---|---|
//! | `runtime` | the interpreter in this process, and the calling thread's state |
//! | `memory` | ways to read: one's own memory, memory that may not be there, an image |
//! | `layout` | where a version keeps what; `layout/table.rs` is written by a script |
//! | `walk` | frames, from the innermost out |
//! | `identity` | a code object told from another at its address |
//! | `lives` | when code objects end: a number for each one's life, and counts of ends |
//! | `unicode` | a string as UTF-8 |
//! | `code` | a code object as a definition |
//! | `stacks` | frames as part of a stack: at a glance, as one number that stays, and told |
//! | `callers` | the span of OpenTelemetry's that the thread works for |
//! | `tree` | the variables of a context |
//! | `objects` | dicts, tuples, numbers and attributes |
//! | `check` | whether an interpreter is what its version says |

pub mod callers;
pub mod check;
pub mod code;
#[cfg(test)]
mod hostile_tests;
pub mod identity;
pub mod layout;
pub mod lives;
pub mod memory;
pub mod objects;
pub mod runtime;
pub mod stacks;
mod tree;
pub mod unicode;
pub mod walk;
