//! Graphs: which call made the node that a device record names.
//!
//! Owns what a process's graphs were made from. A device record of a graph launch names a node of the
//! executable graph, by the graph's number and an index. Measured on driver 580 with CUPTI 13.0 and 12.8:
//!
//! * an executable and a clone are new graphs, whose nodes keep the indexes of those they were made from;
//! * an update leaves numbers and indexes alone: the nodes are those of the new source from then on;
//! * nodes of a child graph have the indexes behind those of the graph around it, in order.
//!
//! So a node is looked for in its own graph, then in the graph that it was made from, in the state of that
//! moment. Calls of different threads arrive in any order within a few milliseconds, so nothing is
//! computed before a record needs it. A destroyed graph is kept for a while, for late records and entries,
//! and as long as a graph that was made from it exists.

mod whole;

use std::collections::VecDeque;

use gputrace_wire::call::{Detail, operation};
use gputrace_wire::graph::NodesMade;
use rustc_hash::FxHashMap;

use crate::model::definitions::Definitions;
use crate::model::operation::{HostCall, Made};

/// Bounds of one process: graphs, nodes of all of them, and sources of one executable.
const GRAPHS_MAX: usize = 1 << 17;
const NODES_MAX: usize = 1 << 21;
const SOURCES_MAX: usize = 256;
/// Graphs inside one graph, and nodes of one call.
const CHILDREN_MAX: usize = 1 << 12;
const COUNT_MAX: u32 = 1 << 10;
/// The most destroyed graphs that are kept for late records and entries.
const RETIRED_MAX: usize = 1024;
/// The most indexes without a node before a known node.
const GAP_MAX: usize = 1 << 16;
/// The most steps along a chain of clones, and the deepest nesting of graphs, that are followed.
const DEPTH_MAX: u32 = 16;
/// The most graphs that are searched for one node.
const STEPS_MAX: u32 = 1 << 13;

#[derive(Debug, Default)]
pub(super) struct GraphTable {
    /// By number in device records.
    graphs: FxHashMap<u32, GraphState>,
    /// Nodes of all graphs together.
    nodes: usize,
    /// Destroyed graphs, the earliest destroyed first.
    retired: VecDeque<u32>,
    /// Nodes and graphs beyond the limits.
    pub refused: u64,
}

#[derive(Debug, Default)]
struct GraphState {
    /// By index; unknown nodes have `made: None`.
    nodes: Vec<NodeState>,
    /// Indexes of the nodes that hold graphs.
    children: Vec<u32>,
    /// The call that ended the graph's capture.
    captured: Option<Made>,
    /// The graphs that it was made from and updated to, in order.
    sources: VecDeque<Source>,
    /// Graphs whose sources or children name this one, counted once for each.
    users: usize,
    is_destroyed: bool,
    /// Whether it is kept only because other graphs use it.
    is_forgotten: bool,
}

#[derive(Clone, Copy, Debug)]
struct NodeState {
    /// `None` if the node is not known, but later ones are.
    made: Option<Made>,
    /// The number of the graph that the node holds; 0 for none.
    child: u32,
    since_ticks: u64,
}

#[derive(Clone, Copy, Debug)]
struct Source {
    graph: u32,
    since_ticks: u64,
}

impl GraphState {
    /// The source that it had at that moment.
    fn source_at(&self, at_ticks: u64) -> Option<Source> {
        let latest = self.sources.iter().rev().find(|source| source.since_ticks <= at_ticks);
        latest.or(self.sources.front()).copied()
    }

    /// The call that made the node of that index, if the node is known and existed at that moment.
    fn node_at(&self, index: u32, at_ticks: u64) -> Option<Made> {
        let node = self.nodes.get(index as usize).filter(|node| node.since_ticks <= at_ticks)?;
        node.made
    }

    /// The number of its own nodes at that moment.
    fn own_size(&self, at_ticks: u64) -> u32 {
        let size = self.nodes.partition_point(|node| node.since_ticks <= at_ticks);
        u32::try_from(size).unwrap_or(u32::MAX)
    }
}

impl GraphTable {
    /// Adds nodes that were made inside these ranges.
    pub fn nodes_made(&mut self, record: &NodesMade, ranges: u32, definitions: &Definitions) {
        let (graph, first) = parts(record.node);
        let child = definitions.graph(record.child).map_or(0, |graph| graph.record_id);
        let (made, since_ticks) = (Made { stack: record.stack, ranges }, record.ticks);
        let is_destroyed = self.graphs.get(&graph).is_some_and(|graph| graph.is_forgotten);
        if is_destroyed || self.graph(graph).is_none() {
            self.refused += u64::from(record.count);
            return;
        }
        self.refused += u64::from(record.count.saturating_sub(COUNT_MAX));
        for at in 0..record.count.min(COUNT_MAX) {
            let Some(index) = first.checked_add(at) else { return };
            if !self.node_made(graph, index, NodeState { made: Some(made), child, since_ticks }) {
                self.refused += u64::from(record.count.min(COUNT_MAX) - at);
                return;
            }
        }
    }

    fn node_made(&mut self, graph: u32, index: u32, node: NodeState) -> bool {
        let left = NODES_MAX.saturating_sub(self.nodes);
        let Some(held) = self.graphs.get_mut(&graph) else { return false };
        let at = index as usize;
        let more = (at + 1).saturating_sub(held.nodes.len());
        if more > left.min(GAP_MAX) {
            return false;
        }
        // Moments rise with the index, also across nodes that are not known yet.
        let before_ticks = held.nodes.last().map_or(0, |last| last.since_ticks);
        let unknown = NodeState { made: None, child: 0, since_ticks: node.since_ticks.max(before_ticks) };
        held.nodes.resize(held.nodes.len() + more, unknown);
        self.nodes += more;
        let Some(slot) = held.nodes.get_mut(at) else { return false };
        if slot.made.is_some() {
            return true;
        }
        // A node that comes late gets the moment that was given to its index.
        *slot = NodeState { since_ticks: slot.since_ticks, ..node };
        if node.child != 0 && node.child != graph && held.children.len() < CHILDREN_MAX {
            let at = held.children.partition_point(|child| *child < index);
            held.children.insert(at, index);
            self.use_of(node.child);
        }
        true
    }

    /// Notes a call that captured, made, changed or destroyed a graph.
    pub fn call(&mut self, call: &HostCall, definitions: &Definitions) {
        let Detail::Graph { graph, source, operation } = call.detail else { return };
        if call.status != 0 {
            return;
        }
        let number = |id| definitions.graph(id).map_or(0, |graph| graph.record_id);
        match operation {
            operation::INSTANTIATE | operation::CLONE | operation::UPDATE => {
                self.made_from(number(graph), number(source), call.start_ticks);
            }
            operation::CAPTURE_END => self.captured(number(graph), call),
            operation::DESTROY => self.destroyed(number(graph)),
            _ => {}
        }
    }

    fn made_from(&mut self, graph: u32, source: u32, since_ticks: u64) {
        if graph == 0 || source == 0 || graph == source {
            return;
        }
        let Some(held) = self.graph(graph) else {
            self.refused += 1;
            return;
        };
        // An update to the same graph changes nothing.
        if held.sources.back().is_some_and(|last| last.graph == source) {
            return;
        }
        let at = held.sources.partition_point(|other| other.since_ticks <= since_ticks);
        held.sources.insert(at, Source { graph: source, since_ticks });
        let oldest = if held.sources.len() > SOURCES_MAX { held.sources.pop_front() } else { None };
        self.use_of(source);
        if let Some(oldest) = oldest {
            self.unused(vec![oldest.graph]);
        }
    }

    fn captured(&mut self, graph: u32, call: &HostCall) {
        if graph != 0
            && (call.stack != 0 || call.ranges != 0)
            && let Some(held) = self.graph(graph)
        {
            held.captured = Some(Made { stack: call.stack, ranges: call.ranges });
        }
    }

    fn destroyed(&mut self, graph: u32) {
        if graph == 0 {
            return;
        }
        // An unknown graph is added, since another thread's entries about it may come later.
        let Some(held) = self.graph(graph) else { return };
        if std::mem::replace(&mut held.is_destroyed, true) {
            return;
        }
        self.retired.push_back(graph);
        if self.retired.len() > RETIRED_MAX {
            self.forget_oldest();
        }
    }

    /// Drops the graph that was destroyed first, unless other graphs use it.
    fn forget_oldest(&mut self) {
        let Some(graph) = self.retired.pop_front() else { return };
        if let Some(held) = self.graphs.get_mut(&graph) {
            held.is_forgotten = true;
            if held.users == 0 {
                self.drop_graph(graph);
            }
        }
    }

    fn drop_graph(&mut self, graph: u32) {
        let Some(held) = self.graphs.remove(&graph) else { return };
        self.nodes -= held.nodes.len();
        let used =
            held.sources.iter().map(|source| source.graph).chain(children_of(&held).map(|(child, _)| child));
        self.unused(used.collect());
    }

    /// Takes one user from each of these graphs, and drops the forgotten ones without users.
    fn unused(&mut self, mut left: Vec<u32>) {
        while let Some(graph) = left.pop() {
            let Some(held) = self.graphs.get_mut(&graph) else { continue };
            held.users = held.users.saturating_sub(1);
            if held.users == 0
                && held.is_forgotten
                && let Some(held) = self.graphs.remove(&graph)
            {
                self.nodes -= held.nodes.len();
                left.extend(held.sources.iter().map(|source| source.graph));
                left.extend(children_of(&held).map(|(child, _)| child));
            }
        }
    }

    /// Counts another graph that names this one.
    fn use_of(&mut self, graph: u32) {
        if let Some(held) = self.graph(graph) {
            held.users += 1;
        }
    }

    /// The graph of that number, added if it is new; `None` if there are too many.
    fn graph(&mut self, graph: u32) -> Option<&mut GraphState> {
        while self.graphs.len() >= GRAPHS_MAX && !self.graphs.contains_key(&graph) {
            if self.retired.is_empty() {
                return None;
            }
            self.forget_oldest();
        }
        Some(self.graphs.entry(graph).or_default())
    }

    /// The call that made the node which a record of a launch at that moment names.
    #[inline]
    pub fn find(&self, node: u64, at_ticks: u64, definitions: &Definitions) -> Option<Made> {
        if self.graphs.is_empty() || node >> 32 == 0 {
            return None;
        }
        let (graph, index) = parts(node);
        let known = Known { graphs: &self.graphs, definitions };
        known
            .find_in_chain(graph, index, at_ticks)
            .or_else(|| known.find_in_children(graph, index, at_ticks, DEPTH_MAX, &mut { STEPS_MAX }))
    }
}

/// What a search for a node reads.
#[derive(Clone, Copy)]
struct Known<'a> {
    graphs: &'a FxHashMap<u32, GraphState>,
    definitions: &'a Definitions,
}

impl<'a> Known<'a> {
    /// The source that the graph had at that moment. If the entry about it was lost or is older than the
    /// stream, the source is the first one, from the graph's definition.
    fn source_at(&self, graph: u32, at_ticks: u64) -> Option<Source> {
        let known = self.graphs.get(&graph).and_then(|held| held.source_at(at_ticks));
        let defined = || self.definitions.source_of_graph(graph).filter(|source| *source != graph);
        known.or_else(|| Some(Source { graph: defined()?, since_ticks: at_ticks }))
    }

    /// Searches the graph and the graphs that it was made from.
    fn find_in_chain(&self, mut graph: u32, index: u32, mut at_ticks: u64) -> Option<Made> {
        for _ in 0..DEPTH_MAX {
            let own = self.graphs.get(&graph).and_then(|held| held.node_at(index, at_ticks));
            if own.is_some() {
                return own;
            }
            let source = self.source_at(graph, at_ticks)?;
            (graph, at_ticks) = (source.graph, at_ticks.min(source.since_ticks));
        }
        None
    }

    /// Searches the children, whose nodes follow those of the graph.
    fn find_in_children(
        &self,
        graph: u32,
        index: u32,
        at_ticks: u64,
        depth: u32,
        steps: &mut u32,
    ) -> Option<Made> {
        let depth = depth.checked_sub(1)?;
        let (size, children) = self.shape(graph, at_ticks);
        let mut rest = index.checked_sub(size)?;
        for (child, since_ticks) in children {
            let total = self.total(child, since_ticks, depth, steps)?;
            if rest < total {
                let own = self.find_in_chain(child, rest, since_ticks);
                return own.or_else(|| self.find_in_children(child, rest, since_ticks, depth, steps));
            }
            rest -= total;
        }
        None
    }

    /// How many nodes the graph had at that moment, and the graphs inside it, in order.
    fn shape(&self, mut graph: u32, mut at_ticks: u64) -> (u32, Vec<(u32, u64)>) {
        let (mut size, mut levels) = (0, Vec::new());
        for _ in 0..DEPTH_MAX {
            if let Some(held) = self.graphs.get(&graph) {
                size = size.max(held.own_size(at_ticks));
                levels.push((held, at_ticks));
            }
            let Some(source) = self.source_at(graph, at_ticks) else { break };
            (graph, at_ticks) = (source.graph, at_ticks.min(source.since_ticks));
        }
        // Nodes of the source have lower indexes.
        let children = levels.iter().rev().flat_map(|(held, at_ticks)| {
            children_of(held).filter(move |(_, since_ticks)| since_ticks <= at_ticks)
        });
        (size, children.collect())
    }

    /// How many nodes the graph had at that moment, with those of the graphs inside it.
    fn total(&self, graph: u32, at_ticks: u64, depth: u32, steps: &mut u32) -> Option<u32> {
        let depth = depth.checked_sub(1)?;
        let (size, children) = self.shape(graph, at_ticks);
        *steps = steps.checked_sub(1 + u32::try_from(children.len()).unwrap_or(u32::MAX - 1))?;
        children.into_iter().try_fold(size, |sum, (child, since_ticks)| {
            Some(sum.saturating_add(self.total(child, since_ticks, depth, steps)?))
        })
    }
}

/// The graphs inside it, and since when, in order of index.
fn children_of(held: &GraphState) -> impl Iterator<Item = (u32, u64)> {
    held.children
        .iter()
        .filter_map(|index| held.nodes.get(*index as usize))
        .map(|node| (node.child, node.since_ticks))
}

/// Number of the graph, index in it.
fn parts(node: u64) -> (u32, u32) {
    ((node >> 32) as u32, node as u32)
}

#[cfg(test)]
#[path = "graphs_tests.rs"]
mod tests;
