//! Calls that fail: recorded with their arguments, their line and a hint, counted by line. Queries that are
//! answered with an error are no failures.

use std::path::Path;

use serde_json::{Value, json};

use crate::harness::tool::{Traced, count, run, run_command};
use crate::python_stacks::interpreters;
use crate::spans::exported;

/// (call, error, how often) of the report's failures.
fn errors(report: &Value) -> Vec<(String, String, u64)> {
    let text = |error: &Value, key: &str| error[key].as_str().unwrap().to_owned();
    let list = report["errors"]["list"].as_array().unwrap().iter();
    list.map(|error| (text(error, "call"), text(error, "error"), error["calls"].as_u64().unwrap())).collect()
}

#[track_caller]
fn error<'r>(report: &'r Value, call: &str) -> &'r Value {
    let list = report["errors"]["list"].as_array().unwrap();
    list.iter()
        .find(|error| error["call"] == call)
        .unwrap_or_else(|| panic!("{call}: {:#}", report["errors"]))
}

/// The summary's words: its lines break where a process's number is long.
fn words(traced: &Traced) -> String {
    traced.read("summary.txt").split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn allocation_that_succeeds_when_retried_is_a_failure_marked_as_such() {
    let traced = run("failed_calls")
        .arg("memory")
        .env("GPUTRACE_SIM_MEMORY_BYTES", (80u64 << 20).to_string())
        .succeed();
    let report = traced.report();
    let failed = error(&report, "cuMemAlloc_v2");
    assert_eq!(
        (&failed["error"], &failed["category"]),
        (&json!("CUDA_ERROR_OUT_OF_MEMORY"), &json!("memory"))
    );
    assert_eq!(
        (&failed["calls"], &failed["given_later"], &failed["frees_before"]),
        (&json!(2), &json!(1), &json!(3))
    );
    // The most that was asked for.
    assert_eq!(failed["arguments"], json!({"bytes": 1u64 << 40, "memory": "device"}));
    let words = words(&traced);
    for said in [
        "Failed cuMemAlloc_v2 returned CUDA_ERROR_OUT_OF_MEMORY 2 times",
        "; 1 given when asked again",
        "nvidia-smi",
    ] {
        assert!(words.contains(said), "{said}: {words}");
    }
    // One span each: what was given in the end was refused once all the same.
    let (spans, _) = exported(&traced, &[]);
    let sizes: Vec<Value> = spans.errors().iter().map(|read| read.attribute("gpu.memory.bytes")).collect();
    assert_eq!(sizes, [json!(40 << 20), json!(1i64 << 40)]);
}

#[test]
fn failed_calls_are_kept_with_what_they_asked_for_and_what_helps() {
    let traced = run("failed_calls").arg("refused").succeed();
    let report = traced.report();
    let name = |call: &str, error: &str, calls| (call.to_owned(), format!("CUDA_ERROR_{error}"), calls);
    assert_eq!(
        errors(&report),
        [
            name("cuLaunchKernel", "INVALID_VALUE", 3),
            name("cuModuleLoad", "FILE_NOT_FOUND", 3),
            name("cuFuncSetAttribute", "INVALID_VALUE", 1),
            name("cuStreamSynchronize", "INVALID_HANDLE", 1),
        ],
        "{report:#}"
    );
    assert_eq!((&report["errors"]["calls"], &report["errors"]["left_out"]), (&json!(8), &json!(0)));
    let launch = error(&report, "cuLaunchKernel");
    assert_eq!(launch["arguments"]["kernel"], "first_kernel");
    assert_eq!(
        (&launch["arguments"]["grid"], &launch["arguments"]["block"]),
        (&json!([1, 1, 1]), &json!([2048, 1, 1]))
    );
    assert!(launch["advice"].as_str().unwrap().contains("2048 threads"));
    assert_eq!(launch["tid"], launch["pid"]);
    let module = error(&report, "cuModuleLoad");
    assert_eq!(
        (&module["category"], &module["arguments"]["file"]),
        (&json!("module"), &json!("/nowhere/model.cubin"))
    );
    // Recorded where it fails: nothing else is known of calls to it.
    assert_eq!(error(&report, "cuFuncSetAttribute")["category"], "launch");
    let categories = report["errors"]["list"].as_array().unwrap().iter().map(|error| &error["category"]);
    assert_eq!(categories.collect::<Vec<_>>(), ["launch", "module", "launch", "stream"]);

    let (spans, _) = exported(&traced, &[]);
    let failed = spans.errors();
    assert_eq!(failed.len(), 8);
    let of = |call: &str| failed.iter().find(|read| read.attribute("gpu.api") == call).unwrap();
    let launch = of("cuLaunchKernel");
    assert_eq!(launch.attribute("error.type"), "CUDA_ERROR_INVALID_VALUE");
    assert_eq!(launch.attribute("gpu.error.category"), "launch");
    assert!(launch.attribute("gpu.error.advice").as_str().unwrap().contains("2048 threads"));
    assert_eq!(launch.attribute("gpu.cuda.block_dim"), "[2048,1,1]");
    assert_eq!(of("cuModuleLoad").attribute("gpu.module.file"), "/nowhere/model.cubin");
}

#[test]
fn queries_that_are_answered_with_an_error_are_no_failures() {
    let traced = run("failed_calls").arg("answers").env("GPUTRACE_SIM_DEVICES", "2").succeed();
    let report = traced.report();
    assert_eq!((&report["errors"]["calls"], errors(&report)), (&json!(0), vec![]), "{report:#}");
    // Polling is not told at all; the rest is counted with its reason.
    let mut answers: Vec<(&str, u64)> = Vec::new();
    for answer in report["errors"]["answers"].as_array().unwrap() {
        assert!(!answer["why"].as_str().unwrap().is_empty());
        answers.push((answer["call"].as_str().unwrap(), answer["calls"].as_u64().unwrap()));
    }
    answers.sort_unstable();
    assert_eq!(answers, [("cuCtxEnablePeerAccess", 1), ("cuModuleGetFunction", 4)]);
    assert!(!words(&traced).contains("Failed "), "{}", words(&traced));
    let (spans, _) = exported(&traced, &["--all"]);
    assert_eq!(spans.errors().len(), 0);
}

#[test]
fn kernels_that_nccl_has_no_code_of_are_no_failures_and_the_program_s_own_are() {
    let name = "CUDA_ERROR_NO_BINARY_FOR_GPU".to_owned();
    for (own, failed) in [(false, vec![]), (true, vec![("cuLibraryGetKernel".to_owned(), name, 1)])] {
        let mut program = run("failed_calls").arg("binaries");
        if own {
            program = program.arg("own");
        }
        let traced = program.succeed();
        let report = traced.report();
        assert_eq!(errors(&report), failed, "{:#}", report["errors"]);
        let answer = &report["errors"]["answers"][0];
        assert_eq!((&answer["call"], &answer["calls"]), (&json!("cuLibraryGetKernel"), &json!(4)));
        assert!(answer["why"].as_str().unwrap().contains("NCCL"), "{answer}");
        assert_eq!(words(&traced).contains("Failed "), own, "{}", words(&traced));
        let (spans, _) = exported(&traced, &["--all"]);
        assert_eq!(spans.errors().len(), usize::from(own));
        if own {
            assert_eq!(error(&report, "cuLibraryGetKernel")["arguments"], json!({"kernel": "my_step"}));
            assert_eq!(spans.errors()[0].attribute("gpu.kernel"), "my_step");
        }
    }
}

#[test]
fn error_found_by_polling_is_reported_with_what_was_in_flight() {
    let traced = run("failed_calls").arg("polled").succeed();
    let report = traced.report();
    assert_eq!(report["failures"][0]["call"], "cuEventQuery", "{report:#}");
    assert_eq!(report["failures"][0]["category"], "execution");
    assert_eq!(report["in_flight"][0]["newest_first"][0]["name"], "bad_store");
    assert_eq!((&report["errors"]["calls"], &report["errors"]["after_context_lost"]), (&json!(6), &json!(5)));
    let words = words(&traced);
    assert!(words.contains("Failed 5 calls because the context had been lost"), "{words}");
    assert!(words.contains("compute-sanitizer"), "{words}");
}

#[test]
fn program_without_failures_reports_none() {
    let report = run("basic").succeed().report();
    assert_eq!((&report["errors"]["calls"], &report["errors"]["list"]), (&json!(0), &json!([])));
}

#[test]
fn missing_cuda_is_explained_under_run() {
    let nothing = "No CUDA call was seen: no process came to be traced.";
    for (status, said) in [
        ("802", "has no CUDA: cuInit returned CUDA_ERROR_SYSTEM_NOT_READY (802): The machine is not ready"),
        ("100", "has no CUDA: cuInit returned CUDA_ERROR_NO_DEVICE (100): No device can be seen"),
    ] {
        let traced = run("basic").env("GPUTRACE_SIM_FAIL", format!("cuInit:*={status}")).go();
        assert_ne!(traced.ended.code(), Some(0));
        let words = words(&traced);
        assert!(words.contains(nothing) && words.contains(said), "{words}");
        assert!(!words.contains("not recorded"), "{words}");
        // It did not want to be traced, and nothing of it is missing.
        assert!(!traced.ended.stderr.contains("not tracing"), "{}", traced.ended.stderr);
    }
}

#[test]
fn process_that_initialises_at_its_second_try_is_not_reported_as_without_cuda() {
    let traced = run("initialises_again").env("GPUTRACE_SIM_FAIL", "cuInit:1=802,cuInit:2=802").succeed();
    assert_eq!(traced.ended.stdout, "refused 2\n");
    assert_eq!(count(&traced.report(), "launches"), 3);
    let words = words(&traced);
    assert!(!words.contains("has no CUDA") && !words.contains("802"), "{words}");
}

#[test]
fn failures_have_their_python_lines() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/failed_calls.py");
    for (minor, python) in interpreters("failed_calls::failures_have_their_python_lines") {
        let traced = run_command(&python).arg(&script).succeed();
        let lines: Value = serde_json::from_str(traced.ended.stdout.trim()).unwrap();
        let report = traced.report();
        assert_eq!(count(&report["errors"], "calls"), 5, "Python 3.{minor}: {report:#}");
        for (call, function, calls) in
            [("cuMemAlloc_v2", "take", 3), ("cuModuleLoad", "load", 1), ("cuCtxCreate_v2", "make", 1)]
        {
            let failed = error(&report, call);
            let (line, stack) = (&failed["line"], failed["stack"].as_array().unwrap());
            let source_line = (&line["function"], &line["file"], &line["line"]);
            let expected = (&json!(function), &json!("failed_calls.py"), &lines[function]);
            assert_eq!(source_line, expected, "Python 3.{minor}: {failed:#}");
            assert_eq!(failed["calls"], calls, "Python 3.{minor}");
            // Called from main, called from the module.
            let functions: Vec<_> = stack.iter().map(|frame| frame["function"].as_str().unwrap()).collect();
            assert_eq!(functions, [function, "main", "<module>"], "Python 3.{minor}");
        }
        assert!(words(&traced).contains("3 times at failed_calls.py:"), "{}", words(&traced));
        let (spans, _) = exported(&traced, &[]);
        let failed = spans.errors();
        assert_eq!(failed.len(), 5, "Python 3.{minor}");
        for span in failed {
            let function = span.attribute("code.function.name");
            let line = &lines[function.as_str().unwrap_or_default()];
            assert_eq!(&span.attribute("code.line.number"), line, "Python 3.{minor}: {span:?}");
            assert!(span.attribute("code.stacktrace").as_str().unwrap().contains(", in main"), "{span:?}");
        }
    }
}
