use proptest::prelude::*;
use serde_json::Value;

use super::FORMAT;
use crate::batch::{Batch, Definition};
use crate::export::viewer_tests::{Exported, SumsByName, add, exported, hostile, names, recorded};
use crate::model::operation::Direction;

fn events(exported: &Exported) -> Vec<Value> {
    let Value::Array(events) = exported.json()["traceEvents"].take() else { panic!("no events") };
    events
}

fn text<'e>(event: &'e Value, key: &str) -> &'e str {
    event[key].as_str().unwrap()
}

/// The time in an event, in nanoseconds: it is written in microseconds with three decimals.
fn ns(value: &Value) -> u64 {
    let ns = value.as_f64().unwrap() * 1e3;
    assert!((ns - ns.round()).abs() < 0.05, "{value}");
    ns.round() as u64
}

fn sums(events: &[Value], cat: &str) -> SumsByName {
    let mut sums = SumsByName::new();
    let of = events.iter().filter(|event| event["cat"] == cat && event["ph"] == "X");
    of.for_each(|event| add(&mut sums, text(event, "name"), ns(&event["dur"])));
    sums
}

#[test]
fn chrome_sums_are_those_of_the_report_to_the_nanosecond() {
    for batches in recorded() {
        let exported = exported(&FORMAT, &batches);
        let events = events(&exported);
        let mut kernels = sums(&events, "kernel");
        kernels.retain(|name, _| !name.starts_with("graph "));
        assert_eq!(kernels, exported.kernels(true));
        let copies = sums(&events, "gpu_memcpy");
        for (direction, begin) in [(Direction::CpuToGpu, "HtoD"), (Direction::GpuToCpu, "DtoH")] {
            let known = exported.aggregates.transfers.copies.get(&direction);
            let known = known.map_or((0, 0), |moved| (moved.calls, moved.durations.total_ns()));
            let of = copies.iter().filter(|(name, _)| name.starts_with(&format!("Memcpy {begin} (")));
            assert_eq!(of.fold((0, 0), |sum, (_, c)| (sum.0 + c.0, sum.1 + c.1)), known);
        }
        let calls: Vec<_> = [sums(&events, "cuda_runtime"), sums(&events, "cuda_driver")].into();
        let calls =
            calls.iter().flat_map(SumsByName::values).fold((0, 0), |sum, c| (sum.0 + c.0, sum.1 + c.1));
        let known = exported
            .aggregates
            .calls
            .iter()
            .map(|(_, call)| (call.durations.count(), call.durations.total_ns()));
        assert_eq!(calls, known.fold((0, 0), |sum, c| (sum.0 + c.0, sum.1 + c.1)));
        let whole = events.iter().filter(|event| event["ph"] == "X").count() as u64;
        assert_eq!(exported.events, whole);
    }
}

#[test]
fn chrome_operations_have_an_arrow_from_their_call() {
    for batches in recorded() {
        let events = events(&exported(&FORMAT, &batches));
        let at = |event: &Value| [&event["pid"], &event["tid"], &event["ts"]].map(Value::to_string);
        let find = |ph: &str, cats: &[&str], flow: &Value| {
            let mut of = events.iter().filter(|event| event["ph"] == ph);
            of.find(|event| cats.contains(&text(event, "cat")) && at(event) == at(flow)).cloned()
        };
        let flows: Vec<_> = events.iter().filter(|event| event["ph"] == "s").collect();
        assert!(flows.len() > 10);
        for begin in flows {
            let end = events.iter().find(|event| event["ph"] == "f" && event["id"] == begin["id"]).unwrap();
            assert_eq!(end["bp"], "e");
            let call = find("X", &["cuda_runtime", "cuda_driver"], begin).unwrap();
            let executed = find("X", &["kernel", "gpu_memcpy", "gpu_memset"], end).unwrap();
            assert_eq!(call["args"]["correlation"], executed["args"]["correlation"]);
            assert_eq!(executed["args"]["stream"], executed["tid"]);
        }
    }
}

/// Gives the processes of a trace a rank.
fn with_rank(mut batches: Vec<Batch>, rank: u64) -> Vec<Batch> {
    use gputrace_wire::definition::{kind, process};
    let definitions = batches.iter_mut().filter_map(|batch| match batch {
        Batch::Definitions { records, .. } => Some(records),
        _ => None,
    });
    let own = |record: &&mut Definition| record.kind == kind::PROCESS;
    for record in definitions.flatten().filter(own) {
        record.fields.resize(record.fields.len().max(process::RANK + 1), 0);
        record.fields[process::RANK] = rank + 1;
    }
    batches
}

#[test]
fn chrome_file_of_one_rank_names_it() {
    let one = with_rank(recorded().remove(1), 3);
    let head = String::from_utf8(exported(&FORMAT, &one).bytes).unwrap();
    assert!(head.contains("\n\"distributedInfo\":{\"rank\": 3}"), "as HTA searches for it");
    let two = [one, with_rank(recorded().remove(1), 4)].concat();
    let two = exported(&FORMAT, &two);
    assert_eq!(two.json()["distributedInfo"], Value::Null);
    // Both processes have the same id and stream; their tracks and correlation ids differ.
    let events = events(&two);
    let of = |cat: &str, key: &str| {
        let kernels = events.iter().filter(|event| event["cat"] == cat);
        let mut all: Vec<u64> = kernels.filter_map(|event| event["args"][key].as_u64()).collect();
        all.sort_unstable();
        all
    };
    let kernels = of("kernel", "correlation");
    assert!(kernels.windows(2).all(|pair| pair[0] < pair[1]), "{kernels:?}");
    assert_eq!(kernels.len() as u64, two.kernels(true).values().map(|sum| sum.0).sum::<u64>());
}

#[test]
fn chrome_tracks_nest_for_readers_that_draw() {
    for batches in recorded() {
        let events = events(&exported(&FORMAT, &batches));
        let mut kernels: Vec<_> = events.iter().filter(|event| event["args"]["stream"].is_u64()).collect();
        kernels.sort_by_key(|event| (event["tid"].as_u64(), ns(&event["ts"])));
        for pair in kernels.windows(2).filter(|pair| pair[0]["tid"] == pair[1]["tid"]) {
            assert!(ns(&pair[0]["ts"]) + ns(&pair[0]["dur"]) <= ns(&pair[1]["ts"]), "{pair:?}");
        }
    }
}

#[test]
fn chrome_ranges_that_are_not_pushed_need_not_nest() {
    use gputrace_wire::cell::kind as cell;
    use gputrace_wire::definition::kind;
    use gputrace_wire::range::RangeEnd;
    let mut tape = crate::report::tests::tape::Tape::new(true);
    tape.define(kind::RANGE, 62, &[0], b"epoch");
    let end = RangeEnd {
        kind: cell::RANGE_END,
        range: 62,
        start_ticks: 1_000_000_001,
        end_ticks: 1_000_009_001,
        id: 5,
        ..RangeEnd::default()
    };
    tape.entry(end.to_cell());
    let mut batches = tape.batches_of_session();
    batches.extend(tape.batches_of_process());
    let events = events(&exported(&FORMAT, &batches));
    let ends: Vec<_> = events.iter().filter(|event| event["name"] == "epoch").collect();
    assert_eq!(ends.iter().map(|event| text(event, "ph")).collect::<Vec<_>>(), ["b", "e"]);
    assert_eq!(ends[0]["id"], ends[1]["id"]);
    assert_eq!(ns(&ends[1]["ts"]) - ns(&ends[0]["ts"]), 9_000);
}

#[test]
fn chrome_counts_operations_without_times() {
    let mut tape = crate::report::tests::tape::Tape::new(true);
    tape.launch(20, 64, None);
    tape.launch(20, 64, Some(1_001));
    let mut batches = tape.batches_of_session();
    batches.extend(tape.batches_of_process());
    let exported = exported(&FORMAT, &batches);
    let json = exported.json();
    assert_eq!(json["operationsWithoutTimes"], 1);
    assert_eq!(json["baseTimeNanoseconds"], 1_700_000_000_000_000_000u64);
    assert_eq!(sums(&events(&exported), "kernel").values().next(), Some(&(1, 1_001)));
}

#[test]
fn chrome_counts_what_was_sampled_in_the_track_of_the_device() {
    use crate::batch::{DeviceIdentity, DeviceMetric, DeviceSample, DeviceSamples};
    use gputrace_wire::definition::{device, kind};
    let mut tape = crate::report::tests::tape::Tape::new(true);
    let mut fields = [0; 24];
    (fields[device::ORDINAL], fields[device::UUID_LOW]) = (3, 77);
    tape.define(kind::DEVICE, 900, &fields, b"Unused GPU");
    let sample = |at_us: u64| DeviceSample::new(1_000_000_000 + at_us * 1_000);
    let samples = vec![
        sample(1).with(DeviceMetric::Power, Some(287_500)).with(DeviceMetric::ThrottleReasons, Some(0x5)),
        sample(2).with(DeviceMetric::ThrottleReasons, Some(0x4)),
        sample(3),
    ];
    let device = DeviceIdentity { uuid: [77, 0], ..DeviceIdentity::default() };
    let unknown = DeviceSamples { samples: samples.clone(), ..DeviceSamples::default() };
    let samples = DeviceSamples { device, samples, ..DeviceSamples::default() };
    let mut batches = tape.batches_of_session();
    batches.extend(tape.batches_of_process());
    let before = events(&exported(&FORMAT, &batches));
    // Before the end of the process.
    let ended = |batch: &Batch| matches!(batch, Batch::ProcessEnd { .. });
    let at = batches.iter().position(ended).unwrap_or(batches.len());
    batches.splice(at..at, [Batch::DeviceSamples(samples), Batch::DeviceSamples(unknown)]);
    let after = events(&exported(&FORMAT, &batches));
    let counters: Vec<_> = after.iter().filter(|event| event["ph"] == "C").collect();
    let [power, lowered, ended] = &counters[..] else { panic!("{counters:#?}") };
    assert_eq!((text(power, "name"), &power["args"]), ("power", &serde_json::json!({"W": 287.5})));
    for (event, is_capped) in [(lowered, 1.0), (ended, 0.0)] {
        assert_eq!((text(event, "name"), &event["args"]["power cap"]), ("clocks lowered", &is_capped.into()));
        assert!(event["args"]["idle"].is_null() && event["args"]["display"] == 0.0, "{event}");
    }
    assert_eq!(ns(&ended["ts"]) - ns(&lowered["ts"]), 2_000);
    let names: Vec<_> =
        after.iter().filter(|event| event["pid"] == power["pid"] && event["ph"] == "M").collect();
    assert_eq!(names[0]["args"]["name"], "GPU 3 Unused GPU");
    assert_eq!(after.len(), before.len() + counters.len() + names.len(), "and nothing else");
}

proptest! {
    #[test]
    fn chrome_escapes_hostile_names(name in names()) {
        let exported = exported(&FORMAT, &hostile(&name));
        exported.assert_plain_json();
        let events = events(&exported);
        for cat in ["kernel", "cuda_driver", "user_annotation"] {
            prop_assert_eq!(sums(&events, cat).values().map(|sum| sum.0).sum::<u64>(), 1, "{}", cat);
        }
    }
}
