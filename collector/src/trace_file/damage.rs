//! Why reading a trace stopped before its end.

use std::fmt;

/// Where and why; everything before was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// Byte offset of the first block that could not be read.
    pub offset: u64,
    pub blocks_read: u64,
    pub reason: DamageReason,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DamageReason {
    /// The file ends between blocks, without its closing one: the recorder was killed, or runs still.
    NotClosed,
    /// The file ends within a block.
    Truncated,
    /// What stands there is no block.
    NotABlock,
    /// The block's contents are not what was written.
    Checksum,
    /// Blocks are missing before this one.
    Missing,
    /// The block claims to be larger than any is.
    TooLarge,
    /// The block is whole but says nothing that makes sense.
    Contents,
    /// Something follows the closing block.
    Trailing,
    /// The system refused to read on.
    Read(String),
    /// Nothing was read: the file cannot be opened or is no trace of a known version.
    Skipped(String),
}

impl Damage {
    /// Of a file that could not be opened as a trace, with the error's text.
    pub fn skipped(error: &crate::error::Error) -> Damage {
        Damage { offset: 0, blocks_read: 0, reason: DamageReason::Skipped(error.to_string()) }
    }
}

impl fmt::Display for DamageReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DamageReason::NotClosed => {
                "the file was not closed: the recorder was killed, could not write on or still runs"
            }
            DamageReason::Truncated => "the file ends within a block",
            DamageReason::NotABlock => "there is no block where one should begin",
            DamageReason::Checksum => "a block is not what was written",
            DamageReason::Missing => "blocks are missing",
            DamageReason::TooLarge => "a block claims an impossible size",
            DamageReason::Contents => "a block's contents make no sense",
            DamageReason::Trailing => "something follows the end of the trace, all of which was read",
            DamageReason::Read(error) => return write!(f, "reading failed: {error}"),
            DamageReason::Skipped(error) => return write!(f, "skipped: {error}"),
        })
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let blocks = if self.blocks_read == 1 { "block" } else { "blocks" };
        write!(f, "{} (at byte {}, after {} whole {blocks})", self.reason, self.offset, self.blocks_read)
    }
}
