//! What the subjects share: compiling programs, running them traced, reading reports.

pub mod back_end;
pub mod folder;
pub mod life;
pub mod needs;
pub mod nvml;
pub mod process;
pub mod program;
pub mod recorded;
pub mod root;
pub mod rotel;
pub mod sanitizer;
pub mod schema;
pub mod session;
pub mod terminal;
pub mod tool;
pub mod users;
pub mod wrapper;
