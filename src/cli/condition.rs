//! Conditions on figures, as `--fail-on` takes them: `NAME OP VALUE[UNIT]`.
//!
//! ```text
//! leaked>0    peak>20GiB    step_time>5%    kernel_time[gemm*]>2ms
//! ```
//!
//! A name is of lower-case letters, digits and `_`, and may have a pattern in brackets. Which names there
//! are, the subcommand knows. Blanks around the operator are allowed.

use std::fmt;

/// What a figure measures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Quantity {
    /// A number without a unit.
    Count,
    Bytes,
    /// Nanoseconds.
    Time,
    /// A share or a change, 100 for the whole.
    Percent,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operator {
    AtLeast,
    AtMost,
    Equal,
    Unequal,
    More,
    Less,
}

/// Longer spellings first, so that `>=` is not read as `>`.
const OPERATORS: [(&str, Operator); 6] = [
    (">=", Operator::AtLeast),
    ("<=", Operator::AtMost),
    ("==", Operator::Equal),
    ("!=", Operator::Unequal),
    (">", Operator::More),
    ("<", Operator::Less),
];

const UNITS: [(&str, Quantity, f64); 16] = [
    ("B", Quantity::Bytes, 1.0),
    ("KiB", Quantity::Bytes, 1024.0),
    ("MiB", Quantity::Bytes, 1048576.0),
    ("GiB", Quantity::Bytes, 1073741824.0),
    ("TiB", Quantity::Bytes, 1099511627776.0),
    ("kB", Quantity::Bytes, 1e3),
    ("MB", Quantity::Bytes, 1e6),
    ("GB", Quantity::Bytes, 1e9),
    ("TB", Quantity::Bytes, 1e12),
    ("ns", Quantity::Time, 1.0),
    ("us", Quantity::Time, 1e3),
    ("µs", Quantity::Time, 1e3),
    ("ms", Quantity::Time, 1e6),
    ("s", Quantity::Time, 1e9),
    ("min", Quantity::Time, 60e9),
    ("%", Quantity::Percent, 1.0),
];

#[derive(Clone, PartialEq, Debug)]
pub struct Condition {
    /// As it was written.
    text: String,
    pub name: String,
    /// The pattern in brackets.
    pub pattern: Option<String>,
    operator: Operator,
    value: f64,
    /// What the value's unit measures; `None` without a unit.
    unit: Option<Quantity>,
}

impl Condition {
    pub fn parse(text: &str) -> Result<Condition, String> {
        let wrong = |what: &str| format!("{what}; a condition is NAME OP VALUE[UNIT], as in 'peak>20GiB'");
        let operators =
            OPERATORS.iter().filter_map(|(sign, operator)| Some((text.find(sign)?, sign, *operator)));
        // The first in the text; of two that begin there, the longer one, which comes first in the table.
        let Some((at, sign, operator)) = operators.min_by_key(|(at, _, _)| *at) else {
            return Err(wrong("there is no operator (> < >= <= == !=)"));
        };
        let (left, right) = (text[..at].trim(), text[at + sign.len()..].trim());
        let (name, pattern) = match left.split_once('[') {
            Some((name, rest)) => match rest.strip_suffix(']') {
                Some(pattern) => (name.trim_end(), Some(pattern.to_owned())),
                None => return Err(wrong("the bracket is not closed")),
            },
            None => (left, None),
        };
        let is_letter =
            |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_';
        if name.is_empty() || !name.chars().all(is_letter) {
            return Err(wrong("the name is missing or has other letters than a-z, 0-9 and _"));
        }
        let number_ends =
            right.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(right.len());
        let (number, unit) = (&right[..number_ends], right[number_ends..].trim_start());
        let Ok(number) = number.parse::<f64>() else { return Err(wrong("the value is no number")) };
        let (unit, factor) = match unit {
            "" => (None, 1.0),
            unit => match UNITS.iter().find(|(known, _, _)| *known == unit) {
                Some((_, quantity, factor)) => (Some(*quantity), *factor),
                None => {
                    return Err(wrong(
                        "the unit is unknown (B KiB MiB GiB TiB kB MB GB TB, ns us ms s min, %)",
                    ));
                }
            },
        };
        let (name, text) = (name.to_owned(), text.trim().to_owned());
        Ok(Condition { text, name, pattern, operator, value: number * factor, unit })
    }

    /// Whether the value has a unit of that quantity.
    pub fn is_of(&self, quantity: Quantity) -> bool {
        self.unit == Some(quantity)
    }

    /// Whether a figure can be compared with the value. Without a unit it is one of a count, or of bytes or
    /// nanoseconds if it is 0.
    pub fn fits(&self, quantity: Quantity) -> bool {
        match self.unit {
            Some(unit) => unit == quantity,
            None => quantity == Quantity::Count || self.value == 0.0,
        }
    }

    /// Whether the condition is true of a figure, in bytes, nanoseconds or percent.
    pub fn holds(&self, figure: f64) -> bool {
        match self.operator {
            Operator::AtLeast => figure >= self.value,
            Operator::AtMost => figure <= self.value,
            Operator::Equal => figure == self.value,
            Operator::Unequal => figure != self.value,
            Operator::More => figure > self.value,
            Operator::Less => figure < self.value,
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(text: &str, figure: f64) -> bool {
        Condition::parse(text).unwrap().holds(figure)
    }

    #[test]
    fn conditions_have_a_name_an_operator_and_a_value() {
        let condition = Condition::parse("kernel_time[gemm*<4>] >= 2.5ms").unwrap_err();
        assert!(condition.contains("bracket"), "{condition}");
        let condition = Condition::parse("kernel_time[gemm*] >= 2.5ms").unwrap();
        assert_eq!((condition.name.as_str(), condition.pattern.as_deref()), ("kernel_time", Some("gemm*")));
        assert!(condition.fits(Quantity::Time) && !condition.fits(Quantity::Bytes));
        assert!(condition.holds(2.5e6) && !condition.holds(2.4e6));
        assert_eq!(condition.to_string(), "kernel_time[gemm*] >= 2.5ms");
        for (text, figure, expected) in [
            ("leaked>0", 0.0, false),
            ("leaked>0", 1.0, true),
            ("peak>20GiB", 20.0 * 1073741824.0, false),
            ("peak >= 20 GiB", 20.0 * 1073741824.0, true),
            ("peak<1kB", 999.0, true),
            ("peak<=1KiB", 1025.0, false),
            ("leaked==0", 0.0, true),
            ("leaked!=0", 0.0, false),
            ("step_time>5%", 5.1, true),
        ] {
            assert_eq!(holds(text, figure), expected, "{text}");
        }
        assert!(Condition::parse("leaked>0").unwrap().fits(Quantity::Bytes));
        assert!(!Condition::parse("leaked>5").unwrap().fits(Quantity::Bytes));
        assert!(Condition::parse("allocations>5").unwrap().fits(Quantity::Count));
    }

    #[test]
    fn malformed_conditions_are_refused() {
        for text in [
            "",
            "leaked",
            "leaked>",
            ">0",
            "Leaked>0",
            "leaked>1GiBs",
            "leaked>-1",
            "a b>1",
            "x[>1",
            "leaked=1",
        ] {
            let error = Condition::parse(text).unwrap_err();
            assert!(error.contains("NAME OP VALUE[UNIT]"), "{text}: {error}");
        }
    }
}
