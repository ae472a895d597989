//! Why reading a trace stopped before its end.

use std::fmt;

/// Where reading stopped and why. Everything before was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// Byte offset of the first block that could not be read.
    pub offset: u64,
    pub blocks_read: u64,
    pub reason: DamageReason,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DamageReason {
    /// The file ends after a block other than the closing one: the collector was killed, or still runs.
    NotClosed,
    /// The file ends within a block.
    Truncated,
    /// There is no block at this offset.
    NotABlock,
    /// The block's checksum is wrong.
    Checksum,
    /// Blocks are missing before this one.
    Missing,
    /// The block's length exceeds the limit.
    TooLarge,
    /// The block is whole but its contents are invalid.
    Contents,
    /// Bytes follow the closing block.
    Trailing,
    /// The system returned an error on reading.
    Read(String),
    /// Nothing was read: the file cannot be opened or is not a trace of a known version.
    Skipped(String),
}

impl Damage {
    /// The damage for a file that could not be opened as a trace.
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
