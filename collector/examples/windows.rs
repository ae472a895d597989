//! Whether estimates from windows hold: draws schedules over recordings that have all device times, and
//! compares what each schedule estimates with what is known. `scripts/check-windows` runs it.
//!
//! usage: windows [--plan ON/MEAN] [--schedules N] TRACE…

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use gputrace_collector::aggregate::{
    EstimateKey, Estimates, Estimation, KeyWork, Leaf, StackKey, Stacks, WindowPlan, Windowed,
};
use gputrace_collector::batch::{ProcessBegin, SessionBegin};
use gputrace_collector::model::definitions::Definitions;
use gputrace_collector::model::operation::{HostCall, Operation, What};
use gputrace_collector::model::sink::Sink;
use gputrace_collector::stream::replay::read_traces;

/// The least share of all time with which a kernel is judged.
const SHARE_MIN: f64 = 0.005;
/// What is promised: how often intervals hold, and how wide that of the total is.
const HOLDS_MIN: f64 = 0.90;
const PAIRS_MIN: u64 = 400;
const ERROR_MAX: f64 = 0.02;
const ERROR_OF_SECONDS: f64 = 60.0;

/// What runs on the device: a process's kernel, copies of one direction, fills, or a graph.
type WorkName = (u32, Leaf);

/// What a session by windows would have known.
#[derive(Default)]
struct SampledRecording {
    estimates: Estimates,
    measured: BTreeMap<WorkName, f64>,
}

impl Sink for SampledRecording {
    fn host_call(&mut self, call: &HostCall, definitions: &Definitions) {
        let is_executed = call.status == 0 && call.window != 0;
        if is_executed {
            self.estimates.graph_launch(call, definitions);
        }
    }

    fn operation(&mut self, operation: &Operation, definitions: &Definitions) {
        let key = StackKey::of_operation(operation);
        self.estimates.operation(operation, key, definitions);
        if let Some(timing) = operation.timing {
            *self.measured.entry((key.process, key.leaf)).or_default() += timing.duration_ns as f64;
        }
    }
}

/// The whole recording, and the same as each schedule shows it.
struct FullRecording {
    schedules: Vec<Windowed<SampledRecording>>,
    /// Time by name and key. A graph's nodes count under their graph.
    truth: BTreeMap<(EstimateKey, WorkName), f64>,
    /// Operations without a call, which every schedule knows.
    first_ns: u64,
    last_ns: u64,
    operations: u64,
    untimed: u64,
}

impl Sink for FullRecording {
    fn process_begins(&mut self, number: u32, process: &ProcessBegin, session: &SessionBegin) {
        self.schedules.iter_mut().for_each(|one| one.process_begins(number, process, session));
    }

    fn host_call(&mut self, call: &HostCall, definitions: &Definitions) {
        self.schedules.iter_mut().for_each(|one| one.host_call(call, definitions));
    }

    fn operation(&mut self, operation: &Operation, definitions: &Definitions) {
        let Some(call) = &operation.call else { return };
        self.operations += 1;
        let Some(timing) = operation.timing else {
            self.untimed += 1;
            return;
        };
        self.first_ns = self.first_ns.min(call.start_ns);
        self.last_ns = self.last_ns.max(call.start_ns);
        if let Some(mut key) = EstimateKey::of(operation, call) {
            if let KeyWork::Node { graph, .. } = key.work {
                key.work = KeyWork::Graph(graph);
            }
            let row = StackKey::of_operation(operation);
            *self.truth.entry((key, (row.process, row.leaf))).or_default() += timing.duration_ns as f64;
        }
        debug_assert!(operation.what != What::Graph || operation.graph.is_some());
        self.schedules.iter_mut().for_each(|one| one.operation(operation, definitions));
    }
}

/// How often intervals held.
#[derive(Clone, Copy, Default)]
struct Coverage {
    pairs: u64,
    pairs_hold: u64,
    schedules: u64,
    totals_hold: u64,
    /// Sums over schedules: half of the total's interval, the distance from the truth, and the time of
    /// operations of which none like them was timed; as shares of the truth.
    error: f64,
    distance: f64,
    unmeasured: f64,
}

impl Coverage {
    fn add(&mut self, other: &Coverage) {
        self.pairs += other.pairs;
        self.pairs_hold += other.pairs_hold;
        self.schedules += other.schedules;
        self.totals_hold += other.totals_hold;
        self.error += other.error;
        self.distance += other.distance;
        self.unmeasured += other.unmeasured;
    }
}

impl FullRecording {
    fn judge(&self, known: &SampledRecording) -> Coverage {
        let estimation = Estimation::new(&known.estimates);
        let unmeasured: Vec<EstimateKey> = estimation
            .rows()
            .iter()
            .filter(|row| row.ns.is_none())
            .filter_map(|row| row.mean_key(&known.estimates))
            .collect();
        // What an estimate covers: all but keys that were never timed.
        let mut covered: BTreeMap<WorkName, f64> = BTreeMap::new();
        let mut left_out = 0.0;
        for ((key, name), ns) in &self.truth {
            match unmeasured.contains(key) {
                true => left_out += ns,
                false => *covered.entry(*name).or_default() += ns,
            }
        }
        let total: f64 = covered.values().sum();
        let by_name = estimation.sums(|row, names| names.push((row.key.process, row.key.leaf)));
        let mut coverage = Coverage { schedules: 1, ..Coverage::default() };
        for (name, truth) in covered.iter().filter(|(_, truth)| **truth >= SHARE_MIN * total) {
            let estimate = by_name.get(name).copied().unwrap_or_default();
            let known_ns = known.measured.get(name).copied().unwrap_or(0.0) + estimate.ns;
            coverage.pairs += 1;
            coverage.pairs_hold += u64::from((known_ns - truth).abs() <= estimate.error_ns + 0.5);
        }
        let all = estimation.total();
        let known_ns = known.measured.values().sum::<f64>() + all.ns;
        coverage.totals_hold = u64::from((known_ns - total).abs() <= all.error_ns + 0.5);
        let whole = (total + left_out).max(1.0);
        coverage.error = all.error_ns / whole;
        coverage.distance = (known_ns - total).abs() / whole;
        coverage.unmeasured = left_out / whole;
        coverage
    }

    fn seconds(&self) -> f64 {
        self.last_ns.saturating_sub(self.first_ns) as f64 / 1e9
    }
}

fn percent(part: u64, all: u64) -> f64 {
    100.0 * part as f64 / all.max(1) as f64
}

fn main() -> ExitCode {
    let (mut plan, mut schedules, mut traces) = ("10ms/100ms".to_owned(), 200u64, Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--plan" => plan = arguments.next().unwrap_or_default(),
            "--schedules" => schedules = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(0),
            _ => traces.push(PathBuf::from(argument)),
        }
    }
    let plan: WindowPlan = match plan.parse() {
        Ok(plan) if schedules > 0 && !traces.is_empty() => plan,
        Ok(_) => {
            eprintln!("usage: windows [--plan ON/MEAN] [--schedules N] TRACE…");
            return ExitCode::from(2);
        }
        Err(why) => {
            eprintln!("windows: --plan: {why}");
            return ExitCode::from(2);
        }
    };
    let (mut pooled, mut fails) = (Coverage::default(), Vec::new());
    for trace in &traces {
        let drawn = (1..=schedules).map(|seed| {
            let known = SampledRecording {
                estimates: Estimates::new(&Stacks::default()),
                ..SampledRecording::default()
            };
            Windowed::new(WindowPlan { seed, ..plan }, known)
        });
        let recording = FullRecording {
            schedules: drawn.collect(),
            truth: BTreeMap::new(),
            first_ns: u64::MAX,
            last_ns: 0,
            operations: 0,
            untimed: 0,
        };
        let recording = match read_traces(&[trace], recording, &mut |_| {}) {
            Ok(replay) => replay.sink,
            Err(error) => {
                eprintln!("windows: {}: {error}", trace.display());
                return ExitCode::from(3);
            }
        };
        let mut of_trace = Coverage::default();
        recording.schedules.iter().for_each(|one| of_trace.add(&recording.judge(&one.sink)));
        let seconds = recording.seconds();
        let each = of_trace.schedules.max(1) as f64;
        let error = of_trace.error / each;
        let later = error * (seconds / ERROR_OF_SECONDS).sqrt();
        println!(
            "{}: {} operations in {seconds:.1} s, {} without times; {} schedules\n  \
             total: holds in {:.1} %, interval ±{:.2} % (±{:.2} % in {ERROR_OF_SECONDS:.0} s), distance {:.2} %, \
             unmeasured {:.2} % of the time\n  kernels: {} pairs, hold in {:.1} %",
            trace.display(),
            recording.operations,
            recording.untimed,
            of_trace.schedules,
            percent(of_trace.totals_hold, of_trace.schedules),
            100.0 * error,
            100.0 * later,
            100.0 * of_trace.distance / each,
            100.0 * of_trace.unmeasured / each,
            of_trace.pairs,
            percent(of_trace.pairs_hold, of_trace.pairs),
        );
        if percent(of_trace.totals_hold, of_trace.schedules) < 100.0 * HOLDS_MIN {
            fails.push(format!("{}: the total's interval holds too seldom", trace.display()));
        }
        if later > ERROR_MAX {
            fails.push(format!("{}: the total's interval is too wide", trace.display()));
        }
        pooled.add(&of_trace);
    }
    let holds = percent(pooled.pairs_hold, pooled.pairs);
    println!("pooled: {} (kernel, run) pairs, intervals hold in {holds:.1} %", pooled.pairs);
    if holds < 100.0 * HOLDS_MIN || pooled.pairs < PAIRS_MIN {
        fails.push("intervals of kernels hold too seldom, or there are too few".to_owned());
    }
    fails.iter().for_each(|fail| println!("FAIL {fail}"));
    if fails.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
