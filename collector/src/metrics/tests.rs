//! Metrics of recorded traces compared with their reports, and metrics of constructed streams.

use std::collections::BTreeMap;
use std::path::Path;

use gputrace_wire::call::{Call, Detail, Launch};
use gputrace_wire::caller::{Caller, CallerEntry};
use gputrace_wire::cell::{Cell, kind};
use gputrace_wire::counter::Counter;
use gputrace_wire::device::{Execution, Kernel};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, ExponentialHistogramDataPoint, NumberDataPoint,
};

use crate::aggregate::{Aggregates, Windowed};
use crate::batch::{Batch, Counters, ProcessBegin, ProcessEnd, SessionBegin};
use crate::metrics::instruments;
use crate::metrics::{MetricJson, Metrics, MetricsReceiver, Preference, Settings, Temporality};
use crate::model::Model;
use crate::report::Report;
use crate::spans::{Sampling, Span, SpanReceiver, SpanSink};
use crate::trace_file::TraceReader;

const DELTA: Preference = Preference { counted: Temporality::Delta, observed: Temporality::Delta };

fn fixture(name: &str) -> Vec<Batch> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures").join(name);
    TraceReader::open(&path).unwrap().collect()
}

fn emitted(batches: &[Batch], settings: Settings) -> Vec<ExportMetricsServiceRequest> {
    let mut requests = Vec::new();
    let mut model = Model::new(Metrics::new(|request| requests.push(request), settings));
    batches.iter().for_each(|batch| model.consume(batch));
    let _ = model.finish().1.finish();
    requests
}

#[derive(Clone, Debug, PartialEq)]
enum Point {
    Number(NumberDataPoint),
    Histogram(ExponentialHistogramDataPoint),
}

impl Point {
    fn attributes(&self) -> String {
        let (Point::Number(NumberDataPoint { attributes, .. })
        | Point::Histogram(ExponentialHistogramDataPoint { attributes, .. })) = self;
        let text = |pair: &KeyValue| match pair.value.clone().and_then(|value| value.value) {
            Some(Any::StringValue(text)) => format!("{}={text}", pair.key),
            other => format!("{}={other:?}", pair.key),
        };
        attributes.iter().map(text).collect::<Vec<_>>().join(" ")
    }

    fn times(&self) -> (u64, u64) {
        match self {
            Point::Number(point) => (point.start_time_unix_nano, point.time_unix_nano),
            Point::Histogram(point) => (point.start_time_unix_nano, point.time_unix_nano),
        }
    }

    /// The count, and the sum.
    fn value(&self) -> (u64, f64) {
        match self {
            Point::Number(NumberDataPoint { value: Some(Number::AsInt(value)), .. }) => (1, *value as f64),
            Point::Number(NumberDataPoint { value: Some(Number::AsDouble(value)), .. }) => (1, *value),
            Point::Histogram(point) => (point.count, point.sum.unwrap()),
            Point::Number(_) => panic!("no value"),
        }
    }
}

/// Name, point and temporality of all emitted points, in order.
fn points(requests: &[ExportMetricsServiceRequest]) -> Vec<(String, Point, AggregationTemporality)> {
    let mut all = Vec::new();
    let metrics = requests.iter().flat_map(|request| &request.resource_metrics);
    for metric in metrics.flat_map(|of| &of.scope_metrics).flat_map(|of| &of.metrics) {
        let (points, temporality): (Vec<Point>, i32) = match metric.data.clone().unwrap() {
            Data::Sum(sum) => {
                (sum.data_points.into_iter().map(Point::Number).collect(), sum.aggregation_temporality)
            }
            Data::ExponentialHistogram(of) => {
                (of.data_points.into_iter().map(Point::Histogram).collect(), of.aggregation_temporality)
            }
            other => panic!("{other:?}"),
        };
        let temporality = AggregationTemporality::try_from(temporality).unwrap();
        all.extend(points.into_iter().map(|point| (metric.name.clone(), point, temporality)));
    }
    all
}

/// The last point of each series.
fn last(requests: &[ExportMetricsServiceRequest]) -> BTreeMap<(String, String), Point> {
    points(requests).into_iter().map(|(name, point, _)| ((name, point.attributes()), point)).collect()
}

/// Count and sum over all series of a metric that have an attribute.
fn sum(last: &BTreeMap<(String, String), Point>, name: &str, having: &str) -> (u64, f64) {
    let has = |attributes: &str| having.is_empty() || attributes.split(' ').any(|one| one == having);
    let of = last.iter().filter(|((known, attributes), _)| known == name && has(attributes));
    of.fold((0, 0.0), |(count, sum), (_, point)| (count + point.value().0, sum + point.value().1))
}

fn reported(batches: &[Batch]) -> Report {
    let mut model = Model::new(Aggregates::default());
    batches.iter().for_each(|batch| model.consume(batch));
    let (totals, aggregates) = model.finish();
    Report::new(&totals, &aggregates)
}

/// Value and times of a point.
type ValueAndTimes = ((u64, f64), (u64, u64));

/// Seconds of a sum of whole nanoseconds.
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[track_caller]
fn agrees(batches: &[Batch], settings: Settings) {
    let report = reported(batches);
    let last = last(&emitted(batches, settings));
    let near = |(count, sum): (u64, f64), expected: (u64, f64)| {
        assert_eq!(count, expected.0);
        assert!((sum - expected.1).abs() <= expected.1 * 1e-12, "{sum} {}", expected.1);
    };
    assert_eq!(sum(&last, "gpu.cuda.kernel.launch.calls", "").1, report.counts.launches as f64);
    assert_eq!(sum(&last, "gpu.cuda.graph.launch.calls", "").1, report.counts.graph_launches as f64);
    let kernels: u64 = report.kernels.iter().map(|kernel| kernel.calls).sum();
    assert_eq!(sum(&last, "gpu.cuda.kernel.executions", "").1, kernels as f64);
    let total_ns = report.kernels.iter().filter_map(|kernel| kernel.spread.total_ns).sum();
    let timed = report.kernels.iter().map(|kernel| kernel.timed_calls).sum();
    near(sum(&last, "gpu.cuda.kernel.duration", ""), (timed, seconds(total_ns)));
    for transfer in &report.transfers {
        let direction = format!("gpu_transfer.direction={}", transfer.direction);
        let moved = &transfer.moved;
        assert_eq!(sum(&last, "gpu.cuda.memory.copies", &direction), (moved.calls, moved.bytes as f64));
        let total_ns = moved.spread.total_ns.unwrap_or(0);
        near(sum(&last, "gpu.cuda.memory.copy.duration", &direction), (moved.timed_calls, seconds(total_ns)));
    }
    assert_eq!(sum(&last, "gpu.cuda.memset.bytes", "").1, report.memsets.bytes as f64);
    for class in &report.call_classes {
        let of = sum(&last, "gpu.cuda.call.duration", &format!("gpu.call.class={}", class.class));
        near(of, (class.calls, seconds(class.spread.total_ns.unwrap_or(0))));
    }
    assert_eq!(sum(&last, "gputrace.hook.calls", "").1, report.counts.host_calls as f64);
    assert_eq!(sum(&last, "gputrace.device_records", "").1, report.cost.records as f64);
    let record_ns = sum(&last, "gputrace.device_record.time", "").1 * 1e9;
    assert!((record_ns - report.cost.records_total_ns).abs() <= 1.0, "the report has whole nanoseconds");
    let hooks_ns = sum(&last, "gputrace.hook.time", "").1 * 1e9;
    assert!((hooks_ns - report.cost.hooks_total_ns.unwrap_or(0.0)).abs() <= 1.0, "{hooks_ns}");
    for (reason, count) in &report.dropped {
        assert_eq!(sum(&last, "gputrace.dropped", &format!("gputrace.reason={reason}")).1, *count as f64);
    }
}

#[test]
fn last_totals_of_recorded_traces_equal_the_report() {
    for name in ["pytorch-h200.gputrace", "demo-h200.gputrace"] {
        let batches = fixture(name);
        agrees(&batches, Settings::default());
        agrees(&batches, Settings { interval_ns: 1_000_000, ..Settings::default() });
        agrees(&batches, Settings { kernels: 3, interval_ns: 1_000_000, ..Settings::default() });
    }
}

/// Launches and their kernels at a second each, with counters between them, as a recorder gives them.
fn stream(durations_ns: &[u64]) -> Vec<Batch> {
    let second = 1_000_000_000;
    let mut batches = vec![
        Batch::SessionBegin(SessionBegin { realtime_ns: 5_000 * second, ..SessionBegin::default() }),
        Batch::ProcessBegin(ProcessBegin {
            pid: 7,
            tick_kind: gputrace_wire::clock::tick::MONOTONIC_NS,
            ticks_per_second: second,
            ..ProcessBegin::default()
        }),
    ];
    for (number, duration_ns) in durations_ns.iter().enumerate() {
        let at_ns = number as u64 * second;
        let correlation = 1 + number as u32;
        let launch = Launch { function: 1 + number as u32 % 2, ..Launch::default() };
        let call = Call {
            kind: kind::LAUNCH,
            start_ticks: at_ns,
            duration_ticks: 5_000,
            correlation,
            detail: Detail::Launch(launch),
            ..Call::default()
        };
        let (start_ns, end_ns) = (at_ns + 7_000, at_ns + 7_000 + duration_ns);
        let execution = Execution { correlation, start_ns, end_ns, ..Execution::default() };
        let record = Kernel { execution, name: 1 + number as u32 % 2, ..Kernel::default() }.to_cells();
        // Some launches are for a request in another trace.
        let caller = match number % 4 {
            0 | 1 | 3 => Caller::NOBODY,
            _ => Caller { trace: [7, 8 + number as u64], span: 9, flags: 1, remote: 1 },
        };
        let active_span = CallerEntry { caller, ticks: at_ns }.to_cell();
        let cells: Vec<Cell> = [active_span, call.to_cell()].into_iter().chain(record).collect();
        batches.push(Batch::Cells { process: 0, ring: 0, cells });
        let mut values = [0; Counter::COUNT];
        values[Counter::NoRing as usize] = 10 * number as u64;
        values[Counter::RecordsDelivered as usize] = 1 + number as u64;
        batches.push(Batch::Counters(Counters {
            process: 0,
            values,
            ring_full: 3,
            written: 0,
            sampled_hooks: 1,
            // The mean goes down for a while; the emitted total must not.
            sampled_ticks: if number == 4 { 100 } else { 1_000 },
            counted_launches: 0,
        }));
    }
    let monotonic_ns = durations_ns.len() as u64 * second;
    batches.push(Batch::ProcessEnd { process: 0, end: ProcessEnd::Exit, monotonic_ns });
    batches.push(Batch::SessionEnd { wall_ns: monotonic_ns });
    batches
}

const DURATIONS_NS: [u64; 6] = [2_000, 300_000, 500_000, 4_000, 1_000_000, 0];

#[test]
fn totals_never_go_down_and_differences_add_up_to_them() {
    let batches = stream(&DURATIONS_NS);
    let interval_ns = 2_000_000_000;
    let totals = emitted(&batches, Settings { interval_ns, ..Settings::default() });
    let differences = emitted(&batches, Settings { interval_ns, preference: DELTA, ..Settings::default() });
    assert!(totals.len() >= 3, "{}", totals.len());
    let mut before: BTreeMap<(String, String), ValueAndTimes> = BTreeMap::new();
    for (name, point, temporality) in points(&totals) {
        assert_eq!(temporality, AggregationTemporality::Cumulative);
        let (start, at) = point.times();
        assert_eq!(start, 5_000_000_000_000, "the process's begin");
        let series = ((name, point.attributes()), (point.value(), (start, at)));
        if let Some((value, (_, last))) = before.get(&series.0) {
            assert!(value.0 <= point.value().0 && value.1 <= point.value().1, "{series:?} after {value:?}");
            assert!(*last < at, "{series:?} is of the moment before");
        }
        before.insert(series.0, series.1);
    }
    let mut added: BTreeMap<(String, String), ValueAndTimes> = BTreeMap::new();
    for (name, point, temporality) in points(&differences) {
        assert_eq!(temporality, AggregationTemporality::Delta);
        let entry = added.entry((name.clone(), point.attributes())).or_insert(((0, 0.0), (0, 0)));
        let (count, sum) = point.value();
        let (start, at) = point.times();
        assert!(entry.1.1 <= start && start < at, "{name}: intervals do not meet");
        let counted = if matches!(point, Point::Number(_)) { 1 } else { entry.0.0 + count };
        *entry = ((counted, entry.0.1 + sum), (start, at));
    }
    assert_eq!(before.keys().collect::<Vec<_>>(), added.keys().collect::<Vec<_>>());
    for (series, ((count, sum), _)) in &before {
        let ((added_count, added_sum), _) = added[series];
        assert_eq!(*count, added_count, "{series:?}");
        assert!((sum - added_sum).abs() <= 1e-9 * sum, "{series:?} {sum} {added_sum}");
    }
    let dropped = (&"gputrace.dropped".to_owned(), "gputrace.reason=no_ring");
    let found = before.iter().find(|((name, of), _)| (name, of.as_str()) == dropped);
    assert_eq!(found.unwrap().1.0.1, 50.0);
}

#[test]
fn lowmemory_gives_deltas_of_counters_and_totals_of_observed_instruments() {
    let (settings, _) = Settings::from_variables(Some("1000"), Some("lowmemory"));
    for (name, _, temporality) in points(&emitted(&stream(&DURATIONS_NS), settings)) {
        let is_ours = name.starts_with("gputrace.");
        let expected =
            if is_ours { AggregationTemporality::Cumulative } else { AggregationTemporality::Delta };
        assert_eq!(temporality, expected, "{name}");
    }
}

struct KeptSpans(Vec<Span>);

impl SpanReceiver for KeptSpans {
    fn span(&mut self, span: Span, _: &crate::model::definitions::Definitions) {
        self.0.push(span);
    }
    fn process_ended(&mut self, _: u32, _: &crate::model::definitions::Definitions) {}
}

#[test]
fn exemplars_are_the_slowest_spans_of_their_interval() {
    let batches = stream(&DURATIONS_NS);
    let mut model = Model::new(SpanSink::new(KeptSpans(Vec::new()), Sampling::default()));
    batches.iter().for_each(|batch| model.consume(batch));
    let spans = model.finish().1.finish().1.0;
    let settings = Settings { interval_ns: 2_000_000_000, ..Settings::default() };
    let mut found = Vec::new();
    let mut traces = std::collections::BTreeSet::new();
    for (name, point, _) in points(&emitted(&batches, settings)) {
        let Point::Histogram(point) = point else { continue };
        for exemplar in &point.exemplars {
            let span = spans.iter().find(|span| span.id.to_be_bytes() == exemplar.span_id[..]);
            let span = span.unwrap_or_else(|| panic!("{name} points at no span"));
            assert_eq!(span.trace_id.to_be_bytes(), exemplar.trace_id[..]);
            traces.insert(span.trace_id);
            assert_eq!(span.end_ns, exemplar.time_unix_nano);
            if name == "gpu.cuda.kernel.duration" {
                found.push(span.end_ns - span.start_ns);
            }
        }
    }
    assert_eq!(found, [500_000, 1_000_000], "one an interval, if any was slow");
    assert!(traces.contains(&(10 << 64 | 7)) && traces.len() > 1, "a request's trace, and the process's");
}

#[test]
fn kernels_with_the_most_time_have_points_and_the_others_share_one() {
    let batches = fixture("pytorch-h200.gputrace");
    let report = reported(&batches);
    let last = last(&emitted(&batches, Settings { kernels: 2, ..Settings::default() }));
    let mut named: Vec<(String, (u64, f64))> = last
        .iter()
        .filter(|((name, _), _)| name == "gpu.cuda.kernel.duration")
        .map(|((_, attributes), point)| {
            (attributes.split("gpu.kernel=").nth(1).unwrap().to_owned(), point.value())
        })
        .collect();
    named.sort_by(|a, b| b.1.1.total_cmp(&a.1.1));
    assert_eq!(named.len(), 3);
    assert!(named.iter().any(|(name, _)| name == "other"));
    named.retain(|(name, _)| name != "other");
    for ((name, (calls, sum)), kernel) in named.iter().zip(&report.kernels) {
        assert!(kernel.full_name.starts_with(name.as_str()), "{name}");
        assert_eq!((*calls, *sum), (kernel.timed_calls, seconds(kernel.spread.total_ns.unwrap())));
    }
}

#[test]
fn many_devices_and_kernels_stay_bounded_and_requests_small() {
    let mut batches = stream(&[]);
    let end = batches.split_off(2);
    for device in 0..3_000u32 {
        let execution =
            Execution { device, start_ns: 5, end_ns: 5 + u64::from(device), ..Execution::default() };
        let cells = Kernel { execution, name: device, ..Kernel::default() }.to_cells().to_vec();
        batches.push(Batch::Cells { process: 0, ring: 0, cells });
    }
    batches.extend(end);
    for settings in [Settings::default(), Settings { kernels: 1_000, ..Settings::default() }] {
        let requests = emitted(&batches, settings);
        let last = last(&requests);
        assert_eq!(sum(&last, "gpu.cuda.kernel.executions", "").1, 3_000.0);
        assert_eq!(sum(&last, "gpu.cuda.kernel.duration", ""), (3_000, seconds(2_999 * 3_000 / 2)));
        assert!(last.len() < 3_000, "{}", last.len());
        assert_eq!(
            sum(&last, "gpu.cuda.kernel.executions", "otel.metric.overflow=Some(BoolValue(true))").1,
            3_000.0 - 64.0
        );
        for request in &requests {
            assert!(serde_json::to_vec(request).unwrap().len() < 3 << 20);
            assert!(points(std::slice::from_ref(request)).len() <= 500);
        }
    }
}

#[test]
fn metrics_are_read_back_from_json_as_they_were() {
    let requests = emitted(&fixture("pytorch-h200.gputrace"), Settings::default());
    let mut output = MetricJson::new(Vec::new());
    requests.iter().for_each(|request| output.metrics(request.clone()));
    let (written, bytes) = output.finish().unwrap();
    assert_eq!(written, requests.len() as u64);
    let lines = String::from_utf8(bytes).unwrap();
    let read: Vec<ExportMetricsServiceRequest> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(read, requests);
    let resource = requests[0].resource_metrics[0].resource.as_ref().unwrap();
    assert!(resource.attributes.iter().any(|pair| pair.key == "service.name"));
}

#[test]
fn metrics_page_lists_every_instrument() {
    let page = include_str!("../../../docs/METRICS.md");
    for instrument in instruments::ALL {
        let kind = match instrument.kind {
            instruments::Kind::Counter | instruments::Kind::Observed => "counter",
            instruments::Kind::UpDown => "updowncounter",
            instruments::Kind::Histogram => "histogram",
        };
        let unit =
            if instrument.unit.is_empty() { " ".to_owned() } else { format!(" `{}` ", instrument.unit) };
        let row = format!("| `{}` | {kind} |{unit}|", instrument.name);
        assert!(page.contains(&row), "{row}");
    }
    let rows =
        page.lines().filter(|line| line.starts_with("| `gpu") && line.matches('|').count() > 4).count();
    assert_eq!(rows, instruments::ALL.len(), "a row too many");
}

/// Without device times for a part of the operations, a counter of its own has what these probably took.
#[test]
fn time_of_operations_without_device_times_is_estimated_apart() {
    let batches = fixture("pytorch-h200.gputrace");
    let plan = "10ms/30ms,5".parse().unwrap();
    let mut requests = Vec::new();
    let metrics = Metrics::new(|request| requests.push(request), Settings::default());
    let mut model = Model::new(Windowed::new(plan, metrics));
    batches.iter().for_each(|batch| model.consume(batch));
    let _ = model.finish().1.sink.finish();
    let (windowed, all) = (last(&requests), last(&emitted(&batches, Settings::default())));
    let estimated = sum(&windowed, "gpu.cuda.time.estimated", "").1;
    let measured = |of| sum(of, "gpu.cuda.kernel.duration", "").1;
    assert!(estimated > 0.0 && estimated < measured(&all), "{estimated}");
    assert!(measured(&windowed) > 0.0 && measured(&windowed) < measured(&all));
    assert_eq!(sum(&all, "gpu.cuda.time.estimated", ""), (0, 0.0));
    let executed = |of| sum(of, "gpu.cuda.kernel.executions", "").1;
    assert_eq!(executed(&windowed), executed(&all));
}
