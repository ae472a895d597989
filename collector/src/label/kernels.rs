//! The names of a session's kernels: the report and the flamegraph say the same ones.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::aggregate::{Aggregates, GraphKey, Graphs, Leaf};
use crate::model::Totals;
use crate::model::definitions::Definitions;
use crate::model::operation::Direction;
use crate::names::{NameTable, demangle};

const UNKNOWN: &str = "(unknown kernel)";

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelName {
    /// In source form.
    pub full: Arc<str>,
    /// Unique within the session.
    pub short: Arc<str>,
}

#[derive(Debug)]
pub struct KernelNames<'a> {
    processes: FxHashMap<u32, &'a Definitions>,
    graphs: &'a Graphs,
    table: NameTable,
    known: FxHashMap<(u32, u32), KernelName>,
}

impl<'a> KernelNames<'a> {
    /// Kernels get their short names in order of first appearance.
    pub fn new(totals: &'a Totals, aggregates: &'a Aggregates) -> KernelNames<'a> {
        let processes = totals.named().map(|p| (p.number, &p.definitions)).collect();
        let (table, known) = (NameTable::default(), FxHashMap::default());
        let mut names = KernelNames { processes, graphs: &aggregates.graphs, table, known };
        for (key, _) in aggregates.kernels.iter() {
            names.name(key.process, key.name);
        }
        names
    }

    /// By name definition.
    pub fn name(&mut self, process: u32, name: u32) -> KernelName {
        if let Some(known) = self.known.get(&(process, name)) {
            return known.clone();
        }
        let said = self.processes.get(&process).and_then(|definitions| definitions.name(name));
        let full = said.map_or_else(|| UNKNOWN.to_owned(), |said| demangle(said.as_bytes()));
        let name_of = KernelName { short: self.table.short(&full), full: full.into() };
        self.known.insert((process, name), name_of.clone());
        name_of
    }

    /// What is at the end of a stack, in a word or a kernel's short name; `None` for the call itself.
    pub fn leaf(&mut self, process: u32, leaf: Leaf) -> Option<Arc<str>> {
        Some(match leaf {
            Leaf::Call => return None,
            Leaf::Kernel(name) => self.name(process, name).short,
            Leaf::Function(function) => self.function(process, function).short,
            Leaf::Copy(Direction::CpuToGpu) => "memcpy cpu_to_gpu".into(),
            Leaf::Copy(Direction::GpuToCpu) => "memcpy gpu_to_cpu".into(),
            Leaf::Copy(Direction::GpuToGpu) => "memcpy gpu_to_gpu".into(),
            Leaf::Copy(Direction::PeerToPeer) => "memcpy peer_to_peer".into(),
            Leaf::Copy(Direction::CpuToCpu) => "memcpy cpu_to_cpu".into(),
            Leaf::Copy(Direction::Unknown) => "memcpy".into(),
            Leaf::Fill => "memset".into(),
            Leaf::Graph(graph) => self.graph(process, graph),
            Leaf::Other => "(other)".into(),
        })
    }

    /// A whole graph by its number in device records, and how many nodes it has.
    pub fn graph(&self, process: u32, graph: u32) -> Arc<str> {
        match self.graphs.get(GraphKey { process, graph }).map_or(0, |known| known.nodes) {
            _ if graph == 0 => "whole graph".into(),
            0 => format!("graph {graph}").into(),
            1 => format!("graph {graph} (1 node)").into(),
            nodes => format!("graph {graph} ({nodes} nodes)").into(),
        }
    }

    /// By function definition.
    pub fn function(&mut self, process: u32, function: u32) -> KernelName {
        let definition = self.processes.get(&process).and_then(|d| d.function(function));
        self.name(process, definition.map_or(0, |definition| definition.name_id))
    }
}
