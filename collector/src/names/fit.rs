//! Texts that are cut to the width of a column.

/// The text in at most `width` characters. A longer text loses its middle.
pub fn fit(text: &str, width: usize) -> String {
    let count = text.chars().count();
    if count <= width {
        return text.to_owned();
    }
    let Some(kept) = width.checked_sub(1) else { return String::new() };
    let tail = kept / 2;
    let head: String = text.chars().take(kept - tail).collect();
    head + "…" + &text.chars().skip(count - tail).collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fitted_text_keeps_both_ends() {
        assert_eq!(fit("abcdefgh", 5), "ab…gh");
        assert_eq!(fit("abc", 3), "abc");
        assert_eq!(fit("abc", 0), "");
        assert_eq!(fit("abc", 1), "…");
    }
}
