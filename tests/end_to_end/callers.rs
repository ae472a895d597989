//! Requests: whatever is launched for a request's span stands under that span, and nothing under another's.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use gputrace_collector::batch::Batch;
use gputrace_collector::trace_file::TraceReader;
use gputrace_wire::definition::kind;
use serde_json::Value;

use crate::harness::process::finish;
use crate::harness::tool::{Traced, count, dropped, gputrace, run_command, run_with};
use crate::harness::{folder, needs};
use crate::nvtx;
use crate::python_stacks::interpreters;

/// Pure Python, for all versions from 3.9 on.
const PACKAGES: [&str; 2] = ["opentelemetry-api==1.41.1", "opentelemetry-sdk==1.41.1"];
/// The first version of Python that they are for.
const MINOR_MIN: u32 = 9;

fn program() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/python_server.py")
}

/// A folder with the packages, made once; or why it cannot be had.
fn packages() -> &'static Result<PathBuf, String> {
    static MADE: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    MADE.get_or_init(|| {
        let packages = folder::base().join("opentelemetry-1.41.1");
        let ready = packages.join("ready");
        if !ready.exists() {
            let _ = std::fs::remove_dir_all(&packages);
            let mut pip = Command::new("python3");
            pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]);
            let output = pip.arg("--target").arg(&packages).args(PACKAGES).output();
            let output = output.map_err(|error| format!("python3 -m pip: {error}"))?;
            if !output.status.success() {
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                return Err(format!("pip install opentelemetry-api failed: {said}"));
            }
            std::fs::write(ready, "").unwrap();
        }
        Ok(packages)
    })
}

/// A span of an export: name, ids and what matters of its attributes.
#[derive(Clone, Debug)]
struct Span {
    name: String,
    trace: String,
    id: String,
    parent: String,
    flags: u64,
    blocks: Option<u64>,
    /// Function, line and stack of the program's.
    code: (String, u64, String),
}

#[track_caller]
fn exported(traced: &Traced) -> Vec<Span> {
    let mut command = gputrace();
    command.args(["export", "--format", "otlp-json", "--all"]).arg(&traced.output);
    let written = finish(&mut command).expect_code(0).stdout;
    let mut spans = Vec::new();
    for line in written.lines() {
        let request: Value = serde_json::from_str(line).unwrap();
        for scope in request["resourceSpans"][0]["scopeSpans"].as_array().unwrap() {
            spans.extend(scope["spans"].as_array().unwrap().iter().map(span));
        }
    }
    spans
}

fn span(span: &Value) -> Span {
    let text = |key: &str| span[key].as_str().unwrap_or_default().to_owned();
    let attributes = span["attributes"].as_array().unwrap();
    let grid = attributes.iter().find(|pair| pair["key"] == "gpu.cuda.grid_dim");
    let blocks = grid.map(|pair| {
        let grid = pair["value"]["stringValue"].as_str().unwrap();
        grid[1..].split(',').next().unwrap().parse().unwrap()
    });
    let value = |key: &str| {
        let found = attributes.iter().find(|pair| pair["key"] == key);
        let value = found.map(|pair| pair["value"].as_object().unwrap().values().next().unwrap());
        value.and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let line = value("code.line.number").parse().unwrap_or(0);
    let code = (value("code.function.name"), line, value("code.stacktrace"));
    let flags = span["flags"].as_u64().unwrap();
    let (name, parent) = (text("name"), text("parentSpanId"));
    Span { name, trace: text("traceId"), id: text("spanId"), parent, flags, blocks, code }
}

/// What the program said of its launches: by blocks, the span that was current, and the kernel's name.
fn said(traced: &Traced) -> BTreeMap<u64, (String, String, String)> {
    let kernel = |model: &Value| match model {
        Value::Null => "cuda_kernel: first_kernel".to_owned(),
        model => format!("cuda_kernel: model_{model}"),
    };
    let lines = traced.ended.stdout.lines().filter(|line| line.starts_with('['));
    lines
        .map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            let text = |at: usize| line[at].as_str().unwrap().to_owned();
            (line[0].as_u64().unwrap(), (text(1), text(2), kernel(&line[3])))
        })
        .collect()
}

/// Every kernel is under the span that was active at its launch, or under the process. None is missing.
#[track_caller]
fn assert_under_their_callers(what: &str, traced: &Traced) -> Vec<Span> {
    let (spans, said) = (exported(traced), said(traced));
    let by_id: BTreeMap<&str, &Span> = spans.iter().map(|span| (span.id.as_str(), span)).collect();
    let root = spans.iter().find(|span| span.name.starts_with("process: ")).unwrap();
    let mut seen = 0;
    for kernel in spans.iter().filter(|span| span.name.starts_with("cuda_kernel: ")) {
        seen += 1;
        let blocks = kernel.blocks.unwrap();
        let (trace, caller, name) = &said[&blocks];
        assert_eq!(&kernel.name, name, "{what}: launch {blocks}");
        let call = by_id[kernel.parent.as_str()];
        assert_eq!(call.name, "cuda_call: cuLaunchKernel");
        let expected = if caller.is_empty() { (&root.trace, &root.id) } else { (trace, caller) };
        // Ranges of the program's may lie between.
        let mut outermost = call;
        while let Some(range) = by_id.get(outermost.parent.as_str()).filter(|span| span.id != root.id) {
            assert_eq!(range.trace, call.trace, "{what}: launch {blocks}");
            outermost = range;
        }
        assert_eq!((&call.trace, &outermost.parent), expected, "{what}: launch {blocks} of {}", said.len());
        assert_eq!(call.trace, kernel.trace);
    }
    assert_eq!(seen, said.len(), "{what}");
    let report = traced.report();
    assert_eq!((count(&report, "executed_operations"), dropped(&report)), (seen as u64, 0), "{what}");
    // Calls and operations are all there, with the process and the run; ranges besides.
    let is_ours =
        |span: &&Span| ["cuda_", "process: ", "run: "].iter().any(|begin| span.name.starts_with(begin));
    let ours = spans.iter().filter(is_ours).count() as u64;
    assert_eq!(ours, seen as u64 + count(&report, "host_calls") + 2, "{what}");
    spans
}

/// Traces the server in every interpreter, with the GIL held and not.
#[track_caller]
fn each(test: &str, scenario: &str, check: impl Fn(&str, &Traced, &[Span])) {
    let test = format!("callers::{test}");
    let packages = match packages() {
        Ok(packages) => packages,
        Err(why) => return needs::skipped(&test, why),
    };
    for (minor, python) in interpreters(&test).into_iter().filter(|(minor, _)| *minor >= MINOR_MIN) {
        for (api, gil) in [("api", "held"), ("sdk", "released")] {
            let traced = run_command(&python).arg(program()).arg(scenario).arg(api).arg(gil);
            let traced = traced.env("PYTHONPATH", packages).env("PYTHONDONTWRITEBYTECODE", "1").succeed();
            let what = format!("3.{minor} {scenario} {api} {gil}");
            let spans = assert_under_their_callers(&what, &traced);
            assert_lines(&what, &spans);
            check(&what, &traced, &spans);
        }
    }
}

/// Kernels and the calls that launched them have the line that called the driver; slow ones the whole stack.
#[track_caller]
fn assert_lines(what: &str, spans: &[Span]) {
    let source = std::fs::read_to_string(program()).unwrap();
    let line =
        source.lines().position(|line| line.contains("CUDA.cuLaunchKernel(KERNELS")).unwrap() as u64 + 1;
    for span in spans.iter().filter(|span| span.blocks.is_some() || span.name == "cuda_call: cuLaunchKernel")
    {
        assert_eq!((span.code.0.as_str(), span.code.1), ("launch", line), "{what}: {span:?}");
        let stack = &span.code.2;
        // Every kernel takes 150 us.
        assert!(
            span.blocks.is_none() || stack.ends_with(&format!("line {line}, in launch\n")),
            "{what}: {stack}"
        );
        assert!(stack.len() <= 2048);
    }
}

#[test]
fn server_s_kernels_are_under_their_requests() {
    each("server_s_kernels_are_under_their_requests", "http", |what, traced, spans| {
        let said = said(traced);
        let requests: std::collections::BTreeSet<&str> =
            said.values().map(|(trace, ..)| trace.as_str()).filter(|trace| !trace.is_empty()).collect();
        assert_eq!(requests.len(), 200, "{what}: each request has a trace of its own");
        if what.contains("api") {
            // The flags are the caller's: every second request was sampled.
            let sampled = spans.iter().filter(|span| requests.contains(span.trace.as_str())).all(|span| {
                let request = u128::from_str_radix(&span.trace, 16).unwrap() & 0xffff;
                span.flags & 1 == request as u64 & 1
            });
            assert!(sampled, "{what}");
            assert!(spans.iter().any(|span| span.flags & 0x200 != 0), "{what}: the parent is the client's");
        }
        // Requests leave nothing behind that is kept for each of them.
        let kinds = definitions(traced);
        let stacks = kinds.get(&kind::STACK).copied().unwrap_or(0);
        assert!(stacks < 40 && kinds.values().sum::<usize>() < 300, "{what}: {kinds:?}");
    });
}

/// How many definitions of each kind the trace has.
fn definitions(traced: &Traced) -> BTreeMap<u16, usize> {
    let mut kinds = BTreeMap::new();
    for batch in TraceReader::open(&traced.trace()).unwrap() {
        if let Batch::Definitions { records, .. } = batch {
            records.iter().for_each(|record| *kinds.entry(record.kind).or_default() += 1);
        }
    }
    kinds
}

#[test]
fn tasks_that_take_turns_on_a_thread_keep_their_kernels() {
    each("tasks_that_take_turns_on_a_thread_keep_their_kernels", "asyncio", |_, _, _| {});
}

#[test]
fn thread_pool_has_the_active_spans_of_its_contexts() {
    each("thread_pool_has_the_active_spans_of_its_contexts", "pool", |_, _, _| {});
}

#[test]
fn spans_inside_of_spans_and_contexts_of_many_variables_are_read() {
    each("spans_inside_of_spans_and_contexts_of_many_variables_are_read", "nested", |_, _, _| {});
}

/// As with opentelemetry-api alone, where callers send no header.
#[test]
fn span_after_many_that_are_invalid_is_seen() {
    each("span_after_many_that_are_invalid_is_seen", "invalid", |what, traced, _| {
        let of_requests = said(traced).values().filter(|(trace, ..)| !trace.is_empty()).count();
        assert_eq!(of_requests, 20, "{what}");
    });
}

/// Memory of the dict's is given back to the kernel while a launch without the GIL reads it.
#[test]
fn span_s_dict_that_another_thread_changes_hurts_nobody() {
    let test = "callers::span_s_dict_that_another_thread_changes_hurts_nobody";
    let packages = match packages() {
        Ok(packages) => packages,
        Err(why) => return needs::skipped(test, why),
    };
    for (_, python) in interpreters(test).into_iter().filter(|(minor, _)| *minor >= MINOR_MIN) {
        let traced = run_command(&python).arg(program()).arg("changed").arg("api").arg("released");
        let traced = traced.env("PYTHONPATH", packages).env("MALLOC_MMAP_THRESHOLD_", "65536").succeed();
        assert_eq!(count(&traced.report(), "launches"), 20_005);
    }
}

#[test]
fn active_spans_are_not_read_without_python_frames() {
    let test = "callers::active_spans_are_not_read_without_python_frames";
    let (Ok(packages), Some((_, python))) =
        (packages(), interpreters(test).into_iter().find(|(minor, _)| *minor >= MINOR_MIN))
    else {
        return needs::skipped(test, "no packages or no interpreter");
    };
    let traced = run_with(&["--stacks", "none"], &python).arg(program()).arg("pool").arg("api").arg("held");
    let traced = traced.env("PYTHONPATH", packages).succeed();
    let spans = exported(&traced);
    assert!(spans.iter().all(|span| span.trace == spans[0].trace));
}

/// Names of all forms, 40 000 of them before the driver is there: what they carry is no part of them.
#[test]
fn ranges_that_carry_a_traceparent_are_in_its_trace() {
    let Some(environment) = nvtx::nvtx("callers::ranges_that_carry_a_traceparent_are_in_its_trace") else {
        return;
    };
    let traced = run_command(nvtx::built(environment, "nvtx_requests.c", &["-lpthread"])).succeed();
    let spans = assert_under_their_callers("nvtx", &traced);
    let count = |name: &str| spans.iter().filter(|span| span.name == name).count();
    assert_eq!(count("request") + count("request, user=7"), 200);
    assert_eq!((count("forward"), count("named at last")), (200, 1));
    let requests = spans.iter().filter(|span| span.name.starts_with("request"));
    let traces: std::collections::BTreeSet<&str> = requests.map(|span| span.trace.as_str()).collect();
    assert_eq!(traces.len(), 200);
    let kinds = definitions(&traced);
    assert!(kinds[&kind::RANGE] < 10, "{kinds:?}");
}

/// A server that knows nothing of OpenTelemetry, and hands the header on in the name of a range.
#[test]
fn server_that_names_its_ranges_by_headers_has_its_kernels_under_its_requests() {
    let test = "callers::server_that_names_its_ranges_by_headers_has_its_kernels_under_its_requests";
    let Some(environment) = nvtx::nvtx(test) else { return };
    let python = environment.join("bin/python");
    let traced = run_command(&python).arg(program()).arg("http").arg("nvtx").arg("released").succeed();
    let spans = assert_under_their_callers("nvtx package", &traced);
    let requests: Vec<&Span> = spans.iter().filter(|span| span.name == "request").collect();
    assert_eq!(requests.len(), 200);
    assert!(requests.iter().all(|span| span.trace.contains("abc")));
}
