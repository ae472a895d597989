//! What build.rs put into this file: the preload library and the simulated device.
//!
//! Owns the bytes only; where they are extracted to is `launch::extract`'s business.

/// A shared object carried inside the program.
#[derive(Debug)]
pub struct Embedded {
    /// The file name it must have on disk.
    pub name: &'static str,
    pub bytes: &'static [u8],
    /// Names cache folders; never a proof of what a file contains.
    pub hash: u64,
}

include!(concat!(env!("OUT_DIR"), "/embedded.rs"));
