//! Names of kernels: from what the device library says to what people read.
//!
//! Owns demangling, shortening, making short names unique, and escaping for line-based formats.
//! Knows nothing of traces; every function is bounded in time and memory for hostile names.

mod demangle;
mod escape;
#[cfg(test)]
mod golden;
mod path;
mod short;
mod table;

pub use demangle::demangle;
pub use escape::{fold_safe, line_safe};
pub use short::{SHORT_MAX_CHARS, short};
pub use table::NameTable;
