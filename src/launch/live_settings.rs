//! The settings of a session that can be changed while it runs: what `gputrace ctl … set KEY=VALUE` takes,
//! and how the session changes.

use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

use crate::sampling::{DeviceMetricsRequest, SamplerHandle};

const DEVICE_METRICS: &str = "device-metrics";
/// All keys, in the order in which they are listed.
pub const KEYS: [&str; 1] = [DEVICE_METRICS];

/// A change of one setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    DeviceMetrics(DeviceMetricsRequest),
}

impl Change {
    /// Reads `KEY=VALUE`.
    pub fn parse(text: &str) -> Result<Change, String> {
        let Some((key, value)) = text.split_once('=') else {
            return Err(format!("'{text}' is not KEY=VALUE; the keys are {}", KEYS.join(", ")));
        };
        match key {
            DEVICE_METRICS => DeviceMetricsRequest::parse(value)
                .map(Change::DeviceMetrics)
                .map_err(|why| format!("{key}={value}: {why}; or off")),
            _ => Err(format!("'{key}' cannot be set while a session runs; the keys are {}", KEYS.join(", "))),
        }
    }
}

/// The current values of a session, and what changes them.
#[derive(Debug)]
pub struct LiveSettings {
    device_metrics: Mutex<DeviceMetricsRequest>,
    /// `None`: the system refused the sampler's thread, so that nothing is sampled.
    sampler: Option<SamplerHandle>,
}

impl LiveSettings {
    pub fn new(device_metrics: DeviceMetricsRequest, sampler: Option<SamplerHandle>) -> LiveSettings {
        LiveSettings { device_metrics: Mutex::new(device_metrics), sampler }
    }

    /// Changes the session. What is returned names the setting and its value from now on.
    pub fn set(&self, change: Change) -> Result<Value, String> {
        let Change::DeviceMetrics(request) = change;
        let Some(sampler) = &self.sampler else {
            return Err("it has no thread to sample devices".to_owned());
        };
        // Kept until the sampler has its command: of two changes at once, the later one is in force and shown
        // as such.
        let mut current = self.device_metrics.lock().unwrap_or_else(PoisonError::into_inner);
        if !sampler.change(request) {
            return Err("it has ended".to_owned());
        }
        *current = request;
        Ok(json!({ DEVICE_METRICS: request.to_string() }))
    }

    /// The values in force, by their keys.
    pub fn values(&self) -> Value {
        let current = *self.device_metrics.lock().unwrap_or_else(PoisonError::into_inner);
        json!({ DEVICE_METRICS: current.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_is_a_known_key_with_a_value_that_it_takes() {
        let request = DeviceMetricsRequest::parse("50ms,slow").unwrap();
        assert_eq!(Change::parse("device-metrics=50ms,slow"), Ok(Change::DeviceMetrics(request)));
        for (wrong, why) in [
            ("device-metrics", "KEY=VALUE; the keys are device-metrics"),
            ("clocks=1", "'clocks' cannot be set while a session runs; the keys are device-metrics"),
            ("=1", "the keys are device-metrics"),
            ("device-metrics=", "an interval is a time from 10ms to 1h"),
            ("device-metrics=1ms", "an interval is a time from 10ms to 1h"),
        ] {
            let said = Change::parse(wrong).unwrap_err();
            assert!(said.contains(why), "{wrong}: {said}");
        }
    }
}
