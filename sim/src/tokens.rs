//! PTX text cut into tokens. Comments and strings vanish, but for the comments that speak to the simulation.

/// One token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token<'a> {
    /// A name, number or directive, with its dots.
    Word(&'a str),
    /// Any other byte that is not white space.
    Mark(u8),
    /// A comment of the form `sim.KEY = VALUE`.
    Statement(&'a str, &'a str),
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'$' | b'%' | b'-' | b'+')
}

/// All tokens of a text.
pub fn tokens(text: &str) -> Vec<Token<'_>> {
    let bytes = text.as_bytes();
    let (mut found, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"//") {
            let end = rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
            let comment = text.get(at + 2..at + end).unwrap_or("").trim();
            if let Some((key, value)) = comment.strip_prefix("sim.").and_then(|c| c.split_once('=')) {
                found.push(Token::Statement(key.trim(), value.trim()));
            }
            at += end;
        } else if rest.starts_with(b"/*") {
            at += rest.windows(2).skip(2).position(|w| w == b"*/").map_or(rest.len(), |p| p + 4);
        } else if rest[0] == b'"' {
            at += rest.iter().skip(1).position(|&b| b == b'"').map_or(rest.len(), |p| p + 2);
        } else if is_word(rest[0]) {
            let end = rest.iter().position(|&b| !is_word(b)).unwrap_or(rest.len());
            found.push(Token::Word(&text[at..at + end]));
            at += end;
        } else {
            if !rest[0].is_ascii_whitespace() {
                found.push(Token::Mark(rest[0]));
            }
            at += 1;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_strings_vanish() {
        let found = tokens("a /* b ; */ \"c;\" // d\n// sim.key = 7 \n.e%f[3]");
        let wanted = [
            Token::Word("a"),
            Token::Statement("key", "7"),
            Token::Word(".e%f"),
            Token::Mark(b'['),
            Token::Word("3"),
            Token::Mark(b']'),
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn unterminated_comment_ends_with_the_text() {
        assert_eq!(tokens("a /* b"), [Token::Word("a")]);
        assert_eq!(tokens("a \"b"), [Token::Word("a")]);
        assert_eq!(tokens("a /"), [Token::Word("a"), Token::Mark(b'/')]);
    }
}
