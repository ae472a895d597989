//! Names of threads: given by the program for a thread number, or seen in the system.
//!
//! The system reuses the number of an ended thread, so each definition of a thread has names of its own.
//! A program's label has only the number, and the thread may not be defined yet. A label is therefore the
//! name of the last thread of that number defined before it, and of the next one if that gets none.

use rustc_hash::FxHashMap;

#[derive(Debug, Default)]
pub(super) struct ThreadNameTable {
    by_number: FxHashMap<u32, Number>,
    /// A definition's index in `Number::threads`.
    positions: FxHashMap<u32, usize>,
    /// By definition.
    seen: FxHashMap<u32, Box<str>>,
}

#[derive(Debug, Default)]
struct Number {
    /// The label that came before any thread of this number.
    first: Option<u32>,
    /// The threads of this number in order of definition, each with the last label before the next thread.
    threads: Vec<(u32, Option<u32>)>,
}

/// About the bytes of a thread in both tables, without its name.
const THREAD_BYTES: usize = 128;

impl ThreadNameTable {
    /// About how many bytes of memory it takes.
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

    /// The program gave a label to the thread of that number.
    pub fn labelled(&mut self, tid: u32, label: u32) {
        let number = self.by_number.entry(tid).or_default();
        match number.threads.last_mut() {
            Some((_, last)) => *last = Some(label),
            None => number.first = Some(label),
        }
    }

    /// The collector saw the thread's name in the system.
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
        // A hostile process may define a thread twice.
        let (_, own) = number.threads.get(at).filter(|(known, _)| *known == thread)?;
        // The label before its definition: of this thread before its first call, or of the thread before it.
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
    fn latest_label_is_a_thread_s_whether_it_comes_before_or_after_its_definition() {
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
    fn thread_keeps_its_names_when_its_number_is_another_s() {
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
