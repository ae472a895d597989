//! Numbers with their nouns, and the dash for an unknown figure.

use crate::label::units::count;

pub(super) fn dash() -> String {
    "-".to_owned()
}

pub(super) fn operations(number: u64) -> String {
    plural(number, "operation", "operations")
}

pub(super) fn plural(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}
