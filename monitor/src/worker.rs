//! A device that is being read ([`Seat`]), and the loop of the device's own thread ([`run`]).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use crate::error::GpuMonitorError;
use crate::history::History;
use crate::metrics::GpuMetrics;
use crate::source::Source;
use crate::subscription::{Recipient, Subscription};

/// A request to a device's thread.
pub enum Command {
    /// Take a sample now and answer with it; then read what takes long.
    Sample(SyncSender<Result<Box<GpuMetrics>, GpuMonitorError>>),
    /// Take the sample that is due.
    Take,
    /// Read what takes long, if it is due.
    ReadSlow,
    Quit,
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
        // A history that keeps nothing gets no copies.
        let keeps_all = keeps_all && history_size > 0;
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

    /// Whether a driver call is running.
    pub fn is_busy(&self) -> bool {
        self.state().busy_since.is_some()
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

/// A device that is being read: by the thread that makes the rounds, or by its own.
pub struct Seat {
    pub shared: Arc<Shared>,
    source: Mutex<Box<dyn Source>>,
    subscriptions: Mutex<Vec<Subscription>>,
    /// Whether a call of its driver took long, so that its own thread takes its samples.
    is_slow: AtomicBool,
    /// Whether a sample is being taken, or is to be taken by its own thread: no other one is due.
    is_waiting: AtomicBool,
    has_ended: AtomicBool,
}

/// What came of a device in a round.
pub enum Taken {
    /// The sample was delivered, and nothing is left to read.
    Whole,
    /// What takes long is to be read by the device's own thread.
    SlowIsDue,
    /// The device's own thread has to take the sample.
    IsBusy,
}

impl Seat {
    pub fn new(source: Box<dyn Source>, shared: Arc<Shared>) -> Seat {
        Seat {
            shared,
            source: Mutex::new(source),
            subscriptions: Mutex::default(),
            is_slow: AtomicBool::new(false),
            is_waiting: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
        }
    }

    fn source(&self) -> MutexGuard<'_, Box<dyn Source>> {
        self.source.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn subscriptions(&self) -> MutexGuard<'_, Vec<Subscription>> {
        self.subscriptions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns false if the device is not read any more.
    pub fn subscribe(&self, subscription: Subscription) -> bool {
        self.subscriptions().push(subscription);
        !self.has_ended.load(Ordering::SeqCst)
    }

    pub fn unsubscribe(&self, id: u64) {
        self.subscriptions().retain(|subscription| subscription.id != id);
    }

    /// When the next sample is due.
    pub fn next(&self) -> Option<Instant> {
        let is_waiting = self.is_waiting.load(Ordering::SeqCst) || self.has_ended.load(Ordering::SeqCst);
        if is_waiting { None } else { self.subscriptions().iter().map(Subscription::next).min() }
    }

    /// Takes the sample that is due, unless the device's own thread has to.
    pub fn try_take(&self) -> Taken {
        if self.is_slow.load(Ordering::SeqCst) {
            return Taken::IsBusy;
        }
        match self.source.try_lock() {
            Ok(source) => self.take_by(source),
            Err(TryLockError::Poisoned(source)) => self.take_by(source.into_inner()),
            Err(TryLockError::WouldBlock) => Taken::IsBusy,
        }
    }

    fn take_by(&self, mut source: MutexGuard<'_, Box<dyn Source>>) -> Taken {
        let sample = read(source.as_mut(), &self.shared);
        let slow_is_due = source.is_slow_due();
        let repeats_until = source.repeats_until();
        drop(source);
        let sample =
            sample.unwrap_or_else(|problem| Box::new(GpuMetrics::failed(self.shared.device_index, problem)));
        let (now, mut missed) = (Instant::now(), 0);
        // Most devices have one recipient: a list of the others then takes no memory.
        let (mut last, mut others) = (None::<Recipient>, Vec::new());
        for subscription in self.subscriptions().iter_mut() {
            if subscription.take_due(now, repeats_until, &mut missed) {
                others.extend(last.replace(subscription.recipient.clone()));
            }
        }
        if missed > 0 {
            self.shared.state().missed += missed;
        }
        others.into_iter().for_each(|recipient| recipient.deliver(sample.clone()));
        // The last one gets the sample itself: a copy of it copies the processes' names.
        if let Some(recipient) = last {
            recipient.deliver(sample);
        }
        if slow_is_due { Taken::SlowIsDue } else { Taken::Whole }
    }

    /// The device's own thread is asked for the sample that is due.
    pub fn leave_to_own_thread(&self) {
        self.is_waiting.store(true, Ordering::SeqCst);
    }

    /// A call is taking long: from now on the device's own thread takes its samples.
    pub fn mark_slow(&self) {
        self.is_slow.store(true, Ordering::SeqCst);
        self.leave_to_own_thread();
    }

    /// The sample that was awaited has been taken: the next one is due at its time.
    pub fn note_taken(&self) {
        self.is_waiting.store(false, Ordering::SeqCst);
    }

    /// Nobody gets samples any more.
    pub fn end(&self) {
        self.has_ended.store(true, Ordering::SeqCst);
        self.subscriptions().clear();
    }

    /// Reports a call that hangs to whoever waits for samples. Returns the shortest time after which somebody
    /// wants to know.
    pub fn report_hang(&self) -> Option<Duration> {
        let (now, mut waiting, mut shortest) = (Instant::now(), Vec::new(), None::<Duration>);
        for subscription in self.subscriptions().iter_mut() {
            let limit = subscription.answer_limit;
            shortest = Some(shortest.map_or(limit, |shortest| shortest.min(limit)));
            if let Some(problem) = self.shared.hang(limit)
                && subscription.takes_report(now)
            {
                waiting.push((subscription.recipient.clone(), problem));
            }
        }
        for (recipient, problem) in waiting {
            recipient.deliver(Box::new(GpuMetrics::failed(self.shared.device_index, problem)));
        }
        shortest
    }
}

/// The thread of a device: carries out commands until it is to quit. Calls `notify` after a sample that was
/// taken outside of a round: the next one is due at its time.
pub fn run(seat: &Seat, commands: &Receiver<Command>, notify: fn()) {
    for command in commands {
        match command {
            Command::Sample(answer) => {
                let mut source = seat.source();
                source.hurry();
                let sample = read(source.as_mut(), &seat.shared);
                if seat.shared.keeps_all {
                    seat.shared.keep(or_failed(&sample, seat.shared.device_index));
                }
                // Sending fails if the requester no longer waits, and then nobody needs the sample.
                let _ = answer.send(sample);
                seat.shared.busy(|| source.read_slow());
            }
            Command::Take => {
                let taken = seat.take_by(seat.source());
                if matches!(taken, Taken::SlowIsDue) {
                    seat.shared.busy(|| seat.source().read_slow());
                }
                seat.note_taken();
                notify();
            }
            Command::ReadSlow => {
                let mut source = seat.source();
                seat.shared.busy(|| source.read_slow());
            }
            Command::Quit => return,
        }
    }
}

/// A sample that knows how long it took.
fn read(source: &mut dyn Source, shared: &Shared) -> Result<Box<GpuMetrics>, GpuMonitorError> {
    let begin = Instant::now();
    let mut sample = shared.busy(|| source.sample())?;
    sample.read_time = Some(begin.elapsed());
    Ok(sample)
}

fn or_failed(sample: &Result<Box<GpuMetrics>, GpuMonitorError>, device_index: u32) -> GpuMetrics {
    match sample {
        Ok(sample) => GpuMetrics::clone(sample),
        Err(problem) => GpuMetrics::failed(device_index, problem.clone()),
    }
}
