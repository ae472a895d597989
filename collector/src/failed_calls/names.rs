//! The names of the driver's errors, by number, from the table in `cupti-sys/facts`.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

const TABLE: &str = include_str!("../../../cupti-sys/facts/driver_errors.txt");

static NAMES: LazyLock<FxHashMap<u16, &str>> = LazyLock::new(|| {
    let rows = TABLE.lines().filter_map(|line| line.split_once(' '));
    rows.filter_map(|(number, name)| Some((number.parse().ok()?, name))).collect()
});

/// The error's name. A number that is not in the table has a generic name.
pub fn name(status: u16) -> &'static str {
    NAMES.get(&status).copied().unwrap_or("CUDA_ERROR_OF_UNKNOWN_NUMBER")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_names_come_from_the_table() {
        assert_eq!((name(1), name(999)), ("CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_UNKNOWN"));
        assert_eq!(name(998), "CUDA_ERROR_OF_UNKNOWN_NUMBER");
        assert_eq!(NAMES.len(), TABLE.lines().filter(|line| !line.starts_with('#')).count());
    }
}
