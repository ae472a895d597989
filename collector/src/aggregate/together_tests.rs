//! What aggregates that keep so many things tell of processes that ended once these are told together.

use gputrace_wire::call::{Detail, Launch, Memory, memory};
use gputrace_wire::cell::kind;
use gputrace_wire::definition::kind as def;

use crate::aggregate::{Aggregates, GraphKey, KernelKey};
use crate::batch::{Definition, ProcessBegin};
use crate::model::namesakes::Namesakes;
use crate::model::operation::{Anomaly, HostCall, Kernel, Operation, Timing, Verdict, What};
use crate::model::sink::Sink;
use crate::model::{Process, Totals};
use crate::report::{Report, TextOptions};

const THREAD: u32 = 1;
const ALLOC: u32 = 2;
const QUERY: u32 = 3;
const LAUNCH: u32 = 4;
const NAME: u32 = 5;
const FUNCTION: u32 = 6;
const CODE: u32 = 7;
/// Stacks from here on, one for each line.
const STACK: u32 = 8;
const LINES: u32 = 100;

/// A process of one name with others, whose definitions have other ids than theirs.
fn process(number: u32) -> Process {
    let begin =
        ProcessBegin { pid: 100 + number, start_monotonic_ns: begin_ns(number), ..ProcessBegin::default() };
    let mut process = Process { number, begin, ..Process::default() };
    let of = |id: u32| u64::from(id + shift(number));
    let mut define = |kind, id: u32, fields: Vec<u64>, text: &str| {
        let id = id + shift(number);
        process.definitions.add(&Definition { kind, id, fields, text: text.as_bytes().to_vec() });
    };
    define(def::PROCESS, 0, vec![u64::from(100 + number), 1, 1, 0], "serve");
    define(def::THREAD, THREAD, vec![u64::from(100 + number), 0], "serve");
    for (id, name) in [(ALLOC, "cuMemAlloc_v2"), (QUERY, "cuStreamQuery"), (LAUNCH, "cuLaunchKernel")] {
        define(def::API, id, Vec::new(), name);
    }
    define(def::NAME, NAME, Vec::new(), "gemm");
    define(def::FUNCTION, FUNCTION, vec![u64::from(number), of(NAME), 0, 32], "");
    define(def::NAME, CODE, Vec::new(), "place");
    for line in 0..LINES {
        define(def::STACK, STACK + line, vec![of(CODE), line.into()], "");
    }
    process
}

fn begin_ns(number: u32) -> u64 {
    1_000_000 * (u64::from(number) + 1)
}

fn shift(number: u32) -> u32 {
    1 + number % 7
}

/// One that begins so long after its process.
fn call(process: u32, api: u32, status: u16, after_ns: u64, line: u32) -> HostCall {
    let shift = shift(process);
    HostCall {
        process,
        thread: THREAD + shift,
        api: api + shift,
        status,
        start_ns: begin_ns(process) + after_ns,
        duration_ns: 5,
        stack: STACK + line + shift,
        ..HostCall::default()
    }
}

fn operation(process: u32, what: What, call: Option<HostCall>, verdict: Verdict, ns: u64) -> Operation {
    Operation {
        process,
        what,
        call,
        timing: Some(Timing { start_ns: begin_ns(process) + 70, duration_ns: ns }),
        device: 0,
        context: 0,
        stream: 0,
        graph: None,
        verdict,
    }
}

/// A refused allocation, a refused launch, an answer and a kernel that took long.
fn runs(aggregates: &mut Aggregates, process: &Process) {
    let (number, definitions) = (process.number, &process.definitions);
    let bytes = 64 << number;
    let asked = Detail::Memory(Memory { memory: memory::DEVICE, bytes, ..Memory::default() });
    let alloc =
        HostCall { kind: kind::ALLOC, detail: asked, ..call(number, ALLOC, 2, 10 + u64::from(number), 0) };
    aggregates.host_call(&alloc, definitions);
    let launch = Launch { function: FUNCTION + shift(number), block: [7, 1, 1], ..Launch::default() };
    let launch =
        HostCall { kind: kind::LAUNCH, detail: Detail::Launch(launch), ..call(number, LAUNCH, 1, 30, 1) };
    aggregates.host_call(&launch, definitions);
    aggregates.host_call(&HostCall { kind: kind::CALL, ..call(number, QUERY, 600, 40, 2) }, definitions);
    let kernel = What::Kernel(Kernel { name: NAME + shift(number), ..Kernel::default() });
    let odd = Verdict::Outlier(Anomaly { sigmas: 3.0, median_ns: 100.0 });
    let launched = HostCall { kind: kind::LAUNCH, ..call(number, LAUNCH, 0, 50, 3) };
    let took_ns = 1_000 + u64::from(number);
    aggregates.operation(&operation(number, kernel, Some(launched), odd, took_ns), definitions);
    aggregates.process_ends(number, 0, definitions);
}

#[test]
fn failures_answers_and_odd_kernels_of_one_name_are_one() {
    let processes: Vec<Process> = (0..5).map(process).collect();
    let mut aggregates = Aggregates::default();
    processes.iter().for_each(|process| runs(&mut aggregates, process));
    let mut namesakes = Namesakes::default();
    // In two parts; the last one is told by itself.
    aggregates.tell_together(&mut namesakes.take(processes[2..4].iter()));
    aggregates.tell_together(&mut namesakes.take(processes[..2].iter()));
    let groups = namesakes.into_processes();
    let [group] = &groups[..] else { panic!("{} groups", groups.len()) };

    let failures = &aggregates.failures;
    let [first, second, third, fourth] = failures.sorted()[..] else { panic!("{:?}", failures.sorted()) };
    assert_eq!((failures.calls, failures.beyond), (10, 0));
    let told = |(key, failure): (crate::aggregate::FailureKey, &crate::aggregate::Failure)| {
        let process = if key.process == group.number { group } else { &processes[4] };
        let told = failure.in_process(key, process);
        let definitions = &process.definitions;
        let name = definitions.call_name(key.api).to_owned();
        let stack = definitions.stack(key.stack).map(|(_, line)| line).collect::<Vec<_>>();
        (name, stack, failure.calls, failure.most_bytes, told.first_at_ns, told.last_at_ns)
    };
    // The first of process 0, the last of process 3.
    assert_eq!(told(first), ("cuMemAlloc_v2".into(), vec![0], 4, 64 << 3, 15, 18));
    assert_eq!(told(second), ("cuLaunchKernel".into(), vec![1], 4, 0, 35, 35));
    assert_eq!(told(third), ("cuMemAlloc_v2".into(), vec![0], 1, 64 << 4, 19, 19));
    assert_eq!(told(fourth), ("cuLaunchKernel".into(), vec![1], 1, 0, 35, 35));
    assert_eq!(first.1.in_process(first.0, group).arguments.bytes, Some(64), "of the first");
    let Detail::Launch(launch) = second.1.first.detail else { panic!("{second:?}") };
    assert_eq!((group.definitions.function(launch.function).unwrap().name, launch.block[0]), ("gemm", 7));

    let (answers, beyond) = failures.answers();
    let mut answers: Vec<_> =
        answers.map(|(process, _, status, calls, _)| (process, status, calls)).collect();
    answers.sort_unstable();
    assert_eq!((answers, beyond), (vec![(4, 600, 1), (group.number, 600, 4)], 0));

    let anomalies = &aggregates.anomalies;
    let [(key, runs), (other, _)] = anomalies.sorted()[..] else { panic!("{:?}", anomalies.sorted()) };
    assert_eq!((other.process, anomalies.runs, anomalies.beyond), (4, 5, 0));
    let worst = &runs.worst;
    assert_eq!((key.process, group.definitions.name(key.name)), (group.number, Some("gemm")));
    assert_eq!(worst.kernel.name, key.name);
    assert_eq!((runs.runs, runs.over_ns, worst.timing.duration_ns), (4, 4 * 900 + 6, 1_003));
    assert_eq!(worst.at_ns, Some(70));
    let stack: Vec<_> = group.definitions.stack(worst.stack).map(|(_, line)| line).collect();
    assert_eq!((stack, worst.call.as_ref().unwrap().process), (vec![3], group.number));
}

/// In the report calls are one by line, by whatever way there: here from no known line.
#[test]
fn the_last_call_of_a_line_is_the_one_of_the_latest_process() {
    let processes = [0, 1].map(process);
    let mut aggregates = Aggregates::default();
    for (process, after_ns, line) in [(&processes[0], 900, 1), (&processes[1], 10, 2)] {
        let refused = HostCall { kind: kind::ALLOC, ..call(process.number, ALLOC, 2, after_ns, line) };
        aggregates.host_call(&refused, &process.definitions);
        aggregates.process_ends(process.number, 0, &process.definitions);
    }
    let mut namesakes = Namesakes::default();
    aggregates.tell_together(&mut namesakes.take(processes.iter()));
    let mut totals = Totals::default();
    totals.together = namesakes.into_processes();
    let report = Report::new(&totals, &aggregates);
    let [error] = &report.errors.list[..] else { panic!("{:?}", report.errors) };
    assert_eq!((error.calls, error.first_at_ns, error.last_at_ns), (2, 905, 15));
}

/// What is told of as their processes' failures is not told again as failed calls.
#[test]
fn of_contexts_that_were_lost_calls_are_told_once() {
    let mut processes = [0, 1].map(process);
    let mut aggregates = Aggregates::default();
    for process in &mut processes {
        let number = process.number;
        let lost = HostCall { kind: kind::WAIT, ..call(number, QUERY, 700, 10, 1) };
        process.failure = Some(lost.clone());
        let after = HostCall { kind: kind::ALLOC, ..call(number, ALLOC, 700, 20, 1) };
        // That one has a cause of its own.
        let refused = HostCall { kind: kind::ALLOC, ..call(number, ALLOC, 2, 5, 1) };
        for call in [refused, lost, after.clone(), after] {
            aggregates.host_call(&call, &process.definitions);
        }
        aggregates.process_ends(number, 0, &process.definitions);
    }
    let mut namesakes = Namesakes::default();
    aggregates.tell_together(&mut namesakes.take(processes.iter()));
    let mut totals = Totals::default();
    (totals.processes, totals.together) = (processes.into(), namesakes.into_processes());
    let report = Report::new(&totals, &aggregates);
    assert_eq!((report.errors.calls, report.errors.after_context_lost), (8, 4));
    let text = report.to_text(&TextOptions::default()).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        text.contains("serve [ended]: cuMemAlloc_v2 returned CUDA_ERROR_OUT_OF_MEMORY 2 times"),
        "{text}"
    );
    assert!(text.contains("4 calls because the context had been lost"), "{text}");
    assert_eq!(text.matches("CUDA_ERROR_ILLEGAL_ADDRESS").count(), 2, "by process: {text}");
    // Where nobody else tells of them, they are failed calls.
    totals.processes.clear();
    let text =
        Report::new(&totals, &aggregates).to_text(&TextOptions { width: 100, ..TextOptions::default() });
    assert!(
        text.contains("serve [ended]: cuStreamQuery returned CUDA_ERROR_ILLEGAL_ADDRESS 2 times"),
        "{text}"
    );
}

/// All that fills up its places, of programs that come and go.
#[test]
fn what_runs_has_room_however_many_were_there_before_and_sums_are_exact() {
    const GONE: u32 = 300;
    // So many of each thing of each program: some ten times what is told apart.
    const EACH: u32 = LINES;
    let mut namesakes = Namesakes::default();
    let mut aggregates = Aggregates::default();
    let mut ended: Vec<Process> = Vec::new();
    for number in 0..=GONE {
        let process = process(number);
        let definitions = &process.definitions;
        for at in 0..EACH {
            let refused = HostCall { kind: kind::ALLOC, ..call(number, ALLOC, 2, 1, at) };
            aggregates.host_call(&refused, definitions);
            let odd = Verdict::Outlier(Anomaly { sigmas: 3.0, median_ns: 100.0 });
            let kernel = What::Kernel(Kernel { name: STACK + at + shift(number), ..Kernel::default() });
            aggregates.operation(&operation(number, kernel, None, odd, 200), definitions);
            aggregates.graphs.add(GraphKey { process: number, graph: at + 1 }, 3, Some(10));
        }
        aggregates.host_call(&HostCall { kind: kind::CALL, ..call(number, QUERY, 600, 40, 2) }, definitions);
        if number == GONE {
            break;
        }
        aggregates.process_ends(number, 0, definitions);
        ended.push(process);
        if aggregates.is_short_of_room() {
            let half = ended.len().div_ceil(2);
            let leaving: Vec<Process> = ended.drain(..half).collect();
            aggregates.tell_together(&mut namesakes.take(leaving.iter()));
        }
    }
    let all = u64::from(GONE + 1) * u64::from(EACH);
    let failures = &aggregates.failures;
    let of_running = failures.sorted().iter().filter(|(key, _)| key.process == GONE).count();
    assert_eq!((failures.calls, failures.beyond, of_running), (all, 0, EACH as usize));
    assert_eq!(failures.sorted().iter().map(|(_, failure)| failure.calls).sum::<u64>(), all);
    let (answers, beyond) = failures.answers();
    assert_eq!((answers.map(|(_, _, _, calls, _)| calls).sum::<u64>(), beyond), (u64::from(GONE) + 1, 0));

    let anomalies = &aggregates.anomalies;
    let odd = |of: &dyn Fn(KernelKey) -> bool| -> u64 {
        anomalies.sorted().iter().filter(|(key, _)| of(*key)).map(|(_, runs)| runs.runs).sum()
    };
    assert_eq!((odd(&|_| true), odd(&|key| key.process == GONE)), (all, EACH.into()));
    assert_eq!((anomalies.runs, anomalies.beyond), (all, 0));

    let graphs = &aggregates.graphs;
    let of_running = graphs.sorted().iter().filter(|(key, _)| key.process == GONE).count();
    assert_eq!((of_running, graphs.other().calls, graphs.total().calls), (EACH as usize, 0, all));
    assert_eq!(graphs.total().durations.total_ns(), 10 * all);
    assert!(namesakes.processes() > 200, "{}", namesakes.processes());
}

/// It would take from those that ended what is told of each, and help nobody.
#[test]
fn one_that_takes_all_places_by_itself_leaves_those_that_ended_as_they_are() {
    let mut aggregates = Aggregates::default();
    let ended = process(0);
    runs(&mut aggregates, &ended);
    for graph in 0..20_000 {
        aggregates.graphs.add(GraphKey { process: 1, graph }, 3, Some(10));
    }
    assert!(aggregates.graphs.other().calls > 10_000);
    assert!(!aggregates.is_short_of_room());
}

/// One runs that leaves so little room that no step fits beside it.
#[test]
fn programs_that_come_and_go_have_room_beside_one_that_takes_nearly_all_places() {
    const RUNNING: u32 = 0;
    const LINES_OF_RUNNING: u32 = 3_900;
    const GONE: u32 = 600;
    let mut namesakes = Namesakes::default();
    let mut aggregates = Aggregates::default();
    let refused = |process, line| HostCall { kind: kind::ALLOC, ..call(process, ALLOC, 2, 1, line) };
    let running = process(RUNNING);
    for line in 0..LINES_OF_RUNNING {
        aggregates.host_call(&refused(RUNNING, line), &running.definitions);
    }
    let mut ended: Vec<Process> = Vec::new();
    for number in 1..=GONE {
        let process = process(number);
        aggregates.host_call(&refused(number, 0), &process.definitions);
        aggregates.process_ends(number, 0, &process.definitions);
        ended.push(process);
        if aggregates.is_short_of_room() {
            let half = ended.len().div_ceil(2);
            let leaving: Vec<Process> = ended.drain(..half).collect();
            aggregates.tell_together(&mut namesakes.take(leaving.iter()));
        }
    }
    let failures = &aggregates.failures;
    let told: u64 = failures.sorted().iter().map(|(_, failure)| failure.calls).sum();
    let all = u64::from(LINES_OF_RUNNING + GONE);
    assert_eq!((failures.calls, told + failures.beyond), (all, all));
    let of_running = failures.sorted().iter().filter(|(key, _)| key.process == RUNNING).count();
    assert_eq!(of_running, LINES_OF_RUNNING as usize);
    assert!(failures.beyond < 10, "one whenever it is full, and not {}", failures.beyond);
}
