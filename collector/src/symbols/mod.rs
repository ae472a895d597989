//! Symbols: from addresses in programs and libraries to functions, files and lines.
//!
//! Only this module opens programs and libraries. On the machine where the trace was recorded they are mostly
//! unchanged. Each file is checked first, by its build id or else by its length and time; a file that differs
//! gives no names. Files are mapped; one that is truncated meanwhile gives no names either (`cut`).

mod cut;
mod file;
mod name;
mod native;

pub use native::{NativeFrame, Natives};
