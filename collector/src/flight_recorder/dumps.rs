//! Writes snapshots during the session, on a thread of their own.

use std::path::PathBuf;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender};

use crate::error::Error;
use crate::flight_recorder::snapshot::Snapshot;
use crate::stream::clock::realtime_ns;

/// The most dumps of a session for crashed processes. A program whose workers crash by the hundred would fill
/// the disk; the last seconds are still written at the end.
const CRASHES_MAX: u32 = 8;
/// The most snapshots that wait to be written. Each may hold a whole window.
const WAITING_MAX: usize = 1;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DumpReason {
    /// A process ended without a good-bye.
    Crash,
    /// The recorder got SIGUSR2.
    Signal,
    /// A request over the control socket.
    Request,
    /// The session's end.
    Exit,
}

impl DumpReason {
    pub const fn name(self) -> &'static str {
        match self {
            DumpReason::Crash => "crash",
            DumpReason::Signal => "signal",
            DumpReason::Request => "asked",
            DumpReason::Exit => "exit",
        }
    }
}

/// Writes a snapshot and the files beside it under a name, and returns the path.
pub type WriteDump = Box<dyn FnMut(&Snapshot, &str) -> Result<PathBuf, String> + Send>;

/// A request for a dump; `reply` gets its result.
#[derive(Debug)]
pub(crate) struct DumpRequest {
    pub reason: DumpReason,
    pub reply: Option<Sender<Result<PathBuf, String>>>,
}

/// A dump that was written or could not be.
#[derive(Debug)]
pub struct Dump {
    pub reason: DumpReason,
    pub result: Result<PathBuf, String>,
}

struct Job {
    snapshot: Snapshot,
    name: String,
    request: DumpRequest,
}

/// The thread that writes.
pub(crate) struct Dumper {
    jobs: Sender<Job>,
    thread: JoinHandle<Vec<Dump>>,
    number: u32,
    crashes: u32,
    /// Requested dumps that were not begun.
    passed_over: Vec<Dump>,
}

impl Dumper {
    pub fn start(write: WriteDump) -> Result<Dumper, Error> {
        let (jobs, waiting) = crossbeam_channel::bounded(WAITING_MAX);
        let name = "dump";
        let builder = std::thread::Builder::new().name(format!("gputrace-{name}"));
        let thread = builder.spawn(move || run(&waiting, write));
        let thread = thread.map_err(|source| Error::Thread { name, source })?;
        Ok(Dumper { jobs, thread, number: 0, crashes: 0, passed_over: Vec::new() })
    }

    /// Queues a snapshot for writing. If there are too many, replies that it is not written.
    pub fn dump(&mut self, request: DumpRequest, snapshot: impl FnOnce() -> Snapshot) {
        if request.reason == DumpReason::Crash {
            self.crashes += 1;
            if self.crashes > CRASHES_MAX {
                return self.pass_over(request, "there were enough crashes before it");
            }
        }
        if self.jobs.is_full() {
            return self.pass_over(request, "another dump is still being written");
        }
        self.number += 1;
        let name = format!("dump-{}-{:03}-{}", moment(realtime_ns()), self.number, request.reason.name());
        // The queue has space, and only this thread fills it. If the writing thread has ended, there is no
        // reply.
        let _ = self.jobs.send(Job { snapshot: snapshot(), name, request });
    }

    fn pass_over(&mut self, request: DumpRequest, why: &str) {
        let DumpRequest { reason, reply } = request;
        if let Some(reply) = reply {
            let _ = reply.try_send(Err(why.to_owned()));
        }
        if self.passed_over.iter().all(|known| known.reason != reason) {
            self.passed_over.push(Dump { reason, result: Err(format!("not written: {why}")) });
        }
    }

    /// Waits for the dumps in progress.
    pub fn finish(self) -> Vec<Dump> {
        drop(self.jobs);
        let mut dumps = self.thread.join().unwrap_or_default();
        dumps.extend(self.passed_over);
        dumps
    }
}

fn run(jobs: &Receiver<Job>, mut write: WriteDump) -> Vec<Dump> {
    let mut dumps = Vec::new();
    for Job { snapshot, name, request: DumpRequest { reason, reply } } in jobs {
        let result = write(&snapshot, &name);
        if let Some(reply) = reply {
            let _ = reply.try_send(result.clone());
        }
        // All are listed, up to a number that no user requests by hand.
        if dumps.len() < 1000 {
            dumps.push(Dump { reason, result });
        }
    }
    dumps
}

/// A moment on CLOCK_REALTIME for file names, in UTC, so that names sort by time: 20260131T235959Z.
fn moment(realtime_ns: u64) -> String {
    let seconds = realtime_ns / 1_000_000_000;
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    // Years begin in March here, so that a leap day is the last of its year: 400 of them have
    // 146 097 days, and the first such day is 719 468 days before 1970.
    let days = seconds / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_dates() {
        let cases = [
            (0, "19700101T000000Z"),
            (951_827_696, "20000229T123456Z"),
            (1_709_251_199, "20240229T235959Z"),
            (1_709_251_200, "20240301T000000Z"),
            (4_107_542_400, "21000301T000000Z"),
        ];
        for (seconds, name) in cases {
            assert_eq!(moment(seconds * 1_000_000_000), name);
        }
    }
}
