//! Launches of graphs that were recorded as a whole, by graph.

use crate::aggregate::Durations;
use crate::aggregate::bounded::Bounded;

/// Graphs that have a row; launches of others are one sum.
const GRAPHS_MAX: usize = 1 << 12;

/// An executable graph of a process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GraphKey {
    pub process: u32,
    /// Its number in device records; 0 if unknown.
    pub graph: u32,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GraphAggregate {
    pub calls: u64,
    /// Of those with times.
    pub durations: Durations,
    /// The most nodes that it had; 0 if unknown.
    pub nodes: u32,
}

#[derive(Clone, Debug, Default)]
pub struct Graphs {
    known: Bounded<GraphKey, GraphAggregate, GRAPHS_MAX>,
    other: GraphAggregate,
}

impl Graphs {
    pub fn add(&mut self, key: GraphKey, nodes: u32, duration_ns: Option<u64>) {
        let graph = self.known.row(key, GraphAggregate::default).unwrap_or(&mut self.other);
        graph.calls += 1;
        graph.nodes = graph.nodes.max(nodes);
        if let Some(duration_ns) = duration_ns {
            graph.durations.add(duration_ns);
        }
    }

    pub fn get(&self, key: GraphKey) -> Option<&GraphAggregate> {
        self.known.get(&key)
    }

    /// By key.
    pub fn sorted(&self) -> Vec<(GraphKey, &GraphAggregate)> {
        self.known.sorted()
    }

    /// All together.
    pub fn total(&self) -> GraphAggregate {
        let mut total = self.other.clone();
        for (_, graph) in self.known.iter() {
            total.calls += graph.calls;
            total.durations.merge(&graph.durations);
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graphs_without_a_row_are_counted_together() {
        let mut graphs = Graphs::default();
        for graph in 0..GRAPHS_MAX as u32 + 3 {
            graphs.add(GraphKey { process: 0, graph }, 7, Some(10));
        }
        graphs.add(GraphKey { process: 0, graph: 5 }, 9, None);
        assert_eq!((graphs.sorted().len(), graphs.other.calls), (GRAPHS_MAX, 3));
        let known = graphs.get(GraphKey { process: 0, graph: 5 }).unwrap();
        assert_eq!((known.calls, known.durations.count(), known.nodes), (2, 1, 9));
        let total = graphs.total();
        assert_eq!(
            (total.calls, total.durations.total_ns()),
            (GRAPHS_MAX as u64 + 4, 10 * (GRAPHS_MAX as u64 + 3))
        );
    }
}
