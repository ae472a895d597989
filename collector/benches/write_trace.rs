//! Writes a trace of any length, for `scripts/bench-exports`: a recorded PyTorch run, repeated with later
//! times.
//!
//! ```text
//! GPUTRACE_TRACE=FILE GPUTRACE_EVENTS=100000000 cargo bench -p gputrace-collector --bench write_trace
//! ```
#![allow(clippy::unwrap_used)]

mod recorded;

use gputrace_collector::batch::{Batch, ProcessEnd};
use gputrace_collector::trace_file::TraceWriter;
use recorded::Recorded;

/// As fast as a busy program makes them.
const EVENTS_A_SECOND: u64 = 100_000;

fn main() {
    let Some(path) = std::env::var_os("GPUTRACE_TRACE") else {
        return println!("write_trace: GPUTRACE_TRACE names no file to write");
    };
    let asked = std::env::var("GPUTRACE_EVENTS").unwrap_or_default();
    let events: u64 = asked.parse().expect("GPUTRACE_EVENTS is a number");
    let recorded = Recorded::pytorch().at_rate(EVENTS_A_SECOND);
    let mut writer = TraceWriter::create(path.as_ref()).unwrap();
    recorded.head.iter().for_each(|batch| writer.write(batch).unwrap());
    let mut round = 0;
    while round * recorded.entries < events {
        let (part, next) = recorded.part(round);
        for (ring, cells) in part {
            writer.write(&Batch::Cells { process: 0, ring, cells }).unwrap();
        }
        round = next;
    }
    let monotonic_ns = recorded.head.iter().find_map(|batch| match batch {
        Batch::SessionBegin(begin) => Some(begin.monotonic_ns),
        _ => None,
    });
    let wall_ns = round * recorded.entries * 1_000_000_000 / EVENTS_A_SECOND;
    let monotonic_ns = monotonic_ns.unwrap() + wall_ns;
    writer.write(&Batch::ProcessEnd { process: 0, end: ProcessEnd::Exit, monotonic_ns }).unwrap();
    writer.write(&Batch::SessionEnd { wall_ns }).unwrap();
    println!("{} events, {} of a device", round * recorded.entries, round * recorded.executed);
}
