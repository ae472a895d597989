//! When an aggregate has so little room left that processes that ended should be told together.

/// So many calls or operations that found no room are as good a reason as growth: where what runs takes nearly all
/// the room, there is none to grow into. Telling together takes about as long as some thousands of them.
const TURNED_AWAY_MAX: usize = 4096;

/// What became of an aggregate since processes were told together last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Room {
    /// How many things there were then.
    told_at: usize,
    turned_away: usize,
}

impl Room {
    /// Whether it is time, with so many things kept: from so many on, and whenever there are a step more again.
    pub fn is_short(&self, kept: usize, from: usize, step: usize) -> bool {
        kept >= from && (kept >= self.told_at + step || self.turned_away >= TURNED_AWAY_MAX)
    }

    /// Whether something had no room while there is none for another step either, so that growth tells nothing.
    pub fn is_stuck(&self, most: usize, step: usize) -> bool {
        self.turned_away > 0 && self.told_at + step > most
    }

    /// Something had no room.
    #[inline]
    pub fn turn_away(&mut self) {
        self.turned_away = self.turned_away.saturating_add(1);
    }

    /// Processes were told together, which left so many things.
    pub fn told(&mut self, kept: usize) {
        *self = Room { told_at: kept, turned_away: 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_short_where_things_grow_and_where_they_cannot() {
        let mut room = Room::default();
        assert_eq!([74, 75].map(|kept| room.is_short(kept, 75, 10)), [false, true]);
        room.told(95);
        assert_eq!([100, 105].map(|kept| room.is_short(kept, 75, 10)), [false, true]);
        // The most that are kept, say, are 100.
        (0..TURNED_AWAY_MAX).for_each(|_| room.turn_away());
        assert!(room.is_short(100, 75, 10) && !room.is_short(74, 75, 10));
        room.told(95);
        assert!(!room.is_short(100, 75, 10));
    }

    #[test]
    fn where_no_step_fits_one_thing_without_room_is_enough() {
        let mut room = Room::default();
        room.told(91);
        assert!(!room.is_stuck(100, 10), "nothing wants more");
        room.turn_away();
        assert!(room.is_stuck(100, 10));
        room.told(90);
        room.turn_away();
        assert!(!room.is_stuck(100, 10), "it can grow by a step");
    }
}
