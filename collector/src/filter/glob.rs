//! Patterns of names: `*` stands for any letters, `?` for one, and everything else for itself.

/// A pattern. A backslash makes the letter after it an ordinary one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Glob(Vec<Token>);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Token {
    Letter(char),
    One,
    Any,
}

impl Glob {
    pub fn new(text: &str) -> Glob {
        let mut tokens = Vec::new();
        let mut letters = text.chars();
        while let Some(letter) = letters.next() {
            tokens.push(match letter {
                '*' => Token::Any,
                '?' => Token::One,
                '\\' => Token::Letter(letters.next().unwrap_or('\\')),
                letter => Token::Letter(letter),
            });
        }
        Glob(tokens)
    }

    /// Whether the whole text matches. Takes at most the product of both lengths.
    pub fn matches(&self, text: &str) -> bool {
        let mut letters = text.chars();
        let mut at = 0;
        // The last `*`, and what it has not consumed yet: where letters after it do not match, it takes one
        // more.
        let mut star: Option<(usize, std::str::Chars<'_>)> = None;
        loop {
            let token = self.0.get(at);
            if token == Some(&Token::Any) {
                star = Some((at, letters.clone()));
                at += 1;
                continue;
            }
            let mut rest = letters.clone();
            let letter = rest.next();
            let fits = match (token, letter) {
                (None, None) => return true,
                (Some(Token::One), Some(_)) => true,
                (Some(Token::Letter(wanted)), Some(letter)) => *wanted == letter,
                _ => false,
            };
            if fits {
                letters = rest;
                at += 1;
                continue;
            }
            let Some((star_at, after)) = &mut star else { return false };
            if after.next().is_none() {
                return false;
            }
            letters = after.clone();
            at = *star_at + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn glob_matches_whole_texts() {
        for (glob, text, expected) in [
            ("gemm", "gemm", true),
            ("gemm", "gemm2", false),
            ("gemm*", "gemm_backward", true),
            ("*gemm*", "void gemm<float>(int)", true),
            ("*a*b", "xaxbxb", true),
            ("*a*b", "xaxbx", false),
            ("g?mm", "gemm", true),
            ("g?mm", "gmm", false),
            ("*", "", true),
            ("?", "é", true),
            ("", "", true),
            ("", "x", false),
            ("[a-z]", "[a-z]", true),
            ("[a-z]", "b", false),
            (r"a\*", "a*", true),
            (r"a\*", "ab", false),
            (r"a\,b", "a,b", true),
            (r"a\", r"a\", true),
        ] {
            assert_eq!(Glob::new(glob).matches(text), expected, "{glob} on {text}");
        }
    }

    /// Patterns like this one take ages where every `*` is tried against every other.
    #[test]
    fn glob_of_many_stars_is_matched_at_once() {
        let glob = Glob::new(&"*a".repeat(100));
        assert!(!glob.matches(&("a".repeat(10_000) + "b")));
    }
}
