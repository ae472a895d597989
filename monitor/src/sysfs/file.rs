//! Reads small files of one value.

use std::fs;
use std::path::Path;

/// The text without blanks around it; `None` if the file is not there, empty, or refused.
pub fn text(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

pub fn number(path: &Path) -> Option<u64> {
    text(path)?.parse().ok()
}

/// `0x1002`.
pub fn hexadecimal(path: &Path) -> Option<u32> {
    u32::from_str_radix(text(path)?.strip_prefix("0x")?, 16).ok()
}

/// The marked line of a list of states, in MHz: `1: 2575Mhz *`.
pub fn marked_mhz(path: &Path) -> Option<u32> {
    let text = text(path)?;
    mhz(text.lines().find(|line| line.trim_end().ends_with('*'))?)
}

/// The highest state of such a list.
pub fn highest_mhz(path: &Path) -> Option<u32> {
    text(path)?.lines().filter_map(mhz).max()
}

fn mhz(line: &str) -> Option<u32> {
    let value = line.split_once(':')?.1.trim().to_ascii_lowercase();
    value.split_once("mhz")?.0.trim().parse().ok()
}

/// `16.0 GT/s PCIe` as a PCIe generation.
pub fn generation(path: &Path) -> Option<u32> {
    let text = text(path)?;
    Some(match text.split_once(" GT/s")?.0 {
        "2.5" => 1,
        "5.0" | "5" => 2,
        "8.0" | "8" => 3,
        "16.0" | "16" => 4,
        "32.0" | "32" => 5,
        "64.0" | "64" => 6,
        _ => return None,
    })
}
