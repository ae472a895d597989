//! What one stream executed, as begins and ends that nest.

use std::cmp::Reverse;
use std::io;

/// The most operations that are shown at one moment of one stream.
const DEPTH_MAX: usize = 32;

/// An operation of a stream. Ordered by start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Executed {
    pub start_ns: u64,
    /// The longer one first, so that one within another comes second.
    pub end_ns: Reverse<u64>,
    pub frame: u32,
}

/// A begin or an end of the output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Edge {
    pub is_begin: bool,
    pub frame: u32,
    pub at_ns: u64,
}

/// By how much an operation may begin before the one in front of it ended, and is then moved: times of the
/// device's clock are mapped, and rounded, one by one.
const OVERLAP_MAX_NS: u64 = 1_000;

/// Sorts operations, and moves those that overlap the one before by less than a microsecond.
pub fn sort(executed: &mut [Executed]) {
    executed.sort_unstable();
    let mut last_ns = 0u64;
    for each in executed.iter_mut() {
        let overlap_ns = last_ns.saturating_sub(each.start_ns);
        if overlap_ns <= OVERLAP_MAX_NS && each.end_ns.0 > last_ns {
            each.start_ns = each.start_ns.saturating_add(overlap_ns);
            each.end_ns.0 = each.end_ns.0.saturating_add(overlap_ns);
        }
        last_ns = last_ns.max(each.end_ns.0);
    }
    executed.sort_unstable();
}

/// Passes the edges of sorted operations to `emit` in order of time, each end to the latest open begin.
///
/// Operations that overlap in part are cut where the other one ends, so that each frame's time stays the sum
/// of its operations. Returns how many operations were left out because too many ran at once.
pub fn nest(sorted: &[Executed], mut emit: impl FnMut(Edge) -> io::Result<()>) -> io::Result<u64> {
    let mut open: Vec<Executed> = Vec::new();
    let mut left_out = 0;
    for next in sorted {
        end_until(&mut open, next.start_ns, &mut emit)?;
        if open.len() >= DEPTH_MAX {
            left_out += 1;
            continue;
        }
        emit(Edge { is_begin: true, frame: next.frame, at_ns: next.start_ns })?;
        open.push(*next);
    }
    end_until(&mut open, u64::MAX, &mut emit)?;
    Ok(left_out)
}

/// Ends what ends by then. An operation that began later and runs on is ended and begun again.
fn end_until(
    open: &mut Vec<Executed>,
    until_ns: u64,
    emit: &mut impl FnMut(Edge) -> io::Result<()>,
) -> io::Result<()> {
    while let Some(at) = first_to_end(open).filter(|at| open.get(*at).is_some_and(|o| o.end_ns.0 <= until_ns))
    {
        let Some(at_ns) = open.get(at).map(|ended| ended.end_ns.0) else { break };
        for inner in open.iter().skip(at).rev() {
            emit(Edge { is_begin: false, frame: inner.frame, at_ns })?;
        }
        open.remove(at);
        for inner in open.iter().skip(at) {
            emit(Edge { is_begin: true, frame: inner.frame, at_ns })?;
        }
    }
    Ok(())
}

/// The innermost of those that end first.
fn first_to_end(open: &[Executed]) -> Option<usize> {
    let ends = open.iter().enumerate().map(|(at, executed)| (executed.end_ns.0, Reverse(at)));
    ends.min().map(|(_, Reverse(at))| at)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    use super::*;

    fn executed(start_ns: u64, end_ns: u64, frame: u32) -> Executed {
        Executed { start_ns, end_ns: Reverse(end_ns), frame }
    }

    fn nested(mut operations: Vec<Executed>) -> (Vec<Edge>, u64) {
        operations.sort_unstable();
        let mut edges = Vec::new();
        let left_out = nest(&operations, |edge| {
            edges.push(edge);
            Ok(())
        });
        (edges, left_out.unwrap())
    }

    #[test]
    fn operation_that_outlasts_the_one_around_it_is_cut() {
        let (edges, left_out) = nested(vec![executed(0, 10, 1), executed(5, 15, 2), executed(20, 20, 3)]);
        let edge = |is_begin, frame, at_ns| Edge { is_begin, frame, at_ns };
        let expected = [
            edge(true, 1, 0),
            edge(true, 2, 5),
            edge(false, 2, 10),
            edge(false, 1, 10),
            edge(true, 2, 10),
            edge(false, 2, 15),
            edge(true, 3, 20),
            edge(false, 3, 20),
        ];
        assert_eq!((edges, left_out), (expected.to_vec(), 0));
    }

    #[test]
    fn operation_that_overlaps_by_a_rounding_is_moved() {
        let mut all = vec![executed(5_099, 9_000, 2), executed(100, 5_100, 1), executed(6_000, 12_000, 3)];
        sort(&mut all);
        let expected = [executed(100, 5_100, 1), executed(5_100, 9_001, 2), executed(6_000, 12_000, 3)];
        assert_eq!(all, expected);
    }

    #[test]
    fn depth_is_limited_and_what_is_left_out_is_counted() {
        let all = (0..1000u32).map(|at| executed(u64::from(at), 5_000 + u64::from(at), at)).collect();
        let (edges, left_out) = nested(all);
        assert_eq!(left_out, 1000 - DEPTH_MAX as u64);
        assert!(edges.len() <= DEPTH_MAX * (DEPTH_MAX + 1));
    }

    proptest! {
        /// Every end is that of the latest open begin, times never fall, and each frame's time is the sum of
        /// its operations.
        #[test]
        fn edges_nest_and_keep_the_times(
            given in prop::collection::vec((0u64..300, 0u64..40, 0u32..4), 0..60),
        ) {
            let operations: Vec<_> =
                given.iter().map(|(start, length, frame)| executed(*start, start + length, *frame)).collect();
            let mut expected: BTreeMap<u32, u64> = BTreeMap::new();
            for operation in &operations {
                *expected.entry(operation.frame).or_default() += operation.end_ns.0 - operation.start_ns;
            }
            let (edges, left_out) = nested(operations);
            let (mut open, mut times, mut last): (Vec<Edge>, BTreeMap<u32, u64>, u64) = Default::default();
            for edge in edges {
                prop_assert!(edge.at_ns >= last);
                last = edge.at_ns;
                if edge.is_begin {
                    open.push(edge);
                } else {
                    let begin = open.pop().unwrap();
                    prop_assert_eq!(begin.frame, edge.frame);
                    *times.entry(edge.frame).or_default() += edge.at_ns - begin.at_ns;
                }
            }
            prop_assert!(open.is_empty());
            if left_out == 0 {
                prop_assert_eq!(times, expected);
            }
        }
    }
}
