//! The launching thread's own native frames, read where they are.
//!
//! A hook runs on the thread whose frames it reads: until it returns, nothing above it on the stack moves. Programs keep
//! no frame pointers, so frames are found by the tables that compilers write for exceptions (`.eh_frame`). A table
//! is read once for each place that calls; what it says comes down to one word, a rule, that is kept. From then on a frame
//! costs a look-up and one or two reads of the stack.
//!
//! What makes it safe in any thread, in a signal handler, and whatever the tables say:
//!
//! * *The stack* is read in place between where the thread is and the end of the stack that it was made with, and nowhere else:
//!   that stays while the hook runs, whatever lies beside it. A stack that nobody knows (a coroutine's) and one that a signal
//!   handler is said to have interrupted are copied by the kernel, which fails where nothing is.
//! * *A walk goes up*: each frame lies above the one it called, and there are 256 at most. So wrong rules lead to wrong frames and not
//!   further.
//! * *Tables* are read by reads that cannot fault, in pieces of bounded length.
//! * *No lock is waited for, nothing is allocated, the loader is asked by its own function that takes no lock.* Rules are
//!   worked out by one thread at a time; one that finds another at it for too long goes without.
//! * *A library that is unloaded* takes all rules with it: what lies at its addresses later is looked at anew.
//!
//! Where no table tells (generated code, a damaged table, an odd prologue) the stack ends, and a mark says so.
//!
//! | file | noun |
//! |---|---|
//! | `surroundings` | what of the process is known from outside: the loader, the interpreter, that a library closes |
//! | `bounds` | where a thread's own stack lies, as far as that is certain |
//! | `stack` | the calling thread's stack: what of it may be read, and how |
//! | `pages` | copies of pages that may go at any moment |
//! | `walk` | frames, from the innermost out |
//! | `rule` | how to get from a frame to its caller, in one word |
//! | `rules` | rules by place, kept |
//! | `eh_frame` | the table of a mapped image: which entry is a place's |
//! | `cfi` | what an entry says |
//! | `images` | the programs and libraries that are mapped, and their definitions |
//! | `elf` | what a mapped image says of itself |
//! | `maps` | `/proc/self/maps` |
//! | `frames` | a thread's native frames as part of a stack |
//! | `merge` | native and Python frames in one order |

pub mod bounds;
pub mod cfi;
#[cfg(test)]
mod differential_tests;
pub mod eh_frame;
pub mod elf;
pub mod frames;
pub mod images;
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
