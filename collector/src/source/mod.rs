//! Source: from the stacks of a trace to the functions, files and lines of the program.
//!
//! Owns the decoding of line tables, the short names of files, and which files are the program's
//! own. Reads definitions, keeps what it decoded, opens no file: the program's may have changed
//! since, or lie on another machine.

mod files;
mod frames;
mod kernels;
mod line_table;
mod machinery;
mod own;

#[cfg(test)]
mod golden;

pub use files::FileNames;
pub(crate) use frames::{Code, begin_of};
pub use frames::{Line, NO_LINE, StackFrame, Stacks};
pub(crate) use kernels::UNKNOWN as UNKNOWN_SOURCES;
#[cfg(test)]
pub(crate) use kernels::tests as kernels_tests;
pub use kernels::{KernelSource, KernelSources, NamedSources};
pub use line_table::LineTable;
pub use own::{is_made, is_own};
