//! What counts as known: limits beyond which a driver's value is garbage, and parts with no value.

pub fn percent(value: u32) -> Option<u32> {
    (value <= 100).then_some(value)
}

pub fn celsius(value: u32) -> Option<u32> {
    (value <= 250).then_some(value)
}

pub fn mhz(value: u32) -> Option<u32> {
    (value <= 100_000).then_some(value)
}

/// Watts of so many milliwatts.
pub fn watts(milliwatts: u32) -> Option<f32> {
    (milliwatts <= 100_000_000).then_some(milliwatts as f32 / 1e3)
}

/// Bytes of a memory that is smaller than 2^50.
pub fn bytes(value: u64) -> Option<u64> {
    (value < 1 << 50).then_some(value)
}

/// A PCIe generation.
pub fn generation(value: u32) -> Option<u32> {
    (1..=15).contains(&value).then_some(value)
}

/// A number of PCIe lanes.
pub fn lanes(value: u32) -> Option<u32> {
    (1..=64).contains(&value).then_some(value)
}

/// The part, unless nothing in it is known.
pub fn known<T: Default + PartialEq>(part: T) -> Option<T> {
    (part != T::default()).then_some(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn garbage_is_not_known() {
        assert_eq!((percent(100), percent(101), percent(u32::MAX)), (Some(100), None, None));
        assert_eq!((celsius(0), celsius(u32::MAX)), (Some(0), None));
        assert_eq!((watts(450_500), watts(u32::MAX)), (Some(450.5), None));
        assert_eq!((mhz(u32::MAX), bytes(u64::MAX), generation(0), lanes(0)), (None, None, None, None));
        assert_eq!(
            (mhz(2520), bytes(1 << 37), generation(5), lanes(16)),
            (Some(2520), Some(1 << 37), Some(5), Some(16))
        );
    }
}
