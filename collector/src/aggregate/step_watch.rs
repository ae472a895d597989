//! What a thread did in its slowest steps, and in the others.
//!
//! Steps are found while they are made: from time to time the thread's launches are looked at, and once they
//! have a rhythm, each begin of a step ends the one before it. Kept are the sums of all steps and the slowest
//! steps. Steps that were made before the rhythm was found are not known here.

use std::mem::take;

use rustc_hash::FxHashMap;

use crate::aggregate::steps::{StackLaunches, first_of_step, likely_first_of_step};
use crate::aggregate::{CallClass, Leaf, StackKey, Stacks};
use crate::model::operation::{HostCall, Kernel, Operation, Timing, Verdict, What};

/// Threads whose steps are watched.
const THREADS_MAX: usize = 64;
/// Steps kept of a thread.
const SLOWEST_MAX: usize = 5;
/// Launches before the first look. The next look is when there are a quarter more.
const LAUNCHES_MIN: u64 = 32;
/// Candidates for a step's first launch that are tried after a look.
const TRIES_MAX: u32 = 4;

/// What a thread does with its time: a call of a class, or anything else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Doing {
    HostCode,
    Call(CallClass),
}

impl Doing {
    pub const ALL: [Doing; 12] = [
        Doing::HostCode,
        Doing::Call(CallClass::Launch),
        Doing::Call(CallClass::GraphLaunch),
        Doing::Call(CallClass::Copy),
        Doing::Call(CallClass::Fill),
        Doing::Call(CallClass::Wait),
        Doing::Call(CallClass::StreamWait),
        Doing::Call(CallClass::ModuleLoad),
        Doing::Call(CallClass::Alloc),
        Doing::Call(CallClass::Free),
        Doing::Call(CallClass::Graph),
        Doing::Call(CallClass::Other),
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Doing::HostCode => "host_code",
            Doing::Call(class) => class.name(),
        }
    }
}

/// Time of one kind in a step, and its longest piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StepPart {
    pub ns: u64,
    pub pieces: u64,
    pub longest_ns: u64,
    /// The stacks of the calls before and after the longest piece; the same one for a call.
    pub from: u32,
    pub to: u32,
}

impl StepPart {
    #[inline]
    fn add(&mut self, ns: u64, from: u32, to: u32) {
        self.ns = self.ns.saturating_add(ns);
        self.pieces += 1;
        if ns > self.longest_ns {
            (self.longest_ns, self.from, self.to) = (ns, from, to);
        }
    }

    fn merge(&mut self, other: &StepPart) {
        self.ns = self.ns.saturating_add(other.ns);
        self.pieces = self.pieces.saturating_add(other.pieces);
    }

    /// Without the pieces of another one that is part of it.
    fn less(self, other: &StepPart) -> StepPart {
        let (ns, pieces) = (self.ns.saturating_sub(other.ns), self.pieces.saturating_sub(other.pieces));
        StepPart { ns, pieces, ..StepPart::default() }
    }
}

/// A kernel that took far longer than it usually does.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LongKernel {
    pub kernel: Kernel,
    pub stack: u32,
    pub ns: u64,
    pub median_ns: f64,
}

/// What a thread did in a step, or in many.
#[derive(Clone, Debug, Default)]
pub struct StepSums {
    /// By [`Doing::ALL`].
    pub parts: [StepPart; Doing::ALL.len()],
    /// What the operations that were launched in it took on the device.
    pub device_ns: u64,
    pub operations: u64,
    /// The one that exceeded its median the most.
    pub long_kernel: Option<LongKernel>,
}

impl StepSums {
    #[inline]
    fn operation(&mut self, operation: &Operation, timing: Timing, stack: u32) {
        self.device_ns = self.device_ns.saturating_add(timing.duration_ns);
        self.operations += 1;
        if let Verdict::Outlier(anomaly) = operation.verdict {
            self.long(operation, timing.duration_ns, anomaly.median_ns, stack);
        }
    }

    #[cold]
    fn long(&mut self, operation: &Operation, ns: u64, median_ns: f64, stack: u32) {
        let What::Kernel(kernel) = operation.what else { return };
        let over = |long: &LongKernel| long.ns as f64 - long.median_ns;
        if self.long_kernel.as_ref().is_none_or(|known| over(known) < ns as f64 - median_ns) {
            self.long_kernel = Some(LongKernel { kernel, stack, ns, median_ns });
        }
    }

    fn less(&self, other: &StepSums) -> StepSums {
        let mut parts = self.parts;
        parts.iter_mut().zip(&other.parts).for_each(|(part, less)| *part = part.less(less));
        StepSums {
            parts,
            device_ns: self.device_ns.saturating_sub(other.device_ns),
            operations: self.operations.saturating_sub(other.operations),
            long_kernel: None,
        }
    }
}

/// A step, on CLOCK_MONOTONIC.
#[derive(Clone, Debug, Default)]
pub struct WatchedStep {
    pub begin_ns: u64,
    pub end_ns: u64,
    pub sums: StepSums,
}

impl WatchedStep {
    pub fn ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.begin_ns)
    }
}

/// The steps of a thread since its rhythm was found.
#[derive(Clone, Debug)]
pub struct WatchedSteps {
    /// What a step launches first.
    pub first: StackKey,
    /// When the first of the steps began.
    from_ns: u64,
    /// Steps that have ended.
    pub steps: u64,
    /// Of these and of the step that is being made.
    sums: StepSums,
    current: WatchedStep,
    slowest: Vec<WatchedStep>,
}

impl WatchedSteps {
    fn new(first: StackKey) -> WatchedSteps {
        WatchedSteps {
            first,
            from_ns: u64::MAX,
            steps: 0,
            sums: StepSums::default(),
            current: WatchedStep::default(),
            slowest: Vec::new(),
        }
    }

    fn begins(&mut self, start_ns: u64) {
        let mut ended = take(&mut self.current);
        self.current.begin_ns = start_ns;
        if self.from_ns == u64::MAX {
            self.from_ns = start_ns;
            return;
        }
        ended.end_ns = start_ns;
        self.steps += 1;
        // Device times have been added as they came.
        self.sums.parts.iter_mut().zip(&ended.sums.parts).for_each(|(part, more)| part.merge(more));
        let rank = self.slowest.partition_point(|step| step.ns() >= ended.ns());
        if rank < SLOWEST_MAX {
            self.slowest.truncate(SLOWEST_MAX - 1);
            self.slowest.insert(rank, ended);
        }
    }

    /// The sums of a step that began before that time, if it is the current one or one of the slowest.
    #[inline]
    fn of_time(&mut self, ns: u64) -> Option<&mut StepSums> {
        if ns >= self.current.begin_ns {
            return Some(&mut self.current.sums);
        }
        let mut slowest = self.slowest.iter_mut();
        slowest.find(|step| step.begin_ns <= ns && ns < step.end_ns).map(|step| &mut step.sums)
    }

    /// The slowest first.
    pub fn slowest(&self) -> &[WatchedStep] {
        &self.slowest
    }

    /// How many the others are, and their sums.
    pub fn others(&self) -> (u64, StepSums) {
        // The parts of the step that is being made are not in the sums yet, its operations are.
        let mut others = self.sums.less(&StepSums { parts: Default::default(), ..self.current.sums.clone() });
        for step in &self.slowest {
            others = others.less(&step.sums);
        }
        (self.steps - self.slowest.len() as u64, others)
    }
}

#[derive(Clone, Debug, Default)]
struct WatchedThread {
    launches: u64,
    /// The number of launches at which they are looked at.
    look_at: u64,
    /// What a step may launch first, and how many candidates may still be tried.
    candidate: Option<(StackKey, u32)>,
    /// End and stack of the last call.
    last_end_ns: u64,
    last_stack: u32,
    steps: Option<Box<WatchedSteps>>,
}

/// The steps of threads.
#[derive(Clone, Debug, Default)]
pub struct StepWatch {
    threads: Vec<((u32, u32), WatchedThread)>,
    /// By process and thread.
    numbers: FxHashMap<(u32, u32), usize>,
    /// The thread of the last call and the one of the last operation.
    last: [usize; 2],
    /// Whether all threads that are watched make steps: no other one will be.
    is_full: bool,
}

impl StepWatch {
    #[inline]
    fn find<const LAST: usize>(&mut self, key: (u32, u32)) -> Option<usize> {
        let last = self.last[LAST];
        if self.threads.get(last).is_some_and(|(of, _)| *of == key) {
            return Some(last);
        }
        let found = *self.numbers.get(&key)?;
        self.last[LAST] = found;
        Some(found)
    }

    /// Adds a call that is below that key in `stacks`.
    #[inline]
    pub(super) fn call(&mut self, call: &HostCall, class: CallClass, key: &StackKey, stacks: &Stacks) {
        let launches = matches!(class, CallClass::Launch | CallClass::GraphLaunch);
        let found = self.find::<0>((call.process, call.thread));
        let Some(number) = found.or_else(|| launches.then(|| self.begin(call)).flatten()) else { return };
        let Some((_, thread)) = self.threads.get_mut(number) else { return };
        if launches {
            thread.launches += 1;
            if thread.launches >= thread.look_at {
                thread.look(key, stacks);
            } else if let Some((candidate, tries)) = thread.candidate
                && candidate == *key
            {
                thread.confirm(key, tries, stacks);
            }
        }
        let (last_end_ns, last_stack) = (thread.last_end_ns, thread.last_stack);
        thread.last_end_ns = call.start_ns.saturating_add(call.duration_ns);
        thread.last_stack = call.stack;
        let Some(steps) = &mut thread.steps else { return };
        // What lies before the first launch of a step belongs to the step before.
        let between_ns = call.start_ns.saturating_sub(last_end_ns);
        if last_end_ns > 0 && between_ns > 0 {
            steps.current.sums.parts[0].add(between_ns, last_stack, call.stack);
        }
        if launches && *key == steps.first {
            steps.begins(call.start_ns);
        }
        if let Some(part) = steps.current.sums.parts.get_mut(1 + class as usize) {
            part.add(call.duration_ns, call.stack, call.stack);
        }
    }

    #[cold]
    fn begin(&mut self, call: &HostCall) -> Option<usize> {
        if self.is_full {
            return None;
        }
        let key = (call.process, call.thread);
        let number = if self.threads.len() < THREADS_MAX {
            self.threads.push((key, WatchedThread::default()));
            self.threads.len() - 1
        } else {
            // Threads that launch a little and go must not keep out one that makes steps.
            let idle = self.threads.iter().enumerate().filter(|(_, (_, thread))| thread.steps.is_none());
            let least = idle.min_by_key(|(_, (_, thread))| thread.launches);
            self.is_full = least.is_none();
            least?.0
        };
        let (before, thread) = self.threads.get_mut(number)?;
        self.numbers.remove(before);
        *before = key;
        *thread = WatchedThread { look_at: LAUNCHES_MIN, ..WatchedThread::default() };
        self.numbers.insert(key, number);
        self.last[0] = number;
        Some(number)
    }

    /// Adds what an operation took to the step that its call was made in.
    #[inline]
    pub(super) fn operation(&mut self, operation: &Operation) {
        let Some((call, timing)) = operation.call.as_ref().zip(operation.timing) else { return };
        let Some(number) = self.find::<1>((call.process, call.thread)) else { return };
        let Some((_, WatchedThread { steps: Some(steps), .. })) = self.threads.get_mut(number) else {
            return;
        };
        if call.start_ns < steps.from_ns {
            return;
        }
        steps.sums.device_ns = steps.sums.device_ns.saturating_add(timing.duration_ns);
        steps.sums.operations += 1;
        if let Some(of) = steps.of_time(call.start_ns) {
            of.operation(operation, timing, call.stack);
        }
    }

    /// The steps of a thread of a process, by its definition, if they were found while they were made.
    pub fn of(&self, process: u32, thread: u32) -> Option<&WatchedSteps> {
        let number = *self.numbers.get(&(process, thread))?;
        self.threads.get(number)?.1.steps.as_deref()
    }
}

impl WatchedThread {
    /// Looks for a rhythm in the thread's launches.
    #[cold]
    fn look(&mut self, key: &StackKey, stacks: &Stacks) {
        let (launches, rows) = launches_of(key, stacks);
        // Looks at many rows are seldom.
        self.look_at = self.launches + (self.launches / 4).max(rows / 4);
        let first = likely_first_of_step(&launches);
        let known = self.steps.as_ref().and_then(|steps| launches.iter().find(|of| of.key == steps.first));
        let is_known = first.zip(known).is_some_and(|(first, known)| known.count.abs_diff(first.count) <= 1);
        self.candidate = first.filter(|_| !is_known).map(|first| (first.key, TRIES_MAX));
    }

    /// Where the candidate is launched again, a step begins, if it is what a step launches first.
    #[cold]
    fn confirm(&mut self, key: &StackKey, tries: u32, stacks: &Stacks) {
        let (mut launches, _) = launches_of(key, stacks);
        // That launch belongs to the next step.
        launches.iter_mut().filter(|of| of.key == *key).for_each(|of| of.count -= 1);
        let first = first_of_step(&launches).map(|first| first.key);
        if first == Some(*key) {
            self.steps = Some(Box::new(WatchedSteps::new(*key)));
        }
        let other = first.filter(|first| first != key && tries > 1);
        self.candidate = other.map(|first| (first, tries - 1));
    }
}

/// What the key's thread launched, and how many rows were looked at for it.
fn launches_of(key: &StackKey, stacks: &Stacks) -> (Vec<StackLaunches>, u64) {
    let mut rows = 0;
    let of_thread = |of: &StackKey| (of.process, of.thread) == (key.process, key.thread);
    let launches = stacks
        .rhythms()
        .inspect(|_| rows += 1)
        .filter(|(of, ..)| of_thread(of) && matches!(of.leaf, Leaf::Function(_) | Leaf::Call))
        .map(|(key, count, rhythm)| StackLaunches { key: *key, count, rhythm: *rhythm });
    (launches.collect(), rows)
}

#[cfg(test)]
#[path = "step_watch_tests.rs"]
mod tests;
