//! Template arguments that are plain text: numbers and builtin types.

use crate::names::path::{NameNode, without_qualifiers};
use crate::names::vocabulary as known;

/// Longer numbers are encodings that nobody reads.
const NUMBER_MAX_DIGITS: usize = 9;
/// Longer text is not shown.
const TEXT_MAX_CHARS: usize = 24;

/// Writes `(Enum)3` and `3ul` as `3`, a builtin type as one word, and any other text as it is or, if long, as
/// `…`.
pub fn literal(text: &str) -> String {
    let value = match text.rsplit_once(')') {
        Some((before, value)) if before.starts_with('(') && !value.is_empty() => value,
        _ => text,
    };
    let digits = value.trim_end_matches(['u', 'l']);
    if digits.strip_prefix('-').unwrap_or(digits).bytes().all(|b| b.is_ascii_digit()) && !digits.is_empty() {
        return digits.to_owned();
    }
    let (core, pointer) = without_qualifiers(value);
    if let Some(word) = known::builtin(core.trim_end()) {
        return if pointer { format!("{word}*") } else { word.to_owned() };
    }
    if value.chars().count() > TEXT_MAX_CHARS { "…".to_owned() } else { value.to_owned() }
}

pub fn is_number(node: &NameNode<'_>) -> bool {
    let NameNode::Text(text) = node else { return false };
    literal(text).bytes().all(|b| b.is_ascii_digit() || b == b'-')
}

/// A number that is too long to read.
pub fn is_encoding(node: &NameNode<'_>) -> bool {
    let NameNode::Text(text) = node else { return false };
    is_number(node) && literal(text).len() > NUMBER_MAX_DIGITS
}

/// Whether the argument is `{…}`, an empty pack.
pub fn is_nothing(node: &NameNode<'_>) -> bool {
    matches!(node, NameNode::Text(text) if text.trim().is_empty())
}
