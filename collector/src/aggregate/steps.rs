//! How steps are found: by what a thread launches. In a loop, most stacks are passed equally often, once a
//! step. Stacks of an inner loop are passed a multiple of that.

use std::collections::BTreeMap;

use crate::aggregate::{Rhythm, StackKey};

/// Fewer are no rhythm.
const STEPS_MIN: u64 = 5;
/// So many stacks are passed once a step.
const STACKS_MIN: usize = 3;
/// An outer loop has at least this part of the stacks that its inner loop has.
const OUTER_MIN: f64 = 0.05;
/// The part of the time from the thread's first launch to its last that the steps take. The first use of
/// everything takes long, so that a short run of many steps is a small part.
const SPAN_MIN: f64 = 0.25;
/// A stack that was not passed for so many of its usual times belongs to a loop that has ended.
const GONE_AFTER: u64 = 3;

/// What a thread launched at one stack.
#[derive(Clone, Copy, Debug)]
pub struct StackLaunches {
    pub key: StackKey,
    pub count: u64,
    pub rhythm: Rhythm,
}

/// What a step launches first, if the thread has steps.
pub fn first_of_step(launches: &[StackLaunches]) -> Option<&StackLaunches> {
    let ends = |launches: &StackLaunches| {
        (launches.rhythm.first_ns(), launches.rhythm.first_ns() + launches.rhythm.span_ns())
    };
    let (from, to) = launches.iter().map(ends).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))?;
    let mut by_count: BTreeMap<u64, Vec<&StackLaunches>> = BTreeMap::new();
    for launches in launches.iter().filter(|launches| launches.count >= STEPS_MIN) {
        if launches.rhythm.span_ns() as f64 >= (to - from) as f64 * SPAN_MIN {
            by_count.entry(launches.count).or_default().push(launches);
        }
    }
    let (most, stacks) = by_count.iter().max_by_key(|(count, stacks)| (stacks.len(), **count))?;
    let outer = by_count.iter().find(|(count, of)| {
        most % **count == 0 && of.len() as f64 >= stacks.len() as f64 * OUTER_MIN && of.len() >= STACKS_MIN
    });
    let (_, of_step) = outer?;
    of_step.iter().min_by_key(|launches| (launches.rhythm.first_ns(), launches.key)).copied()
}

/// A guess while a step is being made: some stacks were passed once more than others then, and those of inner
/// loops any number of times. [`first_of_step`] is right when the next step begins.
pub(super) fn likely_first_of_step(launches: &[StackLaunches]) -> Option<&StackLaunches> {
    let last_ns = |launches: &StackLaunches| launches.rhythm.first_ns() + launches.rhythm.span_ns();
    let now_ns = launches.iter().map(last_ns).max()?;
    let from_ns = launches.iter().map(|launches| launches.rhythm.first_ns()).min()?;
    let goes_on = |launches: &StackLaunches| {
        let (span_ns, between) = (launches.rhythm.span_ns(), launches.count.saturating_sub(1).max(1));
        span_ns as f64 >= (now_ns - from_ns) as f64 * SPAN_MIN
            && now_ns - last_ns(launches) <= (span_ns / between).saturating_mul(GONE_AFTER)
    };
    let mut by_count: BTreeMap<u64, usize> = BTreeMap::new();
    for launches in launches.iter().filter(|of| of.count >= STEPS_MIN && goes_on(of)) {
        *by_count.entry(launches.count).or_default() += 1;
    }
    let alike = |count: u64| by_count.range(count..=count.saturating_add(1)).map(|(_, stacks)| stacks).sum();
    let most: usize = by_count.keys().map(|count| alike(*count)).max()?;
    let is_outer = |stacks: usize| stacks >= STACKS_MIN && stacks as f64 >= most as f64 * OUTER_MIN;
    let count = *by_count.keys().find(|count| is_outer(alike(**count)))?;
    let of_step =
        launches.iter().filter(|of| (count..=count.saturating_add(1)).contains(&of.count) && goes_on(of));
    of_step.min_by_key(|launches| (launches.rhythm.first_ns(), launches.key))
}

#[cfg(test)]
#[path = "steps_tests.rs"]
mod tests;
