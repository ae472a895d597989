//! Sums what was timed and counts what was not, in bounded memory, for [`super::Estimation`].

use gputrace_wire::call::Detail;
use gputrace_wire::cell::flag;
use gputrace_wire::definition::rung;
use rustc_hash::FxHashMap;

use super::key::{EstimateKey, KeyWork};
use super::key_sums::KeySums;
use super::launch_sites::{LaunchSites, Unplaced};
use super::placement::{self, PlacedRow};
use super::sampled_windows::SampledWindows;
use super::units::Units;
use crate::aggregate::bounded::Bounded;
use crate::aggregate::{Leaf, MANY_STREAMS, StackKey, Stacks};
use crate::model::definitions::Definitions;
use crate::model::operation::{Direction, HostCall, Operation, What};

/// Keys that have a mean of their own. Operations of others are not estimated.
const CELLS_MAX: usize = 1 << 16;
/// From so many keys on, new stacks and sizes of a kernel share one.
const FINE_CELLS_MAX: usize = CELLS_MAX / 2;
/// Rows of operations without times; operations of others are not estimated.
const ROWS_MAX: usize = 1 << 18;
/// From so many rows on, a new stack gets one row for all its streams.
const FINE_MAX: usize = ROWS_MAX / 2;
/// Sums by key and unit, 16 bytes each. Where there are more, neighbouring windows become one unit.
const UNIT_SUMS_MAX: usize = 1 << 20;
/// With so many halvings, all windows of a process are one unit.
const HALVINGS_MAX: u32 = 24;

#[derive(Clone, Debug, Default)]
pub struct Estimates {
    pub(super) cells: Vec<(EstimateKey, KeySums)>,
    numbers: FxHashMap<EstimateKey, u32>,
    /// Operations without times, by their row and the number of their cell.
    pub(super) untimed: Bounded<(StackKey, u32), u64, ROWS_MAX>,
    /// The cells of a graph's nodes, by that of its launches.
    pub(super) nodes: FxHashMap<EstimateKey, Vec<u32>>,
    /// Where launches were made, and those of which that is not known.
    pub(super) launches: LaunchSites,
    /// Operations and their time before device times were first switched off, by process, stack and leaf.
    pub(super) before: FxHashMap<(u32, u32, Leaf), (u64, u64)>,
    /// Windows of one unit, as a power of two.
    halvings: u32,
    unit_sums: usize,
    pub(super) windows: SampledWindows,
    /// Operations without times that have no row or no cell.
    pub(super) beyond: u64,
}

/// The window of a call with device times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct CallWindow {
    number: u32,
    /// Whether it opened without regard to what the program did. Only such windows enter the mean.
    is_scheduled: bool,
}

impl CallWindow {
    fn of(call: &HostCall, definitions: &Definitions) -> CallWindow {
        match call.window {
            // A session with windows may be switched to take all times, or begin so.
            0 if definitions.rung() == rung::WINDOWS => CallWindow { number: 0, is_scheduled: false },
            0 => CallWindow { number: definitions.timed.number_at(call.start_ns), is_scheduled: true },
            window => CallWindow { number: window >> 1, is_scheduled: window & 1 == 0 },
        }
    }
}

impl Estimates {
    /// `measured` has what was executed so far, with device times throughout.
    pub fn new(measured: &Stacks) -> Estimates {
        let mut estimates = Estimates::default();
        for (key, weight) in measured.iter().filter(|(_, weight)| weight.timed > 0) {
            let before = estimates.before.entry((key.process, key.stack, key.leaf)).or_default();
            before.0 += weight.timed;
            before.1 = before.1.saturating_add(weight.ns);
        }
        estimates
    }

    /// Counts a graph launch that was made while device times were taken.
    pub fn graph_launch(&mut self, call: &HostCall, definitions: &Definitions) {
        let Detail::GraphLaunch { graph } = call.detail else { return };
        let key =
            EstimateKey { process: call.process, stack: call.stack, work: KeyWork::GraphLaunches(graph) };
        if let Some(number) = self.cell(key) {
            self.sample(number, CallWindow::of(call, definitions), 0);
        }
    }

    /// `key` is the operation's row in [`Stacks`].
    #[inline]
    pub fn operation(&mut self, operation: &Operation, key: StackKey, definitions: &Definitions) {
        let Some(call) = &operation.call else { return };
        let is_timed = operation.timing.is_some();
        if !is_timed && is_on_host(operation) {
            return;
        }
        if call.window != 0 {
            let (number, is_triggered) = (call.window >> 1, call.window & 1 != 0);
            self.windows.operation(call.process, number, is_triggered, is_timed);
        }
        if let Detail::Launch(launch) = &call.detail
            && !is_timed
            && call.flags & flag::UNSTACKED != 0
        {
            let shape = Some((launch.grid, launch.block));
            self.unplaced(Unplaced { key, function: launch.function, shape }, 1);
            return;
        }
        let cell = EstimateKey::of(operation, call);
        let number = cell.and_then(|cell| self.cell(cell));
        let Some((cell, number)) = cell.zip(number) else {
            self.beyond += u64::from(!is_timed);
            return;
        };
        let Some(timing) = operation.timing else {
            // A node that lacks its times belongs to a launch that has those of others.
            if !matches!(cell.work, KeyWork::Node { .. }) {
                self.untimed(key, number);
            }
            return;
        };
        let window = CallWindow::of(call, definitions);
        if call.window == 0 && window.is_scheduled {
            self.windows.operation(call.process, window.number, false, true);
        }
        let is_first = self.sample(number, window, timing.duration_ns);
        if call.window != 0 {
            self.launch_in_window(call, window, timing.duration_ns, key);
        }
        if is_first {
            if let Some((_, known)) = self.cells.get_mut(number as usize) {
                known.row = Some(key);
            }
            if let KeyWork::Node { graph, .. } = cell.work {
                self.nodes.entry(cell.launches(graph)).or_default().push(number);
            }
        }
    }

    /// Counts launches whose kernel and stream alone are known; `key` has both.
    pub fn counted(&mut self, launches: u64, function: u32, key: StackKey) {
        self.unplaced(Unplaced { key, function, shape: None }, launches);
    }

    fn unplaced(&mut self, unplaced: Unplaced, launches: u64) {
        if !self.launches.add_unplaced(unplaced, launches) {
            self.beyond = self.beyond.saturating_add(launches);
        }
    }

    /// Launches without a stack, divided among the sites where they probably were made.
    pub fn placed(&self) -> Vec<PlacedRow> {
        placement::divided(&self.launches, &mut Vec::new(), &mut Vec::new(), &mut Units::default())
    }

    fn launch_in_window(&mut self, call: &HostCall, window: CallWindow, ns: u64, key: StackKey) {
        let Detail::Launch(launch) = &call.detail else { return };
        let unit = window.number >> self.halvings;
        let Some(sums) = self.launches.site(call, launch) else { return };
        sums.row.get_or_insert(key);
        if window.is_scheduled {
            self.unit_sums += usize::from(sums.add(unit, ns));
            if self.unit_sums > UNIT_SUMS_MAX {
                self.halve();
            }
        } else {
            sums.other = (sums.other.0 + 1, sums.other.1.saturating_add(ns));
        }
    }

    /// Charges nodes of graphs to the launches that replayed them.
    pub fn by_replay(&mut self) {
        for (_, cell) in &mut self.cells {
            cell.row = cell.row.map(StackKey::by_replay);
        }
    }

    fn cell(&mut self, key: EstimateKey) -> Option<u32> {
        let next = self.cells.len();
        if next >= FINE_CELLS_MAX && !self.numbers.contains_key(&key) && key != key.by_function() {
            return self.cell(key.by_function());
        }
        match self.numbers.get(&key) {
            Some(number) => Some(*number),
            None if next < CELLS_MAX => {
                self.numbers.insert(key, next as u32);
                self.cells.push((key, KeySums::default()));
                Some(next as u32)
            }
            None => None,
        }
    }

    pub(super) fn known(&self, key: &EstimateKey) -> Option<&KeySums> {
        self.numbers.get(key).and_then(|number| self.cells.get(*number as usize)).map(|(_, cell)| cell)
    }

    /// Adds a timed operation. Returns whether it is the cell's first.
    fn sample(&mut self, number: u32, window: CallWindow, ns: u64) -> bool {
        let Some((_, cell)) = self.cells.get_mut(number as usize) else { return false };
        let is_first = cell.units.is_empty() && cell.other.0 == 0;
        if window.is_scheduled {
            self.unit_sums += usize::from(cell.add(window.number >> self.halvings, ns));
            if self.unit_sums > UNIT_SUMS_MAX {
                self.halve();
            }
        } else {
            cell.other.0 += 1;
            cell.other.1 = cell.other.1.saturating_add(ns);
        }
        is_first
    }

    /// Makes units of twice as many windows until a quarter of the sums is free.
    fn halve(&mut self) {
        while self.unit_sums > UNIT_SUMS_MAX / 4 * 3 && self.halvings < HALVINGS_MAX {
            self.halvings += 1;
            self.cells.iter_mut().for_each(|(_, cell)| cell.halve());
            self.launches.halve();
            let of_cells: usize = self.cells.iter().map(|(_, cell)| cell.units.len()).sum();
            self.unit_sums = of_cells + self.launches.unit_sums();
        }
    }

    fn untimed(&mut self, key: StackKey, number: u32) {
        let is_fine = self.untimed.len() < FINE_MAX || self.untimed.get(&(key, number)).is_some();
        let key = if is_fine { key } else { StackKey { stream: MANY_STREAMS, ..key } };
        match self.untimed.row((key, number), || 0) {
            Some(count) => *count += 1,
            None => self.beyond += 1,
        }
    }
}

/// Copies without a device never have device times.
fn is_on_host(operation: &Operation) -> bool {
    match operation.what {
        What::Copy { direction, bytes, .. } => direction == Direction::CpuToCpu || bytes == 0,
        _ => false,
    }
}
