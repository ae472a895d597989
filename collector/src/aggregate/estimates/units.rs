//! Numbers for the units of all processes.

use rustc_hash::FxHashMap;

#[derive(Default)]
pub struct Units(FxHashMap<(u32, u32), u32>);

impl Units {
    /// The number of a process's unit.
    pub fn of(&mut self, process: u32, unit: u32) -> u32 {
        let next = self.0.len() as u32;
        *self.0.entry((process, unit)).or_insert(next)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }
}
