//! Kernels, lines, modules and stacks of both sides, joined row by row.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::names::NameTable;
use crate::report::diff::MeasuredTwice;
use crate::report::{CodeLocation, Report};

/// The side that alone has a kernel or a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum OnlyIn {
    Before,
    After,
}

/// A kernel, a line or a module, compared.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ComparedRow {
    /// A kernel's short name, or `train.py:22 step`; `train.py:22→25 step` of a line that moved.
    pub name: String,
    /// Of a kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full_name: Option<String>,
    pub only: Option<OnlyIn>,
    /// GPU time in ns.
    pub time: MeasuredTwice,
    /// Executed operations.
    pub calls: MeasuredTwice,
    /// Host time in calls, in ns; of a line and a module.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_time: Option<MeasuredTwice>,
    /// Absent unless each run on both sides has steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_step: Option<PerStep>,
}

/// A row's figures over the number of steps of their run.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PerStep {
    pub time: MeasuredTwice,
    pub calls: MeasuredTwice,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_time: Option<MeasuredTwice>,
}

impl ComparedRow {
    /// Whether GPU time and operations are known on both sides, and the same: by step where steps are known.
    pub fn is_same(&self) -> bool {
        // A division by different numbers of steps is not exact.
        let least = if self.per_step.is_some() { 1e-3 } else { 0.0 };
        let (time, calls) = self.shown();
        self.only.is_none()
            && time.difference.is_some()
            && time.distance() <= least
            && calls.distance() <= least
    }

    /// Time and operations as pages show them: by step where steps are known.
    pub(super) fn shown(&self) -> (&MeasuredTwice, &MeasuredTwice) {
        self.per_step.as_ref().map_or((&self.time, &self.calls), |step| (&step.time, &step.calls))
    }
}

/// What one run has of a row. The sums of several are added.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunSums {
    pub ns: Option<u64>,
    pub calls: u64,
    pub host_ns: u64,
}

impl RunSums {
    fn add(&mut self, other: RunSums) {
        self.ns = match (self.ns, other.ns) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (a, b) => a.or(b),
        };
        self.calls = self.calls.saturating_add(other.calls);
        self.host_ns = self.host_ns.saturating_add(other.host_ns);
    }
}

/// A row's sums by run.
type ByRun = BTreeMap<usize, RunSums>;

/// The runs of one side.
#[derive(Debug)]
pub(super) struct SideSums<K> {
    rows: BTreeMap<K, ByRun>,
    /// By run, whether device times are known.
    timed: Vec<bool>,
    /// By run, the number of its steps.
    steps: Vec<Option<u64>>,
}

impl<K: Ord> SideSums<K> {
    fn new(runs: &[Report], sums: impl Fn(&Report, &mut dyn FnMut(K, RunSums))) -> SideSums<K> {
        let mut side = SideSums::empty(runs);
        for (run, report) in runs.iter().enumerate() {
            sums(report, &mut |key, sums| side.add(run, key, sums));
        }
        side
    }

    pub(super) fn add(&mut self, run: usize, key: K, sums: RunSums) {
        self.rows.entry(key).or_default().entry(run).or_default().add(sums);
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &K> {
        self.rows.keys()
    }

    pub(super) fn empty(runs: &[Report]) -> SideSums<K> {
        SideSums {
            rows: BTreeMap::new(),
            timed: runs.iter().map(Report::has_device_times).collect(),
            steps: runs.iter().map(Report::step_count).collect(),
        }
    }

    /// A figure of a row in every run. A run without the row has 0 of it.
    fn figure(&self, row: Option<&ByRun>, of: impl Fn(RunSums, bool) -> Option<u64>) -> Vec<Option<f64>> {
        let of_run = |(run, timed): (usize, &bool)| {
            let sums = row.and_then(|row| row.get(&run)).copied().unwrap_or_default();
            of(sums, *timed).map(|value| value as f64)
        };
        self.timed.iter().enumerate().map(of_run).collect()
    }

    fn has_steps(&self) -> bool {
        self.steps.iter().all(|steps| steps.is_some_and(|steps| steps > 0))
    }

    /// A figure of each run over the number of its steps.
    fn by_step(&self, figure: Vec<Option<f64>>) -> Vec<Option<f64>> {
        figure.into_iter().zip(&self.steps).map(|(value, steps)| Some(value? / (*steps)? as f64)).collect()
    }
}

/// What a run has of a row; the second argument is whether its device times are known.
type Figure = fn(RunSums, bool) -> Option<u64>;

/// Joins a row of each side; at least one of them is there.
pub(super) fn compared<K: Ord>(
    name: String,
    [before, after]: [&SideSums<K>; 2],
    [key_before, key_after]: [&K; 2],
) -> ComparedRow {
    let rows = [before.rows.get(key_before), after.rows.get(key_after)];
    let figures = |of: Figure| [before.figure(rows[0], of), after.figure(rows[1], of)];
    let measured = |of: Figure| {
        let [old, new] = figures(of);
        MeasuredTwice::new(&old, &new)
    };
    let by_step = |of: Figure| {
        let [old, new] = figures(of);
        MeasuredTwice::new(&before.by_step(old), &after.by_step(new))
    };
    // An operation whose time is missing among others that have one adds none, as in the report.
    let time: Figure = |sums, timed| timed.then(|| sums.ns.unwrap_or(0));
    let calls: Figure = |sums, _| Some(sums.calls);
    let host_time: Figure = |sums, _| Some(sums.host_ns);
    ComparedRow {
        name,
        full_name: None,
        only: match rows {
            [Some(_), None] => Some(OnlyIn::Before),
            [None, Some(_)] => Some(OnlyIn::After),
            _ => None,
        },
        time: measured(time),
        calls: measured(calls),
        host_time: Some(measured(host_time)),
        per_step: (before.has_steps() && after.has_steps()).then(|| PerStep {
            time: by_step(time),
            calls: by_step(calls),
            host_time: Some(by_step(host_time)),
        }),
    }
}

/// The row whose time changed the most first, by step where steps are known. Without device times, the one
/// whose calls did.
pub(super) fn by_change(a: &ComparedRow, b: &ComparedRow, has_host_times: bool) -> Ordering {
    let distance = |row: &ComparedRow| {
        let (time, calls) = row.shown();
        let host_time = row.per_step.map_or(row.host_time, |step| step.host_time);
        let host = host_time.filter(|_| has_host_times && time.difference.is_none());
        [time.distance(), host.map_or(0.0, |time| time.distance()), calls.distance()]
    };
    let by_distance = distance(b).into_iter().zip(distance(a)).map(|(b, a)| b.total_cmp(&a));
    by_distance.fold(Ordering::Equal, Ordering::then).then_with(|| a.name.cmp(&b.name))
}

fn sort(rows: &mut [ComparedRow], has_host_times: bool) {
    rows.sort_by(|a, b| by_change(a, b, has_host_times));
}

/// Kernels by their full names: short ones are unique in one report only.
pub(super) fn kernels(before: &[Report], after: &[Report]) -> Vec<ComparedRow> {
    // Kernels beyond the capacity have no name.
    const OTHER: &str = "";
    let sums = |report: &Report, add: &mut dyn FnMut(String, RunSums)| {
        for kernel in &report.kernels {
            let sums = RunSums { ns: kernel.time_ns(), calls: kernel.calls, host_ns: 0 };
            add(kernel.full_name.clone(), sums);
        }
        let other = &report.other_kernels;
        if other.calls > 0 {
            add(OTHER.to_owned(), RunSums { ns: Some(other.total_ns), calls: other.calls, host_ns: 0 });
        }
    };
    let (before, after) = (SideSums::new(before, sums), SideSums::new(after, sums));
    let names: BTreeSet<&String> = before.rows.keys().chain(after.rows.keys()).collect();
    let row = |full: &String| {
        let row = compared(full.clone(), [&before, &after], [full, full]);
        let per_step = row.per_step.map(|step| PerStep { host_time: None, ..step });
        ComparedRow { host_time: None, per_step, ..row }
    };
    let mut rows: Vec<ComparedRow> = names.into_iter().map(row).collect();
    sort(&mut rows, false);
    let mut table = NameTable::default();
    for row in &mut rows {
        match row.name.as_str() {
            OTHER => row.name = "(other kernels)".to_owned(),
            full => {
                row.full_name = Some(full.to_owned());
                row.name = table.short(full).to_string();
            }
        }
    }
    rows
}

/// PyTorch's modules by class and file, each with those inside of it.
pub(super) fn modules(before: &[Report], after: &[Report]) -> Vec<ComparedRow> {
    let sums = |report: &Report, add: &mut dyn FnMut((String, String), RunSums)| {
        for module in report.modules.iter().flat_map(|modules| &modules.list) {
            let of = &module.launched;
            let sums = RunSums { ns: of.time_ns(), calls: of.calls, host_ns: of.host_total_ns };
            add((module.class.clone(), module.file.clone()), sums);
        }
    };
    let (before, after) = (SideSums::new(before, sums), SideSums::new(after, sums));
    let keys: BTreeSet<&(String, String)> = before.rows.keys().chain(after.rows.keys()).collect();
    let row =
        |key: &(String, String)| compared(format!("{} {}", key.0, key.1), [&before, &after], [key, key]);
    let mut rows: Vec<ComparedRow> = keys.into_iter().map(row).collect();
    sort(&mut rows, true);
    rows
}

/// A line: file, function, line number. The last row has neither.
type LineKey = (Option<String>, String, Option<u32>);

/// Lines with what is charged to them. A line whose function moved in its file is found by
/// [`shifts`].
pub(super) fn lines(before: &[Report], after: &[Report]) -> Vec<ComparedRow> {
    let sums = |report: &Report, add: &mut dyn FnMut(LineKey, RunSums)| {
        for line in &report.lines {
            if line.charged_calls == 0 && line.charged_host_calls == 0 {
                continue;
            }
            let CodeLocation { file, function, line: number, .. } = &line.location;
            let sums = RunSums {
                ns: line.charged_time_ns(),
                calls: line.charged_calls,
                host_ns: line.charged_host_ns,
            };
            add((file.clone(), function.clone(), *number), sums);
        }
        let none = &report.no_line;
        if !report.lines.is_empty() && none.calls + none.host_calls > 0 {
            let sums = RunSums { ns: Some(none.time_ns()), calls: none.calls, host_ns: none.host_total_ns };
            add((None, "(no Python line)".to_owned(), None), sums);
        }
    };
    let (before, after) = (SideSums::new(before, sums), SideSums::new(after, sums));
    let shifts = shifts(&before.rows, &after.rows);
    let mut pairs: BTreeSet<(LineKey, LineKey)> = BTreeSet::new();
    for key in before.rows.keys() {
        pairs.insert((key.clone(), shifted(key, &shifts, 1)));
    }
    for key in after.rows.keys() {
        pairs.insert((shifted(key, &shifts, -1), key.clone()));
    }
    let row = |(old, new): &(LineKey, LineKey)| {
        let location = |(file, function, line): &LineKey| CodeLocation {
            file: file.clone(),
            function: function.clone(),
            line: *line,
            path: None,
        };
        let name = match (&old.0, old.2, new.2) {
            (Some(file), Some(from), Some(to)) if from != to => format!("{file}:{from}→{to} {}", old.1),
            _ => location(new).text(),
        };
        compared(name, [&before, &after], [old, new])
    };
    let mut rows: Vec<ComparedRow> = pairs.iter().map(row).collect();
    sort(&mut rows, true);
    rows
}

/// By how many lines the functions of both sides moved, those that did.
type Shifts = BTreeMap<(Option<String>, String), i64>;

fn shifted((file, function, line): &LineKey, shifts: &Shifts, direction: i64) -> LineKey {
    let by = shifts.get(&(file.clone(), function.clone())).copied().unwrap_or(0);
    let moved = |line: u32| u32::try_from(i64::from(line) + direction * by).unwrap_or(line);
    (file.clone(), function.clone(), line.map(moved))
}

/// Code that was inserted above a function moves all its lines by one number: a function with as many lines
/// on both sides, all as far from each other, moved.
fn shifts(before: &BTreeMap<LineKey, ByRun>, after: &BTreeMap<LineKey, ByRun>) -> Shifts {
    fn by_function(rows: &BTreeMap<LineKey, ByRun>) -> BTreeMap<(Option<String>, String), Vec<i64>> {
        let mut lines: BTreeMap<(Option<String>, String), Vec<i64>> = BTreeMap::new();
        for (file, function, line) in rows.keys() {
            let of_function = lines.entry((file.clone(), function.clone())).or_default();
            of_function.extend(line.map(i64::from));
        }
        lines
    }
    let after = by_function(after);
    let moved = by_function(before).into_iter().filter_map(|(function, old)| {
        let new = after.get(&function)?;
        let by = new.first()? - old.first()?;
        let is_moved = by != 0 && old.len() == new.len() && old.iter().zip(new).all(|(a, b)| b - a == by);
        is_moved.then_some((function, by))
    });
    moved.collect()
}
