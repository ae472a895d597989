//! The settings of the simulation, read from the environment once.
//!
//! Owns the names of the variables and their meaning; everybody else asks here.

use std::sync::OnceLock;

/// The values of the `GPUTRACE_SIM_*` variables.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `GPUTRACE_SIM_DEVICES`: how many devices there are, 1 without it; 0 is allowed.
    pub devices: u32,
    /// `GPUTRACE_SIM_PACE`: whether waits take real time; `off` makes them jump.
    pub paced: bool,
    /// `GPUTRACE_SIM_FAIL`: which calls fail with which code.
    pub failures: String,
    /// `GPUTRACE_SIM_CHANGES_RECORDS`: whether CUPTI changes written records. No real one is known to.
    pub changes_records: bool,
    /// `GPUTRACE_SIM_FLUSHES_ALONE`: whether CUPTI crashes where a call is under way during a flush.
    pub flushes_alone: bool,
    /// `GPUTRACE_SIM_FLUSH_MS`: how much longer each flush of CUPTI takes, 0 without it.
    pub flush_ms: u64,
    /// `GPUTRACE_SIM_MEMORY_BYTES`: memory of each device, 80 GiB without it.
    pub memory_bytes: u64,
}

impl Settings {
    fn read(get: impl Fn(&str) -> Option<String>) -> Settings {
        Settings {
            devices: get("GPUTRACE_SIM_DEVICES").and_then(|v| v.trim().parse().ok()).unwrap_or(1).min(64),
            paced: get("GPUTRACE_SIM_PACE").is_none_or(|v| v.trim() != "off"),
            failures: get("GPUTRACE_SIM_FAIL").unwrap_or_default(),
            changes_records: get("GPUTRACE_SIM_CHANGES_RECORDS").is_some_and(|v| v.trim() == "on"),
            flushes_alone: get("GPUTRACE_SIM_FLUSHES_ALONE").is_some_and(|v| v.trim() == "on"),
            flush_ms: get("GPUTRACE_SIM_FLUSH_MS").and_then(|v| v.trim().parse().ok()).unwrap_or(0),
            memory_bytes: get("GPUTRACE_SIM_MEMORY_BYTES")
                .and_then(|v| v.trim().parse().ok())
                .unwrap_or(80 << 30),
        }
    }
}

/// The settings of this process.
pub fn settings() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(|| Settings::read(|name| std::env::var(name).ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_falls_back() {
        let read = Settings::read(|name| (name == "GPUTRACE_SIM_DEVICES").then(|| "many".into()));
        assert_eq!((read.devices, read.paced), (1, true));
    }

    #[test]
    fn values_are_taken() {
        let read = Settings::read(|name| match name {
            "GPUTRACE_SIM_DEVICES" => Some("3".into()),
            "GPUTRACE_SIM_PACE" => Some("off".into()),
            _ => None,
        });
        assert_eq!((read.devices, read.paced), (3, false));
    }
}
