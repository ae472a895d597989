//! Names of kernels and processes: from what the device library and the system say to what people read.
//!
//! Owns demangling, shortening, making short names unique, and escaping for line-based formats.
//! Knows nothing of traces; every function is bounded in time and memory for hostile names.

mod argument;
mod demangle;
mod difference;
mod escape;
mod fit;
#[cfg(test)]
mod golden;
mod identifier;
mod json_line;
mod literal;
mod path;
mod process;
mod short;
mod summary;
mod table;
mod vocabulary;

pub use demangle::{demangle, demangle_function};
pub use escape::{fold_safe, line_safe, readable};
pub use fit::fit;
pub use json_line::json_line;
pub use process::{process_name, short_command};
pub use short::{SHORT_MAX_CHARS, short};
pub use table::NameTable;
