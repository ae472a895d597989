use std::collections::BTreeMap;

use proptest::prelude::*;
use prost::Message;

use super::messages::{PprofProfile, PprofSample};
use super::{FORMAT, TYPES, VALUES};
use crate::export::viewer_tests::{
    Exported, SumsByName, assert_plain_text, exported, hostile, names, recorded,
};

/// A profile with every number in it checked.
struct Read(PprofProfile);

impl Read {
    fn new(exported: &Exported) -> Read {
        let read = Read(PprofProfile::decode(&*exported.bytes).unwrap());
        let types: Vec<_> =
            read.0.sample_type.iter().map(|t| (read.text(t.r#type), read.text(t.unit))).collect();
        assert_eq!(types, TYPES);
        assert_eq!(read.0.string_table[0], "");
        for sample in &read.0.sample {
            assert_eq!(sample.value.len(), VALUES);
            sample.label.iter().for_each(|label| _ = (read.text(label.key), read.text(label.str)));
            assert!(!sample.location_id.is_empty());
            sample.location_id.iter().for_each(|id| _ = read.function(*id));
        }
        read
    }

    fn text(&self, number: i64) -> &str {
        &self.0.string_table[usize::try_from(number).unwrap()]
    }

    /// The name of a location's function, its file and line.
    fn function(&self, location: u64) -> (&str, &str, i64) {
        let location = self.0.location.iter().find(|known| known.id == location).unwrap();
        let [line] = &location.line[..] else { panic!("{location:?}") };
        let function = self.0.function.iter().find(|known| known.id == line.function_id).unwrap();
        (self.text(function.name), self.text(function.filename), line.line)
    }

    /// SumsByName of one value by the name of the innermost function.
    fn by_leaf(&self, value: usize) -> BTreeMap<String, u64> {
        let mut sums = BTreeMap::new();
        for sample in self.0.sample.iter().filter(|sample| sample.value[value] != 0) {
            *sums.entry(self.function(sample.location_id[0]).0.to_owned()).or_default() +=
                u64::try_from(sample.value[value]).unwrap();
        }
        sums
    }

    fn labels(&self, sample: &PprofSample) -> BTreeMap<String, String> {
        let value = |label: &super::PprofLabel| match label.str {
            0 => label.num.to_string(),
            number => self.text(number).to_owned(),
        };
        sample.label.iter().map(|label| (self.text(label.key).to_owned(), value(label))).collect()
    }
}

fn values(sums: SumsByName, value: impl Fn((u64, u64)) -> u64) -> BTreeMap<String, u64> {
    sums.into_iter().map(|(name, sum)| (name, value(sum))).collect()
}

#[test]
fn pprof_sums_are_those_of_the_report() {
    for batches in recorded() {
        let exported = exported(&FORMAT, &batches);
        let read = Read::new(&exported);
        let moved = |name: &str| ["memcpy", "memset", "graph "].iter().any(|word| name.starts_with(word));
        let of_kernels = |value| {
            let mut sums = read.by_leaf(value);
            sums.retain(|name, _| !moved(name));
            sums
        };
        assert_eq!(of_kernels(0), values(exported.kernels(false), |sum| sum.0));
        assert_eq!(of_kernels(1), values(exported.kernels(false), |sum| sum.1));
        let transfers = &exported.aggregates.transfers;
        let bytes = transfers.copies.values().map(|moved| moved.bytes).sum::<u64>() + transfers.fills.bytes;
        assert_eq!(read.by_leaf(2).values().sum::<u64>(), bytes);
        let calls = || exported.aggregates.calls.iter().map(|(_, call)| call);
        assert_eq!(
            read.by_leaf(3).values().sum::<u64>(),
            calls().map(|call| call.durations.count()).sum::<u64>()
        );
        let host_ns = calls().map(|call| call.durations.total_ns()).sum::<u64>();
        assert_eq!(read.by_leaf(4).values().sum::<u64>(), host_ns);
        assert_eq!(read.text(read.0.default_sample_type), "device_time");
    }
}

#[test]
fn pprof_has_memory_as_heap_profiles_have_it() {
    // The recording of PyTorch frees nothing.
    let exported = exported(&FORMAT, &recorded()[1]);
    let read = Read::new(&exported);
    let report = crate::report::Report::new(&exported.totals, &exported.aggregates);
    let [process] = &report.memory.processes[..] else { panic!() };
    let lines = &report.memory.lines;
    let sum = |of: fn(&crate::report::MemoryLineReport) -> u64| lines.iter().map(of).sum::<u64>();
    let expected = [
        sum(|line| line.allocations),
        sum(|line| line.allocated_bytes),
        process.unfreed_allocations,
        process.unfreed_bytes,
        sum(|line| line.peak_allocations),
        sum(|line| line.peak_bytes),
    ];
    assert_eq!([5, 6, 7, 8, 9, 10].map(|value| read.by_leaf(value).values().sum::<u64>()), expected);
    assert!(expected.iter().all(|value| *value > 0));
    assert_eq!(read.by_leaf(8).keys().collect::<Vec<_>>(), ["device", "pinned"]);
}

#[test]
fn pprof_samples_are_labelled() {
    let read = Read::new(&exported(&FORMAT, &recorded()[1]));
    let all: Vec<_> = read.0.sample.iter().map(|sample| read.labels(sample)).collect();
    let has = |key: &str, value: &str| {
        let label = (key.to_owned(), value.to_owned());
        all.iter().any(|labels| labels.iter().any(|(k, v)| (k, v) == (&label.0, &label.1)))
    };
    for (key, value) in [("thread", "pt_autograd_0"), ("stream", "13"), ("device", "GPU 0 NVIDIA H200")] {
        assert!(has(key, value), "{key} {value}");
    }
}

#[test]
fn pprof_functions_have_files_and_lines() {
    let batches = hostile(b"step");
    let read = Read::new(&exported(&FORMAT, &batches));
    let kernel = read.0.sample.iter().find(|sample| sample.value[1] != 0).unwrap();
    let frames: Vec<_> = kernel.location_id.iter().map(|id| read.function(*id)).collect();
    assert_eq!(frames, [("step", "", 0), ("cuLaunchKernel", "", 0), ("step", "step", 4)]);
    assert_eq!(read.labels(kernel)["range"], "step: step");
}

#[test]
fn pprof_comments_count_what_has_no_time() {
    let mut tape = crate::report::tests::tape::Tape::new(true);
    tape.launch(20, 64, None);
    let mut batches = tape.batches_of_session();
    batches.extend(tape.batches_of_process());
    let read = Read::new(&exported(&FORMAT, &batches));
    let comments: Vec<_> = read.0.comment.iter().map(|comment| read.text(*comment)).collect();
    assert_eq!(comments, ["operations without a device time: 1", "simulated device"]);
    assert_eq!(read.text(read.0.default_sample_type), "host_time");
}

proptest! {
    #[test]
    fn pprof_escapes_hostile_names(name in names()) {
        let read = Read::new(&exported(&FORMAT, &hostile(&name)));
        read.0.string_table.iter().for_each(|text| assert_plain_text(text));
        prop_assert_eq!(read.by_leaf(0).values().sum::<u64>(), 1);
    }
}
