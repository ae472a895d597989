//! SQLite in the schema that nsys exports to, version 3.7.2: its reports, its rules and scripts written for
//! it read the file.
//!
//! Owns the tables ([`schema`]) and the names of runtime functions ([`runtime_names`]), which
//! docs/reference/sqlite.md lists. One transaction without a journal: the file has a temporary name until it
//! is complete. Memory holds the numbers of texts, stacks and open ranges, no events.

mod calls;
mod database;
mod file;
mod host;
pub mod runtime_names;
pub mod schema;
mod work;

use crate::export::{FormatEntry, Target};

pub const FORMAT: FormatEntry = FormatEntry {
    name: "sqlite",
    about: "a file as nsys exports it, for nsys stats, nsys analyze and scripts",
    target: Target::File,
    open: file::open,
};

#[cfg(test)]
mod tests;
