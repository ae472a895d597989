//! Lengths of time as options take them: `--flight-recorder`, `--rotate-every`, `--from`, `--to`.

use std::time::Duration;

const SECONDS_MIN: f64 = 0.1;
const SECONDS_MAX: f64 = 86_400.0;

/// A value of the option or the variable: seconds, or none.
pub fn parse(text: &str) -> Result<Option<Duration>, String> {
    if text == "off" {
        return Ok(None);
    }
    match text.parse::<f64>() {
        Ok(seconds) if (SECONDS_MIN..=SECONDS_MAX).contains(&seconds) => {
            Ok(Some(Duration::from_secs_f64(seconds)))
        }
        _ => Err(format!("seconds are a number from {SECONDS_MIN} to {SECONDS_MAX}, or off")),
    }
}

/// A whole number of seconds, or of minutes, hours or days with the unit's letter, or none.
pub fn parse_with_unit(text: &str) -> Result<Option<Duration>, String> {
    if text == "off" {
        return Ok(None);
    }
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let unit = match &text[digits.len()..] {
        "" | "s" => Some(1),
        "m" => Some(60),
        "h" => Some(3600),
        "d" => Some(86_400),
        _ => None,
    };
    let seconds = digits.parse::<u64>().ok().zip(unit).and_then(|(number, unit)| number.checked_mul(unit));
    match seconds {
        Some(seconds @ 1..=31_536_000) => Ok(Some(Duration::from_secs(seconds))),
        _ => Err("a time is a whole number of seconds, or with m, h or d of minutes, hours or days, from 1s to 365d; \
                  or off"
            .to_owned()),
    }
}

/// A moment in a trace, in nanoseconds from its begin: seconds, or a unit's letters behind the number.
pub fn parse_moment(text: &str) -> Result<u64, String> {
    let number_ends =
        text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(number_ends);
    let unit_s = match unit {
        "ns" => Some(1e-9),
        "us" | "µs" => Some(1e-6),
        "ms" => Some(1e-3),
        "" | "s" => Some(1.0),
        "m" => Some(60.0),
        "h" => Some(3600.0),
        "d" => Some(86_400.0),
        _ => None,
    };
    let seconds = number.parse::<f64>().ok().zip(unit_s).map(|(number, unit_s)| number * unit_s);
    match seconds.map(Duration::try_from_secs_f64) {
        Some(Ok(since)) => u64::try_from(since.as_nanos()).map_err(|_| "that is too long".to_owned()),
        _ => Err("a time counts from the trace's begin: a number of seconds, or with ns, us, ms, s, m, h or d; it \
                  is never negative"
            .to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_with_unit_is_whole_and_bounded() {
        for (text, seconds) in [("1", 1), ("90s", 90), ("10m", 600), ("2h", 7200), ("365d", 31_536_000)] {
            assert_eq!(parse_with_unit(text), Ok(Some(Duration::from_secs(seconds))), "{text}");
        }
        assert_eq!(parse_with_unit("off"), Ok(None));
        for senseless in ["", "0", "-1", "1.5h", "366d", "5w", "1h30m", "m", "99999999999999999999d"] {
            assert!(parse_with_unit(senseless).is_err(), "{senseless}");
        }
    }

    #[test]
    fn moment_has_fractions_and_small_units() {
        for (text, ns) in [
            ("0", 0),
            ("1.5", 1_500_000_000),
            ("2s", 2_000_000_000),
            ("250ms", 250_000_000),
            ("0.5us", 500),
            ("7ns", 7),
            ("1.5m", 90_000_000_000),
            ("1h", 3_600_000_000_000),
        ] {
            assert_eq!(parse_moment(text), Ok(ns), "{text}");
        }
        for senseless in
            ["", "-1", "s", "1e3", "1,5", "1.2.3", "inf", "nan", "5w", "1h30m", "99999999d", "off"]
        {
            assert!(parse_moment(senseless).is_err(), "{senseless}");
        }
    }

    #[test]
    fn times_are_numbers_of_seconds() {
        assert_eq!(parse("5"), Ok(Some(Duration::from_secs(5))));
        assert_eq!(parse("0.5"), Ok(Some(Duration::from_millis(500))));
        assert_eq!(parse("off"), Ok(None));
        for senseless in ["", "0", "-1", "1e9", "nan", "inf", "5s", "five"] {
            assert!(parse(senseless).is_err(), "{senseless}");
        }
    }
}
