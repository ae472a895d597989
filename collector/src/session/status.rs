//! A running session's status, as `ctl` shows it. The processing thread writes it at most twice a second and
//! on request; the thread of the control socket reads it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use gputrace_wire::cell::kind;
use gputrace_wire::counter::Counter;
use serde::Serialize;

use crate::batch::{Batch, Counters, ProcessBegin, SizeLimit};
use crate::flight_recorder::Window;
use crate::model::sink::Sink;
use crate::model::{Counts, Model};
use crate::session::step::Step;
use crate::stream::clock::monotonic_ns;

/// At most so many processes are listed; the others are in the sums only.
const PROCESSES_MAX: usize = 200;

#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Status {
    /// Seconds that a flight recorder keeps; `None` where everything is kept.
    pub flight_recorder_seconds: Option<f64>,
    /// Bytes that the flight recorder holds now, and the most that its events may take.
    pub held_bytes: Option<u64>,
    pub held_bytes_max: Option<u64>,
    pub left_out_entries: Option<u64>,
    /// How long ago this status was written.
    pub age_ns: u64,
    /// How long ago the newest event ended; only with a flight recorder.
    pub newest_event_age_ns: Option<u64>,
    pub running: usize,
    pub ended: usize,
    pub launches: u64,
    pub host_calls: u64,
    pub device_records: u64,
    /// Host calls and device records a second, over the last second or two; in the first second, since the
    /// session began. 0 after two seconds without any.
    pub events_per_second: f64,
    /// By reason, over all processes.
    pub dropped: BTreeMap<&'static str, u64>,
    /// The trace file's length in bytes while it cannot be written.
    pub trace_ends_at_byte: Option<u64>,
    /// All entries that are missing in the trace file.
    pub not_in_trace: u64,
    /// The limit of the trace file's size, once reached, and the entries left out because of it.
    pub trace_max_bytes: Option<u64>,
    pub beyond_trace_max: u64,
    /// Trace files that rotation has closed, and how many of those it has deleted; `None` without rotation.
    pub closed_files: Option<u64>,
    pub deleted_files: Option<u64>,
    pub processes: Vec<ProcessStatus>,
    #[serde(skip)]
    written_at_ns: u64,
    /// When the rate was last computed, and how many events there were then.
    #[serde(skip)]
    rate_from: (u64, u64),
    /// Whether `rate_from` is the session's beginning.
    #[serde(skip)]
    is_first_rate: bool,
}

/// The shortest time over which a rate is computed. Events appear in the status after at most this long: the
/// drain thread gathers them, and [`Pace`] delays the write.
const RATE_OVER_NS: u64 = 1_000_000_000;
/// If the status was not written for this long, there were no events.
const SILENCE_NS: u64 = 2 * RATE_OVER_NS;
/// The shortest time for the session's first rate.
const FIRST_RATE_OVER_NS: u64 = RATE_OVER_NS / 10;

/// A process that runs.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct ProcessStatus {
    pub pid: u32,
    pub parent_pid: u32,
    pub launches: u64,
    pub host_calls: u64,
    pub device_records: u64,
    pub ring_full: u64,
    /// All counters that are not 0, including those of overhead.
    pub counters: BTreeMap<&'static str, u64>,
}

pub(crate) struct SharedStatus(Mutex<Status>);

impl SharedStatus {
    pub fn new(window: Option<Duration>) -> SharedStatus {
        let flight_recorder_seconds = window.map(|window| window.as_secs_f64());
        let written_at_ns = monotonic_ns();
        SharedStatus(Mutex::new(Status {
            flight_recorder_seconds,
            written_at_ns,
            rate_from: (written_at_ns, 0),
            is_first_rate: true,
            ..Status::default()
        }))
    }

    pub fn status(&self) -> Status {
        let mut status = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let now_ns = monotonic_ns();
        status.end_rate(now_ns);
        status.age_ns = now_ns.saturating_sub(status.written_at_ns);
        status
    }

    fn update(&self, change: impl FnOnce(&mut Status)) {
        let mut status = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut now = Status {
            flight_recorder_seconds: status.flight_recorder_seconds,
            written_at_ns: monotonic_ns(),
            events_per_second: status.events_per_second,
            rate_from: status.rate_from,
            is_first_rate: status.is_first_rate,
            trace_ends_at_byte: status.trace_ends_at_byte,
            not_in_trace: status.not_in_trace,
            trace_max_bytes: status.trace_max_bytes,
            beyond_trace_max: status.beyond_trace_max,
            ..Status::default()
        };
        change(&mut now);
        now.compute_rate();
        *status = now;
    }

    /// Called each half second. The status is not written while no events arrive, so only this call sets the
    /// rate to 0.
    pub fn time_passes(&self) {
        let mut status = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        status.end_rate(monotonic_ns());
    }

    /// Sets the trace file's length while it cannot be written, and the number of missing entries.
    pub fn trace(&self, ends_at_byte: Option<u64>, not_in_trace: u64) {
        let mut status = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (status.trace_ends_at_byte, status.not_in_trace) = (ends_at_byte, not_in_trace);
    }

    /// The trace file has reached the limit of its size.
    pub fn size_limit(&self, limit: &SizeLimit) {
        let mut status = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (status.trace_max_bytes, status.beyond_trace_max) = (Some(limit.max_bytes), limit.left_out.entries);
    }

    /// Sets the numbers of closed and deleted trace files.
    pub fn rotation(&self, (closed, deleted): (u64, u64)) {
        let mut status = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (status.closed_files, status.deleted_files) = (Some(closed), Some(deleted));
    }

    /// Writes the status of a session that keeps everything.
    pub fn model<S: Sink>(&self, model: &Model<S>) {
        self.update(|status| {
            let exited = model.exited();
            status.ended = exited.processes;
            status.sum(exited.counters, counts_of(exited.counts));
            for process in model.running() {
                status.add(process.begin, process.counters, counts_of(process.counts), process.has_ended);
            }
        });
    }

    /// Writes the status of a flight recorder.
    pub fn flight(&self, window: &Window, now_ns: u64) {
        self.update(|status| {
            let left_out = window.left_out();
            status.left_out_entries = Some(left_out.entries);
            // Losses of processes that ended before the window. The losses of the other processes are in
            // their own counters.
            if left_out.lost > 0 {
                status.drop("of_processes_left_out", left_out.lost);
            }
            status.held_bytes = u64::try_from(window.bytes()).ok();
            status.held_bytes_max = u64::try_from(window.bytes_max()).ok();
            status.newest_event_age_ns = Some(now_ns.saturating_sub(window.newest_ns()));
            status.ended = usize::try_from(window.left_out().processes).unwrap_or(usize::MAX);
            for kept in window.processes() {
                let counts = &kept.counts;
                let now = [counts.launches, counts.host_calls, counts.device_records];
                status.add(&kept.begin, &kept.counters, now, kept.end.is_some());
            }
        });
    }
}

/// The shortest time between two writes of the status. A write visits every process that runs, or that a
/// flight recorder holds, on the processing thread: some milliseconds for tens of thousands.
const WRITE_EVERY: Duration = Duration::from_millis(500);

/// Decides when the status is written again. A change that comes sooner than [`WRITE_EVERY`] after the last
/// write is owed: it is written once the time is up, even if no further step arrives.
#[derive(Default)]
pub(crate) struct Pace {
    written: Option<Instant>,
    owed: bool,
    /// When the last [`Next::Tick`] was returned; `None` without ticks.
    ticked: Option<Instant>,
}

/// What the processing thread does next.
// Nearly all are steps: a box would be an allocation for each.
#[allow(clippy::large_enum_variant)]
pub(crate) enum Next {
    Step(Step),
    Write,
    /// Half a second has passed.
    Tick,
    End,
}

impl Pace {
    /// A pace that also returns [`Next::Tick`] each half second.
    pub fn with_ticks() -> Pace {
        Pace { ticked: Some(Instant::now()), ..Pace::default() }
    }

    /// Waits for the next step, or for the time of a write or a tick.
    pub fn next(&mut self, steps: &Receiver<Step>) -> Next {
        loop {
            let rest = |since: Instant| WRITE_EVERY.saturating_sub(since.elapsed());
            let write = self.owed.then(|| self.written.map_or(Duration::ZERO, rest));
            if write == Some(Duration::ZERO) {
                self.owed = false;
                self.written = Some(Instant::now());
                return Next::Write;
            }
            let tick = self.ticked.map(rest);
            if tick == Some(Duration::ZERO) {
                self.ticked = Some(Instant::now());
                return Next::Tick;
            }
            let Some(rest) = [write, tick].into_iter().flatten().min() else {
                return steps.recv().map_or(Next::End, Next::Step);
            };
            match steps.recv_timeout(rest) {
                Ok(step) => return Next::Step(step),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Next::End,
            }
        }
    }

    /// Notes that a batch changes the status. Cells and definitions do not count: there are too many of them,
    /// and counters follow.
    pub fn note(&mut self, batch: &Batch) {
        self.owed |= !matches!(batch, Batch::Cells { .. } | Batch::Definitions { .. });
    }
}

/// Launches, host calls and device records.
fn counts_of(counts: &Counts) -> [u64; 3] {
    let records = (kind::DEVICE_KERNEL..=47).map(|kind| counts.entries(kind)).sum();
    [counts.launches, counts.host_calls(), records]
}

/// Counters that are not 0.
fn counted(counters: &Counters) -> impl Iterator<Item = (Counter, u64)> {
    Counter::ALL.into_iter().zip(counters.values).filter(|(_, value)| *value > 0)
}

impl Status {
    /// Saturates: processes may report any number.
    fn drop(&mut self, reason: &'static str, count: u64) {
        let total = self.dropped.entry(reason).or_default();
        *total = total.saturating_add(count);
    }

    fn compute_rate(&mut self) {
        let (from_ns, before) = self.rate_from;
        let passed_ns = self.written_at_ns.saturating_sub(from_ns);
        let is_due = passed_ns >= RATE_OVER_NS;
        if is_due || self.is_first_rate && passed_ns >= FIRST_RATE_OVER_NS {
            let seconds = Duration::from_nanos(passed_ns).as_secs_f64();
            self.events_per_second = self.events().saturating_sub(before) as f64 / seconds;
        }
        if is_due {
            self.rate_from = (self.written_at_ns, self.events());
            self.is_first_rate = false;
        }
    }

    /// Sets the rate to 0 after a silence. The next rate begins half a second ago, not at the last event.
    fn end_rate(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.written_at_ns) >= SILENCE_NS {
            self.events_per_second = 0.0;
            self.rate_from = (now_ns.saturating_sub(RATE_OVER_NS / 2), self.events());
            self.is_first_rate = false;
        }
    }

    fn events(&self) -> u64 {
        self.host_calls.saturating_add(self.device_records)
    }

    fn sum(&mut self, counters: &Counters, [launches, host_calls, device_records]: [u64; 3]) {
        self.launches += launches;
        self.host_calls += host_calls;
        self.device_records += device_records;
        for (counter, value) in counted(counters).filter(|(counter, _)| counter.is_loss()) {
            self.drop(counter.name(), value);
        }
        if counters.ring_full > 0 {
            self.drop("ring_full", counters.ring_full);
        }
    }

    fn add(&mut self, begin: &ProcessBegin, counters: &Counters, now: [u64; 3], has_ended: bool) {
        self.sum(counters, now);
        let [launches, host_calls, device_records] = now;
        if has_ended {
            self.ended += 1;
            return;
        }
        self.running += 1;
        if self.processes.len() < PROCESSES_MAX {
            self.processes.push(ProcessStatus {
                pid: begin.pid,
                parent_pid: begin.parent_pid,
                launches,
                host_calls,
                device_records,
                ring_full: counters.ring_full,
                counters: counted(counters).map(|(counter, value)| (counter.name(), value)).collect(),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_come_while_no_step_does() {
        let (stream, steps) = crossbeam_channel::unbounded();
        let (begin, mut pace) = (Instant::now(), Pace::with_ticks());
        for _ in 0..2 {
            assert!(matches!(pace.next(&steps), Next::Tick));
        }
        assert!(begin.elapsed() >= 2 * WRITE_EVERY, "{:?}", begin.elapsed());
        drop(stream);
        assert!(matches!(pace.next(&steps), Next::End));
    }

    /// The rates after these pairs of a time, in tenths of a second from the beginning, and a number of
    /// events.
    fn rates(written: &[(u64, u64)]) -> Vec<u64> {
        let begin_ns = 1_000_000_000_000;
        let mut status = Status {
            written_at_ns: begin_ns,
            rate_from: (begin_ns, 0),
            is_first_rate: true,
            ..Status::default()
        };
        let rate = |(tenths, events): &(u64, u64)| {
            (status.written_at_ns, status.host_calls) = (begin_ns + tenths * 100_000_000, *events);
            status.compute_rate();
            status.events_per_second.round() as u64
        };
        written.iter().map(rate).collect()
    }

    #[test]
    fn rate_is_of_the_session_so_far_and_then_of_the_last_second() {
        assert_eq!(rates(&[(0, 0), (2, 400), (5, 1000), (10, 2000)]), [0, 2000, 2000, 2000]);
        assert_eq!(rates(&[(10, 2000), (15, 2500), (20, 3000)]), [2000, 2000, 1000]);
    }

    #[test]
    fn rate_ends_once_nothing_comes() {
        let second = 1_000_000_000;
        let written_at_ns = 1_000 * second;
        let mut status =
            Status { written_at_ns, host_calls: 9_000, events_per_second: 1998.0, ..Status::default() };
        status.end_rate(written_at_ns + second);
        assert_eq!(status.events_per_second, 1998.0);
        status.end_rate(written_at_ns + 12 * second);
        assert_eq!(status.events_per_second, 0.0);
        // Later events are not spread over the silence.
        (status.written_at_ns, status.host_calls) = (written_at_ns + 12 * second + second / 2, 10_000);
        status.compute_rate();
        assert_eq!(status.events_per_second, 1000.0);
    }

    /// The number of writes depends on time and not on the number of batches, and the last batch is written
    /// though none follows it.
    #[test]
    fn status_is_written_by_time_and_not_by_batch() {
        let (stream, steps) = crossbeam_channel::unbounded();
        let batches = 10_000;
        for wall_ns in 0..batches {
            stream.send(Step::Batch(Batch::SessionEnd { wall_ns })).unwrap();
        }
        let begin = Instant::now();
        let (mut pace, mut seen, mut writes) = (Pace::default(), 0, 0);
        loop {
            match pace.next(&steps) {
                Next::Step(Step::Batch(batch)) => {
                    pace.note(&batch);
                    seen += 1;
                }
                Next::Write => writes += 1,
                Next::Step(_) | Next::Tick | Next::End => unreachable!(),
            }
            if seen == batches && !pace.owed {
                break;
            }
        }
        let most = 2 + begin.elapsed().as_millis() / WRITE_EVERY.as_millis();
        assert!((2..=most).contains(&writes), "{writes} times in {:?}", begin.elapsed());
        drop(stream);
        assert!(matches!(pace.next(&steps), Next::End));
    }
}
