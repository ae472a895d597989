//! How often the devices of a session are sampled: the value of `--device-metrics`, and of
//! `ctl set device-metrics`.

use std::fmt;
use std::time::Duration;

/// The shortest interval: a driver takes about a millisecond a sample.
pub const INTERVAL_MIN: Duration = Duration::from_millis(10);
const INTERVAL_MAX: Duration = Duration::from_secs(3600);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceMetricsRequest {
    /// Between two samples; `None`: none are taken.
    pub interval: Option<Duration>,
    /// Whether what takes a driver long is read too, each second.
    pub slow: bool,
}

impl DeviceMetricsRequest {
    /// What is sampled unless something else is asked for.
    pub const USUAL: DeviceMetricsRequest =
        DeviceMetricsRequest { interval: Some(Duration::from_millis(100)), slow: false };

    /// An interval, also with `,slow`, or `off`.
    pub fn parse(text: &str) -> Result<DeviceMetricsRequest, String> {
        if text == "off" {
            return Ok(DeviceMetricsRequest { interval: None, slow: false });
        }
        let (text, slow) = match text.strip_suffix(",slow") {
            Some(interval) => (interval, true),
            None => (text, false),
        };
        Ok(DeviceMetricsRequest { interval: Some(interval(text)?), slow })
    }
}

/// As [`DeviceMetricsRequest::parse`] reads it.
impl fmt::Display for DeviceMetricsRequest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.interval {
            None => out.write_str("off"),
            Some(interval) => {
                let ms = interval.as_secs_f64() * 1e3;
                write!(out, "{ms}ms{}", if self.slow { ",slow" } else { "" })
            }
        }
    }
}

/// `100ms`, `1.5s`, `2m`, `1h`, or a number of seconds.
pub fn interval(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "ms" => Some(1e-3),
        "" | "s" => Some(1.0),
        "m" => Some(60.0),
        "h" => Some(3600.0),
        _ => None,
    };
    let seconds = digits.parse::<f64>().ok().zip(unit).map(|(number, unit)| number * unit);
    let is_in = |seconds: &f64| (INTERVAL_MIN.as_secs_f64()..=INTERVAL_MAX.as_secs_f64()).contains(seconds);
    seconds
        .filter(is_in)
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "an interval is a time from 10ms to 1h, such as 100ms, 1.5s or 2m".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_is_a_time_with_a_unit_from_ten_milliseconds_to_an_hour() {
        for (text, ms) in
            [("10ms", 10), ("100ms", 100), ("1.5s", 1500), ("2", 2000), ("2m", 120_000), ("1h", 3_600_000)]
        {
            assert_eq!(interval(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for wrong in ["", "0", "0s", "1ms", "8760h", "365d", "-1s", "nan", "inf", "ms", "1e99"] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn request_is_an_interval_with_slow_queries_or_without_or_off() {
        let parse = DeviceMetricsRequest::parse;
        assert_eq!(parse("100ms"), Ok(DeviceMetricsRequest::USUAL));
        let slow = DeviceMetricsRequest { interval: Some(Duration::from_secs(2)), slow: true };
        assert_eq!(parse("2s,slow"), Ok(slow));
        assert_eq!(parse("off"), Ok(DeviceMetricsRequest { interval: None, slow: false }));
        for text in ["100ms", "10.5ms", "2000ms,slow", "off"] {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
        for wrong in ["", "off,slow", "slow", "100ms,", "100ms,pcie", "1ms,slow"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
