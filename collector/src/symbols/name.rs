//! Readable names of native functions: without parameters, and without template arguments if these are long.

use crate::names::demangle_function;

/// Longer names lose template arguments.
const LONG: usize = 160;

pub fn readable(mangled: &str) -> String {
    let name = demangle_function(mangled.as_bytes());
    let mut depth = 3;
    let mut short = name.clone();
    while short.chars().count() > LONG && depth > 0 {
        depth -= 1;
        short = without_deeper(&name, depth);
    }
    cut(short)
}

/// A name that is still long, without its middle: names often begin alike and differ at the end.
fn cut(name: String) -> String {
    let length = name.chars().count();
    if length <= LONG {
        return name;
    }
    let head = name.chars().take(LONG / 2);
    head.chain(['…']).chain(name.chars().skip(length + 1 - LONG / 2)).collect()
}

/// The name with `…` for text nested in more angle brackets than that.
fn without_deeper(name: &str, depth: usize) -> String {
    let mut out = String::with_capacity(name.len());
    let mut open = 0usize;
    for (at, letter) in name.char_indices() {
        let before = name.get(..at).unwrap_or_default();
        // Operators such as `<<` are not brackets.
        let is_operator = before.trim_end_matches(['<', '>', '=', '-']).ends_with("operator")
            || letter == '>' && before.ends_with('-');
        match letter {
            '<' if !is_operator => {
                open += 1;
                if open <= depth + 1 {
                    out.push('<');
                }
                if open == depth + 1 {
                    out.push('…');
                }
            }
            '>' if !is_operator => {
                if open <= depth + 1 {
                    out.push('>');
                }
                open = open.saturating_sub(1);
            }
            letter if open <= depth => out.push(letter),
            _ => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_source() {
        for (mangled, expected) in [
            ("main", "main"),
            ("_ZN9simulator4stepERKSt6vectorIdSaIdEEi", "simulator::step"),
            (
                "_ZN2at6native10gpu_kernelIZNS0_12_GLOBAL__N_13addERNS0_2ItEEUlffE_EEvS4_RKT_",
                "at::native::gpu_kernel<at::native::(anonymous namespace)::add(at::native::It&)::{lambda(float, float)#1}>",
            ),
            (
                "_ZN4core3ops8function6FnOnce9call_once17h0123456789abcdefE",
                "core::ops::function::FnOnce::call_once",
            ),
            ("_RNvCs1234_7mycrate3foo", "mycrate::foo"),
        ] {
            assert_eq!(readable(mangled), expected);
        }
    }

    #[test]
    fn long_templates_are_cut_from_the_inside() {
        let name = format!("f<{}, g<h<int>, {}>>::operator<<", "a".repeat(20), "b".repeat(90));
        assert_eq!(without_deeper(&name, 1), format!("f<{}, g<…>>::operator<<", "a".repeat(20)));
        assert_eq!(without_deeper(&name, 0), "f<…>::operator<<");
        let operators = format!("{}::{}", "a".repeat(200), "b".repeat(200));
        let short = cut(operators.clone());
        assert_eq!(short.chars().count(), LONG);
        assert!(
            operators.starts_with(&short[..79]) && operators.ends_with(&short[short.len() - 70..]),
            "{short}"
        );
        assert_eq!(without_deeper("a->b<c>::operator->", 0), "a->b<…>::operator->");
    }
}
