//! The most that tracing may cost a program, as the command line and the library read it.

/// A part of the program's time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    /// Millionths.
    pub ppm: u32,
}

impl Budget {
    /// Reads a number of percent from 0.5 to 50, with or without the sign, or `off`.
    ///
    /// # Errors
    /// Why the text makes no sense.
    pub fn parse(text: &str) -> Result<Option<Budget>, &'static str> {
        if text == "off" {
            return Ok(None);
        }
        let number = text.strip_suffix('%').unwrap_or(text);
        match number.parse::<f64>() {
            Ok(percent) if (0.5..=50.0).contains(&percent) => {
                Ok(Some(Budget { ppm: (percent * 1e4) as u32 }))
            }
            _ => Err("a budget is 0.5 to 50 percent of the time, such as 1%; or off"),
        }
    }

    pub fn fraction(self) -> f64 {
        f64::from(self.ppm) / 1e6
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn budget_is_half_a_percent_to_half_of_the_time() {
        for (text, ppm) in [("1", 10_000), ("0.5%", 5_000), ("50%", 500_000), ("2.5", 25_000)] {
            assert_eq!(Budget::parse(text), Ok(Some(Budget { ppm })), "{text}");
        }
        assert_eq!(Budget::parse("off"), Ok(None));
        for text in ["0", "0.4%", "51", "200%", "-1", "NaN", "inf", "", "%", "1 %", "1%%"] {
            assert!(Budget::parse(text).is_err(), "{text}");
        }
    }
}
