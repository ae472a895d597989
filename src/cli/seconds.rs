//! A length of time as options take it: `--flight-recorder`.

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

#[cfg(test)]
mod tests {
    use super::*;

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
