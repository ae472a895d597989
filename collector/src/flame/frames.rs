//! Frames: one field of a folded line each, and how entries are called in them.

use std::sync::Arc;

use crate::names::fold_safe;

/// What a frame stands for; it decides the colour.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FrameKind {
    Process,
    Thread,
    Stream,
    Device,
    Rank,
    /// A line of the program's own.
    Code,
    /// A line of a library.
    Library,
    /// What the program says it does.
    Range,
    /// A driver entry.
    Call,
    Kernel,
    Copy,
    Fill,
    Graph,
    Other,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Frame {
    /// One field of a folded line: no separator, no control character, not empty.
    pub text: Arc<str>,
    pub kind: FrameKind,
}

impl Frame {
    pub fn new(kind: FrameKind, text: &str) -> Frame {
        Frame { text: fold_safe(text).into(), kind }
    }
}

/// The driver's entry without the marks of its ABI: `cuMemcpyHtoDAsync` of
/// `cuMemcpyHtoDAsync_v2_ptsz`.
pub fn entry_name(symbol: &str) -> &str {
    let symbol = symbol.strip_suffix("_ptsz").or(symbol.strip_suffix("_ptds")).unwrap_or(symbol);
    match symbol.rsplit_once("_v") {
        Some((entry, version)) if !version.is_empty() && version.bytes().all(|b| b.is_ascii_digit()) => entry,
        _ => symbol,
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn entries_lose_the_marks_of_their_abi() {
        assert_eq!(entry_name("cuMemcpyHtoDAsync_v2_ptsz"), "cuMemcpyHtoDAsync");
        assert_eq!(entry_name("cuLaunchKernel_ptsz"), "cuLaunchKernel");
        assert_eq!(entry_name("cuLaunchKernel"), "cuLaunchKernel");
        assert_eq!(entry_name("odd_value"), "odd_value");
    }
}
