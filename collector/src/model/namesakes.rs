//! Processes that ended, told together with those of their name: what comes of each by itself has an end.
//!
//! A group has definitions and ranges of its own, in which each thing of its processes stands once, whatever number
//! they gave it: a program that runs ten thousand times has its lines, names and ranges there once. Sinks are handed
//! a [`Renumbering`] and put what they keep of the processes under the group's numbers, so that all sums stay exact.
//! Bounded by bytes over all groups: a stack that has no room goes to `(other)` of the group, ranges go to the one around
//! them or to `(other ranges)`.

mod group;
mod renumbering;
#[cfg(test)]
mod tests;

use rustc_hash::FxHashMap;

use crate::model::process_totals::{FIRST_NUMBER, GROUPS_MAX, Process};
use group::{Group, Name};
pub use renumbering::Renumbering;

/// What all groups hold together. Ranges have a part of it to themselves: names of requests must not take the room of
/// lines.
const BYTES_MAX: usize = 64 << 20;
const RANGES_PART: usize = 4;

#[derive(Debug)]
pub struct Namesakes {
    groups: Vec<Group>,
    by_name: FxHashMap<Name, usize>,
    room_bytes: usize,
    ranges_room_bytes: usize,
    groups_max: usize,
    processes: u64,
}

impl Default for Namesakes {
    fn default() -> Namesakes {
        Namesakes::with_room(GROUPS_MAX, BYTES_MAX)
    }
}

impl Namesakes {
    pub fn with_room(groups_max: usize, bytes_max: usize) -> Namesakes {
        let ranges_room_bytes = bytes_max / RANGES_PART;
        Namesakes {
            groups: Vec::new(),
            by_name: FxHashMap::default(),
            room_bytes: bytes_max - ranges_room_bytes,
            ranges_room_bytes,
            groups_max: groups_max.min(GROUPS_MAX),
            processes: 0,
        }
    }

    /// Those processes are told together from now on. Their ranges are taken in at once, the rest as it is asked for.
    pub fn take<'a>(&'a mut self, processes: impl Iterator<Item = &'a Process>) -> Renumbering<'a> {
        let mut taken = Vec::new();
        for process in processes {
            let place = self.place(Name::of(process));
            self.processes += 1;
            let group = self.groups.get_mut(place);
            let (room, ranges_room) = (&mut self.room_bytes, &mut self.ranges_room_bytes);
            let nodes = group.map(|group| group.adopt(process, room, ranges_room));
            taken.push((process, place, nodes.unwrap_or_default()));
        }
        Renumbering::new(taken, &mut self.groups, &mut self.room_bytes)
    }

    fn place(&mut self, name: Name) -> usize {
        if let Some(known) = self.by_name.get(&name) {
            return *known;
        }
        let name = if self.groups.len() < self.groups_max { name } else { Name::others() };
        if let Some(known) = self.by_name.get(&name) {
            return *known;
        }
        let place = self.groups.len();
        self.groups.push(Group::new(FIRST_NUMBER + place as u32, &name));
        self.by_name.insert(name, place);
        place
    }

    /// How many processes are told so.
    pub fn processes(&self) -> u64 {
        self.processes
    }

    /// The groups, each as a process.
    pub fn into_processes(self) -> Vec<Process> {
        self.groups.into_iter().map(Group::into_process).collect()
    }
}
