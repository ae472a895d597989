//! The settings of a process that can be changed while it runs, as one word of the control block.
//!
//! ```text
//!       31    blocks of allocators are given; 30 their value
//!  bits 8–29  the order's number
//!       7     device times in windows; of the two bits of device times, at most one is set
//!       4–6   which of these are given: stacks, device times, torch ops
//!       0–3   the values: Python's frames, native frames, device times, torch ops
//! ```

/// Whose frames are recorded with calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Frames {
    pub python: bool,
    pub native: bool,
}

/// Which operations get device times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimesSetting {
    On,
    Off,
    /// Those launched in windows, of the lengths that the process was started with.
    Windows,
}

/// Settings; `None` where an order leaves one as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RunSettings {
    pub stacks: Option<Frames>,
    pub device_times: Option<TimesSetting>,
    pub torch_ops: Option<bool>,
    /// Whether blocks of the program's caching allocators are recorded.
    pub blocks: Option<bool>,
}

const PYTHON: u32 = 1;
const NATIVE: u32 = 2;
const DEVICE_TIMES: u32 = 4;
const TORCH_OPS: u32 = 8;
const STACKS_GIVEN: u32 = 16;
const DEVICE_TIMES_GIVEN: u32 = 32;
const TORCH_OPS_GIVEN: u32 = 64;
const WINDOWS: u32 = 128;
/// Not beside the others: the order's number began at bit 8 before these were there.
const BLOCKS: u32 = 1 << 30;
const BLOCKS_GIVEN: u32 = 1 << 31;
/// The lowest bit of the order's number, and its bits.
const NUMBER: u32 = 8;
const NUMBER_BITS: u32 = (BLOCKS - 1) >> NUMBER;

impl RunSettings {
    pub fn to_word(self) -> u32 {
        let bit = |is_set: bool, bit: u32| if is_set { bit } else { 0 };
        let frames = self.stacks.unwrap_or_default();
        bit(frames.python, PYTHON)
            | bit(frames.native, NATIVE)
            | bit(self.device_times == Some(TimesSetting::On), DEVICE_TIMES)
            | bit(self.device_times == Some(TimesSetting::Windows), WINDOWS)
            | bit(self.torch_ops == Some(true), TORCH_OPS)
            | bit(self.stacks.is_some(), STACKS_GIVEN)
            | bit(self.device_times.is_some(), DEVICE_TIMES_GIVEN)
            | bit(self.torch_ops.is_some(), TORCH_OPS_GIVEN)
            | bit(self.blocks == Some(true), BLOCKS)
            | bit(self.blocks.is_some(), BLOCKS_GIVEN)
    }

    /// Any word has a meaning: bits that this version does not know are left out.
    pub fn from_word(word: u32) -> RunSettings {
        let is_set = |bit: u32| word & bit != 0;
        let frames = Frames { python: is_set(PYTHON), native: is_set(NATIVE) };
        let device_times = match (is_set(WINDOWS), is_set(DEVICE_TIMES)) {
            (true, _) => TimesSetting::Windows,
            (false, true) => TimesSetting::On,
            (false, false) => TimesSetting::Off,
        };
        RunSettings {
            stacks: is_set(STACKS_GIVEN).then_some(frames),
            device_times: is_set(DEVICE_TIMES_GIVEN).then_some(device_times),
            torch_ops: is_set(TORCH_OPS_GIVEN).then_some(is_set(TORCH_OPS)),
            blocks: is_set(BLOCKS_GIVEN).then_some(is_set(BLOCKS)),
        }
    }

    /// These settings, changed by an order.
    #[must_use]
    pub fn changed_by(self, order: RunSettings) -> RunSettings {
        RunSettings {
            stacks: order.stacks.or(self.stacks),
            device_times: order.device_times.or(self.device_times),
            torch_ops: order.torch_ops.or(self.torch_ops),
            blocks: order.blocks.or(self.blocks),
        }
    }

    /// The word of the order after `before`, which asks for this too.
    pub fn next_order(self, before: u32) -> u32 {
        let number = ((before >> NUMBER).wrapping_add(1) & NUMBER_BITS) << NUMBER;
        number | RunSettings::from_word(before).changed_by(self).to_word()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn settings_round_trip_and_orders_add_up() {
        let off = RunSettings { stacks: Some(Frames::default()), ..RunSettings::default() };
        let full = RunSettings {
            stacks: Some(Frames { python: true, native: true }),
            device_times: Some(TimesSetting::Off),
            torch_ops: Some(true),
            blocks: Some(true),
        };
        let windows = RunSettings { device_times: Some(TimesSetting::Windows), ..full };
        let on = RunSettings { device_times: Some(TimesSetting::On), ..full };
        for settings in [off, full, windows, on, RunSettings::default()] {
            assert_eq!(RunSettings::from_word(settings.to_word()), settings);
        }
        let first = full.next_order(0);
        let second = off.next_order(first);
        assert_ne!(first >> NUMBER, second >> NUMBER);
        assert_eq!(RunSettings::from_word(second), RunSettings { stacks: off.stacks, ..full });
        assert_ne!(off.next_order(second), second);
        // The number begins anew and leaves the settings as they are.
        let last = full.next_order(NUMBER_BITS << NUMBER);
        assert_eq!((last >> NUMBER & NUMBER_BITS, RunSettings::from_word(last)), (0, full));
    }
}
