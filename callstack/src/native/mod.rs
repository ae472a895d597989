//! The calling thread's own native frames, read in place.
//!
//! A hook runs on the thread whose frames it reads. Until the hook returns, nothing above it on the
//! stack moves. Programs keep no frame pointers, so frames are found by the tables that compilers
//! write for exceptions (`.eh_frame`). The tables are read once for each call site and reduced to
//! one word, a rule, that is kept. From then on a frame costs a look-up and one or two reads of the
//! stack.
//!
//! What makes this safe in any thread, in a signal handler, and with any table:
//!
//! * *The stack* that the thread was created with is read in place, from the thread's position to
//!   the stack's end and nowhere else; that part stays mapped while the hook runs. A stack with
//!   unknown bounds (a coroutine's), and one that a signal handler interrupted according to the
//!   tables, are copied by the kernel, which fails where nothing is mapped.
//! * *A walk goes up*: each frame must be above the one it called, and there are 256 at most. A
//!   wrong rule leads to wrong frames and to nothing worse.
//! * *Tables* are read by reads that cannot fault, in pieces of bounded length.
//! * *The walk waits for no lock and allocates nothing. It asks the loader by the loader's own
//!   function that takes no lock.* One thread at a time works out a rule. A thread that finds another
//!   one doing so for too long goes without.
//! * *A library that is unloaded* invalidates all rules, because its addresses may be reused.
//!
//! Where no table covers the code (generated code, a damaged table, an unusual prologue) the stack
//! ends, and a mark in the stack reports that.
//!
//! | file | content |
//! |---|---|
//! | `surroundings` | what other code provides: the loader, the interpreter, notice that a library closes |
//! | `bounds` | where a thread's own stack is, as far as that is certain |
//! | `stack` | the calling thread's stack: which part may be read, and how |
//! | `pages` | copies of pages that may be unmapped at any moment |
//! | `walk` | frames, from the innermost out |
//! | `rule` | how to get from a frame to its caller, in one word |
//! | `rules` | the kept rules, by code address |
//! | `eh_frame` | the table of a mapped image: the entry that covers an address |
//! | `cfi` | the instructions of an entry |
//! | `images` | the programs and libraries that are mapped, and their definitions |
//! | `elf` | the headers of a mapped image |
//! | `maps` | `/proc/self/maps` |
//! | `frames` | a thread's native frames as part of a stack |
//! | `last_walk` | the frames that a thread's last walk found, by which the next one goes faster |
//! | `merge` | native and Python frames in one order |

pub mod bounds;
pub mod cfi;
#[cfg(test)]
mod differential_tests;
pub mod eh_frame;
pub mod elf;
pub mod frames;
pub mod images;
pub mod last_walk;
pub mod maps;
pub mod merge;
pub mod pages;
pub mod rule;
pub mod rules;
pub mod stack;
pub mod surroundings;
#[cfg(test)]
mod system_tests;
pub mod walk;
