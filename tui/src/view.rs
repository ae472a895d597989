//! What the user chose: the table, its order and filter, the device, the pause.

use crate::scene::{MemoryRow, ProcessRow, Scene, SessionView, TableRow};

/// The table under the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tab {
    #[default]
    Processes,
    Kernels,
    Lines,
    Streams,
    Copies,
    Memory,
}

impl Tab {
    pub const ALL: [Tab; 6] =
        [Tab::Processes, Tab::Kernels, Tab::Lines, Tab::Streams, Tab::Copies, Tab::Memory];

    pub fn name(self) -> &'static str {
        match self {
            Tab::Processes => "Processes",
            Tab::Kernels => "Kernels",
            Tab::Lines => "Lines",
            Tab::Streams => "Streams",
            Tab::Copies => "Copies",
            Tab::Memory => "Memory",
        }
    }

    /// The rows of times that a session has for this table.
    pub fn rows(self, session: &SessionView) -> &[TableRow] {
        match self {
            Tab::Processes | Tab::Memory => &[],
            Tab::Kernels => &session.tables.kernels,
            Tab::Lines => &session.tables.lines,
            Tab::Streams => &session.tables.streams,
            Tab::Copies => &session.tables.copies,
        }
    }
}

/// What the processes are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ProcessOrder {
    #[default]
    Memory,
    Utilisation,
    Pid,
    Command,
}

impl ProcessOrder {
    pub const ALL: [ProcessOrder; 4] =
        [ProcessOrder::Memory, ProcessOrder::Utilisation, ProcessOrder::Pid, ProcessOrder::Command];

    pub fn name(self) -> &'static str {
        match self {
            ProcessOrder::Memory => "memory",
            ProcessOrder::Utilisation => "utilisation",
            ProcessOrder::Pid => "pid",
            ProcessOrder::Command => "command",
        }
    }
}

/// A signal that waits for the second key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pending {
    pub pid: u32,
    pub signal: i32,
}

#[derive(Debug, Clone, Default)]
pub struct View {
    pub tab: Tab,
    pub order: ProcessOrder,
    /// Rows whose text contains this, without regard to case.
    pub filter: String,
    /// Whether keys go to the filter.
    pub edits_filter: bool,
    pub is_paused: bool,
    pub shows_help: bool,
    /// Index of the device in detail.
    pub device: usize,
    /// Index of the selected process among those shown.
    pub selected: usize,
    /// Its pid and device, once a key chose it: it stays selected when the order changes.
    pub followed: Option<(u32, u32)>,
    /// Index of the selected row of a session's table.
    pub row: usize,
    /// Index of the session whose tables are shown.
    pub session: usize,
    pub pending: Option<Pending>,
    /// Whether a program runs behind this screen: keys that a terminal turns into signals go to it.
    pub is_of_program: bool,
    /// What the last key did or could not do.
    pub message: String,
}

impl View {
    /// The processes that pass the filter, in the chosen order.
    pub fn processes<'s>(&self, scene: &'s Scene) -> Vec<&'s ProcessRow> {
        let mut rows: Vec<&ProcessRow> = scene
            .processes
            .iter()
            .filter(|row| {
                let texts = [row.command.as_deref(), row.user.as_deref()];
                self.passes(&row.pid.to_string()) || texts.into_iter().flatten().any(|text| self.passes(text))
            })
            .collect();
        match self.order {
            ProcessOrder::Memory => rows.sort_by_key(|row| (std::cmp::Reverse(row.memory), row.pid)),
            ProcessOrder::Utilisation => {
                rows.sort_by_key(|row| (std::cmp::Reverse(row.gpu_percent), row.pid))
            }
            ProcessOrder::Pid => rows.sort_by_key(|row| (row.pid, row.device)),
            ProcessOrder::Command => rows.sort_by(|a, b| (&a.command, a.pid).cmp(&(&b.command, b.pid))),
        }
        rows
    }

    /// The rows of the chosen table that pass the filter.
    pub fn rows<'s>(&self, session: &'s SessionView) -> Vec<&'s TableRow> {
        self.tab.rows(session).iter().filter(|row| self.passes(&row.name)).collect()
    }

    /// The rows of the table of memory that pass the filter.
    pub fn memory_rows<'s>(&self, session: &'s SessionView) -> Vec<&'s MemoryRow> {
        let passes = |row: &&MemoryRow| self.passes(&row.name) || self.passes(&row.kind);
        session.tables.memory.iter().filter(passes).collect()
    }

    /// Brings the choices back into what exists now.
    pub fn fit(&mut self, scene: &Scene) {
        self.device = self.device.min(scene.devices.len().saturating_sub(1));
        self.session = self.session.min(scene.sessions.len().saturating_sub(1));
        let shown = self.processes(scene);
        let followed =
            self.followed.and_then(|one| shown.iter().position(|row| (row.pid, row.device) == one));
        self.selected = followed.unwrap_or(self.selected).min(shown.len().saturating_sub(1));
        let rows = scene.sessions.get(self.session).map_or(0, |session| match self.tab {
            Tab::Memory => self.memory_rows(session).len(),
            _ => self.rows(session).len(),
        });
        self.row = self.row.min(rows.saturating_sub(1));
    }

    /// Shows another table from its first row on.
    pub fn turn_to(&mut self, tab: Tab) {
        (self.tab, self.row) = (tab, 0);
    }

    /// Selects the row of the shown table that is so many further on, or before.
    pub fn step(&mut self, rows: isize, scene: &Scene) {
        if self.tab != Tab::Processes {
            self.row = self.row.saturating_add_signed(rows);
            return;
        }
        let shown = self.processes(scene);
        let at = self.selected.saturating_add_signed(rows).min(shown.len().saturating_sub(1));
        self.followed = shown.get(at).map(|row| (row.pid, row.device));
        self.selected = at;
    }

    fn passes(&self, text: &str) -> bool {
        self.filter.is_empty() || text.to_lowercase().contains(&self.filter.to_lowercase())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, memory: Option<u64>, command: &str) -> ProcessRow {
        ProcessRow {
            pid,
            is_host_pid: false,
            device: 0,
            user: Some("root".into()),
            command: Some(command.into()),
            memory,
            gpu_percent: Some(100 - pid),
            allocations: None,
            is_traced: Some(false),
        }
    }

    fn scene() -> Scene {
        let processes =
            vec![process(3, Some(5), "train.py"), process(1, None, "serve"), process(2, Some(9), "Train2")];
        Scene { processes, ..Scene::default() }
    }

    #[test]
    fn processes_are_sorted_and_unknown_memory_comes_last() {
        let pids = |order| {
            let view = View { order, ..View::default() };
            view.processes(&scene()).iter().map(|row| row.pid).collect::<Vec<_>>()
        };
        assert_eq!(pids(ProcessOrder::Memory), [2, 3, 1]);
        assert_eq!(pids(ProcessOrder::Utilisation), [1, 2, 3]);
        assert_eq!(pids(ProcessOrder::Pid), [1, 2, 3]);
        assert_eq!(pids(ProcessOrder::Command), [2, 1, 3]);
    }

    #[test]
    fn filter_takes_commands_users_and_pids() {
        let count =
            |filter: &str| View { filter: filter.into(), ..View::default() }.processes(&scene()).len();
        assert_eq!((count("TRAIN"), count("root"), count("1"), count("none")), (2, 3, 1, 0));
    }

    #[test]
    fn selected_process_stays_selected_in_another_order() {
        let (mut view, scene) = (View::default(), scene());
        view.step(1, &scene);
        assert_eq!(view.processes(&scene)[view.selected].pid, 3);
        view.order = ProcessOrder::Command;
        view.fit(&scene);
        assert_eq!((view.selected, view.processes(&scene)[view.selected].pid), (2, 3));
        view.step(isize::MAX, &scene);
        view.step(isize::MIN, &scene);
        assert_eq!(view.selected, 0);
    }

    #[test]
    fn choices_are_brought_back_into_what_exists() {
        let mut view = View { device: 7, session: 7, selected: 7, ..View::default() };
        view.fit(&scene());
        assert_eq!((view.device, view.session, view.selected), (0, 0, 2));
    }
}
