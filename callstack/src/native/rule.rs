//! How to get from a frame to its caller, in one word.
//!
//! ```text
//!  bits  0…2   kind
//!        3…6   flags
//!        8…19  image
//!       20…43  offset of the CFA, in words, signed
//!       44…59  where the caller's frame pointer is stored, in words from the CFA, signed; 0: unchanged
//! ```
//!
//! The CFA (canonical frame address) is the value of the stack pointer before the call; the return address
//! is in the word below it.

/// How the CFA is found, or why there is no caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Kind {
    /// No table covers the address.
    Unknown = 1,
    /// From the stack pointer.
    Sp = 2,
    /// From the frame pointer.
    Bp = 3,
    /// From the word at the frame pointer's offset: a function that aligns its stack.
    AtBp = 4,
    /// The kernel stored the interrupted registers there.
    Signal = 5,
    /// The thread begins here.
    Outermost = 6,
}

/// The frame belongs to the tracer's own library.
pub const OWN: u64 = 1 << 3;
/// The frame belongs to an interpreter whose frames are another part of the stack.
pub const INTERPRETER: u64 = 1 << 4;
/// The frame belongs to the interpreter's function that runs Python frames.
pub const EVALUATION: u64 = 1 << 5;
/// The caller's frame pointer is stored where the frame pointer points.
const BP_AT_BP: u64 = 1 << 6;

const IMAGE_SHIFT: u32 = 8;
/// The most images that a rule can name; 0 means none.
pub const IMAGES_MAX: usize = 1 << 12;
const CFA_SHIFT: u32 = 20;
const CFA_BITS: u32 = 24;
const BP_SHIFT: u32 = 44;
const BP_BITS: u32 = 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule(u64);

/// Where a function stores its caller's frame pointer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SavedBp {
    Unchanged,
    /// At this offset in bytes from the CFA.
    FromCfa(i64),
    /// Where the frame pointer points.
    AtBp,
}

impl Rule {
    pub const UNKNOWN: Rule = Rule(Kind::Unknown as u64);

    /// `None` if the offsets do not fit.
    pub fn new(kind: Kind, cfa_offset: i64, bp: SavedBp) -> Option<Rule> {
        let (bp_offset, flag) = match bp {
            SavedBp::Unchanged => (0, 0),
            SavedBp::FromCfa(0) => return None,
            SavedBp::FromCfa(offset) => (offset, 0),
            SavedBp::AtBp => (0, BP_AT_BP),
        };
        let cfa = field(cfa_offset, CFA_BITS)? << CFA_SHIFT;
        Some(Rule(kind as u64 | flag | cfa | field(bp_offset, BP_BITS)? << BP_SHIFT))
    }

    pub fn with(self, image: usize, flags: u64) -> Rule {
        Rule(self.0 | ((image as u64) & (IMAGES_MAX as u64 - 1)) << IMAGE_SHIFT | flags)
    }

    pub fn from_word(word: u64) -> Rule {
        Rule(word)
    }

    #[inline(always)]
    pub fn word(self) -> u64 {
        self.0
    }

    #[inline(always)]
    pub fn kind(self) -> Kind {
        match self.0 & 7 {
            2 => Kind::Sp,
            3 => Kind::Bp,
            4 => Kind::AtBp,
            5 => Kind::Signal,
            6 => Kind::Outermost,
            _ => Kind::Unknown,
        }
    }

    #[inline(always)]
    pub fn has(self, flag: u64) -> bool {
        self.0 & flag != 0
    }

    /// The image's index in the table of images; 0 if unknown.
    #[inline(always)]
    pub fn image(self) -> usize {
        (self.0 >> IMAGE_SHIFT) as usize & (IMAGES_MAX - 1)
    }

    /// In bytes.
    #[inline(always)]
    pub fn cfa_offset(self) -> i64 {
        signed(self.0 >> CFA_SHIFT, CFA_BITS)
    }

    #[inline(always)]
    pub fn saved_bp(self) -> SavedBp {
        if self.has(BP_AT_BP) {
            return SavedBp::AtBp;
        }
        match signed(self.0 >> BP_SHIFT, BP_BITS) {
            0 => SavedBp::Unchanged,
            offset => SavedBp::FromCfa(offset),
        }
    }
}

/// Bytes as words, in that many bits of two's complement.
fn field(bytes: i64, bits: u32) -> Option<u64> {
    let words = bytes / 8;
    let limit = 1 << (bits - 1);
    (bytes % 8 == 0 && (-limit..limit).contains(&words)).then_some(words.cast_unsigned() & ((1 << bits) - 1))
}

#[inline(always)]
fn signed(field: u64, bits: u32) -> i64 {
    ((field << (64 - bits)).cast_signed() >> (64 - bits)) * 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_round_trip() {
        for kind in [Kind::Unknown, Kind::Sp, Kind::Bp, Kind::AtBp, Kind::Signal, Kind::Outermost] {
            for cfa in [0, 8, 16, -8, 8 * ((1 << 23) - 1), -8 * (1 << 23)] {
                for bp in
                    [SavedBp::Unchanged, SavedBp::AtBp, SavedBp::FromCfa(-16), SavedBp::FromCfa(8 * 32_767)]
                {
                    let rule = Rule::new(kind, cfa, bp).unwrap().with(4_095, OWN | EVALUATION);
                    let rule = Rule::from_word(rule.word());
                    assert_eq!((rule.kind(), rule.cfa_offset(), rule.saved_bp()), (kind, cfa, bp));
                    assert_eq!((rule.image(), rule.has(OWN), rule.has(INTERPRETER)), (4_095, true, false));
                }
            }
        }
        for (cfa, bp) in [(8 << 23, -16), (12, -16), (16, -12), (16, 8 * 32_768), (16, 0)] {
            assert_eq!(Rule::new(Kind::Sp, cfa, SavedBp::FromCfa(bp)), None, "{cfa} {bp}");
        }
    }
}
