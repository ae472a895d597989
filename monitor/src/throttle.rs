//! Why a device's clocks are lower than they could be.

use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};

/// Reasons for lowered clocks, and for how long they held.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct GpuThrottleMetrics {
    pub reasons: Option<ThrottleReasons>,
    /// Time with clocks lowered for power, since the driver was loaded.
    pub power_ns: Option<u64>,
    /// Time with clocks lowered for heat, since the driver was loaded.
    pub thermal_ns: Option<u64>,
}

/// A set of reasons, in NVML's bits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThrottleReasons(pub u64);

impl ThrottleReasons {
    pub const IDLE: ThrottleReasons = ThrottleReasons(0x1);
    /// Clocks that a user set.
    pub const SET_CLOCKS: ThrottleReasons = ThrottleReasons(0x2);
    pub const POWER_CAP: ThrottleReasons = ThrottleReasons(0x4);
    pub const HARDWARE_SLOWDOWN: ThrottleReasons = ThrottleReasons(0x8);
    pub const SYNC_BOOST: ThrottleReasons = ThrottleReasons(0x10);
    pub const SOFTWARE_THERMAL: ThrottleReasons = ThrottleReasons(0x20);
    pub const HARDWARE_THERMAL: ThrottleReasons = ThrottleReasons(0x40);
    pub const POWER_BRAKE: ThrottleReasons = ThrottleReasons(0x80);
    pub const DISPLAY: ThrottleReasons = ThrottleReasons(0x100);

    /// Each known reason and its words.
    pub const ALL: [(ThrottleReasons, &'static str); 9] = [
        (ThrottleReasons::IDLE, "idle"),
        (ThrottleReasons::SET_CLOCKS, "clocks set by a user"),
        (ThrottleReasons::POWER_CAP, "power cap"),
        (ThrottleReasons::HARDWARE_SLOWDOWN, "hardware slowdown"),
        (ThrottleReasons::SYNC_BOOST, "sync boost group"),
        (ThrottleReasons::SOFTWARE_THERMAL, "thermal, by software"),
        (ThrottleReasons::HARDWARE_THERMAL, "thermal, by hardware"),
        (ThrottleReasons::POWER_BRAKE, "external power brake"),
        (ThrottleReasons::DISPLAY, "display"),
    ];

    pub fn contains(self, other: ThrottleReasons) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether work is slowed: any reason but idleness.
    pub fn slows(self) -> bool {
        self.0 & !ThrottleReasons::IDLE.0 != 0
    }

    /// The words of each reason, the unknown ones as one hexadecimal number.
    pub fn names(self) -> Vec<String> {
        let known = ThrottleReasons::ALL.iter().filter(|(reason, _)| self.contains(*reason));
        let mut names: Vec<String> = known.map(|(_, name)| (*name).to_owned()).collect();
        let unknown = ThrottleReasons::ALL.iter().fold(self.0, |bits, (reason, _)| bits & !reason.0);
        if unknown != 0 {
            names.push(format!("unknown {unknown:#x}"));
        }
        names
    }
}

impl Serialize for ThrottleReasons {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let names = self.names();
        let mut list = serializer.serialize_seq(Some(names.len()))?;
        for name in &names {
            list.serialize_element(name)?;
        }
        list.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_named_and_unknown_ones_are_kept() {
        assert!(ThrottleReasons(0).names().is_empty());
        assert_eq!(ThrottleReasons(0x44).names(), ["power cap", "thermal, by hardware"]);
        assert_eq!(ThrottleReasons(0x8000).names(), ["unknown 0x8000"]);
        assert!(!ThrottleReasons::IDLE.slows());
        assert!(ThrottleReasons(0x5).slows());
    }
}
