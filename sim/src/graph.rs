//! Graphs as a program builds them: nodes and the edges between them.

use crate::copy::Copy;
use crate::error::{Code, Result};
use crate::fill::Fill;
use crate::handle::Handle;
use crate::launch::Kernel;
use crate::memory::Kind;
use crate::work::{HostCall, ValueWait, ValueWrite};
use crate::world::World;
use std::collections::{HashMap, HashSet};

/// What a node does.
#[derive(Clone, Debug)]
pub enum NodeWork {
    Kernel(Kernel),
    Copy(Copy),
    Fill(Fill),
    Host(HostCall),
    /// A graph of its own, which belongs to the node.
    Child(Handle),
    Empty,
    WaitEvent(Handle),
    RecordEvent(Handle),
    Allocate {
        address: u64,
        bytes: u64,
    },
    Free {
        address: u64,
    },
    WaitValue(ValueWait),
    WriteValue(ValueWrite),
}

impl NodeWork {
    /// The number in `CUgraphNodeType`.
    pub fn kind(&self) -> u32 {
        match self {
            NodeWork::Kernel(_) => 0,
            NodeWork::Copy(_) => 1,
            NodeWork::Fill(_) => 2,
            NodeWork::Host(_) => 3,
            NodeWork::Child(_) => 4,
            NodeWork::Empty => 5,
            NodeWork::WaitEvent(_) => 6,
            NodeWork::RecordEvent(_) => 7,
            NodeWork::Allocate { .. } => 10,
            NodeWork::Free { .. } => 11,
            NodeWork::WaitValue(_) | NodeWork::WriteValue(_) => 12,
        }
    }
}

/// One node.
pub struct Node {
    pub graph: Handle,
    /// Place in the graph's count of nodes ever made, from 0 (measured, driver 580).
    pub number: u32,
    pub work: NodeWork,
    pub dependencies: Vec<Handle>,
}

/// One graph.
#[derive(Default)]
pub struct Graph {
    /// The id that CUPTI gives.
    pub id: u32,
    /// In the order in which they were added.
    pub nodes: Vec<Handle>,
    pub made: u32,
    /// The node whose child this graph is; such a graph cannot be destroyed by itself.
    pub parent: Option<Handle>,
    /// For a clone: which node came from which.
    pub cloned_from: HashMap<Handle, Handle>,
    /// User objects that it keeps alive, with how many references it holds.
    pub objects: Vec<(Handle, u32)>,
}

/// CUPTI's id of a node: the graph's id above, the node's number below.
pub fn node_id(graph: u32, number: u32) -> u64 {
    u64::from(graph) << 32 | u64::from(number)
}

impl World {
    /// The next id for a graph or an executable one.
    pub fn new_graph_id(&mut self) -> u32 {
        self.next_graph_id += 1;
        self.next_graph_id - 1
    }

    /// `cuGraphCreate`.
    pub fn create_graph(&mut self) -> Result<Handle> {
        let id = self.new_graph_id();
        self.graphs.insert(Graph { id, ..Graph::default() })
    }

    /// Adds a node that depends on `dependencies`, which are nodes of the same graph.
    pub fn add_node(&mut self, graph: Handle, dependencies: &[Handle], work: NodeWork) -> Result<Handle> {
        self.graphs.get(graph)?;
        let mut unique = HashSet::new();
        for &dependency in dependencies {
            if self.nodes.get(dependency)?.graph != graph || !unique.insert(dependency) {
                return Err(Code::INVALID_VALUE);
            }
        }
        let held = self.graphs.get_mut(graph)?;
        let (id, number) = (held.id, held.made);
        held.made += 1;
        let node = self.nodes.insert(Node { graph, number, work, dependencies: dependencies.to_vec() })?;
        self.graphs.get_mut(graph)?.nodes.push(node);
        self.after.node_made(graph, node, node_id(id, number));
        Ok(node)
    }

    /// Adds a node that holds a copy of `child`.
    pub fn add_child(&mut self, graph: Handle, dependencies: &[Handle], child: Handle) -> Result<Handle> {
        let clone = self.clone_graph(child)?;
        let node = self.add_node(graph, dependencies, NodeWork::Child(clone))?;
        self.graphs.get_mut(clone)?.parent = Some(node);
        Ok(node)
    }

    /// Adds a node that allocates; the address is fixed from now on.
    pub fn add_allocation(
        &mut self,
        graph: Handle,
        dependencies: &[Handle],
        device: u32,
        bytes: u64,
    ) -> Result<(Handle, u64)> {
        self.graphs.get(graph)?;
        let address = self.memory.allocate(bytes, Kind::Mapped, device, 0, 0)?;
        match self.add_node(graph, dependencies, NodeWork::Allocate { address, bytes }) {
            Ok(node) => Ok((node, address)),
            Err(code) => {
                self.free_in_stream(address);
                Err(code)
            }
        }
    }

    /// `cuGraphDestroyNode`.
    pub fn destroy_node(&mut self, node: Handle) -> Result {
        let held = self.nodes.remove(node)?;
        if let Ok(graph) = self.graphs.get_mut(held.graph) {
            graph.nodes.retain(|&other| other != node);
            for other in graph.nodes.clone() {
                self.nodes.get_mut(other)?.dependencies.retain(|&dependency| dependency != node);
            }
        }
        self.drop_work(held.work)
    }

    fn drop_work(&mut self, work: NodeWork) -> Result {
        if let NodeWork::Child(child) = work {
            self.remove_graph(child)?;
        }
        Ok(())
    }

    fn remove_graph(&mut self, graph: Handle) -> Result {
        let held = self.graphs.remove(graph)?;
        for node in held.nodes {
            let node = self.nodes.remove(node)?;
            self.drop_work(node.work)?;
        }
        for (object, count) in held.objects {
            self.release_object(object, count)?;
        }
        Ok(())
    }

    /// `cuGraphDestroy`.
    pub fn destroy_graph(&mut self, graph: Handle) -> Result {
        if self.graphs.get(graph)?.parent.is_some() {
            return Err(Code::INVALID_VALUE);
        }
        self.remove_graph(graph)
    }

    /// `cuGraphClone`.
    pub fn clone_graph(&mut self, graph: Handle) -> Result<Handle> {
        let originals = self.graphs.get(graph)?.nodes.clone();
        let clone = self.create_graph()?;
        for (object, count) in self.graphs.get(graph)?.objects.clone() {
            self.retain_object_in_graph(clone, object, count, false)?;
        }
        let mut twins = HashMap::new();
        for original in originals {
            let held = self.nodes.get(original)?;
            let (work, number, dependencies) = (held.work.clone(), held.number, held.dependencies.clone());
            self.graphs.get_mut(clone)?.made = number;
            let node = match work {
                NodeWork::Child(child) => self.add_child(clone, &[], child)?,
                work => self.add_node(clone, &[], work)?,
            };
            twins.insert(original, node);
            self.nodes.get_mut(node)?.dependencies = dependencies;
        }
        for &node in twins.values() {
            let held = self.nodes.get_mut(node)?;
            for dependency in &mut held.dependencies {
                *dependency = *twins.get(dependency).ok_or(Code::INVALID_VALUE)?;
            }
        }
        let made = self.graphs.get(graph)?.made;
        let held = self.graphs.get_mut(clone)?;
        held.made = made;
        held.cloned_from = twins;
        Ok(clone)
    }

    /// Adds edges; the whole graph has to stay free of cycles.
    pub fn add_edges(&mut self, graph: Handle, edges: &[(Handle, Handle)]) -> Result {
        for &(from, to) in edges {
            let known = self.nodes.get(from)?.graph == graph && self.nodes.get(to)?.graph == graph;
            if !known || from == to || self.nodes.get(to)?.dependencies.contains(&from) {
                return Err(Code::INVALID_VALUE);
            }
            if self.reaches(&[from], to)? {
                return Err(Code::INVALID_VALUE);
            }
            self.nodes.get_mut(to)?.dependencies.push(from);
        }
        Ok(())
    }

    /// Removes edges.
    pub fn remove_edges(&mut self, graph: Handle, edges: &[(Handle, Handle)]) -> Result {
        for &(from, to) in edges {
            let held = self.nodes.get_mut(to)?;
            if held.graph != graph || !held.dependencies.contains(&from) {
                return Err(Code::INVALID_VALUE);
            }
            held.dependencies.retain(|&dependency| dependency != from);
        }
        Ok(())
    }

    /// Whether `wanted` is among `starts` or anything that they depend on.
    pub fn reaches(&self, starts: &[Handle], wanted: Handle) -> Result<bool> {
        let (mut seen, mut left) = (HashSet::new(), starts.to_vec());
        while let Some(node) = left.pop() {
            if node == wanted {
                return Ok(true);
            }
            if seen.insert(node) {
                left.extend(&self.nodes.get(node)?.dependencies);
            }
        }
        Ok(false)
    }

    /// All edges, as pairs from and to.
    pub fn edges(&self, graph: Handle) -> Result<Vec<(Handle, Handle)>> {
        let mut edges = Vec::new();
        for &node in &self.graphs.get(graph)?.nodes {
            edges.extend(self.nodes.get(node)?.dependencies.iter().map(|&from| (from, node)));
        }
        Ok(edges)
    }

    /// Nodes without dependencies.
    pub fn roots(&self, graph: Handle) -> Result<Vec<Handle>> {
        let nodes = self.graphs.get(graph)?.nodes.iter();
        Ok(nodes
            .copied()
            .filter(|&node| self.nodes.get(node).is_ok_and(|n| n.dependencies.is_empty()))
            .collect())
    }

    /// Nodes that depend on `node`.
    pub fn dependents(&self, node: Handle) -> Result<Vec<Handle>> {
        let graph = self.nodes.get(node)?.graph;
        let nodes = self.graphs.get(graph)?.nodes.iter();
        Ok(nodes
            .copied()
            .filter(|&n| self.nodes.get(n).is_ok_and(|n| n.dependencies.contains(&node)))
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_stay_within_a_graph_and_make_no_cycle() {
        let mut world = World::new();
        let (graph, other) = (world.create_graph().unwrap(), world.create_graph().unwrap());
        let a = world.add_node(graph, &[], NodeWork::Empty).unwrap();
        let b = world.add_node(graph, &[a], NodeWork::Empty).unwrap();
        let c = world.add_node(graph, &[b], NodeWork::Empty).unwrap();
        let foreign = world.add_node(other, &[], NodeWork::Empty).unwrap();
        assert_eq!(world.add_edges(graph, &[(c, a)]), Err(Code::INVALID_VALUE));
        assert_eq!(world.add_edges(graph, &[(foreign, c)]), Err(Code::INVALID_VALUE));
        assert_eq!(world.add_node(graph, &[foreign], NodeWork::Empty), Err(Code::INVALID_VALUE));
        world.add_edges(graph, &[(a, c)]).unwrap();
        assert_eq!(world.edges(graph).unwrap(), [(a, b), (b, c), (a, c)]);
        assert_eq!((world.roots(graph).unwrap(), world.dependents(a).unwrap()), (vec![a], vec![b, c]));
        world.destroy_node(b).unwrap();
        assert_eq!(world.edges(graph).unwrap(), [(a, c)]);
    }

    #[test]
    fn clone_is_like_its_original_and_outlives_it() {
        let mut world = World::new();
        let (graph, child) = (world.create_graph().unwrap(), world.create_graph().unwrap());
        world.add_node(child, &[], NodeWork::Empty).unwrap();
        let a = world.add_node(graph, &[], NodeWork::Empty).unwrap();
        let b = world.add_child(graph, &[a], child).unwrap();
        let clone = world.clone_graph(graph).unwrap();
        world.destroy_graph(child).unwrap();
        world.destroy_graph(graph).unwrap();
        assert!(world.nodes.get(b).is_err());
        assert_eq!(world.graphs.get(clone).unwrap().nodes.len(), 2);
        assert_eq!(world.edges(clone).unwrap().len(), 1);
        world.destroy_graph(clone).unwrap();
        assert_eq!(world.nodes.iter().count(), 0);
        assert_eq!(world.graphs.iter().count(), 0);
    }
}
