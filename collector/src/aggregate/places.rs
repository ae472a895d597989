//! The places of an aggregate that keeps so many things and no more: how many are those of processes that ended.
//!
//! Such a place is nobody's any more, and the next program's wants it. Processes are told together only if that makes
//! room: where one that runs takes all places by itself, those that ended keep what is told of each.

use rustc_hash::FxHashMap;

use super::room::Room;

/// Full to this part, it is short of room, and whenever it has grown by that part more.
const FROM: (usize, usize) = (3, 4);
const STEP_PART: usize = 32;

#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    room: Room,
    /// By process, as long as it runs.
    of_running: FxHashMap<u32, usize>,
    /// Of those that ended and are not told together.
    of_ended: usize,
}

impl Places {
    /// A thing of that process has a place from now on.
    pub fn take(&mut self, process: u32) {
        *self.of_running.entry(process).or_default() += 1;
    }

    /// Something had no room.
    #[inline]
    pub fn turn_away(&mut self) {
        self.room.turn_away();
    }

    pub fn process_ends(&mut self, process: u32) {
        self.of_ended += self.of_running.remove(&process).unwrap_or(0);
    }

    /// Whether it is time to tell processes together, with so many places taken of so many.
    pub fn is_short(&self, taken: usize, most: usize) -> bool {
        let step = most / STEP_PART;
        let is_short =
            self.room.is_short(taken, most / FROM.1 * FROM.0, step) || self.room.is_stuck(most, step);
        self.of_ended >= step.max(1) && is_short
    }

    /// Processes that had so many places were told together, which leaves so many taken. Where they had none, those
    /// that have some ended later, and their turn is next.
    pub fn told(&mut self, moved: usize, taken: usize) {
        if moved > 0 {
            self.of_ended = self.of_ended.saturating_sub(moved);
            self.room.told(taken);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 128;

    #[test]
    fn places_of_what_ended_are_given_up_and_those_of_what_runs_are_not() {
        let mut places = Places::default();
        (0..100).for_each(|_| places.take(1));
        assert!(!places.is_short(100, MOST), "it runs");
        (0..3).for_each(|_| places.take(2));
        places.process_ends(2);
        assert!(!places.is_short(103, MOST), "three of 128 are not worth it");
        places.take(3);
        places.process_ends(3);
        assert!(places.is_short(104, MOST) && !places.is_short(95, MOST));
        places.told(0, 104);
        assert!(places.is_short(104, MOST), "others were told, who had none");
        places.told(3, 102);
        assert!(!places.is_short(110, MOST), "one is left of what ended");
        places.process_ends(1);
        assert!(!places.is_short(105, MOST) && places.is_short(106, MOST), "by a step");
        places.told(101, 10);
        assert!(!places.is_short(MOST, MOST), "no place is one of what ended");
    }

    #[test]
    fn where_what_runs_leaves_no_room_for_a_step_places_are_given_up_when_one_is_wanted() {
        let mut places = Places::default();
        (0..11).for_each(|_| places.take(1));
        places.process_ends(1);
        places.told(1, 125);
        assert!(!places.is_short(MOST, MOST), "nothing was turned away");
        places.turn_away();
        assert!(places.is_short(MOST, MOST));
        places.told(5, 124);
        places.turn_away();
        assert!(!places.is_short(MOST - 1, MOST) && places.is_short(MOST, MOST), "a step fits");
        places.told(2, MOST);
        places.turn_away();
        assert!(!places.is_short(MOST, MOST), "less than a step is of what ended");
    }
}
