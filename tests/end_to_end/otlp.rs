//! Spans on their way to back ends that are well, away, slow, full, strict or somebody else's.

mod asked;

use std::fs;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::back_end::{BackEnd, Reply, Spans, nobody, spans_of};
use crate::harness::folder::Folder;
use crate::harness::needs;
use crate::harness::process::{Ended, finish};
use crate::harness::program::{Link, compiled};
use crate::harness::rotel::{self, Rotel};
use crate::harness::schema;
use crate::harness::session::{Session, ctl, eventually};
use crate::harness::tool::{Run, Traced, gputrace, run, run_command, run_with};

const PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";

/// What `export` makes of a trace.
#[track_caller]
fn exported(traced: &Traced, options: &[&str]) -> Spans {
    let mut command = gputrace();
    command.args(["export", "--format", "otlp-json"]).args(options).arg(&traced.output);
    let lines = finish(&mut command).expect_code(0).stdout;
    lines.lines().flat_map(|line| spans_of(&serde_json::from_str(line).unwrap())).collect()
}

/// The same ids, names, times, parents, attributes and resources, each once.
#[track_caller]
fn assert_same(sent: &Spans, exported: &Spans) {
    let ids = |spans: &Spans| spans.keys().cloned().collect::<Vec<_>>();
    assert_eq!(ids(sent), ids(exported));
    for (id, span) in sent {
        assert_eq!(span, &exported[id]);
    }
}

/// A program that makes some spans, sending them there.
fn sends(url: &str) -> Run {
    run_with(&["--otlp", url], compiled("spans", Link::Driver))
}

fn export_to(url: &str, variables: &[(&str, &str)], traced: &Traced) -> Ended {
    let mut command = gputrace();
    command.args(["export", "--otlp", url]).arg(&traced.output).envs(variables.iter().copied());
    finish(&mut command)
}

/// Keeps the live session's report.
fn with_report(options: &[&str]) -> (Folder, Run) {
    let folder = Folder::new();
    let path = folder.join("report.json");
    let mut all = vec!["--json", path.to_str().unwrap()];
    all.extend(options);
    let run = run_with(&all, compiled("spans", Link::Driver));
    (folder, run)
}

fn report(folder: &Folder) -> Value {
    let text = fs::read_to_string(folder.join("report.json")).unwrap();
    schema::check(&text);
    serde_json::from_str::<Value>(&text).unwrap()["otlp"]["traces"].clone()
}

#[test]
fn spans_arrive_as_export_writes_them() {
    for protocol in ["http/protobuf", "http/json"] {
        for gzip in ["gzip", "none"] {
            let back_end = BackEnd::new(&[Reply::Takes]);
            let traced = sends(&back_end.url())
                .env(PROTOCOL, protocol)
                .env("OTEL_EXPORTER_OTLP_COMPRESSION", gzip)
                .succeed();
            let exported = exported(&traced, &[]);
            assert!(exported.len() > 5, "{}", exported.len());
            assert_same(&back_end.spans(), &exported);
            let requests = back_end.requests();
            assert!(requests.iter().any(|request| request.path == "/v1/metrics"));
            let encoded = |request: &crate::harness::back_end::Request| {
                request.headers.get("content-encoding").is_some_and(|encoding| encoding == "gzip")
            };
            assert!(requests.iter().all(|request| encoded(request) == (gzip == "gzip")));
            let line = format!(
                "gputrace: sent {} spans to {}/v1/traces ({protocol}, ",
                exported.len(),
                back_end.url()
            );
            assert!(traced.ended.stderr.contains(&line), "{}", traced.ended.stderr);
            assert!(traced.read("summary.txt").contains(&line));
        }
    }
}

/// A kernel's span is there a second or two after its end, though the program runs on for days.
#[test]
fn spans_go_out_while_the_program_runs() {
    let back_end = BackEnd::new(&[Reply::Takes]);
    let folder = Folder::new();
    let options = ["--otlp", &back_end.url(), "--threshold-us", "0"];
    let mut session = Session::run(&folder, &options, compiled("flight", Link::Driver), &["wait", "0.1"]);
    let launched: usize = session.line().parse().unwrap();
    let kernels = |back_end: &BackEnd| {
        back_end
            .spans()
            .values()
            .filter(|(span, _)| span["name"].as_str().unwrap().starts_with("cuda_kernel: "))
            .count()
    };
    eventually("all kernels are sent", || (kernels(&back_end) == launched).then_some(()));
    let status = ctl(session.pid(), &["status", "--json"]).expect_code(0).stdout;
    let traces = serde_json::from_str::<Value>(&status).unwrap()["otlp"]["traces"].clone();
    assert!(traces["sent"].as_u64().unwrap() >= launched as u64, "{traces}");
    assert_eq!(traces["dropped"], 0);
    let text = ctl(session.pid(), &["status"]).expect_code(0).stdout;
    assert!(
        text.contains(&format!(" spans sent to {}/v1/traces (http/protobuf), ", back_end.url())),
        "{text}"
    );
    let has_root = |back_end: &BackEnd| {
        back_end.spans().values().any(|(span, _)| span["name"].as_str().unwrap().starts_with("process: "))
    };
    assert!(!has_root(&back_end), "its end is not known");
    assert_eq!(session.end().0.code(), Some(0));
    assert!(has_root(&back_end));
}

#[test]
fn back_end_that_comes_later_gets_what_was_queued() {
    let address = nobody();
    let folder = Folder::new();
    let url = format!("http://{address}");
    let mut session =
        Session::run(&folder, &["--otlp", &url, "--all"], compiled("flight", Link::Driver), &["wait", "0.1"]);
    let launched: usize = session.line().parse().unwrap();
    let traces = || {
        let status = ctl(session.pid(), &["status", "--json"]).expect_code(0).stdout;
        serde_json::from_str::<Value>(&status).unwrap()["otlp"]["traces"].clone()
    };
    let waiting = eventually("spans wait", || {
        let traces = traces();
        (traces["queued"].as_u64().unwrap() >= launched as u64 && traces["retries"].as_u64() > Some(0))
            .then_some(traces)
    });
    assert!(waiting["last_error"].as_str().unwrap().contains("connection refused"), "{waiting}");
    assert_eq!(waiting["sent"], 0);
    let back_end = BackEnd::at(address, &[Reply::Takes], None);
    back_end.waits_for_spans(launched);
    let (status, said) = session.end();
    assert_eq!(status.code(), Some(0));
    assert_eq!(said.matches("takes no spans").count(), 1, "{said}");
    assert_eq!(said.matches("takes spans again").count(), 1, "{said}");
    assert!(!said.contains("not delivered"), "{said}");
}

/// A back end that is away costs a bounded wait at the end; the trace has everything and is sent later.
#[test]
fn absent_back_end_is_reported_and_export_sends_the_trace_later() {
    let url = format!("http://{}", nobody());
    let begin = Instant::now();
    let traced = sends(&url).env("OTEL_EXPORTER_OTLP_TIMEOUT", "500").succeed();
    assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
    let said = &traced.ended.stderr;
    assert_eq!(said.matches("takes no spans: tcp connect error: connection refused").count(), 1, "{said}");
    let all = exported(&traced, &[]);
    assert!(
        said.contains(&format!("OTLP: not delivered: {0} spans, {0} unsent at the end", all.len())),
        "{said}"
    );
    assert!(said.contains("gputrace export --otlp URL "), "{said}");
    let back_end = BackEnd::new(&[Reply::Takes]);
    let ended = export_to(&back_end.url(), &[], &traced).expect_code(0);
    assert_same(&back_end.spans(), &all);
    let line = format!("gputrace: sent {} spans to {}/v1/traces", all.len(), back_end.url());
    assert!(ended.stderr.contains(&line), "{}", ended.stderr);
}

#[test]
fn busy_back_end_is_retried_when_it_asks() {
    let replies = [Reply::Answers(503, "retry-after: 1\r\n"), Reply::Answers(429, ""), Reply::Takes];
    let back_end = BackEnd::new(&replies);
    let (folder, run) = with_report(&["--otlp", &back_end.url()]);
    let traced = run.succeed();
    assert_same(&back_end.spans(), &exported(&traced, &[]));
    let report = report(&folder);
    assert!(report["retries"].as_u64() >= Some(2) && report["queued"] == 0, "{report}");
}

#[test]
fn refusing_back_end_is_asked_once_and_reported() {
    let back_end = BackEnd::new(&[Reply::Answers(400, "")]);
    let (folder, run) = with_report(&["--otlp", &back_end.url()]);
    let traced = run.succeed();
    let all = exported(&traced, &[]).len();
    assert!(back_end.spans().is_empty());
    let report = report(&folder);
    assert_eq!((&report["rejected"], &report["retries"]), (&all.into(), &0.into()), "{report}");
    let said = &traced.ended.stderr;
    assert_eq!(said.matches("refuses spans: it answers 400").count(), 1, "{said}");
    assert!(said.contains(&format!("not delivered: {all} spans, {all} rejected by the back end")), "{said}");
    export_to(&back_end.url(), &[], &traced).expect_code(69);
}

/// A proxy before the back end answers 200 to everything, with its login page.
#[test]
fn login_page_is_a_refusal_and_nothing_counts_as_sent() {
    let back_end = BackEnd::new(&[Reply::LoginPage]);
    let (folder, run) = with_report(&["--otlp", &back_end.url()]);
    let traced = run.succeed();
    let all = exported(&traced, &[]).len();
    let report = report(&folder);
    assert_eq!((&report["rejected"], &report["sent"]), (&all.into(), &0.into()), "{report}");
    let said = &traced.ended.stderr;
    for items in ["spans", "data points"] {
        let refuses =
            format!("refuses {items}: it answers 200 with text/html; charset=utf-8, which is no answer");
        assert_eq!(said.matches(&refuses).count(), 1, "{said}");
    }
    assert!(!said.contains("gputrace: sent ") || said.contains("gputrace: sent 0 "), "{said}");
    let ended = export_to(&back_end.url(), &[], &traced).expect_code(69);
    assert_eq!(ended.stderr.matches("refuses spans: it answers 200 with text/html").count(), 1);
    assert!(ended.stderr.contains(&format!("not delivered: {all} spans")), "{}", ended.stderr);
}

#[test]
fn back_end_that_takes_a_part_is_believed() {
    let back_end = BackEnd::new(&[Reply::Rejects(2, "too\nold"), Reply::Takes]);
    let (folder, run) = with_report(&["--otlp", &back_end.url()]);
    let traced = run.succeed();
    let all = exported(&traced, &[]).len() as u64;
    let report = report(&folder);
    assert_eq!(report["rejected"], 2);
    assert_eq!(report["sent"].as_u64(), Some(all - 2));
    let said = &traced.ended.stderr;
    assert_eq!(said.matches("rejects spans, of this request 2: too old").count(), 1, "{said}");
    assert_eq!(back_end.spans().len() as u64, all, "nothing is sent again");
}

/// It dies with a request under way: what it did not answer goes to the one that comes after it.
#[test]
fn back_end_that_dies_with_a_request_under_way_loses_nothing() {
    let hung = BackEnd::new(&[Reply::Hangs]);
    let (address, url, folder) = (hung.address(), hung.url(), Folder::new());
    let options = ["--otlp", &url, "--all"];
    let mut session = Session::run(&folder, &options, compiled("flight", Link::Driver), &["wait", "0.1"]);
    let launched: usize = session.line().parse().unwrap();
    eventually("a request", || (!hung.traces().is_empty()).then_some(()));
    drop(hung);
    let back_end = BackEnd::at(address, &[Reply::Takes], None);
    back_end.waits_for_spans(launched);
    assert_eq!(session.end().0.code(), Some(0));
    let back = folder.join("out");
    let lines = finish(gputrace().args(["export", "--format", "otlp-json", "--all"]).arg(&back))
        .expect_code(0)
        .stdout;
    let all: Spans = lines.lines().flat_map(|line| spans_of(&serde_json::from_str(line).unwrap())).collect();
    assert_same(&back_end.spans(), &all);
}

/// What the program did before it was killed is sent.
#[test]
fn program_that_is_killed_loses_nothing_that_was_queued() {
    let back_end = BackEnd::new(&[Reply::TakesSlowly(Duration::from_millis(200))]);
    let folder = Folder::new();
    let url = back_end.url();
    let options = ["--otlp", &url, "--all"];
    let mut session = Session::run(&folder, &options, compiled("flight", Link::Driver), &["wait", "0.1"]);
    session.line();
    // SAFETY: plain numbers; the process is this test's and waits for its input.
    assert_eq!(unsafe { libc::kill(session.program().cast_signed(), libc::SIGKILL) }, 0);
    let (status, said) = session.end();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGKILL), "{said}");
    let out = folder.join("out");
    let lines =
        finish(gputrace().args(["export", "--format", "otlp-json", "--all"]).arg(&out)).expect_code(0).stdout;
    let all: Spans = lines.lines().flat_map(|line| spans_of(&serde_json::from_str(line).unwrap())).collect();
    assert!(all.len() > 100, "{}", all.len());
    assert_same(&back_end.spans(), &all);
}

/// A back end that is too slow is waited for no longer than a request's limit, and the exit code is the
/// program's.
#[test]
fn back_end_that_never_answers_costs_a_bounded_wait() {
    let back_end = BackEnd::new(&[Reply::Hangs]);
    let begin = Instant::now();
    let traced = run_with(&["--otlp", &back_end.url()], "sh")
        .arg("-c")
        .arg(format!("{}; exit 3", compiled("spans", Link::Driver).display()))
        .env("OTEL_EXPORTER_OTLP_TIMEOUT", "300")
        .go()
        .expect_code(3);
    assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
    let said = &traced.ended.stderr;
    assert!(said.contains("no answer within 300 ms") && said.contains("unsent at the end"), "{said}");
}

/// Whoever stops the job while it waits for a back end gets its outputs and its program's exit code.
#[test]
fn signal_in_the_wait_for_a_back_end_ends_the_wait_alone() {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let back_end = BackEnd::new(&[Reply::Hangs]);
        let folder = Folder::new();
        let script = format!("{}; exit 3", compiled("spans", Link::Driver).display());
        let session = Session::run(&folder, &["--otlp", &back_end.url()], "sh", &["-c", &script]);
        // It is written when the program is gone, and before the wait.
        let out = folder.join("out");
        eventually("the drawing", || out.join("flame.svg").exists().then_some(()));
        session.send(signal);
        let (status, said) = session.end();
        assert_eq!(status.code(), Some(3), "{status:?} {said}");
        let summary = fs::read_to_string(out.join("summary.txt")).unwrap();
        for text in [&said, &summary] {
            assert!(text.contains("unsent at the end") && text.contains("gputrace: sent "), "{text}");
        }
        assert!(said.contains("gputrace: wrote "), "{said}");
    }
}

#[test]
fn export_gives_up_on_a_back_end_that_is_away() {
    let traced = run("spans").succeed();
    let variables = [("OTEL_EXPORTER_OTLP_TIMEOUT", "300")];
    let ended = export_to(&format!("http://{}", nobody()), &variables, &traced).expect_code(69);
    assert!(
        ended.stderr.contains("not delivered") && ended.stderr.contains("connection refused"),
        "{}",
        ended.stderr
    );
    // What is left out is left out as in a file, and metrics are sent where they are asked for.
    let back_end = BackEnd::new(&[Reply::Takes]);
    let mut command = gputrace();
    command.args(["export", "--otlp", &back_end.url(), "--signal", "metrics"]).arg(&traced.output);
    finish(&mut command).expect_code(0);
    assert!(back_end.requests().iter().all(|request| request.path == "/v1/metrics"));
    assert_eq!(back_end.requests().len(), 1);
}

/// More than one request, and more than a back end takes at once.
#[test]
fn long_trace_is_sent_in_requests_that_back_ends_take() {
    let folder = Folder::new();
    let out = folder.join("out");
    let mut command = gputrace();
    command.args(["run", "--simulate", "-o"]).arg(&out).arg("--").arg(compiled("many", Link::Driver));
    finish(&mut command).expect_code(0);
    let back_end = BackEnd::new(&[Reply::Answers(503, ""), Reply::Takes]);
    finish(gputrace().args(["export", "--all", "--otlp", &back_end.url()]).arg(&out)).expect_code(0);
    let lines =
        finish(gputrace().args(["export", "--format", "otlp-json", "--all"]).arg(&out)).expect_code(0).stdout;
    let all: Spans = lines.lines().flat_map(|line| spans_of(&serde_json::from_str(line).unwrap())).collect();
    let requests = back_end.traces();
    assert!(requests.len() > 2, "{} for {} spans", requests.len(), all.len());
    assert!(requests.iter().all(|request| request.body.len() < 3_670_016));
    assert_same(&back_end.spans(), &all);
}

/// Trees, ids, times and attributes, read back from a back end that nobody here wrote.
#[test]
fn rotel_reads_what_is_sent() {
    let test = "otlp::rotel_reads_what_is_sent";
    if !needs::python(test) {
        return;
    }
    let agent = match rotel::installed() {
        Ok(agent) => agent,
        Err(why) => return needs::skipped(test, &why),
    };
    for (protocol, gzip) in
        [("grpc", "none"), ("grpc", "gzip"), ("http/protobuf", "gzip"), ("http/protobuf", "none")]
    {
        let back_end = BackEnd::new(&[Reply::Takes]);
        let rotel = Rotel::start(&agent, &back_end);
        let address = if protocol == "grpc" { rotel.grpc } else { rotel.http };
        let traced = run_command(compiled("spans", Link::Driver))
            .env("GPUTRACE_OTLP", format!("http://{address}"))
            .env("GPUTRACE_ALL", "on")
            .env(PROTOCOL, protocol)
            .env("OTEL_EXPORTER_OTLP_COMPRESSION", gzip)
            .env("TRACEPARENT", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
            .succeed();
        let all = exported(&traced, &["--all"]);
        let line = format!("gputrace: sent {} spans to ", all.len());
        assert!(traced.ended.stderr.contains(&line), "{}", traced.ended.stderr);
        back_end.waits_for_spans(all.len());
        assert_same(&back_end.spans(), &all);
        assert!(
            !all.is_empty()
                && all.values().all(|(span, _)| span["traceId"] == "0af7651916cd43dd8448eb211c80319c")
        );
    }
}
