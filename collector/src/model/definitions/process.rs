//! A process's definitions of itself: its command, libraries and notices.

use gputrace_wire::definition::{self, library_role};

use crate::model::definitions::{Definitions, GraphTimes, Library, Notice, ProcessInfo};

impl Definitions {
    pub fn process(&self) -> Option<ProcessInfo> {
        use definition::process as field;
        let entry = self.entry(self.process?)?;
        let words = |text: &str| text.trim_end_matches('\0').split('\0').map(str::to_owned).collect();
        Some(ProcessInfo {
            pid: entry.small(field::PID),
            parent_pid: entry.small(field::PARENT_PID),
            command: words(entry.text()),
            title: self.title.as_deref().map(words),
            driver_version: entry.small(field::DRIVER_VERSION),
            simulated: entry.field(field::SIMULATED) == 1,
            rank: entry.small(field::RANK).checked_sub(1),
            local_rank: entry.small(field::LOCAL_RANK).checked_sub(1),
        })
    }

    pub fn libraries(&self) -> impl Iterator<Item = Library<'_>> {
        use definition::library as field;
        self.libraries.iter().filter_map(|id| self.entry(*id)).map(|entry| Library {
            role: entry.field(field::ROLE),
            path: entry.text(),
            version: entry.field(field::VERSION),
        })
    }

    /// A value that was given to the process (`of`: one of [`definition::origin_of`]).
    pub fn origin(&self, of: u64) -> Option<&str> {
        let mut origins = self.origins.iter().filter_map(|id| self.entry(*id));
        origins.find(|entry| entry.field(definition::origin::OF) == of).map(|entry| entry.text())
    }

    /// Changes of how graphs were timed, in order of arrival. Before the first: by node.
    pub fn graph_times(&self) -> impl Iterator<Item = GraphTimes> {
        use definition::graph_times as field;
        self.graph_times.iter().filter_map(|id| self.entry(*id)).map(|entry| GraphTimes {
            mode: entry.field(field::MODE),
            reason: entry.field(field::REASON),
            at_ticks: entry.field(field::AT_TICKS),
            launches: entry.field(field::LAUNCHES),
            nodes: entry.field(field::NODES),
            nodes_ns: entry.field(field::NODES_NS),
        })
    }

    /// Whether a library that delivers device records was named.
    pub fn has_device_records(&self) -> bool {
        self.libraries().any(|library| library.role == library_role::DEVICE_RECORDS)
    }

    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }

    /// The latest rung that a notice named, one of [`definition::rung`]; 0 if none did.
    pub fn rung(&self) -> u64 {
        self.notices.iter().rev().map(|notice| notice.rung).find(|rung| *rung != 0).unwrap_or(0)
    }

    /// Whether the driver or a device said that it is a simulation.
    pub fn simulated(&self) -> bool {
        self.process().is_some_and(|process| process.simulated)
            || self.devices().any(|device| device.simulated)
    }
}
