//! Executable graphs: a plan in order of dependency, run as one operation of a stream.

use crate::activity;
use crate::error::{Code, Result};
use crate::graph::{NodeWork, node_id};
use crate::handle::Handle;
use crate::host_work::{Job, Task};
use crate::timeline::{Moment, Outcome};
use crate::work::{StreamIds, Work};
use crate::world::World;
use std::collections::HashMap;
use std::sync::Arc;

/// A node of a plan; children of a plan come before those who need them.
#[derive(Clone, Debug)]
pub struct Step {
    pub id: u64,
    pub work: NodeWork,
    pub dependencies: Vec<usize>,
    pub enabled: bool,
}

/// What an executable graph does when launched.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The executable graph's id, as records carry it.
    pub id: u32,
    pub steps: Vec<Step>,
    /// A clone of the graph it was made from, for capturing its launch as a child.
    pub source: Handle,
}

/// An instantiated graph.
pub struct Executable {
    pub id: u32,
    pub plan: Arc<Plan>,
    pub flags: u64,
    /// Whether the kind for whole graphs was on as it was made.
    pub made_for_whole: bool,
    /// Which step a node of the original graph became.
    pub steps: HashMap<Handle, usize>,
}

/// A launch that is under way.
pub struct Run {
    plan: Arc<Plan>,
    ends_ns: Vec<u64>,
    start_ns: u64,
    ids: StreamIds,
    correlation: u32,
}

/// Why an update was refused, as `CUgraphExecUpdateResult`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UpdateRefusal {
    TopologyChanged = 2,
    NodeTypeChanged = 3,
}

struct Planner<'a> {
    world: &'a World,
    id: u32,
    steps: Vec<Step>,
    of_node: HashMap<Handle, usize>,
    /// A node's number among all nodes that records name.
    numbers: HashMap<Handle, u32>,
}

impl Planner<'_> {
    /// Numbers the nodes of `graph` from `base`, and those of its children from the first free number on:
    /// node by node, after the nodes beside them (measured, driver 580, for children without children).
    fn number(&mut self, graph: Handle, base: u32, free: &mut u32) -> Result {
        let nodes = &self.world.graphs.get(graph)?.nodes;
        for &node in nodes {
            self.numbers.insert(node, base + self.world.nodes.get(node)?.number);
        }
        for &node in nodes {
            if let NodeWork::Child(child) = self.world.nodes.get(node)?.work {
                let base = *free;
                *free += self.world.graphs.get(child)?.made;
                self.number(child, base, free)?;
            }
        }
        Ok(())
    }

    /// Adds the steps of `graph`, none of which starts before `before`; returns those that nothing follows.
    fn add(&mut self, graph: Handle, before: &[usize]) -> Result<Vec<usize>> {
        let mut left: Vec<Handle> = self.world.graphs.get(graph)?.nodes.clone();
        let mut last = Vec::new();
        while !left.is_empty() {
            let ready = left.iter().position(|&node| {
                let held = self.world.nodes.get(node);
                held.is_ok_and(|held| held.dependencies.iter().all(|d| self.of_node.contains_key(d)))
            });
            let node = left.remove(ready.ok_or(Code::INVALID_VALUE)?);
            let held = self.world.nodes.get(node)?;
            let mut dependencies: Vec<usize> = held.dependencies.iter().map(|d| self.of_node[d]).collect();
            if dependencies.is_empty() {
                dependencies = before.to_vec();
            }
            last.retain(|step| !dependencies.contains(step));
            let work = match held.work {
                NodeWork::Child(child) => {
                    let ends = self.add(child, &dependencies)?;
                    if !ends.is_empty() {
                        dependencies = ends;
                    }
                    NodeWork::Empty
                }
                ref work => work.clone(),
            };
            let id = node_id(self.id, self.numbers.get(&node).copied().unwrap_or(0));
            self.steps.push(Step { id, work, dependencies, enabled: true });
            let step = self.steps.len() - 1;
            self.of_node.insert(node, step);
            last.push(step);
        }
        Ok(last)
    }
}

impl World {
    fn plan(&self, graph: Handle, id: u32) -> Result<(Vec<Step>, HashMap<Handle, usize>)> {
        let mut planner =
            Planner { world: self, id, steps: Vec::new(), of_node: HashMap::new(), numbers: HashMap::new() };
        planner.number(graph, 0, &mut self.graphs.get(graph)?.made.clone())?;
        planner.add(graph, &[])?;
        Ok((planner.steps, planner.of_node))
    }

    /// `cuGraphInstantiate`.
    pub fn instantiate(&mut self, graph: Handle, flags: u64) -> Result<Handle> {
        // The executable is known by the number of the clone that it is made of (measured, driver 580).
        let source = self.clone_graph(graph)?;
        let id = self.graphs.get(source)?.id;
        let (steps, of_node) = self.plan(graph, id)?;
        self.executables.insert(Executable {
            id,
            plan: Arc::new(Plan { id, steps, source }),
            made_for_whole: activity::wanted(activity::GRAPH_TRACE),
            flags,
            steps: of_node,
        })
    }

    /// `cuGraphExecDestroy`. A launch that is under way keeps its plan.
    pub fn destroy_executable(&mut self, executable: Handle) -> Result {
        let held = self.executables.remove(executable)?;
        self.destroy_graph(held.plan.source)
    }

    /// `cuGraphExecUpdate`: takes over parameters where kinds and edges are the same.
    pub fn update_executable(
        &mut self,
        executable: Handle,
        graph: Handle,
    ) -> Result<std::result::Result<(), (UpdateRefusal, Handle)>> {
        let held = self.executables.get(executable)?;
        let (id, old) = (held.id, held.plan.clone());
        let (mut steps, of_node) = self.plan(graph, id)?;
        let node_of = |step: usize| of_node.iter().find(|(_, at)| **at == step).map_or(0, |(node, _)| *node);
        if steps.len() != old.steps.len() {
            return Ok(Err((UpdateRefusal::TopologyChanged, 0)));
        }
        for (at, (new, old)) in steps.iter().zip(&old.steps).enumerate() {
            if new.work.kind() != old.work.kind() {
                return Ok(Err((UpdateRefusal::NodeTypeChanged, node_of(at))));
            }
            if new.dependencies != old.dependencies {
                return Ok(Err((UpdateRefusal::TopologyChanged, node_of(at))));
            }
        }
        // The executable's nodes keep their ids, and the callback does not get the nodes of the new clone.
        steps.iter_mut().zip(&old.steps).for_each(|(new, old)| new.id = old.id);
        let reported = self.after.reports_nodes(false);
        let source = self.clone_graph(graph);
        self.after.reports_nodes(reported);
        let source = source?;
        self.destroy_graph(old.source)?;
        let held = self.executables.get_mut(executable)?;
        held.plan = Arc::new(Plan { id, steps, source });
        held.steps.extend(of_node);
        Ok(Ok(()))
    }

    /// Changes what one node of an executable graph does; its kind has to stay.
    pub fn set_step(&mut self, executable: Handle, node: Handle, work: NodeWork) -> Result {
        let held = self.executables.get_mut(executable)?;
        let step = *held.steps.get(&node).ok_or(Code::INVALID_VALUE)?;
        let step = &mut Arc::make_mut(&mut held.plan).steps[step];
        if step.work.kind() != work.kind() {
            return Err(Code::INVALID_VALUE);
        }
        step.work = work;
        Ok(())
    }

    /// The step of a node, for change.
    pub fn step(&mut self, executable: Handle, node: Handle) -> Result<&mut Step> {
        let held = self.executables.get_mut(executable)?;
        let step = *held.steps.get(&node).ok_or(Code::INVALID_VALUE)?;
        Ok(&mut Arc::make_mut(&mut held.plan).steps[step])
    }

    /// `cuGraphLaunch`.
    pub fn launch_graph(&mut self, executable: Handle, stream: Handle) -> Result {
        let held = self.executables.get(executable)?;
        if activity::wanted(activity::GRAPH_TRACE) && !held.made_for_whole {
            // As CUPTI does for a graph that was made before the kind went on (measured, driver 580, CUPTI
            // 12.9 and 13.0).
            std::process::abort();
        }
        let plan = held.plan.clone();
        self.submit(stream, Work::Graph(plan)).map(|_| ())
    }

    /// Performs a graph from `start_ns` on, as far as times are known.
    pub fn perform_graph(
        &mut self,
        plan: Arc<Plan>,
        ids: &StreamIds,
        start_ns: u64,
        correlation: u32,
    ) -> Outcome {
        let ends_ns = Vec::with_capacity(plan.steps.len());
        self.run_graph(Run { plan, ends_ns, start_ns, ids: *ids, correlation })
    }

    fn run_graph(&mut self, mut run: Run) -> Outcome {
        let plan = run.plan.clone();
        while let Some(step) = plan.steps.get(run.ends_ns.len()) {
            let start_ns = step.dependencies.iter().map(|&at| run.ends_ns[at]).fold(run.start_ns, u64::max);
            let node = Some((plan.id, step.id));
            let end_ns = match &step.work {
                _ if !step.enabled => start_ns,
                NodeWork::Kernel(kernel) => {
                    self.perform_kernel(kernel, &run.ids, start_ns, run.correlation, node)
                }
                NodeWork::Copy(copy) => self.perform_copy(copy, &run.ids, start_ns, run.correlation, node),
                NodeWork::Fill(fill) => self.perform_fill(fill, &run.ids, start_ns, run.correlation, node),
                NodeWork::Host(call) => {
                    return Outcome::Stalled(start_ns, Task::GraphHost(*call, Box::new(run)));
                }
                NodeWork::WaitValue(wait) => {
                    return Outcome::Stalled(start_ns, Task::GraphWaitValue(*wait, Box::new(run)));
                }
                NodeWork::WriteValue(write) => {
                    self.after.write_value(*write);
                    start_ns
                }
                NodeWork::RecordEvent(event) => {
                    if let Ok(event) = self.events.get_mut(*event) {
                        event.moment = Some(Moment::At(start_ns));
                    }
                    start_ns
                }
                NodeWork::WaitEvent(event) => {
                    let moment = self.events.get(*event).ok().and_then(|event| event.moment.clone());
                    moment.and_then(|moment| moment.known()).map_or(start_ns, |at| at.max(start_ns))
                }
                NodeWork::Child(_) | NodeWork::Empty | NodeWork::Allocate { .. } | NodeWork::Free { .. } => {
                    start_ns
                }
            };
            run.ends_ns.push(end_ns);
        }
        let end_ns = run.ends_ns.iter().copied().fold(run.start_ns, u64::max);
        if activity::wanted(activity::GRAPH_TRACE) {
            let node = Some((plan.id, 0));
            let record =
                self.record(activity::GRAPH_TRACE, &run.ids, run.start_ns, end_ns, run.correlation, node);
            self.deliver(run.ids.context, record);
        }
        Outcome::Done(end_ns)
    }

    /// Goes on after a node that the worker did, which ended at `end_ns`.
    pub fn resume_graph(&mut self, stream: Handle, mut run: Run, end_ns: u64) {
        run.ends_ns.push(end_ns);
        match self.run_graph(run) {
            Outcome::Done(end_ns) => self.unstall(stream, end_ns),
            Outcome::Stalled(due_ns, task) => self.give_to_worker(Job { stream, due_ns, task }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_keeps_order_through_children() {
        let mut world = World::new();
        let (graph, child) = (world.create_graph().unwrap(), world.create_graph().unwrap());
        let inner = world.add_node(child, &[], NodeWork::Free { address: 1 }).unwrap();
        world.add_node(child, &[inner], NodeWork::Free { address: 2 }).unwrap();
        let first = world.add_node(graph, &[], NodeWork::Free { address: 0 }).unwrap();
        let middle = world.add_child(graph, &[first], child).unwrap();
        world.add_node(graph, &[middle], NodeWork::Free { address: 3 }).unwrap();
        let (steps, of_node) = world.plan(graph, 1).unwrap();
        let ids = |node: Handle| of_node.get(&node).map(|at| steps[*at].id as u32);
        let last = *world.graphs.get(graph).unwrap().nodes.last().unwrap();
        assert_eq!([first, middle, last].map(ids), [Some(0), Some(1), Some(2)]);
        let flattened: Vec<u32> = steps.iter().map(|step| step.id as u32).filter(|id| *id > 2).collect();
        assert_eq!(flattened, [3, 4]);
        let addresses: Vec<u64> = steps
            .iter()
            .filter_map(|step| match step.work {
                NodeWork::Free { address } => Some(address),
                _ => None,
            })
            .collect();
        assert_eq!(addresses, [0, 1, 2, 3]);
        for (at, step) in steps.iter().enumerate() {
            assert_eq!(step.dependencies.is_empty(), at == 0);
            assert!(step.dependencies.iter().all(|&dependency| dependency < at));
        }
    }

    #[test]
    fn update_needs_the_same_shape() {
        let mut world = World::new();
        let (one, other) = (world.create_graph().unwrap(), world.create_graph().unwrap());
        let a = world.add_node(one, &[], NodeWork::Empty).unwrap();
        world.add_node(one, &[a], NodeWork::Free { address: 1 }).unwrap();
        let executable = world.instantiate(one, 0).unwrap();
        let b = world.add_node(other, &[], NodeWork::Empty).unwrap();
        let refused = |world: &mut World| world.update_executable(executable, other).unwrap().unwrap_err().0;
        assert_eq!(refused(&mut world), UpdateRefusal::TopologyChanged);
        let last = world.add_node(other, &[], NodeWork::Free { address: 2 }).unwrap();
        assert_eq!(refused(&mut world), UpdateRefusal::TopologyChanged);
        world.add_edges(other, &[(b, last)]).unwrap();
        assert!(world.update_executable(executable, other).unwrap().is_ok());
        world.nodes.get_mut(last).unwrap().work = NodeWork::Empty;
        assert_eq!(refused(&mut world), UpdateRefusal::NodeTypeChanged);
        world.destroy_executable(executable).unwrap();
        assert_eq!(world.graphs.iter().count(), 2);
    }
}
