use proptest::prelude::*;
use serde_json::Value;

use super::FORMAT;
use crate::export::viewer_tests::{Exported, SumsByName, add, exported, hostile, names, recorded};

/// The time of each frame at the end of a stack, of the profiles of one type.
fn sums(exported: &Exported, json: &Value, kind: &str, begin: &str) -> SumsByName {
    let frames = json["shared"]["frames"].as_array().unwrap();
    let name = |frame: &Value| frames[frame.as_u64().unwrap() as usize]["name"].as_str().unwrap().to_owned();
    let mut sums = SumsByName::new();
    let profiles = json["profiles"].as_array().unwrap().iter();
    let is_asked =
        |profile: &&Value| profile["type"] == kind && profile["name"].as_str().unwrap().starts_with(begin);
    for profile in profiles.filter(is_asked) {
        if kind == "sampled" {
            let samples = profile["samples"].as_array().unwrap();
            let weights = profile["weights"].as_array().unwrap();
            assert_eq!(samples.len(), weights.len());
            for (sample, weight) in samples.iter().zip(weights) {
                add(&mut sums, &name(sample.as_array().unwrap().last().unwrap()), weight.as_u64().unwrap());
            }
            continue;
        }
        let (mut open, mut last) = (Vec::new(), 0);
        for event in profile["events"].as_array().unwrap() {
            let at = event["at"].as_u64().unwrap();
            assert!(at >= last && at <= profile["endValue"].as_u64().unwrap());
            last = at;
            if event["type"] == "O" {
                open.push((event["frame"].clone(), at));
                continue;
            }
            let (frame, begin) = open.pop().unwrap();
            assert_eq!(frame, event["frame"], "each end is that of the latest open begin");
            add(&mut sums, &name(&frame), at - begin);
        }
        assert!(open.is_empty());
    }
    assert!(!sums.is_empty() || exported.events == 0);
    sums
}

fn times(sums: SumsByName) -> Vec<(String, u64)> {
    sums.into_iter().map(|(name, sum)| (name, sum.1)).collect()
}

#[test]
fn speedscope_times_are_those_of_the_report() {
    for batches in recorded() {
        let exported = exported(&FORMAT, &batches);
        let json = exported.json();
        assert_eq!(json["$schema"], super::SCHEMA);
        let known = times(exported.kernels(false));
        for (kind, begin) in [("sampled", "GPU time"), ("evented", "")] {
            let mut by_leaf = times(sums(&exported, &json, kind, begin));
            let moved = |name: &str| ["memcpy", "memset", "graph "].iter().any(|word| name.starts_with(word));
            by_leaf.retain(|(name, _)| !moved(name));
            assert_eq!(by_leaf, known, "{kind}");
        }
        let host = sums(&exported, &json, "sampled", "Host time").values().map(|sum| sum.1).sum::<u64>();
        let known = exported.aggregates.calls.iter().map(|(_, call)| call.durations.total_ns()).sum::<u64>();
        assert_eq!(host, known);
    }
}

#[test]
fn speedscope_has_a_timeline_for_each_stream() {
    let exported = exported(&FORMAT, &recorded()[1]);
    let json = exported.json();
    let names: Vec<_> =
        json["profiles"].as_array().unwrap().iter().map(|p| p["name"].as_str().unwrap()).collect();
    let gpu = "GPU 0 NVIDIA H200";
    assert_eq!(
        names,
        [
            "GPU time by stack".to_owned(),
            "Host time of CUDA calls by stack".to_owned(),
            format!("default stream, {gpu}"),
            format!("stream 13, {gpu}"),
            format!("stream 30, {gpu}"),
        ]
    );
}

#[test]
fn speedscope_without_device_times_shows_host_times() {
    let mut tape = crate::report::tests::tape::Tape::new(true);
    tape.launch(20, 64, None);
    let mut batches = tape.batches_of_session();
    batches.extend(tape.batches_of_process());
    let json = exported(&FORMAT, &batches).json();
    assert_eq!(json["profiles"][0]["name"], "Host time of CUDA calls by stack");
    assert_eq!(json["profiles"].as_array().unwrap().len(), 1);
}

#[test]
fn speedscope_says_what_its_timelines_leave_out() {
    let mut tape = crate::report::tests::tape::Tape::new(true);
    for (stream, operations) in [(7, super::STREAM_MAX + 88), (13, super::STREAM_MAX)] {
        tape.on(0, stream, 0);
        (0..operations).for_each(|_| tape.launch(20, 64, Some(700)));
    }
    let mut batches = tape.batches_of_session();
    batches.extend(tape.batches_of_process());
    let exported = exported(&FORMAT, &batches);
    let json = exported.json();
    let names: Vec<_> = json["profiles"].as_array().unwrap().iter().map(|p| p["name"].clone()).collect();
    let gpu = "GPU 0 NVIDIA H200";
    assert_eq!(names[2], format!("stream 7, {gpu} (512 of 600 operations)"));
    assert_eq!(names[3], format!("stream 13, {gpu} (256 of 512 operations)"));
    let shown = times(sums(&exported, &json, "evented", ""));
    assert_eq!(shown.iter().map(|(_, ns)| ns).sum::<u64>(), super::TOTAL_MAX as u64 * 700);
    let by_stack = times(sums(&exported, &json, "sampled", "GPU time"));
    assert_eq!(by_stack.iter().map(|(_, ns)| ns).sum::<u64>(), 1_112 * 700, "the sums leave out nothing");
}

proptest! {
    #[test]
    fn speedscope_escapes_hostile_names(name in names()) {
        let exported = exported(&FORMAT, &hostile(&name));
        exported.assert_plain_json();
        let json = exported.json();
        prop_assert_eq!(json["profiles"].as_array().unwrap().len(), 3);
    }
}
