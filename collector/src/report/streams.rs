//! Streams, with the operations executed in each.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::aggregate::{Aggregates, Stream};
use crate::label::stream_name;
use crate::model::Totals;
use crate::report::EstimatedTime;
use crate::report::estimated::{ReportEstimates, shown};
use crate::report::json::{device_ns, share};

/// Streams in the report: those with the most device time.
const STREAMS_MAX: usize = 1000;

#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StreamReport {
    pub pid: u32,
    /// The device's ordinal in the process, if known.
    pub device: Option<u32>,
    /// The stream's number in device records, if there is a record.
    pub stream: Option<u32>,
    /// The label that the program gave it.
    pub name: Option<String>,
    /// In words, as in the flamegraph.
    pub label: String,
    pub operations: u64,
    pub timed_operations: u64,
    pub device_total_ns: Option<u64>,
    /// Of the device time of all operations.
    pub share: Option<f64>,
    /// Of all operations, where only a part of them has device times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimate: Option<EstimatedTime>,
}

/// The stream with the most device time first, and how many are left out.
pub(super) fn streams(
    totals: &Totals,
    aggregates: &Aggregates,
    estimates: Option<&ReportEstimates>,
) -> (Vec<StreamReport>, u64) {
    let all_ns = aggregates.device_stacks.total_ns();
    let estimated = estimates.map(|estimates| estimates.by(|row| Some((row.key.process, row.key.stream))));
    let report = |((process, stream), counted): ((u32, u32), Stream)| {
        let known = totals.process(process)?;
        let (number, weight) = (Some(counted.number).filter(|number| *number != 0), counted.weight);
        let name = known.definitions.label(stream);
        let device_total_ns = device_ns(weight);
        let estimate = estimated.as_ref().map(|sums| {
            EstimatedTime::new(weight.ns, &sums.get(&(process, stream)).copied().unwrap_or_default())
        });
        Some(StreamReport {
            pid: known.begin.pid,
            device: Some(counted.device),
            stream: number,
            name: Some(name.to_owned()).filter(|name| !name.is_empty()),
            label: stream_name(&known.definitions, stream, number).unwrap_or_else(|| "stream".to_owned()),
            operations: weight.count,
            timed_operations: weight.timed,
            device_total_ns,
            share: match estimates.zip(estimate) {
                Some((estimates, estimate)) => estimates.share(&estimate),
                None => share(device_total_ns, all_ns),
            },
            estimate,
        })
    };
    let found: BTreeMap<(u32, u32), Stream> =
        aggregates.streams.iter().map(|(key, stream)| (key, *stream)).collect();
    let known = found.len();
    let mut reports: Vec<StreamReport> = found.into_iter().filter_map(report).collect();
    reports.sort_by_key(|stream| {
        let device_ns = shown(stream.estimate.as_ref(), stream.device_total_ns);
        std::cmp::Reverse((device_ns, stream.operations))
    });
    reports.truncate(STREAMS_MAX);
    let left_out = known - reports.len();
    (reports, left_out as u64)
}
