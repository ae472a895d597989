use super::*;
use crate::model::operation::{Anomaly, Kernel, What};
use gputrace_wire::cell::kind;

#[derive(Default)]
struct LoopingProgram {
    now_ns: u64,
    stacks: Stacks,
    watch: StepWatch,
    thread: u32,
}

impl LoopingProgram {
    fn call(&mut self, kind: u16, stack: u32, duration_ns: u64) -> HostCall {
        let (thread, start_ns) = (self.thread, self.now_ns);
        let call = HostCall { process: 1, thread, kind, stack, start_ns, duration_ns, ..HostCall::default() };
        let class = CallClass::of(&call);
        let leaf = Leaf::Call;
        let key = StackKey { thread, stack, leaf, ..StackKey::without_call(1, 0, leaf) };
        let launches = kind == gputrace_wire::cell::kind::LAUNCH;
        self.stacks.add_at(key, Some(duration_ns), launches.then_some(start_ns));
        self.watch.call(&call, class, &key, &self.stacks);
        self.now_ns += duration_ns;
        call
    }

    /// A step: three launches of 10 µs, eight times two of an inner loop, 100 µs of host code before each.
    fn step(&mut self, pause_ns: u64, kernel_ns: u64) {
        for outer in [5, 6, 7] {
            self.now_ns += 100_000;
            let call = self.call(kind::LAUNCH, outer, 10_000);
            self.executed(call, kernel_ns);
        }
        for inner in [8, 9].repeat(8) {
            self.now_ns += 100_000;
            self.call(kind::LAUNCH, inner, 10_000);
        }
        self.now_ns += pause_ns;
        self.call(kind::WAIT, 4, 50_000);
    }

    fn executed(&mut self, call: HostCall, duration_ns: u64) {
        let is_long = duration_ns > 5_000;
        let anomaly = Anomaly { sigmas: 9.0, median_ns: 5_000.0 };
        self.watch.operation(&Operation {
            process: 1,
            what: What::Kernel(Kernel { name: 3, ..Kernel::default() }),
            timing: Some(Timing { start_ns: call.start_ns, duration_ns }),
            call: Some(call),
            device: 0,
            context: 0,
            stream: 0,
            graph: None,
            verdict: if is_long { Verdict::Outlier(anomaly) } else { Verdict::Usual },
        });
    }
}

const STEP_NS: u64 = 19 * 110_000 + 50_000;

#[test]
fn slowest_steps_have_what_they_did_and_the_others_their_sums() {
    let mut program = LoopingProgram { now_ns: 1_000, ..LoopingProgram::default() };
    for step in 0..60 {
        let (pause_ns, kernel_ns) = match step {
            40 => (3_000_000, 5_000),
            50 => (1_000_000, 700_000),
            _ => (0, 5_000),
        };
        program.step(pause_ns, kernel_ns);
    }
    let steps = program.watch.of(1, 0).unwrap();
    assert_eq!(steps.first.stack, 5);
    // The rhythm is found some steps after the fifth.
    assert!((45..=55).contains(&steps.steps), "{}", steps.steps);
    let times: Vec<u64> = steps.slowest().iter().map(WatchedStep::ns).collect();
    assert_eq!(times, [STEP_NS + 3_000_000, STEP_NS + 1_000_000, STEP_NS, STEP_NS, STEP_NS]);
    for step in steps.slowest() {
        let parts: u64 = step.sums.parts.iter().map(|part| part.ns).sum();
        assert_eq!(parts, step.ns());
        assert_eq!(step.sums.operations, 3);
    }
    let slowest = &steps.slowest()[0].sums;
    let host = StepPart { ns: 19 * 100_000 + 3_000_000, pieces: 20, longest_ns: 3_000_000, from: 9, to: 4 };
    // The launch after the wait comes later by as much as the others.
    assert_eq!(slowest.parts[0], host);
    assert_eq!((slowest.parts[1].ns, slowest.parts[1].pieces), (190_000, 19));
    assert_eq!((slowest.device_ns, slowest.long_kernel), (15_000, None));
    let second = &steps.slowest()[1].sums;
    assert_eq!((second.device_ns, second.long_kernel.unwrap().ns), (2_100_000, 700_000));
    let (others, sums) = steps.others();
    assert_eq!(others, steps.steps - 5);
    assert_eq!(sums.parts.iter().map(|part| part.ns).sum::<u64>(), others * STEP_NS);
    assert_eq!((sums.operations, sums.device_ns), (others * 3, others * 15_000));
}

#[test]
fn times_that_come_late_belong_to_the_step_of_their_call() {
    let mut program = LoopingProgram { now_ns: 1_000, ..LoopingProgram::default() };
    (0..30).for_each(|_| program.step(0, 5_000));
    let now_ns = program.now_ns;
    program.step(9_000_000, 5_000);
    (0..5).for_each(|_| program.step(0, 5_000));
    let late = HostCall { process: 1, start_ns: now_ns + 400_000, ..HostCall::default() };
    program.executed(late, 80_000);
    let steps = program.watch.of(1, 0).unwrap();
    let (slowest, usual) = (&steps.slowest()[0].sums, &steps.slowest()[1].sums);
    assert_eq!((slowest.operations, slowest.device_ns, usual.operations), (4, 95_000, 3));
}

#[test]
fn threads_that_launch_little_keep_no_others_out() {
    let mut program = LoopingProgram { now_ns: 1_000, ..LoopingProgram::default() };
    for thread in 1..=200 {
        program.thread = thread;
        program.step(0, 5_000);
    }
    program.thread = 0;
    (0..40).for_each(|_| program.step(0, 5_000));
    assert!(program.watch.of(1, 0).is_some());
    assert_eq!((program.watch.threads.len(), program.watch.numbers.len()), (THREADS_MAX, THREADS_MAX));
    // A thread without a rhythm has no steps.
    assert!(program.watch.of(1, 200).is_none());
}

#[test]
fn no_more_threads_are_watched_than_the_bound() {
    let mut program = LoopingProgram { now_ns: 1_000, ..LoopingProgram::default() };
    for thread in 0..THREADS_MAX as u32 + 9 {
        program.thread = thread;
        (0..60).for_each(|_| program.step(0, 5_000));
    }
    assert_eq!((program.watch.threads.len(), program.watch.numbers.len()), (THREADS_MAX, THREADS_MAX));
    assert!(program.watch.of(1, 0).is_some() && program.watch.of(1, THREADS_MAX as u32 + 8).is_none());
    assert!(program.watch.is_full);
}
