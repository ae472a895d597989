//! The sensors of a card, from its folder in `hwmon`.

use std::fs;
use std::path::{Path, PathBuf};

use super::file;
use crate::metrics::GpuThermalMetrics;
use crate::plausible;

/// `None`: the card has no such folder.
#[derive(Debug)]
pub struct Sensors(Option<PathBuf>);

impl Sensors {
    pub fn find(device: &Path) -> Sensors {
        let entries = fs::read_dir(device.join("hwmon")).into_iter().flatten().flatten();
        Sensors(entries.map(|entry| entry.path()).find(|path| path.join("name").exists()))
    }

    fn number(&self, name: &str) -> Option<u64> {
        file::number(&self.0.as_ref()?.join(name))
    }

    /// Of a file in microwatts.
    pub fn watts(&self, name: &str) -> Option<f32> {
        let microwatts = self.number(name)?;
        plausible::watts(u32::try_from(microwatts / 1000).ok()?)
    }

    pub fn power_limit_watts(&self) -> Option<f32> {
        self.watts("power1_cap").or_else(|| self.watts("power1_max"))
    }

    /// The draw, where the card measures it.
    pub fn power_watts(&self) -> Option<f32> {
        self.watts("power1_average").or_else(|| self.watts("power1_input"))
    }

    /// Energy since the driver was loaded, from a file in microjoules.
    pub fn energy_joules(&self) -> Option<f64> {
        self.number("energy1_input").map(|microjoules| microjoules as f64 / 1e6)
    }

    /// Of a file in hertz.
    pub fn mhz(&self, name: &str) -> Option<u32> {
        plausible::mhz(u32::try_from(self.number(name)? / 1_000_000).ok()?)
    }

    pub fn thermal(&self) -> GpuThermalMetrics {
        let chip = ["edge", "pkg", ""].into_iter().find_map(|label| self.labelled(label));
        let memory = ["mem", "vram"].into_iter().find_map(|label| self.labelled(label));
        let limit = |name: &str| chip.as_ref().and_then(|chip| self.celsius(&format!("{chip}_{name}")));
        GpuThermalMetrics {
            temperature_celsius: chip.as_ref().and_then(|chip| self.celsius(&format!("{chip}_input"))),
            temperature_threshold_shutdown: limit("emergency"),
            temperature_threshold_slowdown: limit("crit"),
            memory_temperature_celsius: memory.and_then(|memory| self.celsius(&format!("{memory}_input"))),
            fan_speed_percent: self.fan(),
            age: None,
        }
    }

    /// `temp1` of the sensor with that label; without a label the first one if it has none.
    fn labelled(&self, label: &str) -> Option<String> {
        let folder = self.0.as_ref()?;
        let sensors = (1..=8).map(|number| format!("temp{number}"));
        let mut with_label =
            sensors.map(|sensor| (file::text(&folder.join(format!("{sensor}_label"))), sensor));
        if label.is_empty() {
            let (first, sensor) = with_label.next()?;
            return first.is_none().then_some(sensor);
        }
        with_label.find_map(|(found, sensor)| (found.as_deref() == Some(label)).then_some(sensor))
    }

    /// Of a file in thousandths of a degree.
    fn celsius(&self, name: &str) -> Option<u32> {
        plausible::celsius(u32::try_from(self.number(name)? / 1000).ok()?)
    }

    /// Of 255 steps.
    fn fan(&self) -> Option<u32> {
        let steps = self.number("pwm1").filter(|steps| *steps <= 255)?;
        Some((steps * 100 / 255) as u32)
    }
}
