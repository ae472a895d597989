//! Which ranges nest: events of one thread's track must not overlap in part.
//!
//! Pushed ranges nest, except where ranges of two domains are popped in another order. Ranges that are ended
//! by number begin and end anywhere.

use rustc_hash::FxHashMap;

use crate::model::instances::RangeInstance;

/// Threads, and open ranges of one, that are remembered. More than a thread has can be open only if their
/// ends were left out.
const THREADS_MAX: usize = 1 << 16;
const OPEN_MAX: usize = 128;

/// The open pushed ranges by process and thread, outermost first.
#[derive(Debug, Default)]
pub struct Pushed(FxHashMap<(u32, u32), Vec<u32>>);

impl Pushed {
    pub fn begins(&mut self, range: &RangeInstance) {
        let key = (range.process, range.thread);
        if self.0.len() >= THREADS_MAX && !self.0.contains_key(&key) {
            return;
        }
        let open = self.0.entry(key).or_default();
        if open.len() >= OPEN_MAX {
            open.remove(0);
        }
        open.push(range.number);
    }

    /// Whether the range that ends was the innermost of its thread.
    pub fn ends(&mut self, range: &RangeInstance) -> bool {
        let Some(open) = self.0.get_mut(&(range.process, range.thread)) else { return false };
        let Some(at) = open.iter().rposition(|number| *number == range.number) else { return false };
        open.remove(at);
        at == open.len()
    }

    pub fn process_ends(&mut self, ended: u32) {
        self.0.retain(|(process, _), _| *process != ended);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(thread: u32, number: u32) -> RangeInstance {
        RangeInstance {
            process: 0,
            thread,
            number,
            around: 0,
            caller: 0,
            range: 1,
            start_ns: 5,
            end_ns: 9,
            duration_ns: 4,
            is_whole: true,
        }
    }

    #[test]
    fn innermost_range_nests_and_others_do_not() {
        let mut pushed = Pushed::default();
        (1..=3).for_each(|number| pushed.begins(&range(1, number)));
        pushed.begins(&range(2, 4));
        let mut ends = |thread, number| pushed.ends(&range(thread, number));
        // 2 ends before 3, which is inside; 5 was not pushed.
        assert_eq!(
            [ends(1, 2), ends(1, 3), ends(1, 1), ends(2, 5), ends(2, 4)],
            [false, true, true, false, true]
        );
    }

    #[test]
    fn ranges_whose_ends_are_left_out_take_no_memory() {
        let mut pushed = Pushed::default();
        (0..1_000).for_each(|number| pushed.begins(&range(1, number)));
        assert_eq!(pushed.0[&(0, 1)].len(), OPEN_MAX);
        assert!(pushed.ends(&range(1, 999)));
        pushed.process_ends(0);
        assert!(pushed.0.is_empty());
    }
}
