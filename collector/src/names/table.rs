//! Short names that are unique: two kernels are never shown as one.

use std::collections::HashMap;
use std::sync::Arc;

use crate::names::difference::differences;
use crate::names::{line_safe, short};

/// Longer marks are tried only after shorter ones.
const MARK_COMFORTABLE_CHARS: usize = 32;
/// The most characters of a mark.
pub(super) const MARK_MAX_CHARS: usize = 48;

/// Gives every distinct full name a unique short name. The first full name gets the plain short name. Later
/// ones with the same short name get a mark with a difference, `name [double]`, or, if no difference is short
/// enough, a number, `name#2`, `name#3`, …
///
/// The table grows with the names; the caller bounds their number.
#[derive(Clone, Debug, Default)]
pub struct NameTable {
    by_full: HashMap<Arc<str>, Arc<str>>,
    taken: HashMap<Arc<str>, Taken>,
}

#[derive(Clone, Debug)]
struct Taken {
    full: Arc<str>,
    /// The number of names marked by a number.
    numbered: u32,
}

impl NameTable {
    /// The short name of this full name, the same one at every call.
    pub fn short(&mut self, full: &str) -> Arc<str> {
        if let Some(known) = self.by_full.get(full) {
            return known.clone();
        }
        let full: Arc<str> = full.into();
        let unique = self.unique(line_safe(&short(&full)).into(), &full);
        self.taken.insert(unique.clone(), Taken { full: full.clone(), numbered: 1 });
        self.by_full.insert(full, unique.clone());
        unique
    }

    fn unique(&mut self, plain: Arc<str>, full: &str) -> Arc<str> {
        let Some(first) = self.taken.get(&plain) else { return plain };
        let marked = marks(&differences(full, &first.full, &plain))
            .into_iter()
            .map(|mark| Arc::from(format!("{plain} [{}]", line_safe(&mark))))
            .find(|marked| !self.taken.contains_key(marked));
        marked.unwrap_or_else(|| self.numbered(&plain))
    }

    fn numbered(&mut self, plain: &Arc<str>) -> Arc<str> {
        // A kernel may really be called `name#2`, so the mark is tried until it is free.
        loop {
            let Some(first) = self.taken.get_mut(plain) else { return plain.clone() };
            first.numbered += 1;
            let candidate = format!("{plain}#{}", first.numbered);
            if !self.taken.contains_key(candidate.as_str()) {
                return candidate.into();
            }
        }
    }
}

/// The marks to try, in order: as many differences as fit well, then one more at a time.
fn marks(differences: &[String]) -> Vec<String> {
    let mut marks: Vec<String> = Vec::new();
    let mut mark = String::new();
    for word in differences {
        if !mark.is_empty() {
            mark.push_str(", ");
        }
        mark.push_str(word);
        let chars = mark.chars().count();
        if chars > MARK_MAX_CHARS {
            break;
        }
        if chars <= MARK_COMFORTABLE_CHARS {
            marks.clear();
        }
        marks.push(mark.clone());
    }
    marks
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_after_the_first_are_marked_with_their_differences() {
        let mut table = NameTable::default();
        assert_eq!(&*table.short("void a::f<int>(int)"), "f<int>");
        assert_eq!(&*table.short("void b::f<int>(int)"), "f<int> [b]");
        assert_eq!(&*table.short("void c::f<int>(int)"), "f<int> [c]");
        assert_eq!(&*table.short("void b::f<int>(int)"), "f<int> [b]");
        assert_eq!(&*table.short("void a::f<int>(long)"), "f<int> [long]");
        assert_eq!(&*table.short("f<int>"), "f<int>#2");
        assert_eq!(&*table.short("long a::f<int>(int)"), "f<int>#3");
    }

    #[test]
    fn mark_is_the_argument_that_the_short_name_leaves_out() {
        let mut table = NameTable::default();
        let full = |functor: &str, flag: bool| {
            format!(
                "void at::native::vectorized_elementwise_kernel<4, at::native::{functor}, std::array<char*, 2ul>, {flag}>(int)"
            )
        };
        let gelu = |number: u32| {
            format!(
                "GeluCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)::{{lambda()#{number}}}::operator()() const::{{lambda()#2}}::operator()() const::{{lambda(float)#1}}"
            )
        };
        assert_eq!(
            &*table.short(&full(&gelu(2), false)),
            "vectorized_elementwise_kernel<4, GeluCUDAKernelImpl(float)>"
        );
        assert_eq!(
            &*table.short(&full(&gelu(1), false)),
            "vectorized_elementwise_kernel<4, GeluCUDAKernelImpl(float)> [lambda 1]"
        );
        assert_eq!(
            &*table.short(&full(&gelu(1), true)),
            "vectorized_elementwise_kernel<4, GeluCUDAKernelImpl(float)> [true, lambda 1]"
        );
    }

    proptest! {
        #[test]
        fn short_names_are_unique(names in prop::collection::vec("[ab](::[fg])?(<[12](, (true|false))?>)?(#2| \\[2\\])?", 1..60)) {
            let mut table = NameTable::default();
            let mut by_short = HashMap::new();
            for full in &names {
                let short = table.short(full);
                prop_assert_eq!(by_short.entry(short).or_insert(full.clone()), full);
            }
        }

        /// Names made of what C++ names are made of, well formed and not.
        #[test]
        fn anything_like_a_name_has_a_unique_short_name(
            names in prop::collection::vec(prop::collection::vec(prop::sample::select(PIECES), 0..40), 1..8)
        ) {
            let mut table = NameTable::default();
            let mut by_short = HashMap::new();
            for full in names.iter().map(|pieces| pieces.concat()) {
                prop_assert!(short(&full).chars().count() <= crate::names::SHORT_MAX_CHARS);
                let short = table.short(&full);
                prop_assert_eq!(by_short.entry(short).or_insert(full.clone()), &full);
            }
        }
    }

    const PIECES: &[&str] = &[
        "f",
        "a::",
        "kernel",
        "Kernel2",
        "<",
        "<",
        ">",
        ">",
        " >",
        "(",
        ")",
        ", ",
        "{lambda(",
        ")#1}",
        "{lambda()#2}",
        "::operator()() const",
        "operator<",
        "(anonymous namespace)::",
        " const",
        "*",
        "&",
        "1",
        "(Enum)2",
        "3ul",
        "true",
        "false",
        "unsigned int",
        "float",
        "iter",
        "ReduceOp<",
        "AUnaryFunctor<a, b, c, ",
        "traits<",
        "cute::C<64>",
        "GemmShape<128, 64, 32>",
        "_xmma_",
        "_tilesize",
        "_kernel__5x_",
        "é",
        "…",
        "->",
        "[abi:v1]",
        "void ",
        " [clone ",
    ];
}
