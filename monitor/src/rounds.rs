//! The thread that takes the samples of all devices: one wake-up for all whose samples are due at the same
//! moment, since a wake-up costs more than a sample.
//!
//! A call that does not return must stop its own device's samples only. So another thread looks now and then
//! whether a round is stuck. Then the stuck device is left to its own thread from there on, and a new thread
//! takes over the rounds; the stuck one ends once its call returns. A round that ends with no call under way
//! puts that look off, so the watching thread does not wake up while all devices answer.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crate::alarm::Alarm;
use crate::error::GpuMonitorError;
use crate::worker::{Command, Seat, Taken};

/// A round that waits for one device for so long is stuck.
const STUCK: Duration = Duration::from_millis(200);
/// Between two looks whether a round is stuck: longer than between two readings of a steady device, which put
/// the look off.
const LOOKS_EVERY: Duration = Duration::from_millis(600);
const PAUSE_MIN: Duration = Duration::from_millis(2);
/// How long a thread without anything to sample sleeps; it is woken when there is something.
const IDLE: Duration = Duration::from_secs(3600);

static ROUNDS: Rounds = Rounds {
    state: Mutex::new(Schedule { devices: Vec::new(), generation: 0, in_call: None, watch: None }),
    changed: Condvar::new(),
};

struct Rounds {
    state: Mutex<Schedule>,
    changed: Condvar,
}

struct Schedule {
    devices: Vec<Member>,
    /// Which thread makes the rounds: one of an earlier generation ends.
    generation: u64,
    /// The device that is being sampled, and since when.
    in_call: Option<(Instant, Weak<Seat>)>,
    /// `None`: there are no threads.
    watch: Option<Watch>,
}

/// When the watching thread looks next.
struct Watch {
    alarm: Arc<Alarm>,
    at: Instant,
    /// From one look to the next.
    pause: Duration,
}

impl Watch {
    /// The next look is that long from now. If the kernel refuses, it is at the time that was set before.
    fn look_after(&mut self, pause: Duration) {
        let _ = self.alarm.set(pause);
        self.pause = pause;
        self.at = Instant::now() + pause;
    }
}

struct Member {
    seat: Weak<Seat>,
    /// To its own thread.
    commands: Sender<Command>,
}

fn lock() -> MutexGuard<'static, Schedule> {
    ROUNDS.state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Includes a device in the rounds, until nobody uses it any more.
pub fn join(seat: &Arc<Seat>, commands: Sender<Command>) -> Result<(), GpuMonitorError> {
    let mut state = lock();
    state.devices.push(Member { seat: Arc::downgrade(seat), commands });
    if state.watch.is_none() {
        let no_thread = |error: std::io::Error| GpuMonitorError::NoThread(error.to_string());
        let alarm = Arc::new(Alarm::new(LOOKS_EVERY).map_err(no_thread)?);
        start(&mut state)?;
        let its = Arc::clone(&alarm);
        let looking = thread::Builder::new().name("gpu-watch".into()).spawn(move || look(&its));
        looking.map_err(no_thread)?;
        state.watch = Some(Watch { alarm, at: Instant::now() + LOOKS_EVERY, pause: LOOKS_EVERY });
    }
    Ok(())
}

/// The subscriptions or the devices have changed.
pub fn notify() {
    drop(lock());
    ROUNDS.changed.notify_all();
}

fn start(state: &mut Schedule) -> Result<(), GpuMonitorError> {
    state.generation += 1;
    state.in_call = None;
    let generation = state.generation;
    let started = thread::Builder::new().name("gpu-rounds".into()).spawn(move || rounds(generation));
    started.map(drop).map_err(|error| GpuMonitorError::NoThread(error.to_string()))
}

fn rounds(generation: u64) {
    // The list is kept from round to round, empty, for its memory.
    let mut due = Vec::new();
    while next_round(generation, &mut due) {
        for (seat, commands) in due.drain(..) {
            if !sample(generation, &seat, &commands) {
                return;
            }
        }
    }
}

/// Waits until samples are due, and adds their devices. Returns whether this thread makes the rounds still.
fn next_round(generation: u64, due: &mut Vec<(Arc<Seat>, Sender<Command>)>) -> bool {
    let mut state = lock();
    loop {
        if state.generation != generation {
            return false;
        }
        state.devices.retain(|device| device.seat.strong_count() > 0);
        let (now, mut next, mut is_busy) = (Instant::now(), None, false);
        for device in &state.devices {
            let Some(seat) = device.seat.upgrade() else { continue };
            is_busy |= seat.shared.is_busy();
            match seat.next() {
                Some(at) if at <= now => due.push((seat, device.commands.clone())),
                Some(at) => next = Some(next.map_or(at, |next: Instant| next.min(at))),
                None => {}
            }
        }
        if !due.is_empty() {
            return true;
        }
        if let Some(watch) = &mut state.watch
            && next.is_some()
            && !is_busy
            && watch.at.saturating_duration_since(now) <= watch.pause / 2
        {
            watch.look_after(watch.pause);
        }
        let pause = next.map_or(IDLE, |next| next.saturating_duration_since(now));
        let waited = ROUNDS.changed.wait_timeout(state, pause);
        state = waited.unwrap_or_else(PoisonError::into_inner).0;
    }
}

/// Takes a device's sample, or leaves that to its own thread. Returns whether this thread makes the rounds
/// still.
fn sample(generation: u64, seat: &Arc<Seat>, commands: &Sender<Command>) -> bool {
    {
        let mut state = lock();
        if state.generation != generation {
            return false;
        }
        state.in_call = Some((Instant::now(), Arc::downgrade(seat)));
    }
    // A panic of a callback ends its device's thread, and not the other devices' samples.
    let taken = catch_unwind(AssertUnwindSafe(|| seat.try_take()));
    match taken {
        Ok(Taken::Whole) => {}
        Ok(Taken::SlowIsDue) => drop(commands.send(Command::ReadSlow)),
        Ok(Taken::IsBusy) => {
            seat.leave_to_own_thread();
            let _ = commands.send(Command::Take);
        }
        Err(_) => {
            seat.end();
            let _ = commands.send(Command::Quit);
        }
    }
    let mut state = lock();
    if state.generation == generation {
        state.in_call = None;
        return true;
    }
    drop(state);
    seat.note_taken();
    notify();
    false
}

/// Replaces a thread that is stuck in a call, and reports calls that hang.
fn look(alarm: &Alarm) {
    loop {
        alarm.wait(LOOKS_EVERY);
        let mut state = lock();
        state.devices.retain(|device| device.seat.strong_count() > 0);
        if state.devices.is_empty() {
            // Nobody uses a device any more: both threads end.
            state.generation += 1;
            state.watch = None;
            drop(state);
            ROUNDS.changed.notify_all();
            return;
        }
        let stuck = state.in_call.as_ref().filter(|(since, _)| since.elapsed() >= STUCK);
        if let Some((_, seat)) = stuck {
            if let Some(seat) = seat.upgrade() {
                seat.mark_slow();
            }
            // Without a thread to replace it, the stuck one goes on once its call returns.
            if start(&mut state).is_err() {
                state.generation -= 1;
            }
        }
        let is_in_call = state.in_call.is_some();
        let seats: Vec<Arc<Seat>> = state.devices.iter().filter_map(|device| device.seat.upgrade()).collect();
        drop(state);
        let mut pause = if is_in_call { STUCK } else { LOOKS_EVERY };
        for seat in seats {
            if let Some(limit) = seat.report_hang() {
                pause = pause.min(limit.max(PAUSE_MIN) / 2);
            }
        }
        if let Some(watch) = &mut lock().watch {
            watch.look_after(pause);
        }
    }
}
