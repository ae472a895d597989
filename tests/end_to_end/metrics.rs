//! `gputrace export --signal metrics`: exact counts, as the report has them.

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;

use crate::harness::back_end::{BackEnd, Reply};
use crate::harness::process::finish;
use crate::harness::program::{Link, compiled};
use crate::harness::tool::{Traced, gputrace, run, run_with};

const VARIABLES: [&str; 4] = [
    "OTEL_SERVICE_NAME",
    "OTEL_RESOURCE_ATTRIBUTES",
    "OTEL_METRIC_EXPORT_INTERVAL",
    "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE",
];

/// A point's attributes, and it.
type Point = (BTreeMap<String, String>, Value);

/// Points by metric and by their attributes' values.
#[derive(Debug, Default)]
pub struct Metrics {
    points: BTreeMap<String, Vec<Point>>,
    /// By metric: 1 for differences, 2 for totals.
    temporality: BTreeMap<String, u64>,
    resource: BTreeMap<String, String>,
}

/// What a test asks for, in words of the metrics' page.
fn attributes(of: &Value) -> BTreeMap<String, String> {
    let all = of.as_array().into_iter().flatten();
    all.map(|pair| {
        let (_, value) = pair["value"].as_object().unwrap().iter().next().unwrap();
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        (pair["key"].as_str().unwrap().to_owned(), text)
    })
    .collect()
}

/// OTLP/JSON has whole numbers as texts.
fn number(value: &Value) -> f64 {
    value.as_str().map_or_else(|| value.as_f64().unwrap_or(0.0), |text| text.parse().unwrap())
}

impl Metrics {
    /// The last request of a file with one process.
    fn last(path: &std::path::Path) -> Metrics {
        let text = fs::read_to_string(path).unwrap();
        Metrics::of(&serde_json::from_str(text.lines().last().expect("a request")).unwrap())
    }

    pub fn of(request: &Value) -> Metrics {
        let of = &request["resourceMetrics"][0];
        let mut metrics =
            Metrics { resource: attributes(&of["resource"]["attributes"]), ..Metrics::default() };
        for metric in of["scopeMetrics"][0]["metrics"].as_array().unwrap() {
            let name = metric["name"].as_str().unwrap().to_owned();
            let data = ["sum", "exponentialHistogram"].into_iter().find_map(|kind| metric.get(kind)).unwrap();
            let temporality = data["aggregationTemporality"].as_u64().unwrap();
            metrics.temporality.insert(name.clone(), temporality);
            let points = data["dataPoints"].as_array().unwrap().iter();
            let points = points.map(|point| (attributes(&point["attributes"]), point.clone()));
            metrics.points.insert(name, points.collect());
        }
        metrics
    }

    /// Over the points that have that attribute: how many values, and their sum.
    fn sum(&self, name: &str, having: Option<(&str, &str)>) -> (f64, f64) {
        let points = self.points.get(name).into_iter().flatten();
        let points = points.filter(|(attributes, _)| {
            having.is_none_or(|(key, value)| attributes.get(key).is_some_and(|known| known == value))
        });
        points.fold((0.0, 0.0), |(count, sum), (_, point)| match point.get("count") {
            Some(values) => (count + number(values), sum + number(&point["sum"])),
            None => {
                let value = point.get("asInt").or(point.get("asDouble")).unwrap();
                (count + 1.0, sum + number(value))
            }
        })
    }

    pub fn value(&self, name: &str) -> f64 {
        self.sum(name, None).1
    }
}

/// Exports a run's trace with those variables; also what was said.
#[track_caller]
fn exported(traced: &Traced, options: &[&str], variables: &[(&str, &str)]) -> (Metrics, String) {
    let path = traced.output.join("metrics.json");
    let mut command = gputrace();
    command.args(["export", "--format", "otlp-json", "--signal", "metrics", "-o"]).arg(&path);
    command.args(options).arg(&traced.output);
    VARIABLES.into_iter().for_each(|name| _ = command.env_remove(name));
    command.envs(variables.iter().copied());
    let said = finish(&mut command).expect_code(0).stderr;
    (Metrics::last(&path), said)
}

/// Seconds of a number of nanoseconds in the report, 0 where it has none.
fn seconds(ns: &Value) -> f64 {
    ns.as_f64().unwrap_or(0.0) / 1e9
}

#[track_caller]
fn near((count, sum): (f64, f64), expected_count: &Value, expected_sum: f64) {
    assert_eq!(Some(count), expected_count.as_f64());
    assert!((sum - expected_sum).abs() <= expected_sum * 1e-12, "{sum} {expected_sum}");
}

#[test]
fn last_metrics_have_the_numbers_of_the_report() {
    let traced = run("spans").env("OTEL_SERVICE_NAME", "trainer").succeed();
    let (metrics, _) = exported(&traced, &[], &[]);
    let report = traced.report();
    assert_eq!(metrics.resource["service.name"], "trainer");
    assert_eq!(metrics.resource["process.pid"], report["processes"][0]["pid"].to_string());
    assert!(metrics.temporality.values().all(|temporality| *temporality == 2), "totals by default");

    assert_eq!(Some(metrics.value("gpu.cuda.kernel.launch.calls")), report["launches"].as_f64());
    let kernels = report["kernels"].as_array().unwrap();
    let over = |key: &str| kernels.iter().map(|kernel| kernel[key].as_f64().unwrap()).sum::<f64>();
    assert_eq!(metrics.value("gpu.cuda.kernel.executions"), over("calls"));
    near(metrics.sum("gpu.cuda.kernel.duration", None), &over("timed_calls").into(), over("total_ns") / 1e9);
    let transfers = report["transfers"].as_array().unwrap();
    assert!(!transfers.is_empty());
    for transfer in transfers {
        let direction = Some(("gpu_transfer.direction", transfer["direction"].as_str().unwrap()));
        let bytes = transfer["bytes"].as_f64().unwrap();
        near(metrics.sum("gpu.cuda.memory.copies", direction), &transfer["calls"], bytes);
        let took = metrics.sum("gpu.cuda.memory.copy.duration", direction);
        near(took, &transfer["timed_calls"], seconds(&transfer["total_ns"]));
    }
    assert_eq!(Some(metrics.value("gpu.cuda.memset.bytes")), report["memsets"]["bytes"].as_f64());
    let classes = report["call_classes"].as_array().unwrap();
    assert!(classes.len() > 5);
    for class in classes {
        let named = Some(("gpu.call.class", class["class"].as_str().unwrap()));
        near(metrics.sum("gpu.cuda.call.duration", named), &class["calls"], seconds(&class["total_ns"]));
    }
    assert_eq!(Some(metrics.value("gputrace.hook.calls")), report["host_calls"].as_f64());
    assert_eq!(Some(metrics.value("gputrace.device_records")), report["cost"]["records"].as_f64());
    assert_eq!(
        report["dropped"].as_object().unwrap().len(),
        metrics.points.get("gputrace.dropped").map_or(0, Vec::len)
    );

    // What the program does, in its own numbers.
    let device = Some(("gpu.memory.kind", "device"));
    assert_eq!(metrics.sum("gpu.cuda.memory.allocations", device).1, f64::from(8 << 20));
    assert_eq!(metrics.sum("gpu.cuda.memory.free.bytes", device).1, f64::from(8 << 20));
    assert_eq!(metrics.sum("gpu.cuda.memory.usage", device), (1.0, 0.0));
    assert_eq!(metrics.value("gpu.cuda.stream.synchronize.calls"), 1.0);
    assert_eq!(metrics.value("gpu.cuda.device.synchronize.calls"), 1.0);
    let refused = Some(("error.type", "CUDA_ERROR_INVALID_VALUE"));
    assert_eq!(metrics.sum("gpu.cuda.errors", refused), (1.0, 1.0));
    assert_eq!(metrics.value("gpu.cuda.errors"), 1.0);
}

#[test]
fn exemplars_point_at_spans_that_are_exported() {
    let traced = run("spans").succeed();
    let (metrics, _) = exported(&traced, &[], &[]);
    let path = traced.output.join("spans.json");
    let mut command = gputrace();
    command.args(["export", "--format", "otlp-json", "-o"]).arg(&path).arg(&traced.output);
    VARIABLES.into_iter().for_each(|name| _ = command.env_remove(name));
    finish(&mut command).expect_code(0);
    let mut spans = BTreeMap::new();
    for line in fs::read_to_string(&path).unwrap().lines() {
        let request: Value = serde_json::from_str(line).unwrap();
        for of in request["resourceSpans"].as_array().unwrap() {
            for span in of["scopeSpans"][0]["spans"].as_array().unwrap() {
                spans.insert(span["spanId"].as_str().unwrap().to_owned(), span.clone());
            }
        }
    }
    let mut named = Vec::new();
    for (name, points) in &metrics.points {
        for exemplar in
            points.iter().flat_map(|(_, point)| point["exemplars"].as_array().into_iter().flatten())
        {
            let span = &spans[exemplar["spanId"].as_str().unwrap()];
            assert_eq!(span["traceId"], exemplar["traceId"]);
            if name == "gpu.cuda.kernel.duration" {
                named.push(span["name"].as_str().unwrap().to_owned());
                assert_eq!(exemplar["asDouble"], 300e-6);
            }
        }
    }
    assert_eq!(named, ["cuda_kernel: long_kernel"]);
}

#[test]
fn metrics_follow_their_variables_and_options() {
    let traced = run("spans").succeed();
    let preference = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE";
    let (metrics, _) = exported(&traced, &["--metrics-kernels", "1"], &[(preference, "lowmemory")]);
    assert_eq!(metrics.temporality["gpu.cuda.kernel.duration"], 1);
    assert_eq!(metrics.temporality["gpu.cuda.memory.usage"], 2);
    assert_eq!(metrics.temporality["gputrace.hook.calls"], 2);
    let of = |name| metrics.sum("gpu.cuda.kernel.duration", Some(("gpu.kernel", name))).0;
    assert_eq!((of("long_kernel"), of("other"), of("first_kernel")), (1.0, 5.0, 0.0));

    let (metrics, said) =
        exported(&traced, &[], &[(preference, "sideways"), ("OTEL_METRIC_EXPORT_INTERVAL", "often")]);
    assert_eq!(said.matches("is not used").count(), 2, "{said}");
    assert!(metrics.temporality.values().all(|temporality| *temporality == 2));
}

#[test]
fn metrics_that_are_sent_while_a_program_runs_end_as_those_of_its_trace() {
    let back_end = BackEnd::new(&[Reply::Takes]);
    let traced = run_with(&["--otlp", &back_end.url()], compiled("spans", Link::Driver))
        .env("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")
        .succeed();
    let requests = back_end.requests();
    let sent = requests.iter().rfind(|request| request.path == "/v1/metrics").expect("metrics");
    let sent = Metrics::of(&serde_json::from_slice(&sent.body).unwrap());
    let (exported, _) = exported(&traced, &[], &[]);
    assert_eq!(sent.resource, exported.resource);
    assert!(sent.points.len() > 10);
    assert_eq!(sent.points, exported.points);
    assert_eq!(Some(sent.value("gpu.cuda.kernel.launch.calls")), traced.report()["launches"].as_f64());
}
