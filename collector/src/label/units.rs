//! Formats quantities for people: three digits and a unit.

/// `640 ns`, `12.3 µs`, `1.20 s`, `2 min 05 s`.
pub fn duration(ns: u64) -> String {
    let value = ns as f64;
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..999_500 => format!("{} µs", digits(value / 1e3)),
        999_500..999_500_000 => format!("{} ms", digits(value / 1e6)),
        999_500_000..119_500_000_000 => format!("{} s", digits(value / 1e9)),
        _ => {
            let seconds = (value / 1e9).round() as u64;
            match seconds / 60 {
                minutes @ 0..120 => format!("{minutes} min {:02} s", seconds % 60),
                minutes => format!("{} h {:02} min", minutes / 60, minutes % 60),
            }
        }
    }
}

/// `512 B`, `1.50 KiB`, `23.4 GiB`.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{} {}", digits(value), UNITS.get(unit).unwrap_or(&""))
}

/// From units of 10^6 bytes a second: `812 MB/s`, `25.1 GB/s`.
pub fn bandwidth(mbps: f64) -> String {
    match mbps {
        ..0.9995 => format!("{} kB/s", digits(mbps * 1e3)),
        ..999.5 => format!("{} MB/s", digits(mbps)),
        ..999_500.0 => format!("{} GB/s", digits(mbps / 1e3)),
        _ => format!("{} TB/s", digits(mbps / 1e6)),
    }
}

/// `128,430`.
pub fn count(value: u64) -> String {
    let plain = value.to_string();
    let mut text = String::new();
    for (index, digit) in plain.chars().enumerate() {
        if index > 0 && (plain.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// One decimal. A share below 1 is never shown as 100%, one above 0 never as 0.0%.
pub fn percent(share: f64) -> String {
    let tenths = (share * 1000.0).round();
    if share < 1.0 && tenths >= 1000.0 {
        return "99.9%".to_owned();
    }
    if share > 0.0 && tenths < 1.0 {
        return "<0.1%".to_owned();
    }
    if share == 1.0 {
        return "100%".to_owned();
    }
    format!("{:.1}%", tenths / 10.0)
}

/// Three digits: `1.23`, `12.3`, `123`.
pub fn digits(value: f64) -> String {
    if value < 9.995 {
        format!("{value:.2}")
    } else if value < 99.95 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_three_digits_and_a_unit() {
        for (ns, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1.00 µs"),
            (12_345, "12.3 µs"),
            (999_499, "999 µs"),
            (999_500, "1.00 ms"),
            (999_499_999, "999 ms"),
            (1_204_000_000, "1.20 s"),
            (119_400_000_000, "119 s"),
            (125_000_000_000, "2 min 05 s"),
            (11_520_000_000_000, "3 h 12 min"),
        ] {
            assert_eq!(duration(ns), text);
        }
        assert!(!duration(u64::MAX).is_empty());
    }

    #[test]
    fn sizes_and_rates_scale() {
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.50 KiB");
        assert_eq!(bytes(1_023_900), "0.98 MiB");
        assert_eq!(bytes(25_125_558_681), "23.4 GiB");
        assert!(bytes(u64::MAX).ends_with("EiB"));
        assert_eq!(bandwidth(0.25), "250 kB/s");
        assert_eq!(bandwidth(812.0), "812 MB/s");
        assert_eq!(bandwidth(25_100.0), "25.1 GB/s");
        assert_eq!(bandwidth(3_350_000.0), "3.35 TB/s");
    }

    #[test]
    fn shares_do_not_round_to_all_or_nothing() {
        assert_eq!(percent(1.0), "100%");
        assert_eq!(percent(0.99999), "99.9%");
        assert_eq!(percent(0.0001), "<0.1%");
        assert_eq!(percent(0.0), "0.0%");
        assert_eq!(percent(0.712), "71.2%");
        assert_eq!(count(1_284_301), "1,284,301");
        assert_eq!(count(7), "7");
    }
}
