//! Names of threads: given by the program by number, seen in the system, or said by the thread itself.
//!
//! A number is another thread's once its thread has ended, so each definition of a thread has names of
//! its own. A name that the program gives says the number only, and the thread may not have called
//! anything yet. So it is that of the thread that was defined last before it, unless another one of that
//! number was named after it.

use rustc_hash::FxHashMap;

#[derive(Debug, Default)]
pub(super) struct ThreadNameTable {
    by_number: FxHashMap<u32, Number>,
    /// Where a definition is among its number's.
    positions: FxHashMap<u32, usize>,
    /// By definition.
    seen: FxHashMap<u32, Box<str>>,
}

#[derive(Debug, Default)]
struct Number {
    /// Label that came before any thread of this number.
    first: Option<u32>,
    /// Threads of this number in the order in which they were defined, with the label that came last before
    /// the next one.
    threads: Vec<(u32, Option<u32>)>,
}

/// About what a thread takes in the tables by number and by definition, beside its text.
const THREAD_BYTES: usize = 128;

impl ThreadNameTable {
    /// About how many bytes of memory that is.
    pub fn held_bytes(&self) -> usize {
        let texts: usize = self.seen.values().map(|name| name.len()).sum();
        (self.positions.len() + self.by_number.len() + self.seen.len()) * THREAD_BYTES / 2 + texts
    }

    /// A thread of that number was defined.
    pub fn began(&mut self, tid: u32, thread: u32) {
        let threads = &mut self.by_number.entry(tid).or_default().threads;
        self.positions.insert(thread, threads.len());
        threads.push((thread, None));
    }

    /// The program called the thread of that number so.
    pub fn labelled(&mut self, tid: u32, label: u32) {
        let number = self.by_number.entry(tid).or_default();
        match number.threads.last_mut() {
            Some((_, last)) => *last = Some(label),
            None => number.first = Some(label),
        }
    }

    /// The recorder saw that the system calls it so.
    pub fn saw(&mut self, thread: u32, name: &str) {
        self.seen.insert(thread, name.into());
    }

    pub fn seen(&self, thread: u32) -> Option<&str> {
        self.seen.get(&thread).map(|name| &**name)
    }

    /// The label of a thread, if the program gave it one.
    pub fn label(&self, tid: u32, thread: u32) -> Option<u32> {
        let number = self.by_number.get(&tid)?;
        let at = *self.positions.get(&thread)?;
        // A number may be defined twice, by whoever is hostile.
        let (_, own) = number.threads.get(at).filter(|(known, _)| *known == thread)?;
        // What was said before its definition: by itself, before its first call, or of the thread before.
        let before = match at.checked_sub(1) {
            None => number.first,
            Some(before) => number.threads.get(before).and_then(|(_, label)| *label),
        };
        own.or(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_label_is_a_thread_s_whether_it_comes_before_or_after_its_definition() {
        let mut names = ThreadNameTable::default();
        names.labelled(7, 100);
        names.labelled(7, 101);
        names.began(7, 1);
        assert_eq!(names.label(7, 1), Some(101));
        names.labelled(7, 102);
        assert_eq!(names.label(7, 1), Some(102));
        assert_eq!((names.label(8, 1), names.label(7, 2)), (None, None));
    }

    #[test]
    fn a_thread_keeps_its_names_when_its_number_is_another_s() {
        let mut names = ThreadNameTable::default();
        names.began(7, 1);
        names.labelled(7, 100);
        names.saw(1, "first");
        names.began(7, 2);
        names.saw(2, "second");
        names.labelled(7, 101);
        assert_eq!((names.label(7, 1), names.label(7, 2)), (Some(100), Some(101)));
        assert_eq!((names.seen(1), names.seen(2), names.seen(3)), (Some("first"), Some("second"), None));
        // Nobody labelled the third.
        names.began(7, 3);
        names.began(7, 4);
        assert_eq!(names.label(7, 4), None);
    }
}
