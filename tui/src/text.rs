//! Quantities and names as the dashboard writes them.

/// Binary units: `18.2 GiB`.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    // Values that would be rounded to 1024 take the next unit.
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let unit_name = UNITS.get(unit).copied().unwrap_or("");
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {unit_name}") }
}

/// Decimal units, as links are rated: `12.4 GB/s`.
pub fn rate(bytes_per_second: u64) -> String {
    let value = bytes_per_second as f64;
    match bytes_per_second {
        0..1_000 => format!("{bytes_per_second} B/s"),
        1_000..999_950 => format!("{:.1} kB/s", value / 1e3),
        999_950..999_950_000 => format!("{:.1} MB/s", value / 1e6),
        _ => format!("{:.1} GB/s", value / 1e9),
    }
}

/// With separators: `1,247`.
pub fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

pub fn duration(ns: u64) -> String {
    let value = ns as f64;
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..999_950 => format!("{:.1} µs", value / 1e3),
        999_950..999_950_000 => format!("{:.1} ms", value / 1e6),
        _ => format!("{:.2} s", value / 1e9),
    }
}

/// `N/A` for what is not known.
pub fn or_unknown<T>(value: Option<T>, text: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "N/A".to_owned(), text)
}

/// A name in that many columns; what is left out is in its middle, since both ends tell names apart.
pub fn shortened(name: &str, columns: usize, cut: char) -> String {
    let letters: Vec<char> = name.chars().collect();
    if letters.len() <= columns || columns == 0 {
        return name.to_owned();
    }
    let tail = (columns - 1) / 2;
    let head = letters.iter().take(columns - 1 - tail);
    head.chain([&cut]).chain(letters.iter().skip(letters.len() - tail)).collect()
}

/// A name of other programs as one line without control characters, which could steer the terminal.
pub fn printable(name: &str) -> String {
    name.chars().map(|letter| if is_harmful(letter) { '?' } else { letter }).collect()
}

/// Control characters, and those that change the direction of the text after them.
fn is_harmful(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_units_of_their_size() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1024), "1.0 KiB");
        assert_eq!(bytes(85_520_809_984), "79.6 GiB");
        assert_eq!(bytes((1 << 20) - 1), "1.0 MiB");
        assert_eq!(rate(12_400_000_000), "12.4 GB/s");
        assert_eq!(rate(999), "999 B/s");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(count(999), "999");
        assert_eq!(duration(1_500), "1.5 µs");
        assert_eq!(duration(2_000_000_000), "2.00 s");
    }

    #[test]
    fn long_names_keep_both_ends() {
        assert_eq!(shortened("abcdefghij", 10, '~'), "abcdefghij");
        assert_eq!(shortened("abcdefghij", 6, '~'), "abc~ij");
        assert_eq!(shortened("äbcdefghij", 3, '…'), "ä…j");
        assert_eq!(shortened("ab", 1, '~'), "~");
    }

    #[test]
    fn names_cannot_steer_the_terminal() {
        assert_eq!(printable("a\x1b[2Jb\u{202e}c\n"), "a?[2Jb?c?");
        assert_eq!(printable("größe"), "größe");
    }
}
