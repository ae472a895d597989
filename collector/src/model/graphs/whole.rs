//! Graph launches that were recorded as a whole: the call that captured the graph, and its number of nodes.

use crate::model::definitions::Definitions;
use crate::model::graphs::{DEPTH_MAX, GraphTable, Known, STEPS_MAX};
use crate::model::operation::Made;

impl GraphTable {
    /// For a launch of an executable graph at that moment: the call that ended the capture of the graph or of
    /// its sources, else the call that made its first node; and the number of its nodes, 0 if unknown.
    pub fn whole(&self, graph: u32, at_ticks: u64, definitions: &Definitions) -> (Option<Made>, u32) {
        if self.graphs.is_empty() || graph == 0 {
            return (None, 0);
        }
        let known = Known { graphs: &self.graphs, definitions };
        let nodes = known.nodes(graph, at_ticks, DEPTH_MAX, &mut { STEPS_MAX }).unwrap_or(0);
        (known.maker(graph, at_ticks), nodes)
    }
}

impl Known<'_> {
    fn maker(&self, graph: u32, at_ticks: u64) -> Option<Made> {
        let (mut graph_now, mut ticks) = (graph, at_ticks);
        for _ in 0..DEPTH_MAX {
            if let Some(captured) = self.graphs.get(&graph_now).and_then(|held| held.captured) {
                return Some(captured);
            }
            let Some(source) = self.source_at(graph_now, ticks) else { break };
            (graph_now, ticks) = (source.graph, ticks.min(source.since_ticks));
        }
        self.find_in_chain(graph, 0, at_ticks)
    }

    /// The number of nodes. A node that holds a graph does not count itself.
    fn nodes(&self, graph: u32, at_ticks: u64, depth: u32, steps: &mut u32) -> Option<u32> {
        let depth = depth.checked_sub(1)?;
        let (size, children) = self.shape(graph, at_ticks);
        let holders = u32::try_from(children.len()).unwrap_or(u32::MAX - 1);
        *steps = steps.checked_sub(1 + holders)?;
        children.into_iter().try_fold(size.saturating_sub(holders), |sum, (child, since_ticks)| {
            Some(sum.saturating_add(self.nodes(child, since_ticks, depth, steps)?))
        })
    }
}
