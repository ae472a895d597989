//! Parquet: a folder with one table for each kind of event, and small tables with the names that they refer
//! to.
//!
//! Owns the columns ([`schema`]), which docs/reference/parquet.md lists, and the row groups. A row group is
//! written when it is full, so that memory does not grow with the trace; what grows with the number of
//! different stacks and streams is the set of those that the names are written for.

mod folder;
mod names;
pub mod schema;
mod table;

use crate::export::{FormatEntry, Target};

pub const FORMAT: FormatEntry = FormatEntry {
    name: "parquet",
    about: "a folder of tables, for DuckDB, pandas and Spark",
    target: Target::Folder,
    open: folder::open,
};

#[cfg(test)]
mod tests;
