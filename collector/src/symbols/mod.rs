//! Symbols: from places in programs and libraries to functions, files and lines.
//!
//! The files themselves are opened here, and nowhere else in the collector: on the machine where the trace was made they mostly
//! are what they were. Each is compared first, by its build id or else by its length and time, and one that is another
//! gives no names. Files are mapped; one that is cut meanwhile gives none either (`cut`).

mod cut;
mod file;
mod name;
mod native;

pub use native::{NativeFrame, Natives};
