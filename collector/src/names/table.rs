//! Short names that are unique: two kernels are never shown as one.

use std::collections::HashMap;
use std::sync::Arc;

use crate::names::{line_safe, short};

/// Gives every distinct full name a short name of its own. The first to come has the plain one,
/// later ones with the same short name are marked `name#2`, `name#3`, …
///
/// Grows with the names put in; whoever fills it bounds their number.
#[derive(Clone, Debug, Default)]
pub struct NameTable {
    by_full: HashMap<Arc<str>, Arc<str>>,
    taken: HashMap<Arc<str>, u32>,
}

impl NameTable {
    /// The short name of this full name, the same one at every call.
    pub fn short(&mut self, full: &str) -> Arc<str> {
        if let Some(known) = self.by_full.get(full) {
            return known.clone();
        }
        let unique = self.unique(line_safe(&short(full)).into());
        self.by_full.insert(full.into(), unique.clone());
        unique
    }

    fn unique(&mut self, plain: Arc<str>) -> Arc<str> {
        let mut candidate = plain.clone();
        // A kernel may really be called `name#2`, so the mark is tried until it is free.
        while self.taken.contains_key(&candidate) {
            let count = self.taken.entry(plain.clone()).or_insert(1);
            *count += 1;
            candidate = format!("{plain}#{count}").into();
        }
        self.taken.insert(candidate.clone(), 1);
        candidate
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_first_keeps_the_plain_name() {
        let mut table = NameTable::default();
        assert_eq!(&*table.short("void a::f<int>(int)"), "f<int>");
        assert_eq!(&*table.short("void b::f<int>(int)"), "f<int>#2");
        assert_eq!(&*table.short("void c::f<int>(int)"), "f<int>#3");
        assert_eq!(&*table.short("void b::f<int>(int)"), "f<int>#2");
        assert_eq!(&*table.short("f<int>"), "f<int>#4");
    }

    proptest! {
        #[test]
        fn short_names_are_unique(names in prop::collection::vec("[ab](::[fg])?(<[12]>)?(#2)?", 1..60)) {
            let mut table = NameTable::default();
            let mut by_short = HashMap::new();
            for full in &names {
                let short = table.short(full);
                prop_assert_eq!(by_short.entry(short).or_insert(full.clone()), full);
            }
        }
    }
}
