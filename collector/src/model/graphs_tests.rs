//! Tests of which call made a node: with clones, updates, children, destroyed and unknown graphs.

use gputrace_wire::call::operation;
use gputrace_wire::cell::kind;
use gputrace_wire::definition;

use super::*;
use crate::batch::Definition;

/// A process whose graphs' definition ids equal their numbers, and a clock.
struct Program {
    graphs: GraphTable,
    definitions: Definitions,
    ticks: u64,
    next: u32,
}

impl Program {
    fn new() -> Program {
        Program { graphs: GraphTable::default(), definitions: Definitions::default(), ticks: 0, next: 0 }
    }

    fn new_number(&mut self) -> u32 {
        self.next += 1;
        let fields = vec![u64::from(self.next) << 12, 0, 0, u64::from(self.next)];
        self.definitions.add(&Definition {
            kind: definition::kind::GRAPH,
            id: self.next,
            fields,
            text: Vec::new(),
        });
        self.next
    }

    /// A node of the graph at that index, made by a call with that stack.
    fn node(&mut self, graph: u32, index: u32, stack: u32, child: u32) {
        self.ticks += 1;
        let node = node(graph, index);
        let made = NodesMade { stack, ticks: self.ticks, node, count: 1, child };
        self.graphs.nodes_made(&made, 0, &self.definitions);
    }

    /// A graph of one node for each stack.
    fn captured(&mut self, stacks: &[u32]) -> u32 {
        let graph = self.new_number();
        for (index, stack) in stacks.iter().enumerate() {
            self.node(graph, index as u32, *stack, 0);
        }
        graph
    }

    fn call(&mut self, operation: u8, graph: u32, source: u32) {
        self.call_from(operation, graph, source, 0);
    }

    fn capture_ended(&mut self, graph: u32, stack: u32) {
        self.call_from(operation::CAPTURE_END, graph, 0, stack);
    }

    fn call_from(&mut self, operation: u8, graph: u32, source: u32, stack: u32) {
        self.ticks += 1;
        let call = HostCall {
            kind: kind::GRAPH,
            start_ticks: self.ticks,
            stack,
            detail: Detail::Graph { graph, source, operation },
            ..HostCall::default()
        };
        self.graphs.call(&call, &self.definitions);
    }

    fn made_of(&mut self, operation: u8, source: u32) -> u32 {
        let graph = self.new_number();
        self.call(operation, graph, source);
        graph
    }

    /// The stacks of the nodes that records of a launch at that moment name.
    fn stacks_at(&self, graph: u32, indexes: u32, ticks: u64) -> Vec<Option<u32>> {
        let find =
            |index| self.graphs.find(node(graph, index), ticks, &self.definitions).map(|made| made.stack);
        (0..indexes).map(find).collect()
    }

    fn stacks(&self, graph: u32, indexes: u32) -> Vec<Option<u32>> {
        self.stacks_at(graph, indexes, u64::MAX)
    }
}

/// A launch with one record has the stack of the capture's end, also through clones and instantiations.
#[test]
fn whole_launch_is_of_the_call_that_ended_the_capture() {
    let mut program = Program::new();
    let whole = |program: &Program, graph, ticks| {
        let (made, nodes) = program.graphs.whole(graph, ticks, &program.definitions);
        (made.map(|made| made.stack), nodes)
    };
    let graph = program.captured(&[10, 11, 12]);
    program.capture_ended(graph, 90);
    let exec = program.made_of(operation::INSTANTIATE, graph);
    assert_eq!(whole(&program, exec, u64::MAX), (Some(90), 3));
    // Updated to a graph that another line captured. An earlier launch belongs to the first.
    let before = program.ticks;
    let other = program.captured(&[20, 21, 22]);
    program.capture_ended(other, 91);
    program.call(operation::UPDATE, exec, other);
    assert_eq!(whole(&program, exec, u64::MAX), (Some(91), 3));
    assert_eq!(whole(&program, exec, before), (Some(90), 3));
    // A graph built by calls around the first one: the node that holds it does not count.
    let built = program.captured(&[30]);
    program.node(built, 1, 31, graph);
    let exec = program.made_of(operation::INSTANTIATE, built);
    assert_eq!(whole(&program, exec, u64::MAX), (Some(30), 4));
    assert_eq!(whole(&program, 4711, u64::MAX), (None, 0));
    assert_eq!(whole(&program, 0, u64::MAX), (None, 0));
}

fn node(graph: u32, index: u32) -> u64 {
    u64::from(graph) << 32 | u64::from(index)
}

#[test]
fn replay_names_what_was_captured_through_clones_and_instantiation() {
    let mut program = Program::new();
    let graph = program.captured(&[70, 71]);
    let clone = program.made_of(operation::CLONE, graph);
    let exec = program.made_of(operation::INSTANTIATE, clone);
    for graph in [graph, clone, exec] {
        assert_eq!(program.stacks(graph, 3), [Some(70), Some(71), None]);
    }
}

#[test]
fn nodes_added_to_a_clone_are_its_own() {
    let mut program = Program::new();
    let graph = program.captured(&[70]);
    let clone = program.made_of(operation::CLONE, graph);
    program.node(clone, 1, 81, 0);
    program.node(graph, 1, 71, 0);
    let exec = program.made_of(operation::INSTANTIATE, clone);
    assert_eq!(program.stacks(exec, 3), [Some(70), Some(81), None]);
    assert_eq!(program.stacks(graph, 2), [Some(70), Some(71)]);
}

#[test]
fn launches_after_an_update_have_the_new_source_and_earlier_ones_the_old() {
    let mut program = Program::new();
    let (first, second) = (program.captured(&[70]), program.captured(&[80]));
    let exec = program.made_of(operation::INSTANTIATE, first);
    let launched = program.ticks + 1;
    program.ticks += 2;
    program.call(operation::UPDATE, exec, second);
    assert_eq!(program.stacks_at(exec, 1, launched), [Some(70)]);
    assert_eq!(program.stacks(exec, 1), [Some(80)]);
}

#[test]
fn nodes_of_children_follow_those_around_them() {
    let mut program = Program::new();
    let inmost = program.captured(&[50]);
    let child = program.captured(&[60, 61]);
    program.node(child, 2, 62, inmost);
    let other = program.captured(&[65]);
    let graph = program.captured(&[70]);
    program.node(graph, 1, 71, child);
    program.node(graph, 2, 72, other);
    program.node(graph, 3, 73, 0);
    // Nodes added to the child after it was copied are not in the copy.
    program.node(other, 1, 66, 0);
    let exec = program.made_of(operation::INSTANTIATE, graph);
    let wanted = [70, 71, 72, 73, 60, 61, 62, 50, 65].map(Some);
    assert_eq!(program.stacks(exec, 9), wanted);
    assert_eq!(program.stacks(exec, 10).last(), Some(&None));
}

#[test]
fn executable_outlives_what_it_was_made_from() {
    let mut program = Program::new();
    let child = program.captured(&[60]);
    let graph = program.captured(&[70]);
    program.node(graph, 1, 71, child);
    let exec = program.made_of(operation::INSTANTIATE, graph);
    program.call(operation::DESTROY, graph, 0);
    program.call(operation::DESTROY, child, 0);
    for _ in 0..2 * RETIRED_MAX {
        let other = program.captured(&[1]);
        program.call(operation::DESTROY, other, 0);
    }
    assert_eq!(program.stacks(exec, 3), [Some(70), Some(71), Some(60)]);
    program.call(operation::DESTROY, exec, 0);
    // Records of its last launches may still come.
    assert_eq!(program.stacks(exec, 3), [Some(70), Some(71), Some(60)]);
    for _ in 0..RETIRED_MAX {
        let other = program.captured(&[1]);
        program.call(operation::DESTROY, other, 0);
    }
    assert_eq!(program.stacks(exec, 3), [None; 3]);
    assert!([exec, graph, child].iter().all(|graph| !program.graphs.graphs.contains_key(graph)));
}

#[test]
fn capturing_for_ever_takes_no_more_memory() {
    let mut program = Program::new();
    for _ in 0..20_000 {
        let graph = program.captured(&[1, 2, 3]);
        let exec = program.made_of(operation::INSTANTIATE, graph);
        program.call(operation::DESTROY, graph, 0);
        program.call(operation::DESTROY, exec, 0);
    }
    assert!(program.graphs.graphs.len() <= RETIRED_MAX + 1, "{}", program.graphs.graphs.len());
    assert!(program.graphs.nodes <= 3 * (RETIRED_MAX + 1));
    assert_eq!(program.graphs.refused, 0);
}

#[test]
fn updating_for_ever_takes_no_more_memory() {
    let mut program = Program::new();
    let first = program.captured(&[1]);
    let exec = program.made_of(operation::INSTANTIATE, first);
    for stack in 2..20_000 {
        let graph = program.captured(&[stack]);
        program.call(operation::UPDATE, exec, graph);
        program.call(operation::DESTROY, graph, 0);
    }
    assert_eq!(program.stacks(exec, 1), [Some(19_999)]);
    assert!(program.graphs.graphs.len() <= RETIRED_MAX + SOURCES_MAX + 2);
}

#[test]
fn entries_of_different_threads_come_in_any_order() {
    let mut program = Program::new();
    let (graph, exec) = (program.new_number(), program.new_number());
    program.ticks = 100;
    program.call(operation::INSTANTIATE, exec, graph);
    program.call(operation::DESTROY, graph, 0);
    // The entries of the capturing thread come last, its second node first.
    program.ticks = 10;
    program.node(graph, 1, 71, 0);
    program.ticks = 9;
    program.node(graph, 0, 70, 0);
    assert_eq!(program.stacks(exec, 2), [Some(70), Some(71)]);
}

#[test]
fn captures_before_tracing_are_unknown() {
    let mut program = Program::new();
    let (graph, exec) = (program.new_number(), program.new_number());
    assert_eq!(program.stacks(exec, 1), [None]);
    program.call(operation::INSTANTIATE, exec, graph);
    program.call(operation::INSTANTIATE, exec, 99);
    assert_eq!(program.stacks(exec, 1), [None]);
    // Nodes that were added later are known.
    program.node(graph, 5, 75, 0);
    let exec = program.made_of(operation::INSTANTIATE, graph);
    assert_eq!(program.stacks(exec, 6)[4..], [None, Some(75)]);
}

#[test]
fn graph_definitions_replace_missing_entries_of_sources() {
    let mut program = Program::new();
    let graph = program.captured(&[70, 71]);
    let exec = program.new_number() + 1;
    program.next = exec;
    program.definitions.add(&Definition {
        kind: definition::kind::GRAPH,
        id: exec,
        fields: vec![1, 1, graph.into(), exec.into()],
        text: Vec::new(),
    });
    assert_eq!(program.stacks(exec, 3), [Some(70), Some(71), None]);
}

#[test]
fn several_nodes_of_one_call_have_its_stack_and_ranges() {
    let mut program = Program::new();
    let graph = program.new_number();
    let made = NodesMade { stack: 7, ticks: 1, node: node(graph, 0), count: 3, child: 0 };
    program.graphs.nodes_made(&made, 9, &program.definitions);
    let find = |index| program.graphs.find(node(graph, index), 1, &program.definitions);
    assert_eq!((find(2), find(3)), (Some(Made { stack: 7, ranges: 9 }), None));
}

#[test]
fn invalid_nodes_and_circles_are_rejected_or_end() {
    let mut program = Program::new();
    let (one, two) = (program.captured(&[1]), program.captured(&[2]));
    program.node(one, u32::MAX, 3, 0);
    program.node(one, u32::MAX - 1, 3, 0);
    assert_eq!(program.graphs.refused, 2);
    let many = NodesMade { stack: 7, ticks: 1, node: node(two, 1), count: u32::MAX, child: 0 };
    program.graphs.nodes_made(&many, 0, &program.definitions);
    assert!(program.graphs.nodes <= NODES_MAX && program.graphs.refused > 2);
    // Each made from the other, and each inside the other.
    for (graph, other) in [(one, two), (two, one)] {
        program.call(operation::UPDATE, graph, other);
        program.node(graph, 1, 4, other);
    }
    let mut around = Program::new();
    let inner = (0..40).map(|_| around.new_number()).collect::<Vec<_>>();
    for graph in &inner {
        for (index, child) in inner.iter().enumerate() {
            around.node(*graph, index as u32, 5, *child);
        }
    }
    assert_eq!(around.graphs.find(node(inner[0], 1_000_000), u64::MAX, &around.definitions), None);
    assert_eq!(program.graphs.find(node(one, u32::MAX), u64::MAX, &program.definitions), None);
    for graph in inner {
        around.call(operation::DESTROY, graph, 0);
    }
}
