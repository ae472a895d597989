//! The structure of a C++ name in source form: a path of parts with template arguments.
//!
//! The parser only requires that brackets match, and takes anything else as plain text. Its work is bounded
//! by the name's length times [`DEPTH_MAX`].

/// Template arguments nested deeper than this are kept as text.
const DEPTH_MAX: usize = 20;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NameNode<'a> {
    /// `a::b<…>::c(…)`; `pointer` where the type ends in `*`.
    Path { parts: Vec<PathPart<'a>>, pointer: bool },
    /// Numbers, builtin types, function types and anything else that is not a path.
    Text(&'a str),
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PathPart<'a> {
    pub name: &'a str,
    pub args: Vec<NameNode<'a>>,
    /// The text between the parentheses, where there are some.
    pub params: Option<&'a str>,
}

impl PathPart<'_> {
    pub fn is_lambda(&self) -> bool {
        self.name.starts_with("{lambda") || self.name.starts_with("'lambda")
    }
}

/// Reads a function or a type; a return type in front of it is left out.
pub fn parse(text: &str) -> NameNode<'_> {
    node(text, 0)
}

fn node(text: &str, depth: usize) -> NameNode<'_> {
    let text = text.trim();
    let (core, pointer) = without_qualifiers(text);
    let core = core.strip_prefix('&').unwrap_or(core);
    if depth > DEPTH_MAX || !begins_path(core) {
        return NameNode::Text(text);
    }
    let Some(path) = last_word(core) else { return NameNode::Text(text) };
    match split(path, "::").map(|parts| parts.into_iter().map(|p| part(p, depth)).collect()) {
        Some(Some(parts)) => NameNode::Path { parts, pointer },
        _ => NameNode::Text(text),
    }
}

fn begins_path(text: &str) -> bool {
    text.starts_with("(anonymous namespace)")
        || text.starts_with(|c: char| c.is_alphabetic() || matches!(c, '_' | '~' | '{' | '$' | '\''))
}

/// Removes `const`, `*` and `&` from the end of a type.
pub fn without_qualifiers(text: &str) -> (&str, bool) {
    let mut rest = text;
    let mut pointer = false;
    loop {
        let shorter = rest.trim_end();
        let shorter = shorter.strip_suffix(" const").or(shorter.strip_suffix(" volatile")).unwrap_or(shorter);
        let shorter = shorter.trim_end_matches('&');
        let stripped = shorter.strip_suffix('*');
        pointer |= stripped.is_some();
        let shorter = stripped.unwrap_or(shorter);
        // An operator's own name may end like a qualifier.
        if shorter.len() == rest.len() || shorter.ends_with("operator") {
            return (rest, pointer);
        }
        rest = shorter;
    }
}

/// What follows the last space outside brackets: the path behind a return type. `None` for
/// builtin types of several words and for function types.
fn last_word(text: &str) -> Option<&str> {
    let words = split(text, " ")?;
    let mut at = text.len();
    for word in words.iter().rev() {
        at -= word.len();
        let belongs_to_path = word.starts_with("const::") || word.is_empty() || *word == "const";
        if !belongs_to_path {
            // The words of a conversion, `operator unsigned int`, stay together.
            let path = text.get(at..)?;
            let builtin = at > 0 && is_builtin(path);
            return (!builtin && begins_path(path)).then_some(path);
        }
        at = at.saturating_sub(1);
    }
    None
}

fn is_builtin(word: &str) -> bool {
    matches!(word, "int" | "long" | "short" | "char" | "double" | "unsigned" | "signed" | "__int128")
}

fn part(text: &str, depth: usize) -> Option<PathPart<'_>> {
    let name_end = name_end(text)?;
    let (name, mut rest) = text.split_at_checked(name_end)?;
    let name = name.split("[abi:").next().unwrap_or(name).trim_end();
    let mut part = PathPart { name, ..PathPart::default() };
    if rest.starts_with('<') {
        let end = closing(rest)?;
        let inside = rest.get(1..end)?;
        if !inside.trim().is_empty() {
            part.args = split(inside, ",")?.into_iter().map(|arg| node(arg, depth + 1)).collect();
        }
        rest = rest.get(end + 1..)?;
    }
    if rest.starts_with('(') {
        part.params = rest.get(1..closing(rest)?);
    }
    Some(part)
}

fn name_end(text: &str) -> Option<usize> {
    const ANONYMOUS: &str = "(anonymous namespace)";
    if text.starts_with(ANONYMOUS) {
        return Some(ANONYMOUS.len());
    }
    if text.starts_with('{') {
        return Some(closing(text)? + 1);
    }
    if text.starts_with("operator") {
        let symbol = operator_symbol(text.as_bytes(), 0);
        if symbol > 0 {
            return Some(symbol);
        }
    }
    Some(text.find(['<', '(']).unwrap_or(text.len()))
}

/// Where the bracket that begins the text closes.
fn closing(text: &str) -> Option<usize> {
    let mut walk = Walk::new(text);
    while let Some((at, _)) = walk.next_byte() {
        if walk.open.is_empty() && at > 0 {
            return Some(at);
        }
    }
    None
}

/// Cuts the text at every separator outside brackets; `None` if brackets do not match.
pub fn split<'a>(text: &'a str, separator: &str) -> Option<Vec<&'a str>> {
    let mut walk = Walk::new(text);
    let mut pieces = Vec::new();
    let mut from = 0;
    while let Some((at, _)) = walk.next_byte() {
        if walk.open.is_empty() && at >= from && text.as_bytes()[at..].starts_with(separator.as_bytes()) {
            pieces.push(text.get(from..at)?);
            from = at + separator.len();
        }
    }
    pieces.push(text.get(from..)?);
    walk.open.is_empty().then_some(pieces)
}

/// Iterates over bytes and keeps the open brackets. Operators such as `<<` are not brackets.
struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
    open: Vec<u8>,
}

impl<'a> Walk<'a> {
    fn new(text: &'a str) -> Self {
        Walk { bytes: text.as_bytes(), at: 0, open: Vec::new() }
    }

    fn next_byte(&mut self) -> Option<(usize, u8)> {
        let at = self.at;
        let byte = *self.bytes.get(at)?;
        #[cfg(test)]
        tests::BYTES_READ.set(tests::BYTES_READ.get() + 1);
        self.at += 1;
        let begins_word = at == 0 || !is_word(self.bytes[at - 1]);
        match byte {
            b'o' if begins_word => self.at = operator_symbol(self.bytes, at).max(self.at),
            b'<' | b'(' | b'[' | b'{' => self.open.push(byte),
            b'>' if at > 0 && self.bytes[at - 1] == b'-' => {}
            b'>' if self.open.last() == Some(&b'<') => {
                self.open.pop();
            }
            b')' => self.close(b'('),
            b']' => self.close(b'['),
            b'}' => self.close(b'{'),
            _ => {}
        }
        Some((at, byte))
    }

    /// Closes the bracket and any `<` in it, which was a comparison.
    fn close(&mut self, opener: u8) {
        let Some(index) = self.open.iter().rposition(|open| *open == opener) else { return };
        if self.open[index + 1..].iter().all(|open| *open == b'<') {
            self.open.truncate(index);
        }
    }
}

/// The end of an operator's name that begins at `at` and has brackets in it; 0 if there is none.
fn operator_symbol(bytes: &[u8], at: usize) -> usize {
    const SYMBOLS: [&[u8]; 12] =
        [b"()", b"[]", b"<<=", b">>=", b"<=>", b"->*", b"->", b"<<", b">>", b"<=", b">=", b"<"];
    let Some(rest) = bytes[at..].strip_prefix(b"operator") else { return 0 };
    let found = SYMBOLS.iter().find(|symbol| rest.starts_with(symbol)).map(|symbol| symbol.len());
    let Some(length) = found.or(rest.starts_with(b">").then_some(1)) else { return 0 };
    // Template arguments are set off by a space.
    let space = usize::from(rest[length..].starts_with(b" <"));
    at + b"operator".len() + length + space
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

#[cfg(test)]
pub mod tests {
    use super::*;

    thread_local! {
        /// How many bytes this thread read, each as often as it was read: the work of the parser.
        pub static BYTES_READ: core::cell::Cell<u64> = const { core::cell::Cell::new(0) };
    }

    fn names(text: &str) -> Vec<String> {
        match parse(text) {
            NameNode::Path { parts, .. } => {
                parts.iter().map(|p| format!("{}/{}", p.name, p.args.len())).collect()
            }
            NameNode::Text(text) => vec![format!("text {text}")],
        }
    }

    #[test]
    fn paths_are_cut_where_a_compiler_would() {
        assert_eq!(names("void at::native::f<4, a::B<c, d> >(int, x<y>)"), ["at/0", "native/0", "f/2"]);
        assert_eq!(
            names("a::(anonymous namespace)::S<int>::operator()(int) const"),
            ["a/0", "(anonymous namespace)/0", "S/1", "operator()/0"]
        );
        assert_eq!(
            names("f(int)::{lambda(a::b)#1}::operator()() const::{lambda()#2}"),
            ["f/0", "{lambda(a::b)#1}/0", "operator()/0", "{lambda()#2}/0"]
        );
        assert_eq!(names("bool ns::operator< <int>(int, int)"), ["ns/0", "operator</1"]);
        assert_eq!(names("f<(4<5), b>(int)"), ["f/2"]);
        assert_eq!(names("decltype(x->y<z>()) f<1>()"), ["f/1"]);
    }

    #[test]
    fn arguments_that_are_no_path_stay_text() {
        assert_eq!(names("unsigned int"), ["text unsigned int"]);
        assert_eq!(names("void (*)(int)"), ["text void (*)(int)"]);
        assert_eq!(names("3ul"), ["text 3ul"]);
        assert_eq!(names("f<a"), ["text f<a"]);
        assert_eq!(names("float const*"), ["float/0"]);
        assert!(matches!(parse("float const*"), NameNode::Path { pointer: true, .. }));
    }
}
