//! The digest thread of a session that keeps its last seconds only.

use std::collections::BTreeMap;

use crossbeam_channel::Receiver;

use crate::batch::{Batch, ProcessEnd};
use crate::error::Error;
use crate::flight_recorder::dumps::{Dump, DumpReason, DumpRequest, Dumper};
use crate::flight_recorder::snapshot::Snapshot;
use crate::flight_recorder::window::Window;
use crate::model::sink::Sink;
use crate::session::{Board, Death, Digested, Next, Pace, Step, signal_name};
use crate::stream::clock::monotonic_ns;
use crate::trace_file::TraceWriter;

/// Consumes the stream up to its end, and writes what is held then. What was dumped before comes
/// back beside it.
pub(crate) fn run<S: Sink>(
    steps: &Receiver<Step>,
    mut window: Window,
    mut dumper: Dumper,
    mut writer: TraceWriter,
    board: &Board,
    sink: S,
) -> (Option<Digested<S>>, Vec<Dump>) {
    let mut trace_error = None;
    let mut deaths = BTreeMap::new();
    // Why the session ends, as far as its processes show: the last of them crashed, or none did.
    let mut ended_by = None;
    let mut pace = Pace::with_ticks();
    loop {
        let next = pace.next(steps);
        let now_ns = monotonic_ns();
        let step = match next {
            Next::Step(step) => step,
            Next::Tell => {
                board.flight(&window, now_ns);
                continue;
            }
            // What is held reaches the sink at the end.
            Next::Tick => {
                board.time_passes();
                continue;
            }
            Next::End => {
                board.flight(&window, now_ns);
                break;
            }
        };
        match step {
            Step::Batch(batch) => {
                pace.note(&batch);
                // Only memory is written to: what could fail is the compressor.
                if let Err(source) = window.push(&batch, now_ns) {
                    trace_error.get_or_insert(Error::System { operation: "compressing", source });
                }
                if let Batch::ProcessEnd { process, end, .. } = batch {
                    let death = deaths.remove(&process);
                    let crash = (end == ProcessEnd::Vanished && window.has_events_of(process))
                        .then(|| crash(death))
                        .flatten();
                    if let Some(reason) = &crash {
                        let request = DumpRequest { reason: DumpReason::Crash, reply: None };
                        dumper.dump(request, || window.snapshot(reason, now_ns));
                    }
                    if end != ProcessEnd::Running {
                        ended_by = crash;
                    }
                }
            }
            Step::Death { process, death } => {
                deaths.insert(process, death);
            }
            Step::Look(asked) => {
                board.flight(&window, now_ns);
                asked.iter().for_each(|asked| _ = asked.try_send(()));
            }
            Step::Dump(request) => {
                let reason = request.reason.name();
                dumper.dump(request, || window.snapshot(reason, now_ns));
            }
        }
    }
    let dumps = dumper.finish();
    let reason = ended_by.as_deref().unwrap_or(DumpReason::Exit.name());
    let now_ns = monotonic_ns();
    let snapshot = window.snapshot(reason, now_ns);
    let not_in_trace = match write_what_fits(&snapshot, &mut window, &mut writer, reason, now_ns) {
        Ok(entries) => entries,
        Err(error) => {
            trace_error.get_or_insert(error);
            0
        }
    };
    drop(window);
    let digested = snapshot.model(sink).ok().map(|(mut totals, sink)| {
        totals.not_in_trace(not_in_trace);
        Digested {
            totals,
            sink,
            trace_path: writer.path().to_owned(),
            trace_bytes: writer.whole_bytes(),
            trace_error,
            size_limit: None,
        }
    });
    (digested, dumps)
}

/// Attempts with less, where the file system has no room for all.
const SHORTER_MOST: u32 = 6;

/// Writes what the window holds, or its newest part that the file system has room for: what came last is
/// what a flight recorder is for. Returns how many entries that leaves out.
fn write_what_fits(
    snapshot: &Snapshot,
    window: &mut Window,
    writer: &mut TraceWriter,
    reason: &str,
    now_ns: u64,
) -> Result<u64, Error> {
    let Err(mut error) = snapshot.write_to(writer) else { return Ok(0) };
    let before = window.left_out().entries;
    for _ in 0..SHORTER_MOST {
        let fits = usize::try_from(writer.whole_bytes()).unwrap_or(usize::MAX) / 4 * 3;
        window.shrink_to(fits);
        writer.restart()?;
        match window.snapshot(reason, now_ns).write_to(writer) {
            Ok(()) => return Ok(window.left_out().entries.saturating_sub(before)),
            Err(again) => error = again,
        }
    }
    Err(error)
}

/// Why a dump is written of a process that ended without a good-bye; `None` if it meant to, or was
/// asked to by a signal for that: pools end their workers so, and would use up the dumps.
fn crash(death: Option<Death>) -> Option<String> {
    let name = DumpReason::Crash.name();
    match death {
        Some(Death::Exit | Death::Signal(libc::SIGTERM | libc::SIGINT | libc::SIGHUP)) => None,
        Some(Death::Signal(signal)) => Some(format!("{name} ({})", signal_name(signal))),
        None => Some(name.to_owned()),
    }
}
