//! The types of settings: what an option takes, and what of a variable's value makes no sense.

use std::path::PathBuf;

use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser, ValueParser};
use clap::value_parser;
use gputrace_collector::flame::GroupBy;
use gputrace_wire::budget::Budget;
use gputrace_wire::capture_range::{CaptureRange, CaptureRangeEnd};
use gputrace_wire::windows::DeviceTimesMode;

use crate::cli::{max_size, seconds};
use crate::sampling::DeviceMetricsRequest;

/// The values with which a setting is off.
pub const OFF: [&str; 4] = ["off", "0", "no", "false"];

/// Whose frames may be asked for.
const STACKS: [&str; 3] = ["python", "native", "nvtx"];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// `on` or `off`; as an option a flag.
    Flag,
    /// `on`, or one of [`OFF`]; no option has this kind.
    Switch,
    /// One of these words, which have `|` between them.
    OneOf(&'static str),
    /// Whose frames are kept of each call: some of [`STACKS`] with commas between them, or none.
    Stacks,
    /// A whole number.
    Number,
    /// One from this to that.
    NumberIn(i64, i64),
    /// A length of time, or none: `Option<Duration>`.
    Seconds,
    /// A length of time with its unit, or none: `Option<Duration>`.
    Time,
    /// How often devices are sampled: [`DeviceMetricsRequest`].
    Interval,
    /// A number of files, or no limit: `Option<u32>`.
    Files,
    /// A number of bytes, or no limit: `Option<u64>`.
    Size,
    /// A [`CaptureRange`], as text.
    Range,
    /// A [`CaptureRangeEnd`], as text.
    RangeEnd,
    /// A [`DeviceTimesMode`], as text.
    DeviceTimes,
    /// A [`Budget`], as text, or none.
    Budget,
    /// What a flamegraph is divided by first: [`GroupBy`].
    Parts,
    /// Where spans are sent.
    Destination,
    /// A file or a folder, and what stands for it in help texts.
    Path(&'static str),
    /// Anything, for others to read, and what stands for it in help texts.
    Text(&'static str),
}

impl Kind {
    /// What stands for the value in help texts.
    pub fn placeholder(self) -> &'static str {
        match self {
            Kind::Flag | Kind::Switch => "on|off",
            Kind::Stacks => "python,native,nvtx|none",
            Kind::Number | Kind::NumberIn(..) | Kind::Files => "N",
            Kind::Time => "TIME",
            Kind::Interval => "TIME[,slow]|off",
            Kind::Seconds => "SECONDS",
            Kind::Size => "SIZE",
            Kind::Range => "RANGE",
            Kind::RangeEnd => "END",
            Kind::Budget => "PERCENT|off",
            Kind::DeviceTimes => "full|windows[=ON/MEAN]|off",
            Kind::Parts => "PART,…|none",
            Kind::Destination => "URL|env|off",
            Kind::OneOf(text) | Kind::Path(text) | Kind::Text(text) => text,
        }
    }

    /// The values allowed, where they can be listed.
    fn words(self) -> Vec<&'static str> {
        match self {
            Kind::Switch => [&["on"][..], &OFF].concat(),
            Kind::Flag | Kind::OneOf(_) => self.placeholder().split('|').collect(),
            _ => Vec::new(),
        }
    }

    /// What clap reads an option's value by.
    pub fn parser(self) -> ValueParser {
        match self {
            Kind::Flag | Kind::Switch | Kind::OneOf(_) => PossibleValuesParser::new(self.words()).into(),
            Kind::Stacks => ValueParser::new(stacks),
            Kind::Number => value_parser!(u32).into(),
            Kind::NumberIn(least, most) => value_parser!(u32).range(least..=most).into(),
            Kind::Seconds => ValueParser::new(seconds::parse),
            Kind::Time => ValueParser::new(seconds::parse_with_unit),
            Kind::Interval => ValueParser::new(DeviceMetricsRequest::parse),
            Kind::Files => ValueParser::new(max_size::parse_files),
            Kind::Size => ValueParser::new(max_size::parse),
            Kind::Range => ValueParser::new(range),
            Kind::RangeEnd => ValueParser::new(range_end),
            Kind::Budget => ValueParser::new(budget),
            Kind::DeviceTimes => ValueParser::new(device_times),
            Kind::Parts => ValueParser::new(GroupBy::parse),
            Kind::Destination | Kind::Text(_) => NonEmptyStringValueParser::new().into(),
            // An empty name is refused.
            Kind::Path(_) => value_parser!(PathBuf),
        }
    }

    /// Why the value of a variable makes no sense, as it goes on after the value. A length of time, a size
    /// and a range are errors where they are read.
    pub fn complaint(self, value: &str) -> Option<String> {
        let words = self.words();
        match self {
            _ if value.is_empty() => None,
            Kind::NumberIn(1.., _) if value.trim() == "0" => Some(" is no rate".to_owned()),
            Kind::Number | Kind::NumberIn(..) => {
                value.trim().parse::<u64>().is_err().then(|| " is no whole number".to_owned())
            }
            Kind::Stacks => stacks(value).err().map(|why| format!(": {why}")),
            Kind::Budget => budget(value).err().map(|why| format!(": {why}")),
            Kind::DeviceTimes => device_times(value).err().map(|why| format!(": {why}")),
            Kind::Parts => GroupBy::parse(value).err().map(|why| format!(": {why}")),
            Kind::Interval => DeviceMetricsRequest::parse(value.trim()).err().map(|why| format!(": {why}")),
            _ if words.is_empty() || words.contains(&value) => None,
            _ => Some(format!(" is not one of {}", words.join(", "))),
        }
    }

    /// Whether the word can be an option's value.
    pub fn takes(self, word: &str) -> bool {
        match self {
            Kind::Flag | Kind::Switch | Kind::OneOf(_) => self.words().contains(&word),
            Kind::Stacks => stacks(word).is_ok(),
            Kind::Number | Kind::NumberIn(..) => word.parse::<u32>().is_ok(),
            Kind::Seconds => seconds::parse(word).is_ok(),
            Kind::Time => seconds::parse_with_unit(word).is_ok(),
            Kind::Interval => DeviceMetricsRequest::parse(word).is_ok(),
            Kind::Files => max_size::parse_files(word).is_ok(),
            Kind::Size => max_size::parse(word).is_ok(),
            Kind::Range => range(word).is_ok(),
            Kind::RangeEnd => range_end(word).is_ok(),
            Kind::Budget => budget(word).is_ok(),
            Kind::DeviceTimes => device_times(word).is_ok(),
            Kind::Parts => GroupBy::parse(word).is_ok(),
            Kind::Destination | Kind::Path(_) | Kind::Text(_) => !word.is_empty() && !word.starts_with('-'),
        }
    }
}

/// A value of [`Kind::Range`], as the library reads it.
fn range(text: &str) -> Result<String, &'static str> {
    match text {
        "off" => Ok(text.to_owned()),
        _ => CaptureRange::parse(text).map(|_| text.to_owned()),
    }
}

/// A value of [`Kind::RangeEnd`], as the library reads it.
fn range_end(text: &str) -> Result<String, &'static str> {
    CaptureRangeEnd::parse(text).map(|_| text.to_owned())
}

/// A value of [`Kind::Budget`], as the library reads it.
fn budget(text: &str) -> Result<String, &'static str> {
    Budget::parse(text).map(|_| text.to_owned())
}

/// A value of [`Kind::DeviceTimes`], as the library reads it.
fn device_times(text: &str) -> Result<String, &'static str> {
    DeviceTimesMode::parse(text).map(|_| text.to_owned())
}

/// A value of [`Kind::Stacks`], as the library reads it.
pub fn stacks(text: &str) -> Result<String, String> {
    let words: Vec<&str> = text.split(',').collect();
    for (at, word) in words.iter().enumerate() {
        if text != "none" && !STACKS.contains(word) {
            return Err(format!("'{word}' is none of {}; or none, alone", STACKS.join(", ")));
        }
        if words[..at].contains(word) {
            return Err(format!("{word} is there twice"));
        }
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_are_some_of_three_in_any_order_or_none() {
        for text in ["python", "nvtx,native,python", "native,python", "none"] {
            assert_eq!(stacks(text).as_deref(), Ok(text));
        }
        for text in ["", "python,", "python,python", "none,nvtx", "Python", "python, nvtx"] {
            assert!(stacks(text).is_err(), "{text}");
        }
    }
}
