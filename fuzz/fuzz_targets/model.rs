//! What was decoded, whatever it says, through the model to every output.
//!
//! Input: as `gputrace_fuzz::batches` has it.
#![no_main]

use gputrace_collector::aggregate::Aggregates;
use gputrace_collector::batch::Batch;
use gputrace_collector::flame::Flame;
use gputrace_collector::model::{Model, Totals, in_flight};
use gputrace_collector::report::{Report, TextOptions};
use gputrace_fuzz::batches::batches;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let (_, batches) = batches(data);
    let (totals, aggregates) = consume(&batches, false);
    check(&totals);

    let report = Report::new(&totals, &aggregates);
    assert!(report.to_json().starts_with('{'));
    assert!(report.to_text(&TextOptions::default()).ends_with('\n'));
    let flame = Flame::new(&totals, &aggregates);
    for line in flame.folded().lines() {
        let (_, weight) = line.rsplit_once(' ').expect("frames and a weight");
        weight.parse::<u64>().expect("a weight is a number");
    }
    // Drawing costs a millisecond and knows lines only.
    if data.len().is_multiple_of(16) {
        assert!(flame.svg().ends_with("</svg>\n"));
    }

    // How the stream was cut into batches means nothing.
    let (again, _) = consume(&batches, true);
    assert_eq!(again.counts, totals.counts);
    assert_eq!(again.wall_ns(), totals.wall_ns());
    assert_eq!(again.sessions, totals.sessions);
    for (again, process) in again.processes.iter().zip(&totals.processes) {
        assert_eq!(again.failure, process.failure);
        assert_eq!(again.in_flight, process.in_flight);
    }
});

/// What holds of every stream.
fn check(totals: &Totals) {
    let counts = &totals.counts;
    assert!(counts.timed <= counts.executed);
    let coverage = counts.device_time_coverage();
    assert!((0.0..=1.0).contains(&coverage), "{coverage}");
    assert!(totals.losses().values().all(|count| *count > 0));
    for process in &totals.processes {
        assert!(process.ns_per_tick.is_finite(), "{}", process.ns_per_tick);
        let all = &process.in_flight;
        assert!(all.streams.len() <= in_flight::STREAMS_SHOWN);
        for stream in &all.streams {
            assert!(stream.calls.len() <= in_flight::NEWEST_SHOWN + in_flight::OLDEST_SHOWN);
            assert_eq!(stream.calls.len() as u64 + stream.left_out, stream.operations);
            assert!(stream.calls.is_sorted_by_key(|call| std::cmp::Reverse(call.start_ns)));
        }
        assert!(all.streams.iter().map(|stream| stream.operations).sum::<u64>() <= all.operations);
        assert!(process.hook_cost_ns().is_none_or(|cost| cost.is_finite() && cost >= 0.0));
    }
}

/// Feeds the model, entry by entry if asked.
fn consume(batches: &[Batch], cut: bool) -> (Totals, Aggregates) {
    let mut model = Model::new(Aggregates::default());
    for batch in batches {
        match batch {
            Batch::Cells { process, ring, cells } if cut => {
                let mut rest = cells.as_slice();
                while let Some(first) = rest.first() {
                    let length = usize::from(first.cells());
                    // What is cut short is not cut further.
                    let whole = if length == 0 || length > rest.len() { rest.len() } else { length };
                    let (entry, after) = rest.split_at(whole);
                    let cells = entry.to_vec();
                    model.consume(&Batch::Cells { process: *process, ring: *ring, cells });
                    rest = after;
                }
            }
            batch => model.consume(batch),
        }
    }
    model.finish()
}
