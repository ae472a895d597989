//! `gputrace export`: what was recorded as spans, read back as a tree.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::harness::process::finish;
use crate::harness::program::{Link, compiled};
use crate::harness::tool::{Traced, bare, gputrace, run, run_command};
use crate::nvtx;

const TRACE_ID: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";

fn traceparent() -> String {
    format!("00-{TRACE_ID}-{CALLER}-01")
}

/// A span as it was read back, with its resource.
#[derive(Clone, Debug)]
pub struct Read {
    span: Value,
    resource: BTreeMap<String, Value>,
}

/// All spans of an export.
#[derive(Debug)]
pub struct ReadSpans(Vec<Read>);

impl Read {
    fn text(&self, key: &str) -> &str {
        self.span[key].as_str().unwrap_or_default()
    }
    fn name(&self) -> &str {
        self.text("name")
    }
    fn start_ns(&self) -> u64 {
        self.text("startTimeUnixNano").parse().unwrap()
    }
    fn duration_ns(&self) -> u64 {
        self.text("endTimeUnixNano").parse::<u64>().unwrap() - self.start_ns()
    }
    pub fn attribute(&self, key: &str) -> Value {
        attributes(&self.span["attributes"]).remove(key).unwrap_or(Value::Null)
    }
    fn is_error(&self) -> bool {
        self.span["status"]["code"] == 2
    }
}

/// The attributes, with their values out of OTLP's wrapping.
fn attributes(of: &Value) -> BTreeMap<String, Value> {
    let all = of.as_array().unwrap().iter();
    all.map(|pair| {
        let (kind, value) = pair["value"].as_object().unwrap().iter().next().unwrap();
        let value = match kind.as_str() {
            "intValue" => value.as_str().unwrap().parse::<i64>().unwrap().into(),
            "arrayValue" => {
                let values = value["values"].as_array().unwrap().iter();
                values.map(|value| value["stringValue"].clone()).collect()
            }
            _ => value.clone(),
        };
        (pair["key"].as_str().unwrap().to_owned(), value)
    })
    .collect()
}

impl ReadSpans {
    fn read(path: &Path) -> ReadSpans {
        let mut spans = Vec::new();
        for line in fs::read_to_string(path).unwrap().lines() {
            let request: Value = serde_json::from_str(line).unwrap();
            for of in request["resourceSpans"].as_array().unwrap() {
                let resource = attributes(&of["resource"]["attributes"]);
                for scope in of["scopeSpans"].as_array().unwrap() {
                    assert_eq!(scope["scope"]["name"], "gputrace");
                    let all = scope["spans"].as_array().unwrap().iter();
                    spans.extend(all.map(|span| Read { span: span.clone(), resource: resource.clone() }));
                }
            }
        }
        let spans = ReadSpans(spans);
        spans.check();
        spans
    }

    /// What is so of every export: ids are their own, and a parent is there unless it is the caller's.
    fn check(&self) {
        let ids: BTreeSet<&str> = self.0.iter().map(|read| read.text("spanId")).collect();
        assert_eq!(ids.len(), self.0.len());
        for read in &self.0 {
            let parent = read.text("parentSpanId");
            let is_root = read.name().starts_with("process: ") || read.name().starts_with("run: ");
            assert!(ids.contains(parent) || is_root && (parent.is_empty() || parent == CALLER), "{read:?}");
        }
    }

    #[track_caller]
    fn one(&self, name: &str) -> &Read {
        let found: Vec<&Read> = self.0.iter().filter(|read| read.name() == name).collect();
        assert_eq!(found.len(), 1, "{name}: {:?}", self.0.iter().map(Read::name).collect::<Vec<_>>());
        found[0]
    }

    fn parent(&self, of: &Read) -> Option<&Read> {
        self.0.iter().find(|read| read.text("spanId") == of.text("parentSpanId"))
    }

    /// Spans of that name, in the order in which they were written.
    pub fn named(&self, name: &str) -> Vec<&Read> {
        self.0.iter().filter(|read| read.name() == name).collect()
    }

    /// Spans of failed calls, in order of time.
    pub fn errors(&self) -> Vec<&Read> {
        let mut failed: Vec<&Read> = self.0.iter().filter(|read| read.is_error()).collect();
        failed.sort_by_key(|read| read.start_ns());
        failed
    }

    fn count(&self, begin: &str) -> usize {
        self.0.iter().filter(|read| read.name().starts_with(begin)).count()
    }
}

/// Exports a run's trace with those options; also what was said.
#[track_caller]
pub fn exported(traced: &Traced, options: &[&str]) -> (ReadSpans, String) {
    let path = traced.output.join("spans.json");
    let mut command = gputrace();
    command.args(["export", "--format", "otlp-json", "-o"]).arg(&path).args(options).arg(&traced.output);
    for name in ["OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"] {
        command.env_remove(name);
    }
    let said = finish(&mut command).expect_code(0).stderr;
    (ReadSpans::read(&path), said)
}

#[test]
fn spans_are_a_tree_in_the_caller_s_trace() {
    let traced = run("spans")
        .env("TRACEPARENT", traceparent())
        .env("TRACESTATE", "vendor=x")
        .env("BAGGAGE", "user=J%C3%BCrgen")
        .env("OTEL_SERVICE_NAME", "trainer")
        .env("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
        .succeed();
    let (spans, _) = exported(&traced, &[]);
    assert!(
        spans.0.iter().all(|read| read.text("traceId") == TRACE_ID && read.text("traceState") == "vendor=x")
    );
    let roots: Vec<&Read> = spans.0.iter().filter(|read| read.name().starts_with("process: ")).collect();
    let [root] = roots[..] else { panic!("{roots:?}") };
    let whole = spans.one("run: spans");
    assert_eq!(root.text("parentSpanId"), whole.text("spanId"));
    assert_eq!(whole.text("parentSpanId"), CALLER);
    assert_eq!(whole.resource["service.name"], "trainer");
    assert!(whole.start_ns() <= root.start_ns());
    assert!(whole.start_ns() + whole.duration_ns() >= root.start_ns() + root.duration_ns());
    assert_eq!(root.attribute("gputrace.baggage"), serde_json::json!(["user=Jürgen"]));
    assert_eq!(root.attribute("gputrace.spans"), spans.0.len() - 1, "all but the run's");

    let kernel = spans.one("cuda_kernel: long_kernel");
    assert_eq!(kernel.duration_ns(), 300_000);
    assert_eq!(kernel.attribute("gpu.kernel"), "long_kernel");
    assert_eq!(kernel.attribute("gpu.duration_us"), 300.0);
    assert_eq!(kernel.attribute("gpu.cuda.grid_dim"), "[4,1,1]");
    assert_eq!(kernel.attribute("gpu.cuda.block_dim"), "[64,1,1]");
    assert_eq!(kernel.attribute("gpu.is_slow"), true);
    assert_eq!(kernel.attribute("gpu.threshold_us"), 100.0);
    assert_eq!(kernel.attribute("gpu.launch.api"), "cuLaunchKernel");
    let launch = &kernel.span["events"][0];
    let launched_ns: u64 = launch["timeUnixNano"].as_str().unwrap().parse().unwrap();
    assert_eq!(launch["name"], "launch");
    assert!(launched_ns <= kernel.start_ns(), "{launched_ns} {}", kernel.start_ns());
    assert_eq!(spans.count("cuda_kernel: first_kernel"), 0, "20 us");

    let copy = spans.one("gpu_transfer: cpu_to_gpu");
    assert_eq!(copy.attribute("gpu_transfer.bytes"), 8 << 20);
    let rate = copy.attribute("gpu_transfer.bandwidth_mbps").as_f64().unwrap();
    let expected = (8 << 20) as f64 * 1e3 / copy.duration_ns() as f64;
    assert!((rate - expected).abs() < expected * 1e-6, "{rate} {expected}");

    let failed: Vec<&Read> = spans.0.iter().filter(|read| read.is_error()).collect();
    let [failed] = failed[..] else { panic!("{failed:?}") };
    assert_eq!(failed.name(), "cuda_call: cuLaunchKernel");
    assert_eq!(failed.attribute("error.type"), "CUDA_ERROR_INVALID_VALUE");

    let resource = &root.resource;
    let says = |key: &str| resource.get(key).cloned().unwrap_or(Value::Null);
    assert_eq!(says("service.name"), "trainer");
    assert_eq!(says("deployment.environment.name"), "test");
    assert_eq!(says("gpu.tracing.backends"), serde_json::json!(["cuda"]));
    assert_eq!(says("gpu.tracing.capabilities"), serde_json::json!(["host_calls", "device_times"]));
    assert_eq!(says("gpu.tracing.simulated"), true);
    let report = traced.report();
    assert_eq!(says("process.pid"), report["processes"][0]["pid"]);
    assert!(says("gpu.library.cuda").is_string() && says("host.name").is_string());
}

#[test]
fn spans_of_all_are_as_many_as_the_report_counts_and_the_same_each_time() {
    let traced = run("spans").succeed();
    let (spans, _) = exported(&traced, &["--all"]);
    let first = fs::read(traced.output.join("spans.json")).unwrap();
    exported(&traced, &["--all"]);
    assert!(first == fs::read(traced.output.join("spans.json")).unwrap(), "another export is another");
    let counts = traced.report();
    let executed = counts["executed_operations"].as_u64().unwrap() as usize;
    let calls = counts["host_calls"].as_u64().unwrap() as usize;
    let operations = spans.count("cuda_kernel: ") + spans.count("gpu_transfer: ") + spans.count("gpu_memset");
    assert_eq!((operations, spans.0.len()), (executed, executed + calls + 2));
    // Each kernel stands under the launch that it says.
    for kernel in spans.0.iter().filter(|read| read.name().starts_with("cuda_kernel: ")) {
        let call = spans.parent(kernel).unwrap();
        assert_eq!(call.name(), "cuda_call: cuLaunchKernel");
        assert_eq!(call.span["startTimeUnixNano"], kernel.span["events"][0]["timeUnixNano"]);
        assert!(spans.parent(call).unwrap().name().starts_with("process: "));
    }
    let (fewer, _) = exported(&traced, &["--threshold-us", "250"]);
    assert_eq!((fewer.count("cuda_kernel: "), fewer.count("gpu_memset")), (1, 0));
}

#[test]
fn workers_are_under_the_process_that_started_them() {
    let basic = compiled("basic", Link::Driver);
    let traced =
        run_command(compiled("spawn_cuda", Link::Driver)).arg(&basic).env("TRACEPARENT", traceparent());
    let (spans, _) = exported(&traced.succeed(), &[]);
    let roots: Vec<&Read> = spans.0.iter().filter(|read| read.name().starts_with("process: ")).collect();
    assert!(roots.len() > 1, "{roots:?}");
    assert!(spans.0.iter().all(|read| read.text("traceId") == TRACE_ID));
    let whole = spans.one("run: spawn_cuda");
    assert_eq!(whole.text("parentSpanId"), CALLER);
    let first: Vec<&&Read> =
        roots.iter().filter(|root| root.text("parentSpanId") == whole.text("spanId")).collect();
    assert_eq!(first.len(), 1, "the others are the first one's: {roots:?}");
    for worker in roots.iter().filter(|root| root.text("parentSpanId") != whole.text("spanId")) {
        let parent = spans.parent(worker).unwrap();
        assert_eq!(worker.resource["process.parent_pid"], parent.resource["process.pid"]);
        assert_ne!(worker.resource["process.pid"], parent.resource["process.pid"]);
    }
}

/// Two programs in turn, of a shell that is not traced: each is told the span that both stand under.
#[test]
fn command_is_given_the_span_that_its_processes_are_under() {
    let basic = compiled("basic", Link::Driver);
    let script = format!("echo \"$TRACEPARENT\"; {0} && {0}", basic.display());
    for caller in [None, Some(traceparent())] {
        let mut traced = run_command("/bin/sh").arg("-c").arg(&script);
        if let Some(caller) = &caller {
            traced = traced.env("TRACEPARENT", caller).env("TRACESTATE", "vendor=x");
        }
        let traced = traced.succeed();
        let (spans, said) = exported(&traced, &["--all"]);
        let whole = spans.one("run: sh");
        let given = traced.ended.stdout.lines().next().unwrap_or_default();
        let flags = "01";
        assert_eq!(given, format!("00-{}-{}-{flags}", whole.text("traceId"), whole.text("spanId")));
        assert_eq!(whole.text("parentSpanId"), if caller.is_some() { CALLER } else { "" });
        assert_eq!(whole.text("traceId") == TRACE_ID, caller.is_some());
        assert!(spans.0.iter().all(|read| read.text("traceId") == whole.text("traceId")));
        let roots: Vec<&Read> = spans.0.iter().filter(|read| read.name().starts_with("process: ")).collect();
        assert_eq!(roots.len(), 2);
        assert!(roots.iter().all(|root| root.text("parentSpanId") == whole.text("spanId")));
        assert!(!said.contains("warning"), "{said}");
    }
}

/// With auto-collect nobody can give the program anything, and nothing is there that was not given.
#[test]
fn program_keeps_its_trace_context_with_auto_collect() {
    for caller in [None, Some(traceparent())] {
        let mut traced = bare("spans");
        if let Some(caller) = &caller {
            traced = traced.env("TRACEPARENT", caller);
        }
        let (spans, _) = exported(&traced.succeed(), &[]);
        assert_eq!(spans.count("run: "), 0);
        let root = spans.one("process: spans");
        assert_eq!(root.text("parentSpanId"), if caller.is_some() { CALLER } else { "" });
    }
}

#[test]
fn ranges_hold_what_was_launched_in_them() {
    let Some(environment) = nvtx::nvtx("ranges_hold_what_was_launched_in_them") else { return };
    let traced = run_command(nvtx::built(environment, "nvtx_ranges.c", &[])).succeed();
    let (spans, _) = exported(&traced, &["--all"]);
    let mut launches: BTreeMap<String, usize> = BTreeMap::new();
    for call in spans.0.iter().filter(|read| read.name() == "cuda_call: cuLaunchKernel") {
        *launches.entry(spans.parent(call).unwrap().name().to_owned()).or_default() += 1;
    }
    let steps: Vec<String> = launches.keys().filter(|name| name.starts_with("step ")).cloned().collect();
    assert_eq!(steps.len(), 300, "each step is a span of its own");
    let rest: BTreeMap<&str, usize> = launches
        .iter()
        .filter(|(name, _)| !name.starts_with("step "))
        .map(|(name, count)| (name.as_str(), *count))
        .collect();
    let expected = [
        ("before the driver", 1),
        ("inn\u{e9}r \u{1f600}", 2),
        ("left open", 7),
        ("library: registered", 9),
        ("outer", 3),
        ("with attributes", 6),
    ];
    assert_eq!(rest, BTreeMap::from(expected));
    let outer = spans.one("outer");
    assert_eq!(spans.parent(spans.one("library: registered")).unwrap().text("spanId"), outer.text("spanId"));
    assert_eq!(spans.one("left open").attribute("gpu.range.is_cut_off"), true);
    // With the usual threshold no range is there for nothing.
    let (few, _) = exported(&traced, &["--threshold-us", "1000000"]);
    assert_eq!(few.count("step "), 0, "{few:?}");
}

#[test]
fn malformed_trace_context_is_reported_once_and_not_used() {
    let bad = ["00-zz-xx-01", "", "00-00000000000000000000000000000000-b7ad6b7169203331-01", "\u{7f}"];
    for (bad, hands_on) in bad.into_iter().flat_map(|bad| [(bad, true), (bad, false)]) {
        let traced = run("spans")
            .env("TRACEPARENT", bad)
            .env("GPUTRACE_TRACEPARENT", if hands_on { "on" } else { "off" })
            .env("TRACESTATE", "not used without")
            .env("OTEL_RESOURCE_ATTRIBUTES", "no value")
            .succeed();
        let of_run = traced.ended.stderr.matches("gputrace: warning: TRACEPARENT is not used").count();
        assert_eq!(of_run, usize::from(hands_on && !bad.is_empty()), "{bad:?}: {}", traced.ended.stderr);
        let (spans, said) = exported(&traced, &[]);
        assert_eq!(
            said.matches("TRACEPARENT is not used").count(),
            usize::from(!bad.is_empty()),
            "{bad:?}: {said}"
        );
        assert!(!said.contains("TRACESTATE"), "{said}");
        assert_eq!(said.matches("OTEL_RESOURCE_ATTRIBUTES is not used").count(), 1, "{said}");
        let ids: BTreeSet<&str> = spans.0.iter().map(|read| read.text("traceId")).collect();
        assert_eq!(ids.len(), 1, "a trace of its own");
        assert!(ids.iter().all(|id| id.len() == 32 && id.bytes().any(|digit| digit != b'0')));
        assert_eq!(spans.count("process: "), 1);
    }
}

#[test]
fn secrets_in_what_a_program_was_given_are_masked() {
    let traced = run("spans")
        .env("BAGGAGE", "user=7,password=hunter2,tenant=9")
        .env("OTEL_RESOURCE_ATTRIBUTES", "team=a,api_key=hunter2")
        .succeed();
    let (spans, _) = exported(&traced, &[]);
    assert!(!format!("{spans:?}").contains("hunter2"));
    let root = spans.one("process: spans");
    let baggage = serde_json::json!(["user=7", "password=[redacted]", "tenant=9"]);
    assert_eq!(root.attribute("gputrace.baggage"), baggage);
    assert_eq!(root.resource["team"], "a");
}

#[test]
fn redacted_arguments_are_no_attributes() {
    let traced = run("spans")
        .env("GPUTRACE_REDACT", "on")
        .env("TRACEPARENT", traceparent())
        .env("BAGGAGE", "user=private-person")
        .env("OTEL_RESOURCE_ATTRIBUTES", "owner=private-person")
        .succeed();
    let (spans, _) = exported(&traced, &[]);
    assert!(!format!("{spans:?}").contains("private-person"));
    assert!(spans.0.iter().all(|read| read.text("traceId") == TRACE_ID));
}

#[test]
fn export_never_writes_over_a_trace_and_reports_errors() {
    let traced = run("spans").succeed();
    let trace = traced.trace();
    let before = fs::read(&trace).unwrap();
    let export = |arguments: &[&str]| {
        let mut command = gputrace();
        command.arg("export").args(arguments).arg(&trace);
        finish(&mut command)
    };
    let over = export(&["--format", "otlp-json", "-o", trace.to_str().unwrap()]).expect_code(2);
    assert!(over.stderr.contains("it is one of the traces to read"), "{}", over.stderr);
    assert!(before == fs::read(&trace).unwrap());
    export(&[]).expect_code(2);
    export(&["--format", "nothing"]).expect_code(2);
    export(&["--format", "otlp-json", "--all", "--spans-per-second", "5"]).expect_code(2);
    let text = traced.output.join("summary.txt");
    let mut command = gputrace();
    command.args(["export", "--format", "otlp-json"]).arg(&text);
    let no_trace = finish(&mut command).expect_code(65);
    assert_eq!(no_trace.stdout, "");
    // Without -o the spans are on stdout, and nothing else.
    let out = export(&["--format", "otlp-json"]).expect_code(0);
    assert!(out.stdout.lines().all(|line| line.starts_with("{\"resourceSpans\"")), "{}", out.stdout);
    assert_eq!(out.stderr, "");
}
