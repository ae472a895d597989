//! The differences between two names that have the same short name.

use crate::names::argument::{Detail, argument, part};
use crate::names::identifier::is_filler;
use crate::names::path::{NameNode, PathPart, parse};
use crate::names::short::{bare, structure};
use crate::names::vocabulary as known;

/// The most differences that are collected.
const DIFFERENCES_MAX: usize = 12;
/// The most parts and arguments that are compared.
const COMPARED_MAX: usize = 2000;
/// The detail of a differing argument.
const SHOWN: Detail = Detail { depth: 1, arguments: 3, flags: true, elements: true };
/// An argument of at least this length that the short name shows is not repeated.
const SAME_MIN_BYTES: usize = 8;
/// Longer words are not used as marks.
const WORD_MAX_CHARS: usize = 40;

/// The words in which our full name differs from theirs, in its order, with plumbing last. Words of `shown`,
/// the short name, are not repeated. Empty if there are none.
pub fn differences(ours: &str, theirs: &str, shown: &str) -> Vec<String> {
    let (ours, theirs) = (bare(ours), bare(theirs));
    let mut found = Differences { shown, said: Vec::new(), plumbing: Vec::new(), compared: 0 };
    match (structure(ours), structure(theirs)) {
        (Some(ours), Some(theirs)) => found.path(&ours, &theirs),
        (None, None) => found.words(ours, theirs),
        _ => {}
    }
    found.said.extend(found.plumbing);
    found.said.truncate(DIFFERENCES_MAX);
    found.said
}

struct Differences<'s> {
    shown: &'s str,
    said: Vec<String>,
    /// Differences that come after all others.
    plumbing: Vec<String>,
    compared: usize,
}

impl Differences<'_> {
    fn add(&mut self, word: String) {
        let fits = !word.is_empty() && word.chars().count() <= WORD_MAX_CHARS;
        // A kernel's functor is repeated in its later arguments; a repeated number is another argument.
        let number = word.bytes().all(|b| b.is_ascii_digit() || b == b'-');
        if self.said.len() < DIFFERENCES_MAX && fits && (number || !self.said.contains(&word)) {
            self.said.push(word);
        }
    }

    /// Adds a type or a namespace, or only its name if the rest is too long or already shown.
    fn add_part(&mut self, ours: &PathPart<'_>) {
        let word = part(ours, SHOWN);
        let inside =
            word.split_once('<').and_then(|(_, rest)| rest.rsplit_once('>')).map(|(inside, _)| inside);
        let known = self.shown.contains(&word)
            || known::held(ours).is_some()
            || known::unwrapped(ours).is_some()
            || inside.is_some_and(|inside| inside.len() > SAME_MIN_BYTES && self.shown.contains(inside));
        let name = known::element(ours.name).unwrap_or(ours.name);
        self.add(if known || word.chars().count() > WORD_MAX_CHARS { name.to_owned() } else { word });
    }

    fn add_node(&mut self, ours: &NameNode<'_>) {
        match ours {
            NameNode::Path { parts, pointer: false } => match parts.last() {
                Some(own)
                    if !own.is_lambda() && own.name != "operator()" && !known::is_number_type(own.name) =>
                {
                    self.add_part(own)
                }
                _ => self.add(argument(ours, SHOWN)),
            },
            _ => self.add(argument(ours, SHOWN)),
        }
    }

    fn path(&mut self, ours: &[PathPart<'_>], theirs: &[PathPart<'_>]) {
        let said = self.said.len();
        for (a, b) in ours.iter().rev().zip(theirs.iter().rev()) {
            self.part(a, b);
        }
        // One path has more namespaces or classes.
        let more = ours.len().saturating_sub(theirs.len());
        for outer in &ours[..more] {
            self.add_part(outer);
        }
        if self.said.len() == said
            && let (Some(a), Some(b)) = (ours.last(), theirs.last())
            && a.params != b.params
        {
            self.parameters(a.params.unwrap_or_default(), b.params.unwrap_or_default());
        }
    }

    fn part(&mut self, ours: &PathPart<'_>, theirs: &PathPart<'_>) {
        self.compared += 1;
        if self.compared > COMPARED_MAX {
            return;
        }
        if ours.is_lambda() && theirs.is_lambda() {
            if ours.name != theirs.name {
                let number = ours.name.rsplit('#').next().unwrap_or_default().trim_end_matches('}');
                self.add(format!("lambda {number}"));
            }
            return;
        }
        if ours.name != theirs.name {
            return self.add_part(ours);
        }
        self.flags(&ours.args, &theirs.args);
        for (at, ours) in ours.args.iter().enumerate() {
            match theirs.args.get(at) {
                Some(theirs) if known::is_flag(ours) && known::is_flag(theirs) => {}
                Some(theirs) if known::is_plumbing(ours) => self.aside(|found| found.node(ours, theirs)),
                Some(theirs) => self.node(ours, theirs),
                None if known::is_plumbing(ours) => self.aside(|found| found.add_node(ours)),
                None => self.add_node(ours),
            }
        }
    }

    /// Puts the differences that `look` finds at the end.
    fn aside(&mut self, look: impl FnOnce(&mut Self)) {
        let said = std::mem::take(&mut self.said);
        look(self);
        let found = std::mem::replace(&mut self.said, said);
        self.plumbing.extend(found);
    }

    /// Flags are shown together, as `TFF`: one alone would not be understood.
    fn flags(&mut self, ours: &[NameNode<'_>], theirs: &[NameNode<'_>]) {
        let flags = |args: &[NameNode<'_>]| args.iter().filter_map(known::flag).collect::<Vec<bool>>();
        let (ours, theirs) = (flags(ours), flags(theirs));
        if ours == theirs {
            return;
        }
        match ours.as_slice() {
            [] => {}
            [only] => self.add(only.to_string()),
            many => self.add(many.iter().map(|flag| if *flag { 'T' } else { 'F' }).collect()),
        }
    }

    fn node(&mut self, ours: &NameNode<'_>, theirs: &NameNode<'_>) {
        match (ours, theirs) {
            (NameNode::Path { parts: a, pointer: p }, NameNode::Path { parts: b, pointer: q }) if p == q => {
                let own =
                    |parts: &[PathPart<'_>]| parts.last().map(|own| (own.name.to_owned(), own.is_lambda()));
                let same = own(a) == own(b) || (own(a).is_some_and(|a| a.1) && own(b).is_some_and(|b| b.1));
                if same { self.path(a, b) } else { self.add_node(ours) }
            }
            (NameNode::Text(a), NameNode::Text(b)) if a == b => {}
            _ => self.add_node(ours),
        }
    }

    /// Compares parameters, the only difference between overloads.
    fn parameters(&mut self, ours: &str, theirs: &str) {
        let list = |params: &str| format!("f<{params}>");
        let (ours, theirs) = (list(ours), list(theirs));
        if let (NameNode::Path { parts: a, .. }, NameNode::Path { parts: b, .. }) =
            (parse(&ours), parse(&theirs))
            && let (Some(a), Some(b)) = (a.last(), b.last())
        {
            for (at, node) in a.args.iter().enumerate() {
                if b.args.get(at) != Some(node) {
                    self.add(argument(node, SHOWN));
                }
            }
        }
    }

    /// Compares plain words by their pieces between underscores.
    fn words(&mut self, ours: &str, theirs: &str) {
        let (ours, theirs) = (together(ours), together(theirs));
        let sorted = |name: &'_ str| {
            let mut words: Vec<String> = name.split('_').take(COMPARED_MAX).map(str::to_owned).collect();
            words.sort_unstable();
            words
        };
        let (in_ours, in_theirs) = (sorted(&ours), sorted(&theirs));
        let missing = |word: &&str, words: &[String]| {
            !is_filler(word) && words.binary_search_by(|known| known.as_str().cmp(word)).is_err()
        };
        for word in ours.split('_').take(COMPARED_MAX).filter(|word| missing(word, &in_theirs)) {
            self.add(word.to_owned());
        }
        if self.said.is_empty() {
            for word in theirs.split('_').take(COMPARED_MAX).filter(|word| missing(word, &in_ours)) {
                self.add(format!("no {word}"));
            }
        }
    }
}

/// Joins pieces that belong together into one word.
fn together(name: &str) -> String {
    name.replace("segment_k_", "segment-k-").replace("split_k", "split-k")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_listed_in_order() {
        for (ours, theirs, expected) in [
            ("void f<int, true>(int)", "void f<int, false>(int)", &["true"][..]),
            ("void f<true, int, true>()", "void f<false, int, true>()", &["TT"]),
            ("void f<a::B<4>, 7>()", "void f<a::B<5>, 8>()", &["4", "7"]),
            ("void a::f<int>(int)", "void b::f<int>(int)", &["a"]),
            ("void f(float*)", "void f(double*)", &["float*"]),
            ("g<f(int)::{lambda(int)#2}>()", "g<f(int)::{lambda(int)#1}>()", &["lambda 2"]),
            ("sm80_x_stage4_y", "sm80_x_stage5_y", &["stage4"]),
            ("sm80_x_y", "sm80_x_stage5_y", &["no stage5"]),
            ("a_execute_segment_k_off_kernel", "a_execute_segment_k_on_kernel", &["segment-k-off"]),
            ("f<Params<2>, 3>()", "f<Params<1>, 4>()", &["3", "2"]),
            ("f<int>", "f<int>", &[]),
            ("f", "f<int>()", &[]),
        ] {
            assert_eq!(differences(ours, theirs, "f"), expected, "{ours} and {theirs}");
        }
    }
}
