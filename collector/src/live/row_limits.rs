//! How much of a table is made, and what rows are called whose line is not looked for or not known.

/// Rows of each table.
pub const ROWS_MAX: usize = 100;
/// Stacks whose frames are read: those with the most device time, or memory. The rest is one row.
pub const STACKS_MAX: usize = 500;
pub const OTHER_STACKS: &str = "(other lines)";
pub const NO_LINE: &str = "(no line known)";
