//! Words for the reasons why a device's clocks are lowered.

/// The bit that says that nothing runs.
pub const IDLE: u64 = 0x1;

/// The bits that are known, in NVML's order, and their words.
pub const REASONS: [(u64, &str); 9] = [
    (IDLE, "idle"),
    (0x2, "clocks set by a user"),
    (0x4, "power cap"),
    (0x8, "hardware slowdown"),
    (0x10, "sync boost group"),
    (0x20, "thermal, by software"),
    (0x40, "thermal, by hardware"),
    (0x80, "external power brake"),
    (0x100, "display"),
];

/// The words of each reason in the set; an unknown one is its number.
pub fn names(reasons: u64) -> Vec<String> {
    let bits = (0..u64::BITS).map(|bit| 1 << bit).filter(|bit| reasons & bit != 0);
    bits.map(|bit| match REASONS.iter().find(|(known, _)| *known == bit) {
        Some((_, name)) => (*name).to_owned(),
        None => format!("unknown {bit:#x}"),
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_of_a_set_is_named() {
        assert!(names(0).is_empty());
        assert_eq!(names(0x44), ["power cap", "thermal, by hardware"]);
        assert_eq!(names(0x8001), ["idle", "unknown 0x8000"]);
    }
}
