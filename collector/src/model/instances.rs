//! Instances of ranges: each single time that a range of the program's was open.
//!
//! Owns a ring's list of open instances, which the ring's entries change as the format says, and
//! their numbers. The tree in [`crate::model::Ranges`] has names only; spans need the times too.
//! Bounded: a list has at most `POSITIONS_MAX` ranges, and what has ended is forgotten at once.

use gputrace_wire::range::{POSITIONS_MAX, RangeBegin};

/// A range, one time that it was open, with its times on CLOCK_MONOTONIC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RangeInstance {
    pub process: u32,
    /// Thread definition: of the thread that it was pushed on, or that ended it.
    pub thread: u32,
    /// Its number within the process, never 0. Numbers come again after four billion ranges.
    pub number: u32,
    /// Number of the one that it was pushed into, of those that are of the same caller; 0 for none.
    pub around: u32,
    /// For whom it was, a number of [`crate::model::callers::Callers`]; 0 for nobody.
    pub caller: u32,
    /// Range definition; 0 where its name is not known.
    pub range: u32,
    pub start_ns: u64,
    /// Equal to the start while it is open.
    pub end_ns: u64,
    /// Whether its end was said, or was it only open when nothing more was known of its thread.
    pub is_whole: bool,
}

/// Numbers for the instances of a process.
#[derive(Debug, Default)]
pub struct Numbers(u32);

impl Numbers {
    pub fn take(&mut self) -> u32 {
        self.0 = self.0.checked_add(1).unwrap_or(1);
        self.0
    }
}

/// An instance on a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Open {
    pub number: u32,
    pub around: u32,
    pub range: u32,
    pub start_ticks: u64,
    pub position: u32,
    /// For whom is what is done in it.
    pub caller: u32,
    /// If the range says so itself: for whom the thread worked when it was pushed.
    pub over: Option<u32>,
}

/// The instances that are open on a ring's thread, outermost first.
#[derive(Debug, Default)]
pub struct OpenInstances(Vec<Open>);

impl OpenInstances {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// For whom is what is done now, where the thread says that it works for `said`: what a range says of
    /// itself goes before that, unless it was pushed when the thread worked for another.
    pub fn caller(&self, said: u32) -> u32 {
        let naming = self.0.iter().rev().find(|open| open.over == Some(said));
        naming.map_or(said, |open| open.caller)
    }

    /// The number of the innermost one that is of that caller, 0 for none.
    pub fn innermost(&self, caller: u32) -> u32 {
        self.0.iter().rev().find(|open| open.caller == caller).map_or(0, |open| open.number)
    }

    /// A range begins, or is said again, on a thread that works for `said`; it may name another (`named`, else 0). `None` if
    /// its place is past those that are told, or it is known.
    pub fn push(
        &mut self,
        begin: &RangeBegin,
        (said, named): (u32, u32),
        numbers: &mut Numbers,
    ) -> Option<Open> {
        let position = begin.position;
        if position >= POSITIONS_MAX || self.0.last().is_some_and(|last| last.position >= position) {
            return None;
        }
        let caller = if named == 0 { self.caller(said) } else { named };
        let open = Open {
            number: numbers.take(),
            around: self.innermost(caller),
            range: begin.range,
            start_ticks: begin.start_ticks,
            position,
            caller,
            over: (named != 0).then_some(said),
        };
        self.0.push(open);
        Some(open)
    }

    /// Takes the range at that position out of the list; those further in move up.
    pub fn take(&mut self, position: u32) -> Option<Open> {
        let at = self.0.iter().position(|open| open.position >= position)?;
        let found = self.0.get(at).filter(|open| open.position == position).copied();
        for open in self.0.iter_mut().skip(at) {
            open.position = open.position.saturating_sub(1);
        }
        if found.is_some() {
            self.0.remove(at);
        }
        found
    }

    /// The number of the innermost one around a position of the list that is of that caller.
    pub fn around(&self, position: u32, caller: u32) -> u32 {
        let mut around = self.0.iter().rev().filter(|open| open.position < position);
        around.find(|open| open.caller == caller).map_or(0, |open| open.number)
    }

    /// Takes out, innermost first, what is at that position or further in: its ends were not said.
    pub fn cut(&mut self, position: u32) -> Option<Open> {
        self.0.pop_if(|open| open.position >= position)
    }

    /// Whether a push at that position with that start is one that the list has already.
    pub fn has(&self, begin: &RangeBegin) -> bool {
        self.0.iter().any(|open| open.position == begin.position && open.start_ticks == begin.start_ticks)
    }
}
