//! Launches of graphs that were recorded as a whole, by graph.

use rustc_hash::FxHashMap;

use crate::aggregate::Durations;
use crate::aggregate::places::Places;
use crate::model::namesakes::Renumbering;

/// Graphs kept; launches of more are added up together.
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
    /// The most that it had; 0 where nobody told.
    pub nodes: u32,
}

#[derive(Clone, Debug, Default)]
pub struct Graphs {
    known: FxHashMap<GraphKey, GraphAggregate>,
    other: GraphAggregate,
    places: Places,
}

impl Graphs {
    pub fn add(&mut self, key: GraphKey, nodes: u32, duration_ns: Option<u64>) {
        let is_full = self.known.len() >= GRAPHS_MAX;
        let graph = match self.known.get_mut(&key) {
            Some(known) => known,
            None if is_full => {
                self.places.turn_away();
                &mut self.other
            }
            None => {
                self.places.take(key.process);
                self.known.entry(key).or_default()
            }
        };
        graph.calls += 1;
        graph.nodes = graph.nodes.max(nodes);
        if let Some(duration_ns) = duration_ns {
            graph.durations.add(duration_ns);
        }
    }

    pub fn process_ends(&mut self, process: u32) {
        self.places.process_ends(process);
    }

    /// Whether graphs of processes that ended should be told together.
    pub fn is_short_of_room(&self) -> bool {
        self.places.is_short(self.known.len(), GRAPHS_MAX)
    }

    /// Graphs of processes that are told together are one if they have one number.
    pub fn tell_together(&mut self, together: &mut Renumbering<'_>) {
        let moved: Vec<_> = self.known.extract_if(|key, _| together.has(key.process)).collect();
        let places = moved.len();
        for (key, graph) in moved {
            let process = together.process(key.process).unwrap_or(key.process);
            let known = self.known.entry(GraphKey { process, ..key }).or_default();
            known.calls += graph.calls;
            known.nodes = known.nodes.max(graph.nodes);
            known.durations.merge(&graph.durations);
        }
        self.places.told(places, self.known.len());
    }

    pub fn get(&self, key: GraphKey) -> Option<&GraphAggregate> {
        self.known.get(&key)
    }

    /// By key.
    pub fn sorted(&self) -> Vec<(GraphKey, &GraphAggregate)> {
        let mut all: Vec<_> = self.known.iter().map(|(key, graph)| (*key, graph)).collect();
        all.sort_unstable_by_key(|(key, _)| *key);
        all
    }

    /// What goes beyond the graphs that are kept.
    pub fn other(&self) -> &GraphAggregate {
        &self.other
    }

    /// All together.
    pub fn total(&self) -> GraphAggregate {
        let mut total = self.other.clone();
        for graph in self.known.values() {
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
    fn launches_of_more_graphs_than_are_kept_are_counted_together() {
        let mut graphs = Graphs::default();
        for graph in 0..GRAPHS_MAX as u32 + 3 {
            graphs.add(GraphKey { process: 0, graph }, 7, Some(10));
        }
        graphs.add(GraphKey { process: 0, graph: 5 }, 9, None);
        assert_eq!((graphs.sorted().len(), graphs.other().calls), (GRAPHS_MAX, 3));
        let known = graphs.get(GraphKey { process: 0, graph: 5 }).unwrap();
        assert_eq!((known.calls, known.durations.count(), known.nodes), (2, 1, 9));
        let total = graphs.total();
        assert_eq!(
            (total.calls, total.durations.total_ns()),
            (GRAPHS_MAX as u64 + 4, 10 * (GRAPHS_MAX as u64 + 3))
        );
    }
}
