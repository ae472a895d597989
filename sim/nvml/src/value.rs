//! A number that may change with time.

use std::time::Duration;

/// A constant, or a ramp that begins anew each period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Value {
    from: f64,
    to: f64,
    period: Option<Duration>,
}

impl Value {
    /// `7`, `0x44`, `512MiB`, `0..100/10s`.
    pub fn parse(text: &str) -> Option<Value> {
        match text.split_once("..") {
            None => number(text).map(|from| Value { from, to: from, period: None }),
            Some((from, rest)) => {
                let (to, period) = rest.split_once('/')?;
                Some(Value { from: number(from)?, to: number(to)?, period: Some(time(period)?) })
            }
        }
    }

    pub fn at(&self, now: Duration) -> u64 {
        let Some(period) = self.period.filter(|period| !period.is_zero()) else { return self.from as u64 };
        let part = now.as_secs_f64() % period.as_secs_f64() / period.as_secs_f64();
        (self.from + (self.to - self.from) * part) as u64
    }
}

fn number(text: &str) -> Option<f64> {
    let text = text.trim();
    if let Some(digits) = text.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).ok().map(|number| number as f64);
    }
    for (unit, factor) in [("KiB", 1024.0), ("MiB", 1_048_576.0), ("GiB", 1_073_741_824.0)] {
        if let Some(count) = text.strip_suffix(unit) {
            return count.trim().parse::<f64>().ok().map(|count| count * factor);
        }
    }
    text.parse().ok()
}

/// `20ms`, `1.5s`.
pub fn time(text: &str) -> Option<Duration> {
    let text = text.trim();
    let seconds = match text.strip_suffix("ms") {
        Some(milliseconds) => milliseconds.parse::<f64>().ok()? / 1e3,
        None => text.strip_suffix('s')?.parse().ok()?,
    };
    (0.0..1e9).contains(&seconds).then(|| Duration::from_secs_f64(seconds))
}

/// A part of time: `2s..4s`, or `2s..` without an end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    begin: Duration,
    end: Option<Duration>,
}

impl Window {
    pub const ALWAYS: Window = Window { begin: Duration::ZERO, end: None };

    pub fn parse(text: &str) -> Option<Window> {
        let (begin, end) = text.split_once("..")?;
        let end = if end.trim().is_empty() { None } else { Some(time(end)?) };
        Some(Window { begin: time(begin)?, end })
    }

    pub fn holds(&self, now: Duration) -> bool {
        now >= self.begin && self.end.is_none_or(|end| now < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_constants_or_ramps() {
        let at =
            |text: &str, seconds: f64| Value::parse(text).map(|v| v.at(Duration::from_secs_f64(seconds)));
        assert_eq!(at("7", 100.0), Some(7));
        assert_eq!(at("0x44", 0.0), Some(0x44));
        assert_eq!(at("2GiB", 0.0), Some(2 << 30));
        assert_eq!(at("0..100/10s", 2.5), Some(25));
        assert_eq!(at("0..100/10s", 12.5), Some(25));
        assert_eq!(at("80..40/1s", 0.5), Some(60));
        for wrong in ["", "x", "1..2", "1..2/3", "5MB"] {
            assert_eq!(at(wrong, 0.0), None, "{wrong}");
        }
    }

    #[test]
    fn windows_have_a_begin_and_perhaps_an_end() {
        let holds = |text: &str, seconds| Window::parse(text).map(|w| w.holds(Duration::from_secs(seconds)));
        assert_eq!(
            (holds("2s..4s", 1), holds("2s..4s", 2), holds("2s..4s", 4)),
            (Some(false), Some(true), Some(false))
        );
        assert_eq!((holds("2s..", 1), holds("2s..", 99)), (Some(false), Some(true)));
        assert_eq!(holds("2s", 1), None);
    }
}
