//! Source: from the codes and modules of a trace to the functions, files and lines of the program.
//!
//! Owns the decoding of line tables, the short names of files, and which files are the program's
//! own. Reads definitions, keeps what it decoded, opens no file: the program's may have changed
//! since, or lie on another machine.

mod code;
mod files;
mod kernels;
mod line_table;
mod own;

#[cfg(test)]
mod golden;

pub(crate) use code::{Code, begin_of};
pub use files::FileNames;
pub(crate) use kernels::UNKNOWN as UNKNOWN_SOURCES;
#[cfg(test)]
pub(crate) use kernels::tests as kernels_tests;
pub use kernels::{KernelSource, KernelSources, NamedSources};
pub use line_table::LineTable;
pub use own::{is_made, is_own};
