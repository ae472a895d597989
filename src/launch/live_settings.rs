//! The settings of a session that can be changed while it runs: what `gputrace ctl … set KEY=VALUE` takes,
//! and how the session changes.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gputrace_collector::session::Handle;
use gputrace_wire::run_settings::{Frames, RunSettings, TimesSetting};
use serde_json::{Value, json};

use crate::sampling::{DeviceMetricsRequest, SamplerHandle};

const DEVICE_METRICS: &str = "device-metrics";
const STACKS: &str = "stacks";
const DEVICE_TIMES: &str = "device-times";
const TORCH_OPS: &str = "torch-ops";
const MEMORY: &str = "memory";
/// All keys, in the order in which they are listed.
pub const KEYS: [&str; 5] = [STACKS, DEVICE_TIMES, TORCH_OPS, MEMORY, DEVICE_METRICS];
/// An option that users expect among the keys. CUPTI crashes where it is switched while graphs exist.
const GRAPH_TIMES: &str = "graph-times";

/// A change of one setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    DeviceMetrics(DeviceMetricsRequest),
    /// Of the programs.
    Run(RunSettings),
}

impl Change {
    /// Reads `KEY=VALUE`.
    pub fn parse(text: &str) -> Result<Change, String> {
        let Some((key, value)) = text.split_once('=') else {
            return Err(format!("'{text}' is not KEY=VALUE; the keys are {}", KEYS.join(", ")));
        };
        let nothing = RunSettings::default();
        let run = match key {
            DEVICE_METRICS => {
                return DeviceMetricsRequest::parse(value)
                    .map(Change::DeviceMetrics)
                    .map_err(|why| format!("{key}={value}: {why}; or off"));
            }
            STACKS => frames(value).map(|frames| RunSettings { stacks: Some(frames), ..nothing }),
            DEVICE_TIMES => times(value).map(|times| RunSettings { device_times: Some(times), ..nothing }),
            TORCH_OPS => is_on(value).map(|is_on| RunSettings { torch_ops: Some(is_on), ..nothing }),
            MEMORY => has_blocks(value).map(|blocks| RunSettings { blocks: Some(blocks), ..nothing }),
            GRAPH_TIMES => {
                return Err(format!(
                    "{GRAPH_TIMES} cannot be set while a session runs: CUPTI crashes where it is switched while \
                     graphs exist; give --{GRAPH_TIMES} at the start. The keys are {}",
                    KEYS.join(", ")
                ));
            }
            _ => {
                let keys = KEYS.join(", ");
                return Err(format!("'{key}' cannot be set while a session runs; the keys are {keys}"));
            }
        };
        run.map(Change::Run).map_err(|why| format!("{key}={value}: {why}"))
    }
}

fn is_on(value: &str) -> Result<bool, String> {
    match value {
        // The word that --device-times has.
        "on" | "full" => Ok(true),
        "off" => Ok(false),
        _ => Err("the values are on and off".to_owned()),
    }
}

/// Whether the blocks of caching allocators are recorded too; allocations of the driver's always are.
fn has_blocks(value: &str) -> Result<bool, String> {
    match value {
        "blocks" => Ok(true),
        "on" => Ok(false),
        _ => Err("the values are on and blocks".to_owned()),
    }
}

fn times(value: &str) -> Result<TimesSetting, String> {
    match value {
        "windows" => Ok(TimesSetting::Windows),
        _ if value.starts_with("windows=") => {
            Err("windows have the lengths that the program was started with, or 10ms/100ms".to_owned())
        }
        _ => match is_on(value) {
            Ok(true) => Ok(TimesSetting::On),
            Ok(false) => Ok(TimesSetting::Off),
            Err(_) => Err("the values are on, off and windows".to_owned()),
        },
    }
}

/// Some of `python` and `native` with commas between them, or none.
fn frames(value: &str) -> Result<Frames, String> {
    let mut frames = Frames::default();
    if matches!(value, "off" | "none") {
        return Ok(frames);
    }
    for word in value.split(',') {
        let part = match word {
            "python" => &mut frames.python,
            "native" => &mut frames.native,
            "nvtx" => {
                return Err("NVTX ranges stay as the session began; the values are python, native, \
                            python,native and off"
                    .to_owned());
            }
            _ => return Err("the values are python, native, python,native and off".to_owned()),
        };
        if std::mem::replace(part, true) {
            return Err(format!("{word} is there twice"));
        }
    }
    Ok(frames)
}

/// The values of programs' settings, by their keys; those that are not known or differ are not there.
fn run_values(settings: RunSettings) -> serde_json::Map<String, Value> {
    let on_off = |is_on: bool| if is_on { "on" } else { "off" };
    let stacks = settings.stacks.map(|frames| match (frames.python, frames.native) {
        (true, true) => "python,native",
        (true, false) => "python",
        (false, true) => "native",
        (false, false) => "off",
    });
    let times = settings.device_times.map(|times| match times {
        TimesSetting::On => "on",
        TimesSetting::Off => "off",
        TimesSetting::Windows => "windows",
    });
    let memory = settings.blocks.map(|has_blocks| if has_blocks { "blocks" } else { "on" });
    let torch_ops = settings.torch_ops.map(on_off);
    let values = [(STACKS, stacks), (DEVICE_TIMES, times), (TORCH_OPS, torch_ops), (MEMORY, memory)];
    values.into_iter().filter_map(|(key, value)| Some((key.to_owned(), json!(value?)))).collect()
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

    /// Changes the session. The answer for who asked names the setting and its value from now on. Programs
    /// get `limit`.
    pub fn set(&self, change: Change, handle: &Handle, limit: Duration) -> Result<Value, String> {
        let request = match change {
            Change::DeviceMetrics(request) => request,
            Change::Run(settings) => {
                let mut answer = json!(handle.set(settings, limit));
                answer["set"] = Value::Object(run_values(settings));
                return Ok(answer);
            }
        };
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
        Ok(json!({ "set": { DEVICE_METRICS: request.to_string() }, "at_s": handle.seconds() }))
    }

    /// The values in force, by their keys.
    pub fn values(&self, handle: &Handle) -> Value {
        let current = *self.device_metrics.lock().unwrap_or_else(PoisonError::into_inner);
        let mut values = run_values(handle.settings());
        values.insert(DEVICE_METRICS.to_owned(), json!(current.to_string()));
        Value::Object(values)
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
            (
                "device-metrics",
                "KEY=VALUE; the keys are stacks, device-times, torch-ops, memory, device-metrics",
            ),
            ("clocks=1", "'clocks' cannot be set while a session runs; the keys are stacks, device-times"),
            ("=1", "the keys are stacks"),
            ("device-metrics=", "an interval is a time from 10ms to 1h"),
            ("device-metrics=1ms", "an interval is a time from 10ms to 1h"),
            ("graph-times=node", "CUPTI crashes"),
            ("stacks=perl", "stacks=perl: the values are python, native, python,native and off"),
            ("stacks=python,nvtx", "NVTX ranges stay"),
            ("stacks=python,python", "twice"),
            ("stacks=", "the values are"),
            ("device-times=maybe", "device-times=maybe: the values are on, off and windows"),
            ("device-times=windows=1ms/2ms", "windows have the lengths that the program was started with"),
            ("torch-ops=", "the values are on and off"),
            ("memory=off", "memory=off: the values are on and blocks"),
        ] {
            let said = Change::parse(wrong).unwrap_err();
            assert!(said.contains(why), "{wrong}: {said}");
        }
    }

    #[test]
    fn shown_value_is_one_that_can_be_set() {
        for text in [
            "stacks=python,native",
            "stacks=python",
            "stacks=native",
            "stacks=off",
            "device-times=off",
            "device-times=on",
            "device-times=windows",
            "torch-ops=on",
            "memory=on",
            "memory=blocks",
        ] {
            let Ok(Change::Run(settings)) = Change::parse(text) else { panic!("{text}") };
            let (key, value) = text.split_once('=').unwrap();
            assert_eq!(run_values(settings)[key], value);
            assert_eq!(run_values(settings).len(), 1);
        }
    }
}
