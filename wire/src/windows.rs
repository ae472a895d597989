//! Windows: device times for a part of the time. What `--device-times` takes, as the command line and the
//! library read it.

use core::fmt;

/// How operations get device times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceTimesMode {
    Full,
    Off,
    Windows(Windows),
}

impl DeviceTimesMode {
    /// Reads `full`, `off`, `windows` or `windows=ON/MEAN`.
    ///
    /// # Errors
    /// Why the text makes no sense.
    pub fn parse(text: &str) -> Result<DeviceTimesMode, &'static str> {
        match text {
            "full" | "on" => Ok(DeviceTimesMode::Full),
            "off" | "0" | "no" | "false" => Ok(DeviceTimesMode::Off),
            "windows" => Ok(DeviceTimesMode::Windows(Windows::USUAL)),
            _ => match text.strip_prefix("windows=") {
                Some(lengths) => Windows::parse(lengths).map(DeviceTimesMode::Windows),
                None => Err("not full, off, windows or windows=ON/MEAN"),
            },
        }
    }
}

/// Windows of one length, in microseconds. The gaps between them are random, with an exponential
/// distribution, so that windows see the average over time whatever the program's rhythm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Windows {
    pub on_us: u32,
    /// The mean time from a window's start to the next one's.
    pub mean_us: u32,
}

/// Shorter windows would last hardly longer than the switches at their ends.
const ON_LEAST_US: u32 = 500;
const ON_MOST_US: u32 = 10_000_000;
const MEAN_MOST_US: u32 = 600_000_000;

impl Windows {
    pub const USUAL: Windows = Windows { on_us: 10_000, mean_us: 100_000 };

    /// Reads `ON/MEAN`, two times such as `10ms/100ms`.
    ///
    /// # Errors
    /// Why the text makes no sense.
    pub fn parse(text: &str) -> Result<Windows, &'static str> {
        const FORM: &str = "a window and its mean distance are two times with a unit, such as 10ms/100ms";
        let (on, mean) = text.split_once('/').ok_or(FORM)?;
        let (on_us, mean_us) = (microseconds(on).ok_or(FORM)?, microseconds(mean).ok_or(FORM)?);
        if !(f64::from(ON_LEAST_US)..=f64::from(ON_MOST_US)).contains(&on_us) {
            return Err("a window has 0.5ms to 10s");
        }
        if mean_us > f64::from(MEAN_MOST_US) {
            return Err("windows come every 10m on average at the least");
        }
        if on_us >= mean_us {
            return Err("a window must be shorter than the mean time from one's start to the next one's");
        }
        Ok(Windows { on_us: on_us as u32, mean_us: mean_us as u32 })
    }

    /// The part of the time that is in windows.
    pub fn fraction(self) -> f64 {
        f64::from(self.on_us) / f64::from(self.mean_us.max(1))
    }
}

impl fmt::Display for Windows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |us: u32| match us {
            0 => (0, "ms"),
            _ if us.is_multiple_of(1_000_000) => (us / 1_000_000, "s"),
            _ if us.is_multiple_of(1_000) => (us / 1_000, "ms"),
            _ => (us, "us"),
        };
        let ((on, on_unit), (mean, mean_unit)) = (time(self.on_us), time(self.mean_us));
        write!(f, "{on}{on_unit}/{mean}{mean_unit}")
    }
}

/// A number with `us`, `ms`, `s` or `m`, in microseconds.
fn microseconds(text: &str) -> Option<f64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(digits)?;
    let factor = match unit {
        "us" | "µs" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        "m" => 60e6,
        _ => return None,
    };
    number.parse::<f64>().ok().map(|number| number * factor)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn windows_have_two_times_of_which_the_first_is_shorter() {
        for (text, on_us, mean_us) in [
            ("windows", 10_000, 100_000),
            ("windows=10ms/100ms", 10_000, 100_000),
            ("windows=0.5ms/1s", 500, 1_000_000),
            ("windows=1.5s/2m", 1_500_000, 120_000_000),
            ("windows=700us/7ms", 700, 7_000),
        ] {
            let windows = Windows { on_us, mean_us };
            assert_eq!(DeviceTimesMode::parse(text), Ok(DeviceTimesMode::Windows(windows)), "{text}");
            let shown = windows.to_string();
            assert_eq!(Windows::parse(&shown), Ok(windows), "{shown}");
        }
        for (text, why) in [
            ("windows=", "two times"),
            ("windows=10ms", "two times"),
            ("windows=10/100", "two times"),
            ("windows=-1ms/100ms", "two times"),
            ("windows=..ms/1s", "two times"),
            ("windows=100ms/100ms", "shorter than the mean"),
            ("windows=200ms/100ms", "shorter than the mean"),
            ("windows=0.4ms/100ms", "0.5ms to 10s"),
            ("windows=11s/1m", "0.5ms to 10s"),
            ("windows=1s/11m", "10m on average"),
            ("window", "not full, off, windows"),
        ] {
            let said = DeviceTimesMode::parse(text).unwrap_err();
            assert!(said.contains(why), "{text}: {said}");
        }
        assert_eq!(DeviceTimesMode::parse("full"), Ok(DeviceTimesMode::Full));
        assert_eq!(DeviceTimesMode::parse("off"), Ok(DeviceTimesMode::Off));
    }
}
