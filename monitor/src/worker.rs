//! The thread of one device: the only one that calls its driver.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::GpuMonitorError;
use crate::history::History;
use crate::metrics::GpuMetrics;
use crate::source::Source;
use crate::subscription::Subscription;

/// A request to a device's thread.
pub enum Command {
    Sample(SyncSender<Result<GpuMetrics, GpuMonitorError>>),
    Begin(Subscription),
    End(u64),
}

/// What a device's thread shares with the threads that wait for its samples.
#[derive(Debug)]
pub struct Shared {
    pub device_index: u32,
    pub history: Mutex<History>,
    /// Whether every sample goes into the history; otherwise only those of background collection do.
    pub keeps_all: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// When the running driver call began; `None` while none runs.
    busy_since: Option<Instant>,
    /// How many samples were not taken because an earlier one took too long.
    missed: u64,
}

impl Shared {
    pub fn new(device_index: u32, history_size: usize, keeps_all: bool) -> Shared {
        let history = Mutex::new(History::new(history_size));
        Shared { device_index, history, keeps_all, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn missed(&self) -> u64 {
        self.state().missed
    }

    /// The error of a driver call that has been running for longer than `limit`.
    pub fn hang(&self, limit: Duration) -> Option<GpuMonitorError> {
        let waited = self.state().busy_since?.elapsed();
        let subject = format!("device {}", self.device_index);
        (waited >= limit).then_some(GpuMonitorError::NoAnswer { subject, waited })
    }

    pub fn keep(&self, sample: GpuMetrics) {
        self.history.lock().unwrap_or_else(PoisonError::into_inner).push(sample);
    }

    /// Runs `work`, which calls the driver, and notes when it began, so that [`Shared::hang`] can see a hang.
    pub fn busy<T>(&self, work: impl FnOnce() -> T) -> T {
        self.state().busy_since = Some(Instant::now());
        let result = work();
        self.state().busy_since = None;
        result
    }
}

/// Carries out commands and takes the samples of subscriptions until every sender of commands is gone.
pub fn run(mut source: Box<dyn Source>, commands: &Receiver<Command>, shared: &Shared) {
    let mut subscriptions: Vec<Subscription> = Vec::new();
    loop {
        let next = subscriptions.iter().map(Subscription::next).min();
        let command = match next {
            None => commands.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(next) => commands.recv_timeout(next.saturating_duration_since(Instant::now())),
        };
        match command {
            Ok(Command::Sample(answer)) => {
                let sample = read(source.as_mut(), shared);
                if shared.keeps_all {
                    shared.keep(or_failed(&sample, shared.device_index));
                }
                // Sending fails if the requester no longer waits, and then nobody needs the sample.
                let _ = answer.send(sample);
            }
            Ok(Command::Begin(subscription)) => {
                subscriptions.push(subscription);
                continue;
            }
            Ok(Command::End(id)) => {
                subscriptions.retain(|subscription| subscription.id != id);
                continue;
            }
            Err(RecvTimeoutError::Timeout) => {
                let sample = read(source.as_mut(), shared);
                let mut sample =
                    Some(sample.unwrap_or_else(|problem| GpuMetrics::failed(shared.device_index, problem)));
                let (now, mut missed) = (Instant::now(), 0);
                let mut due: Vec<&Subscription> = Vec::new();
                for subscription in &mut subscriptions {
                    if subscription.take_due(now, &mut missed) {
                        due.push(subscription);
                    }
                }
                // The last one gets the sample itself: a copy of it copies the processes' names.
                while let Some(subscription) = due.pop() {
                    let its = if due.is_empty() { sample.take() } else { sample.clone() };
                    its.into_iter().for_each(|sample| subscription.recipient.deliver(sample));
                }
                shared.state().missed += missed;
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
        shared.busy(|| source.read_slow());
    }
}

/// A sample that knows how long it took.
fn read(source: &mut dyn Source, shared: &Shared) -> Result<GpuMetrics, GpuMonitorError> {
    let begin = Instant::now();
    let sample = shared.busy(|| source.sample());
    sample.map(|sample| GpuMetrics { read_time: Some(begin.elapsed()), ..sample })
}

fn or_failed(sample: &Result<GpuMetrics, GpuMonitorError>, device_index: u32) -> GpuMetrics {
    match sample {
        Ok(sample) => sample.clone(),
        Err(problem) => GpuMetrics::failed(device_index, problem.clone()),
    }
}
