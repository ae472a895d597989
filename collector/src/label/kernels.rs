//! Names of kernels, in source form and short, and the source lines that define them.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::aggregate::{Aggregates, GraphKey, Graphs, Leaf};
use crate::model::definitions::Definitions;
use crate::model::operation::Direction;
use crate::model::{Process, Totals};
use crate::names::{NameTable, demangle};
use crate::source::{KernelSources, NamedSources, UNKNOWN_SOURCES};

const UNKNOWN: &str = "(unknown kernel)";

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelName {
    /// In source form, demangled.
    pub full: Arc<str>,
    /// Unique in its [`KernelTable`].
    pub short: Arc<str>,
}

/// Names of kernels by process and name definition. Each is demangled once.
#[derive(Debug, Default)]
pub struct KernelTable {
    table: NameTable,
    known: FxHashMap<(u32, u32), KernelName>,
}

impl KernelTable {
    /// Assigns short names in the order in which kernels are first asked for.
    pub fn name(&mut self, process: u32, name: u32, definitions: Option<&Definitions>) -> KernelName {
        if let Some(known) = self.known.get(&(process, name)) {
            return known.clone();
        }
        let full = full_name(name, definitions);
        let found = KernelName { short: self.table.short(&full), full: full.into() };
        self.known.insert((process, name), found.clone());
        found
    }
}

/// A name definition in source form.
pub fn full_name(name: u32, definitions: Option<&Definitions>) -> String {
    let name = definitions.and_then(|definitions| definitions.name(name));
    name.map_or_else(|| UNKNOWN.to_owned(), |name| demangle(name.as_bytes()))
}

/// Names and source lines of an analysis's kernels.
#[derive(Debug)]
pub struct KernelNames<'a> {
    processes: FxHashMap<u32, (&'a Definitions, KernelSources)>,
    graphs: &'a Graphs,
    table: KernelTable,
}

impl<'a> KernelNames<'a> {
    pub fn new(totals: &'a Totals, aggregates: &'a Aggregates) -> KernelNames<'a> {
        let of = |process: &'a Process| (process.number, (&process.definitions, KernelSources::default()));
        let mut names = KernelNames {
            processes: totals.processes.iter().map(of).collect(),
            graphs: &aggregates.graphs,
            table: KernelTable::default(),
        };
        for (key, _) in aggregates.kernels.iter() {
            names.name(key.process, key.name);
        }
        names
    }

    fn definitions(&self, process: u32) -> Option<&'a Definitions> {
        self.processes.get(&process).map(|(definitions, _)| *definitions)
    }

    /// Whether the process is known. Evicted ones are not.
    pub fn has_process(&self, process: u32) -> bool {
        self.processes.contains_key(&process)
    }

    /// The name of a name definition.
    pub fn name(&mut self, process: u32, name: u32) -> KernelName {
        self.table.name(process, name, self.definitions(process))
    }

    /// The source lines of the kernels that have a name definition.
    pub fn sources(&mut self, process: u32, name: u32) -> &NamedSources {
        let Some((definitions, sources)) = self.processes.get_mut(&process) else { return &UNKNOWN_SOURCES };
        let Some(name) = definitions.name(name) else { return &UNKNOWN_SOURCES };
        sources.of_name(definitions, name)
    }

    /// The text of a stack's leaf: a kernel's short name or a word. `None` for the call itself.
    pub fn leaf(&mut self, process: u32, leaf: Leaf) -> Option<Arc<str>> {
        Some(match leaf {
            Leaf::Call => return None,
            Leaf::Kernel(name) => self.name(process, name).short,
            Leaf::Function(function) => self.function(process, function).short,
            Leaf::Copy { direction: Direction::Unknown, .. } => "memcpy".into(),
            Leaf::Copy { direction, .. } => format!("memcpy {}", direction.name()).into(),
            Leaf::Fill => "memset".into(),
            Leaf::Graph(graph) => self.graph(process, graph),
            Leaf::Other => "(other)".into(),
        })
    }

    /// A graph that was timed as a whole: its number in device records, and how many nodes it has.
    pub fn graph(&self, process: u32, graph: u32) -> Arc<str> {
        match self.graphs.get(GraphKey { process, graph }).map_or(0, |known| known.nodes) {
            _ if graph == 0 => "whole graph".into(),
            0 => format!("graph {graph}").into(),
            1 => format!("graph {graph} (1 node)").into(),
            nodes => format!("graph {graph} ({nodes} nodes)").into(),
        }
    }

    /// The name of a function definition.
    pub fn function(&mut self, process: u32, function: u32) -> KernelName {
        let definition = self.definitions(process).and_then(|definitions| definitions.function(function));
        self.name(process, definition.map_or(0, |definition| definition.name_id))
    }
}
