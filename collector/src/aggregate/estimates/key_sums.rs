//! The timed operations of one key, summed by unit: a scheduled window, or several neighbouring ones.

use crate::aggregate::StackKey;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnitSum {
    pub unit: u32,
    pub count: u32,
    pub ns: u64,
}

#[derive(Clone, Debug, Default)]
pub struct KeySums {
    /// Each unit once, in order.
    pub units: Vec<UnitSum>,
    /// Operations that were timed outside of the schedule, and their time.
    pub other: (u64, u64),
    /// The row of the first one that was timed. Its leaf has the name that device records give.
    pub row: Option<StackKey>,
}

impl KeySums {
    /// Adds operations of a unit. Returns whether the unit is new here.
    #[inline]
    pub fn add(&mut self, unit: u32, ns: u64) -> bool {
        // Records come nearly in order.
        let after = self.units.iter().rposition(|known| known.unit <= unit);
        if let Some(known) = after.and_then(|at| self.units.get_mut(at)).filter(|known| known.unit == unit) {
            known.count = known.count.saturating_add(1);
            known.ns = known.ns.saturating_add(ns);
            return false;
        }
        self.units.insert(after.map_or(0, |at| at + 1), UnitSum { unit, count: 1, ns });
        true
    }

    /// Merges neighbouring units, two to one.
    pub fn halve(&mut self) {
        let mut merged: Vec<UnitSum> = Vec::with_capacity(self.units.len() / 2 + 1);
        for sum in self.units.drain(..) {
            let unit = sum.unit >> 1;
            match merged.last_mut() {
                Some(last) if last.unit == unit => {
                    last.count = last.count.saturating_add(sum.count);
                    last.ns = last.ns.saturating_add(sum.ns);
                }
                _ => merged.push(UnitSum { unit, ..sum }),
            }
        }
        self.units = merged;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_sorted_and_merge_with_their_neighbours() {
        let mut cell = KeySums::default();
        let new: Vec<bool> =
            [(4, 10), (5, 1), (4, 2), (9, 5), (2, 7)].map(|(at, ns)| cell.add(at, ns)).into();
        assert_eq!(new, [true, true, false, true, true]);
        let sums =
            |cell: &KeySums| cell.units.iter().map(|of| (of.unit, of.count, of.ns)).collect::<Vec<_>>();
        assert_eq!(sums(&cell), [(2, 1, 7), (4, 2, 12), (5, 1, 1), (9, 1, 5)]);
        cell.halve();
        assert_eq!(sums(&cell), [(1, 1, 7), (2, 3, 13), (4, 1, 5)]);
    }
}
