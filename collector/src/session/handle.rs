//! The handle by which other threads request a session's status and dumps.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::RecvTimeoutError;
use gputrace_wire::atomic::Ordering;
use gputrace_wire::handshake::SAY_MAX;
use gputrace_wire::run_settings::RunSettings;
use serde::Serialize;

use crate::flight_recorder::{DumpReason, DumpRequest};
use crate::session::death::Death;
use crate::session::live_order::{LiveOrder, OrderedBy, ReportedState};
use crate::session::shared::Shared;
use crate::session::status::{SharedStatus, Status};
use crate::stream::clock::monotonic_ns;

/// How long [`Handle::status`] waits for a new status.
const LOOK_LIMIT: Duration = Duration::from_millis(500);
/// Between two looks whether all processes have changed.
const RECORDING_STEP: Duration = Duration::from_millis(2);

/// A handle to a running session.
#[derive(Clone)]
pub struct Handle {
    pub(super) shared: Arc<Shared>,
    pub(super) status: Arc<SharedStatus>,
    /// The session's begin, on CLOCK_MONOTONIC.
    pub(super) begin_ns: u64,
}

/// What came of an order to pause or to record.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RecordingChange {
    pub recording: bool,
    /// What the order before this one asked for; `None` if there was none, so that programs did as they were
    /// started.
    pub was_recording: Option<bool>,
    /// Seconds since the session's begin, at which all processes below had changed: the time of `--from` and
    /// `--to`.
    pub at_s: f64,
    /// How many processes changed.
    pub processes: usize,
    /// Process ids of those that did not answer in time. They change as soon as they run.
    pub unanswered: Vec<u32>,
}

/// What came of a change of settings.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SettingsChange {
    /// As in [`RecordingChange`].
    pub at_s: f64,
    pub processes: usize,
    pub unanswered: Vec<u32>,
    /// Process ids of those that cannot change so.
    pub refused: Vec<u32>,
}

/// What the session's processes do with their calls.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RecordingNow {
    /// `None` if some record and some are paused, or if no process runs and nothing was ordered.
    pub recording: Option<bool>,
    /// Who gave the last order; `None` if there was none.
    pub ordered_by: Option<OrderedBy>,
    pub processes: Vec<ReportedState>,
}

impl Handle {
    /// Has the single process of the session write a text to its standard error. What it cannot write any
    /// more is left for [`Handle::take_texts`].
    pub fn say(&self, text: &str) {
        let mut cut = text.len().min(SAY_MAX);
        while !text.is_char_boundary(cut) {
            cut -= 1;
        }
        self.shared.keep_text(text.get(..cut).unwrap_or("").to_owned());
        let _ = rustix::io::write(&self.shared.wake, &1u64.to_ne_bytes());
    }

    /// Texts that the process was not given.
    pub fn take_texts(&self) -> Vec<String> {
        self.shared.take_texts()
    }

    /// Requests a dump and does not wait for it.
    pub fn dump(&self, reason: DumpReason) {
        // The error has no reader: a dump by signal has no reply, and the next signal requests another.
        let _ = self.shared.order_dump(DumpRequest { reason, reply: None });
    }

    /// Requests a dump and waits for at most `limit`. Returns its path, or why there is none.
    pub fn dump_and_wait(&self, reason: DumpReason, limit: Duration) -> Result<PathBuf, String> {
        if self.status.status().flight_recorder_seconds.is_none() {
            return Err("it has no flight recorder; start it with --flight-recorder".into());
        }
        let (reply, answer) = crossbeam_channel::bounded(1);
        self.shared.order_dump(DumpRequest { reason, reply: Some(reply) })?;
        answer.recv_timeout(limit).unwrap_or_else(|error| {
            Err(match error {
                RecvTimeoutError::Timeout => format!("the dump takes longer than {} s", limit.as_secs()),
                RecvTimeoutError::Disconnected => "the session has ended, and wrote what it held".into(),
            })
        })
    }

    /// Pauses the session's processes, or makes them record, and waits until they all do, `limit` at most.
    pub fn set_recording(&self, is_on: bool, by: OrderedBy, limit: Duration) -> RecordingChange {
        let before = self.shared.recording().wanted;
        self.shared.order_recording(!is_on, by);
        let order = wait_for_last(limit, || self.shared.recording());
        if !is_on {
            // What was recorded until then is in the trace, for those who read it next: the first status may
            // be of a round of reading that began before.
            self.status();
            self.status();
        }
        RecordingChange {
            recording: is_on,
            was_recording: (before != 0).then_some(before & 1 == 0),
            at_s: self.seconds(),
            processes: order.processes,
            unanswered: order.waiting,
        }
    }

    /// Changes settings of the session's processes, and waits until all have changed, `limit` at most.
    pub fn set(&self, change: RunSettings, limit: Duration) -> SettingsChange {
        self.shared.order_settings(change);
        let order = wait_for_last(limit, || self.shared.settings());
        // What another order has changed since is not refused.
        let latest = RunSettings::from_word(order.wanted);
        let change = RunSettings {
            stacks: change.stacks.filter(|_| latest.stacks == change.stacks),
            device_times: change.device_times.filter(|_| latest.device_times == change.device_times),
            torch_ops: change.torch_ops.filter(|_| latest.torch_ops == change.torch_ops),
            blocks: change.blocks.filter(|_| latest.blocks == change.blocks),
        };
        let cannot = |state: &ReportedState| {
            !order.waiting.contains(&state.pid) && state.settings.changed_by(change) != state.settings
        };
        SettingsChange {
            at_s: self.seconds(),
            processes: order.processes,
            refused: self
                .shared
                .states()
                .iter()
                .filter(|state| cannot(state))
                .map(|state| state.pid)
                .collect(),
            unanswered: order.waiting,
        }
    }

    /// What the session's processes do with their calls now.
    pub fn recording_now(&self) -> RecordingNow {
        let processes = self.shared.states();
        let order = self.shared.recording();
        let ordered = (order.wanted != 0).then_some(order.wanted & 1 == 0);
        let reported: Vec<bool> = processes.iter().filter_map(|process| process.recording).collect();
        let recording = match reported.split_first() {
            None => ordered,
            Some((first, rest)) => rest.iter().all(|other| other == first).then_some(*first),
        };
        RecordingNow { recording, ordered_by: ordered.map(|_| self.shared.ordered_by()), processes }
    }

    /// The settings that are the same in all processes that run; those of the last order if none runs.
    pub fn settings(&self) -> RunSettings {
        fn same<T: PartialEq>(mut values: impl Iterator<Item = T>) -> Option<T> {
            let first = values.next()?;
            values.all(|other| other == first).then_some(first)
        }
        let processes: Vec<RunSettings> =
            self.shared.states().iter().map(|process| process.settings).collect();
        if processes.is_empty() {
            return RunSettings::from_word(self.shared.settings().wanted);
        }
        RunSettings {
            stacks: same(processes.iter().map(|process| process.stacks)).flatten(),
            device_times: same(processes.iter().map(|process| process.device_times)).flatten(),
            torch_ops: same(processes.iter().map(|process| process.torch_ops)).flatten(),
            blocks: same(processes.iter().map(|process| process.blocks)).flatten(),
        }
    }

    /// Seconds since the session's begin: the time of `--from` and `--to`.
    pub fn seconds(&self) -> f64 {
        monotonic_ns().saturating_sub(self.begin_ns) as f64 / 1e9
    }

    /// How long ago the session's first program initialised CUDA; `None` if none has.
    pub fn since_first_program(&self) -> Option<Duration> {
        Some(since(self.shared.first_joined_ns()?))
    }

    /// How long ago the session was first ordered to record; `None` if it never was.
    pub fn since_start_order(&self) -> Option<Duration> {
        self.shared.started_ns().map(since)
    }

    /// Whether the last capture range of one of the session's programs has ended.
    pub fn capture_is_over(&self) -> bool {
        self.shared.capture_is_over.load(Ordering::Relaxed) != 0
    }

    /// Notes which signal killed a process, if any did. Called before the process is reaped: afterwards the
    /// kernel reports it to nobody.
    pub fn note_death(&self, pid: u32, signal: Option<i32>) {
        self.shared.note_death(pid, signal.map_or(Death::Exit, Death::Signal));
    }

    /// Adds a line about processes that should be recorded and do not connect to the session's socket. The
    /// report shows it and counts as incomplete.
    pub fn note_unrecorded(&self, line: String) {
        self.shared.miss(line);
    }

    /// The status now, or, if the collector needs longer than [`LOOK_LIMIT`], the last one, which is
    /// [`Status::age_ns`] old.
    pub fn status(&self) -> Status {
        let (reply, done) = crossbeam_channel::bounded(1);
        if self.shared.order_look(reply) {
            let _ = done.recv_timeout(LOOK_LIMIT);
        }
        self.status.status()
    }
}

/// Waits until all processes have the last order in effect, `limit` at most. It may be a later one than the
/// caller's, which has all of the caller's that it does not change.
fn wait_for_last(limit: Duration, now: impl Fn() -> LiveOrder) -> LiveOrder {
    let deadline = Instant::now() + limit;
    loop {
        let order = now();
        let is_done = order.applied == order.wanted && order.waiting.is_empty();
        if is_done || Instant::now() >= deadline {
            return order;
        }
        thread::sleep(RECORDING_STEP);
    }
}

fn since(moment_ns: u64) -> Duration {
    Duration::from_nanos(monotonic_ns().saturating_sub(moment_ns))
}
