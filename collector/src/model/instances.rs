//! Instances of ranges: one for each time that the program opened a range.
//!
//! Owns a ring's list of open instances, which the ring's entries change, and their numbers. The tree in
//! [`crate::model::Ranges`] has names only; spans need the times too. Bounded: a list has at most
//! `POSITIONS_MAX` ranges, and a range that ended is removed at once.

use gputrace_wire::range::{POSITIONS_MAX, RangeBegin};

/// One instance of a range, with its times on CLOCK_MONOTONIC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RangeInstance {
    pub process: u32,
    /// The definition of the thread that pushed it, or of the one that ended it.
    pub thread: u32,
    /// Its number within the process, never 0. Numbers repeat after four billion ranges.
    pub number: u32,
    /// The number of the innermost instance around it with the same active span; 0 for none.
    pub around: u32,
    /// Its active span, a number of [`crate::model::callers::Callers`]; 0 for none.
    pub caller: u32,
    /// Range definition; 0 if its name is not known.
    pub range: u32,
    pub start_ns: u64,
    /// The start while it is open.
    pub end_ns: u64,
    /// As reports sum it: in ticks of the process, which rounds otherwise than the two.
    pub duration_ns: u64,
    /// Whether its end was recorded. Otherwise it was open when the entries of its thread stopped.
    pub is_whole: bool,
}

/// Gives numbers to the instances of a process.
#[derive(Debug, Default)]
pub struct Numbers(u32);

impl Numbers {
    pub fn take(&mut self) -> u32 {
        self.0 = self.0.checked_add(1).unwrap_or(1);
        self.0
    }
}

/// An open instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Open {
    pub number: u32,
    pub around: u32,
    pub range: u32,
    pub start_ticks: u64,
    pub position: u32,
    /// The active span inside it.
    pub caller: u32,
    /// Set if the range names a span itself: the thread's active span when it was pushed.
    pub pushed_under: Option<u32>,
}

/// The instances that are open on a ring's thread, outermost first.
#[derive(Debug, Default)]
pub struct OpenInstances(Vec<Open>);

impl OpenInstances {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The active span of a thread whose last CALLER entry was `thread_caller`: the span that the innermost
    /// range names, if the thread had the same CALLER entry when that range was pushed; else `thread_caller`.
    pub fn caller(&self, thread_caller: u32) -> u32 {
        let naming = self.0.iter().rev().find(|open| open.pushed_under == Some(thread_caller));
        naming.map_or(thread_caller, |open| open.caller)
    }

    /// The number of the innermost instance with that active span, 0 for none.
    pub fn innermost(&self, caller: u32) -> u32 {
        self.0.iter().rev().find(|open| open.caller == caller).map_or(0, |open| open.number)
    }

    /// Adds a range that begins, or whose begin is repeated, on a thread whose active span is
    /// `thread_caller`. The range may name another span (`named`, else 0). `None` if its position is past the
    /// limit or the range is already known.
    pub fn push(
        &mut self,
        begin: &RangeBegin,
        (thread_caller, named): (u32, u32),
        numbers: &mut Numbers,
    ) -> Option<Open> {
        let position = begin.position;
        if position >= POSITIONS_MAX || self.0.last().is_some_and(|last| last.position >= position) {
            return None;
        }
        let caller = if named == 0 { self.caller(thread_caller) } else { named };
        let open = Open {
            number: numbers.take(),
            around: self.innermost(caller),
            range: begin.range,
            start_ticks: begin.start_ticks,
            position,
            caller,
            pushed_under: (named != 0).then_some(thread_caller),
        };
        self.0.push(open);
        Some(open)
    }

    /// Removes the range at that position from the list; inner ranges move up.
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

    /// The number of the innermost instance around a position that has that active span.
    pub fn around(&self, position: u32, caller: u32) -> u32 {
        let mut around = self.0.iter().rev().filter(|open| open.position < position);
        around.find(|open| open.caller == caller).map_or(0, |open| open.number)
    }

    /// Removes the innermost instance if it is at that position or inside it: its end was not recorded.
    pub fn cut(&mut self, position: u32) -> Option<Open> {
        self.0.pop_if(|open| open.position >= position)
    }

    /// Whether the list already has a range at that position with that start.
    pub fn has(&self, begin: &RangeBegin) -> bool {
        self.0.iter().any(|open| open.position == begin.position && open.start_ticks == begin.start_ticks)
    }
}
