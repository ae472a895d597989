//! What a process does with its calls, and why, as it reports it in a word of the control block.
//!
//! Byte 0 is 1 while the process records and 2 while it is paused; byte 1 is a [`Why`]. The word is 0 until
//! the process has reported anything.

/// Why a process records or is paused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Why {
    /// It does as it was started.
    Started = 0,
    /// The last order of the collector.
    Order = 1,
    /// It was started with GPUTRACE_START_PAUSED.
    StartPaused = 2,
    /// It was started with GPUTRACE_DELAY, which is not over.
    Delay = 3,
    /// The next capture range has not begun.
    RangeAwaited = 4,
    RangeOpen = 5,
    RangesOver = 6,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reported {
    pub is_recording: bool,
    pub why: Why,
}

impl Reported {
    pub fn to_word(self) -> u32 {
        (if self.is_recording { 1 } else { 2 }) | (self.why as u32) << 8
    }

    /// `None` for a process that has not reported, and for what this version does not know.
    pub fn from_word(word: u32) -> Option<Reported> {
        let is_recording = match word & 0xff {
            1 => true,
            2 => false,
            _ => return None,
        };
        let why = match word >> 8 {
            0 => Why::Started,
            1 => Why::Order,
            2 => Why::StartPaused,
            3 => Why::Delay,
            4 => Why::RangeAwaited,
            5 => Why::RangeOpen,
            6 => Why::RangesOver,
            _ => return None,
        };
        Some(Reported { is_recording, why })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn reports_round_trip() {
        let mut known = 0;
        for word in 0..0x800 {
            if let Some(reported) = Reported::from_word(word) {
                assert_eq!(reported.to_word(), word);
                known += 1;
            }
        }
        assert_eq!(known, 14);
    }
}
