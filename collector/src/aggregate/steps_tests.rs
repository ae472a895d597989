use super::*;
use crate::aggregate::{Leaf, Stacks};

/// Launches of a program: `(stack, time in µs)`.
fn launches(of: impl IntoIterator<Item = (u32, u64)>) -> Vec<StackLaunches> {
    let mut known: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    of.into_iter().for_each(|(stack, us)| known.entry(stack).or_default().push(us * 1_000));
    let made = known.into_iter().map(|(stack, starts)| {
        let mut aggregates = Stacks::default();
        let key = StackKey { stack, ..StackKey::without_call(0, 0, Leaf::Call) };
        starts.iter().for_each(|ns| aggregates.add_at(key, Some(1), Some(*ns)));
        let (_, count, rhythm) = aggregates.rhythms().next().unwrap();
        StackLaunches { key, count, rhythm: *rhythm }
    });
    made.collect()
}

/// A training of 20 steps of a millisecond: stacks 10 to 13 once a step, and 20 to 39 in each of 8 layers;
/// before it 50 launches of other stacks, and each 5 steps one that evaluates.
fn training() -> impl Iterator<Item = (u32, u64)> {
    let step = |step: u64| {
        let at = 1_000 + step * 1_000;
        let outer = (0..4).map(move |index| (10 + index as u32, at + index));
        let layers = (0..8u64).flat_map(move |layer| {
            (0..20u64).map(move |index| (20 + index as u32, at + 10 + layer * 100 + index))
        });
        outer.chain(layers).chain(step.is_multiple_of(5).then_some((50, at + 990)))
    };
    (0..50).map(|at| (100 + at as u32, 1 + at)).chain((0..20).flat_map(step))
}

#[test]
fn steps_are_those_of_the_outer_loop() {
    let launches = launches(training());
    let first = first_of_step(&launches).unwrap();
    assert_eq!((first.count, first.key.stack), (20, 10));
    assert_eq!(first.rhythm.usual(first.count), Some((1_000_000.0, 0.0)));
}

#[test]
fn program_without_a_rhythm_has_no_steps() {
    assert!(first_of_step(&[]).is_none());
    assert!(first_of_step(&launches((0..50).map(|at| (at as u32, 1 + at)))).is_none());
    // One line alone is a loop of launches, and no step.
    assert!(first_of_step(&launches((0..50).map(|at| (7, 1 + at)))).is_none());
}

/// Stack 10 is the first of a step at any time at which there are steps.
#[test]
fn step_that_is_being_made_begins_where_the_others_began() {
    let all: Vec<_> = training().collect();
    let per_step = 4 + 8 * 20;
    for made in all.len() - 2 * per_step..all.len() {
        let launches = launches(all[..made].iter().copied());
        let first = likely_first_of_step(&launches).map(|first| first.key.stack);
        assert_eq!(first, Some(10), "after {made} launches");
    }
}
