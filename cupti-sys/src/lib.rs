//! What NVIDIA's driver and CUPTI look like from outside: types, constants, signatures, record layouts.
//!
//! - [`driver`]: the driver API's types, and the signature of each ABI variant of its functions.
//! - [`cupti`]: CUPTI's constants and callback data, and [`cupti::Cupti`], its entry points in a loaded
//!   library.
//! - [`records`]: CUPTI's activity records, read by the prefix that the version at hand is known to write.
//! - [`locate`]: where a libcupti may lie beside a given libcudart.
//!
//! There is no policy here: which library to load, which kinds to enable and what a record means are the
//! caller's. Nothing links against NVIDIA's libraries, and a missing symbol is an ordinary error. The crate
//! runs inside traced programs, so it panics nowhere, and the reading of records neither allocates nor locks.
//!
//! The files named `generated.rs`, `result_name.rs` and `prototypes.rs` are written by
//! `scripts/gen-bindings`; the tables in `facts/`, which the tests check the hand-written parts against, by
//! the other scripts that `facts/README.md` names.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::unreachable
    )
)]

pub mod cupti;
pub mod driver;
pub mod locate;
pub mod records;
