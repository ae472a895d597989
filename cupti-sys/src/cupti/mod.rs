//! CUPTI: constants, callback data, and the entry points of a loaded library.
//!
//! What a buffer of activity records holds is the business of [`crate::records`].

#[allow(
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unnecessary_transmutes,
    unsafe_op_in_unsafe_fn,
    clippy::all,
    clippy::indexing_slicing,
    clippy::undocumented_unsafe_blocks
)]
mod generated;

mod api_version;
mod entry_points;
mod result_name;

#[cfg(test)]
#[allow(non_snake_case, unused)]
mod prototypes;

pub use api_version::ApiVersion;
pub use entry_points::{Cupti, Lookup, MissingSymbol};
pub use generated::*;
pub use result_name::result_name;
