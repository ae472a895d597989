//! A frame, which is one field of a folded line, and the names of driver entries in frames.

use std::sync::Arc;

use crate::names::fold_safe;

/// What a frame shows. The kind decides the frame's colour.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FrameKind {
    Process,
    Thread,
    Stream,
    Device,
    Rank,
    /// A line of user code.
    Code,
    /// A line of a library.
    Library,
    /// A class of PyTorch modules.
    Module,
    /// An NVTX range.
    Range,
    /// A driver entry.
    Call,
    Kernel,
    Copy,
    Fill,
    Graph,
    /// A kind of memory.
    Memory,
    /// Why a device was idle.
    Idle,
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

/// The driver entry without the suffixes of its ABI: `cuMemcpyHtoDAsync` for `cuMemcpyHtoDAsync_v2_ptsz`.
pub fn entry_name(symbol: &str) -> &str {
    let symbol = symbol.strip_suffix("_ptsz").or(symbol.strip_suffix("_ptds")).unwrap_or(symbol);
    match symbol.rsplit_once("_v") {
        Some((entry, version)) if !version.is_empty() && version.bytes().all(|b| b.is_ascii_digit()) => entry,
        _ => symbol,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_names_lose_the_suffixes_of_their_abi() {
        assert_eq!(entry_name("cuMemcpyHtoDAsync_v2_ptsz"), "cuMemcpyHtoDAsync");
        assert_eq!(entry_name("cuLaunchKernel_ptsz"), "cuLaunchKernel");
        assert_eq!(entry_name("cuLaunchKernel"), "cuLaunchKernel");
        assert_eq!(entry_name("odd_value"), "odd_value");
    }
}
