//! `--max-size`, `--rotate-size`, `--keep`: how large the trace may be on disk.

/// Below that there would be hardly more in it than what a process is.
const MIN_BYTES: u64 = 64 << 10;

/// A value of the option or the variable: bytes, K, M, G or T of 1024, or no limit.
pub fn parse(text: &str) -> Result<Option<u64>, String> {
    if text == "off" {
        return Ok(None);
    }
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => Some(0),
        "K" | "KB" | "KIB" => Some(10),
        "M" | "MB" | "MIB" => Some(20),
        "G" | "GB" | "GIB" => Some(30),
        "T" | "TB" | "TIB" => Some(40),
        _ => None,
    };
    let bytes = digits.parse::<u64>().ok().zip(shift);
    match bytes.and_then(|(number, shift)| number.checked_mul(1 << shift)) {
        Some(bytes) if bytes >= MIN_BYTES => Ok(Some(bytes)),
        Some(_) => Err(format!("a trace of less than {} KiB holds nothing", MIN_BYTES >> 10)),
        None => Err("a size is a whole number of bytes, or of K, M, G or T (500M, 2G), or off".to_owned()),
    }
}

/// A value of `--keep` or its variable.
pub fn parse_files(text: &str) -> Result<Option<u32>, String> {
    match text.parse() {
        Ok(files @ 1..) => Ok(Some(files)),
        _ if text == "unlimited" => Ok(None),
        _ => Err("the number of files to keep is 1 or more, or unlimited".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keep_is_a_number_of_files_or_unlimited() {
        assert_eq!(parse_files("3"), Ok(Some(3)));
        assert_eq!(parse_files("unlimited"), Ok(None));
        for senseless in ["", "0", "-1", "off", "3.5", "many"] {
            assert!(parse_files(senseless).is_err(), "{senseless}");
        }
    }

    #[test]
    fn sizes_are_bytes_or_have_a_letter() {
        for (text, bytes) in
            [("65536", 65_536), ("64K", 65_536), ("500M", 500 << 20), ("2g", 2 << 30), ("1TiB", 1 << 40)]
        {
            assert_eq!(parse(text), Ok(Some(bytes)), "{text}");
        }
        assert_eq!(parse("off"), Ok(None));
        for text in ["", "0", "63K", "M", "-1", "1.5G", "10X", "99999999999G", "1 0M"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
