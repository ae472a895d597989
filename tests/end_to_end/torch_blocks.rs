//! `--memory blocks`: what PyTorch's caching allocator does with the driver's memory, by line.
//!
//! The allocator is a stand-in of a hundred lines under PyTorch's own symbol. The tests on a GPU cover
//! PyTorch itself.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use serde_json::{Value, json};

use crate::harness::folder::{self, Folder};
use crate::harness::needs::python;
use crate::harness::process::finish;
use crate::harness::program::{Link, compiled};
use crate::harness::session::{Session, ctl};
use crate::harness::tool::{self, Traced, gputrace, run_with};

const MIB: u64 = 1 << 20;

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs")
}

/// A folder with the allocator's libraries.
fn allocator(flags: &[&str]) -> PathBuf {
    static COMPILING: Mutex<()> = Mutex::new(());
    let _compiling = COMPILING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let folder = folder::base().join("programs").join(format!("torch-allocator{}", flags.concat()));
    if folder.join("libloaded.so").exists() {
        return folder;
    }
    fs::create_dir_all(&folder).unwrap();
    let compile = |name: &str, more: &[&str]| {
        let temporary = folder.join(format!("{name}.{}", std::process::id()));
        let mut command = Command::new(env::var_os("CXX").unwrap_or_else(|| "c++".into()));
        command.args(["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-pthread"]);
        command.args(flags).arg(format!("-Wl,-soname,{name}")).arg("-o").arg(&temporary);
        command.arg(sources().join("torch_allocator.cpp")).arg("-L").arg(tool::simulated_folder());
        command.arg("-L").arg(&folder).arg("-Wl,-rpath,$ORIGIN").args(more).arg("-ldl");
        let output = command.output().expect("a C++ compiler (c++) is needed");
        assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
        fs::rename(&temporary, folder.join(name)).unwrap();
    };
    compile("libc10.so", &["-DC10"]);
    compile("libc10_cuda.so", &["-l:libc10.so", "-l:libcuda.so.1"]);
    compile("libloaded.so", &["-DLOADED", "-l:libc10_cuda.so"]);
    folder
}

/// Runs the program, and checks that PyTorch's own function got every call with its arguments.
fn traced(options: &[&str], mode: &str) -> (Traced, Value) {
    let folder = allocator(&[]);
    let run = run_with(options, "python3").arg(sources().join("torch_blocks.py")).arg(folder).arg(mode);
    let traced = run.succeed();
    let said: Value = serde_json::from_str(traced.ended.stdout.trim()).unwrap();
    assert_eq!(said["forwarded"], json!([said["calls"], said["own"][0]]), "{said}");
    assert_eq!(said["device"], json!(100 * said["calls"].as_u64().unwrap()));
    assert_eq!((&said["in_library"], &said["is_global"]), (&json!(true), &json!(false)));
    (traced, said)
}

fn blocks(report: &Value) -> Value {
    report["memory"]["processes"][0]["blocks"].clone()
}

fn memory(traced: &Traced, options: &[&str]) -> String {
    finish(gputrace().arg("memory").args(options).arg(traced.trace())).expect_code(0).stdout
}

#[test]
fn blocks_are_known_by_line_and_within_their_segments() {
    if !python("torch_blocks::blocks_are_known_by_line_and_within_their_segments") {
        return;
    }
    let (traced, said) = traced(&["--memory", "blocks"], "lines");
    let report = traced.report();
    let blocks = blocks(&report);
    let figures = ["peak_bytes", "end_bytes", "allocations", "frees", "unknown_frees", "not_followed"];
    let expected = [json!(25 * MIB), json!(10 * MIB), json!(113), json!(103), json!(0), json!(0)];
    assert_eq!(figures.map(|figure| blocks[figure].clone()), expected, "{blocks:#}");
    // By the allocator's own count, too.
    let device = &blocks["devices"][0];
    let own = ["allocated_bytes", "peak_bytes", "reserved_bytes"].map(|figure| &device[figure]);
    assert_eq!(own, [&said["allocated"], &said["peak"], &said["reserved"]]);
    assert_eq!((&device["before_bytes"], &device["differences"]), (&json!(0), &json!(0)));
    // 40 MiB in two segments, 25 of which are given out: 5 and 10 MiB are left at their ends.
    let peak = &blocks["at_peak"];
    let figures = ["allocated_bytes", "blocks", "segments", "bytes", "free_bytes", "outside_blocks"];
    let expected = [json!(25 * MIB), json!(13), json!(2), json!(40 * MIB), json!(15 * MIB), json!(0)];
    assert_eq!(figures.map(|figure| peak[figure].clone()), expected, "{peak:#}");
    // The driver's memory is as it is without blocks.
    let process = &report["memory"]["processes"][0];
    assert_eq!(
        (&process["peak_bytes"], &process["unmatched_frees"]["unknown"]),
        (&json!(40 * MIB), &json!(0))
    );

    let lines = |options: &[&str]| -> Vec<Value> {
        let text = memory(&traced, &[&["--blocks", "--json"], options].concat());
        serde_json::from_str::<Value>(&text).unwrap()["lines"].as_array().unwrap().clone()
    };
    let held: Vec<_> = lines(&[])
        .iter()
        .map(|line| [&line["line"]["line"], &line["peak_bytes"]].map(Value::clone))
        .collect();
    let at = |mark: &str| said["lines"][mark].clone();
    assert_eq!(held, [[at("peak"), json!(15 * MIB)], [at("kept"), json!(10 * MIB)]]);
    let churn = &lines(&["--temporary"])[0];
    assert_eq!([&churn["line"]["line"], &churn["temporary"]], [&at("churn"), &json!(100)]);
    let first = &report["memory"]["block_lines"][0];
    assert_eq!([&first["line"]["line"], &first["kind"]], [&at("peak"), &json!("block")]);

    let page = memory(&traced, &["--blocks"]);
    let facts = [
        "at most 25.0 MiB given out, after",
        "; 10.0 MiB in 10 blocks at the end\n",
        "40.0 MiB taken from the driver then: 62.5% given out, 15.0 MiB free in",
    ];
    assert!(facts.iter().all(|fact| page.contains(fact)), "{page}");
    let summary = traced.summary_words();
    assert!(
        summary.contains("PyTorch's blocks at peak") && summary.contains("Blocks at most 25.0 MiB"),
        "{summary}"
    );
    let folded = traced.output.join("blocks.folded");
    finish(gputrace().args(["memory", "--blocks", "--at", "end", "-o"]).arg(&folded).arg(traced.trace()))
        .expect_code(0);
    let folded = fs::read_to_string(folded).unwrap();
    assert!(
        folded.ends_with(&format!(";block {}\n", 10 * MIB)) && folded.contains(";lines torch_blocks.py:"),
        "{folded}"
    );
}

#[test]
fn snapshot_for_pytorchs_viewer_has_the_blocks_in_their_segments() {
    if !python("torch_blocks::snapshot_for_pytorchs_viewer_has_the_blocks_in_their_segments") {
        return;
    }
    let (traced, _) = traced(&["--memory", "blocks"], "lines");
    let pickle = traced.output.join("memory.pickle");
    let words = ["export", "--format", "torch-snapshot", "-o"];
    finish(gputrace().args(words).arg(&pickle).arg(traced.trace())).expect_code(0);
    let program = "import json, pickle, sys; json.dump(pickle.load(open(sys.argv[1], 'rb')), sys.stdout)";
    let read = finish(Command::new("python3").args(["-c", program]).arg(&pickle)).expect_code(0).stdout;
    let snapshot: Value = serde_json::from_str(&read).unwrap();
    let segments = snapshot["segments"].as_array().unwrap();
    let blocks = || segments.iter().flat_map(|segment| segment["blocks"].as_array().unwrap());
    let sum = |state: &str| -> u64 {
        let in_state = blocks().filter(|block| block["state"] == state);
        in_state.map(|block| block["size"].as_u64().unwrap()).sum()
    };
    assert_eq!((segments.len(), sum("active_allocated"), sum("inactive")), (2, 10 * MIB, 30 * MIB));
    let active = blocks().find(|block| block["state"] == "active_allocated").unwrap();
    let frame = &active["frames"][1];
    assert!(frame["filename"].as_str().unwrap().ends_with("torch_blocks.py"), "{active:#}");
    let entries = snapshot["device_traces"][0].as_array().unwrap();
    let count = |action: &str| entries.iter().filter(|entry| entry["action"] == action).count();
    let counts = ["segment_alloc", "segment_free", "alloc", "free_completed"].map(count);
    assert_eq!(counts, [2, 0, 113, 103]);
}

#[test]
fn blocks_are_not_recorded_unless_asked_for() {
    if !python("torch_blocks::blocks_are_not_recorded_unless_asked_for") {
        return;
    }
    for options in [&[][..], &["--memory", "on"]] {
        let (traced, _) = traced(options, "lines");
        let report = traced.report();
        assert_eq!((blocks(&report), report["memory"]["block_lines"].clone()), (Value::Null, Value::Null));
        let asked = finish(gputrace().args(["memory", "--blocks"]).arg(traced.trace()));
        assert!(asked.expect_code(1).stderr.contains("no blocks are in the trace"));
    }
}

/// Each takes back what another thread got, so the sums only fit if all are in the order of their times.
#[test]
fn blocks_of_many_threads_add_up() {
    if !python("torch_blocks::blocks_of_many_threads_add_up") {
        return;
    }
    let (traced, said) = traced(&["--memory", "blocks"], "threads");
    let blocks = blocks(&traced.report());
    let figures = ["allocations", "frees", "unknown_frees", "ended_unfreed", "end_bytes", "peak_bytes"];
    let expected = [json!(1600), json!(1600), json!(0), json!(0), json!(0), said["peak"].clone()];
    assert_eq!(figures.map(|figure| blocks[figure].clone()), expected, "{blocks:#}");
    assert_eq!(blocks["devices"][0]["differences"], 0);
}

/// The loader's lock is another thread's, which waits for the allocator's lock: asking the loader for
/// PyTorch's function would never return.
#[test]
fn first_block_comes_while_another_thread_loads_a_library() {
    if !python("torch_blocks::first_block_comes_while_another_thread_loads_a_library") {
        return;
    }
    for options in [&["--memory", "blocks"][..], &[]] {
        let (traced, _) = traced(options, "loading");
        let report = traced.report();
        let made = if options.is_empty() { Value::Null } else { json!(2) };
        assert_eq!(blocks(&report)["allocations"], made);
    }
}

/// PyTorch's own profiler loses nothing, whether or not blocks are recorded.
#[test]
fn function_is_found_without_a_free_descriptor_and_behind_a_link() {
    if !python("torch_blocks::function_is_found_without_a_free_descriptor_and_behind_a_link") {
        return;
    }
    let linked = Folder::new();
    let files = linked.path().join("files");
    fs::create_dir(&files).unwrap();
    fs::copy(allocator(&[]).join("libc10.so"), files.join("other_name.so")).unwrap();
    std::os::unix::fs::symlink("files/other_name.so", linked.path().join("libc10.so")).unwrap();
    fs::copy(allocator(&[]).join("libc10_cuda.so"), linked.path().join("libc10_cuda.so")).unwrap();
    for options in [&["--memory", "blocks"][..], &[]] {
        let (traced, said) = traced(options, "descriptors");
        assert_eq!((&said["calls"], &traced.ended.stderr.contains("profiler")), (&json!(3), &false));
        let run = run_with(options, "python3").arg(sources().join("torch_blocks.py")).arg(linked.path());
        let said: Value = serde_json::from_str(run.arg("drift").succeed().ended.stdout.trim()).unwrap();
        assert_eq!(said["forwarded"], json!([said["calls"], said["own"][0]]), "{said}");
    }
}

#[test]
fn memory_of_the_host_is_passed_on_only_also_without_cuda() {
    if !python("torch_blocks::memory_of_the_host_is_passed_on_only_also_without_cuda") {
        return;
    }
    let folder = allocator(&[]);
    let run = run_with(&["--memory", "blocks"], "python3").arg(sources().join("torch_blocks.py"));
    let traced = run.arg(&folder).arg("host").go();
    let said: Value = serde_json::from_str(traced.ended.stdout.trim()).unwrap();
    assert_eq!((&said["forwarded"], &said["device"]), (&json!([5, 5 * 2 * 4096]), &json!(-5)), "{said}");
}

#[test]
fn forked_child_passes_blocks_on() {
    if !python("torch_blocks::forked_child_passes_blocks_on") {
        return;
    }
    let (traced, _) = traced(&["--memory", "blocks"], "fork");
    let blocks = blocks(&traced.report());
    assert_eq!((&blocks["end_bytes"], &blocks["allocations"]), (&json!(MIB), &json!(1)));
}

#[test]
fn process_without_an_allocator_does_not_hide_another_ones_blocks() {
    if !python("torch_blocks::process_without_an_allocator_does_not_hide_another_ones_blocks") {
        return;
    }
    let words = [sources().join("torch_blocks.py"), allocator(&[])].map(|path| path.display().to_string());
    let other = compiled("basic", Link::Driver).display().to_string();
    let command = format!("{other} && {other} && python3 {} lines", words.join(" "));
    let traced = run_with(&["--memory", "blocks"], "sh").arg("-c").arg(command).succeed();
    for text in [traced.summary_words(), memory(&traced, &["--blocks"])] {
        assert!(
            text.contains("at most 25.0 MiB given out") && !text.contains("no block was reported"),
            "{text}"
        );
    }
}

#[test]
fn difference_from_the_allocators_own_count_is_counted() {
    if !python("torch_blocks::difference_from_the_allocators_own_count_is_counted") {
        return;
    }
    let (traced, _) = traced(&["--memory", "blocks"], "drift");
    let device = &blocks(&traced.report())["devices"][0];
    assert_eq!((&device["differences"], &device["different_bytes"]), (&json!(1), &json!(12345)));
    assert!(
        memory(&traced, &["--blocks"])
            .contains("PyTorch's own count differs from the blocks 1 time, by 12.1 KiB")
    );
}

#[test]
fn line_that_holds_more_and_more_blocks_is_a_leak_and_a_model_is_none() {
    if !python("torch_blocks::line_that_holds_more_and_more_blocks_is_a_leak_and_a_model_is_none") {
        return;
    }
    let (traced, said) = traced(&["--memory", "blocks"], "grows");
    let leaks: Value = serde_json::from_str(&memory(&traced, &["--blocks", "--leaks", "--json"])).unwrap();
    let lines = leaks["lines"].as_array().unwrap();
    let found: Vec<_> =
        lines.iter().map(|line| [&line["line"]["line"], &line["leaked_allocations"]]).collect();
    assert_eq!(found, [[&said["lines"]["grows"], &json!(20)]]);
    let page = memory(&traced, &["--blocks", "--leaks"]);
    assert!(
        page.contains("5.00 MiB in 5 allocations are held to the end by lines that did not grow"),
        "{page}"
    );
    // At another time than the peak and the end.
    let then: Value = serde_json::from_str(&memory(&traced, &["--blocks", "--at", "1h", "--json"])).unwrap();
    assert_eq!(then["lines"][0]["at_bytes"], json!(5 * MIB));
    assert!(memory(&traced, &["--blocks", "--at", "1ns"]).contains("No memory was held then."));
    let part = memory(&traced, &["--blocks", "--from", "1h", "--at", "peak"]);
    assert!(part.starts_with("at most"), "{part}");
}

#[test]
fn lack_of_memory_says_in_which_pieces_the_rest_is() {
    if !python("torch_blocks::lack_of_memory_says_in_which_pieces_the_rest_is") {
        return;
    }
    let folder = allocator(&[]);
    let run = run_with(&["--memory", "blocks"], "python3").arg(sources().join("torch_blocks.py")).arg(folder);
    let size = (64 * MIB).to_string();
    let traced = run.arg("lacking").env("GPUTRACE_SIM_MEMORY_BYTES", size).succeed();
    let text = &traced.ended.stderr;
    let free = "\n  of it PyTorch gave out 30.0 MiB; 30.0 MiB are free in 6 pieces beside blocks, the largest 5.00 MiB:\n";
    assert!(text.contains(free), "{text}");
    assert!(text.contains("  hint: as much is free within PyTorch's segments"), "{text}");
    let said: Value = serde_json::from_str(traced.ended.stdout.trim()).unwrap();
    let refused = &traced.report()["memory"]["processes"][0]["refusals"][0]["blocks"];
    let holder = &refused["holders"][0];
    let found = [&holder["line"]["line"], &holder["bytes"], &refused["segments"]["free_pieces"]];
    assert_eq!(found, [&said["lines"]["pieces"], &json!(30 * MIB), &json!(6)], "{refused:#}");
}

/// Another signature is another symbol: PyTorch runs as without us, and that there are no blocks is said.
#[test]
fn function_with_other_arguments_is_left_alone() {
    if !python("torch_blocks::function_with_other_arguments_is_left_alone") {
        return;
    }
    let folder = allocator(&["-DOTHER_TYPES"]);
    let run = run_with(&["--memory", "blocks"], "python3").arg(sources().join("torch_blocks.py"));
    let traced = run.arg(&folder).arg("lines").succeed();
    let said: Value = serde_json::from_str(traced.ended.stdout.trim()).unwrap();
    assert_eq!(said["forwarded"], json!([said["calls"], said["own"][0]]), "{said}");
    let summary = traced.summary_words();
    assert!(summary.contains("Blocks no block was reported: PyTorch 2.0 or later"), "{summary}");
}

#[test]
fn blocks_are_switched_on_and_off_while_the_program_runs() {
    if !python("torch_blocks::blocks_are_switched_on_and_off_while_the_program_runs") {
        return;
    }
    let folder = Folder::new();
    let program = sources().join("torch_blocks.py");
    let allocator = allocator(&[]);
    let words = [program.to_str().unwrap(), allocator.to_str().unwrap(), "late"];
    let mut session = Session::run(&folder, &[], "python3", &words);
    for order in ["memory=blocks", "memory=on", "memory=blocks"] {
        assert_eq!(session.line(), "ready");
        let answer = ctl(session.pid(), &["set", order, "--json"]).expect_code(0).stdout;
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(
            (&answer["set"]["memory"], &answer["refused"]),
            (&json!(&order[7..]), &json!([])),
            "{answer}"
        );
        session.write("\n");
    }
    let said: Value = serde_json::from_str(&session.line()).unwrap();
    assert!(session.end().0.success());
    let trace = finish(gputrace().args(["report", "--json"]).arg(folder.join("out"))).expect_code(0);
    let report: Value = serde_json::from_str(&trace.stdout).unwrap();
    let blocks = blocks(&report);
    // Three blocks while it was first on and one after it was on again; two frees of blocks from a time
    // in which it was not.
    let figures = [
        "allocations",
        "frees",
        "unknown_frees",
        "ended_unfreed",
        "end_bytes",
        "peak_bytes",
        "interruptions",
    ];
    let expected = [4, 0, 2, 3, 4 * MIB, 6 * MIB, 1].map(|figure| json!(figure));
    assert_eq!(figures.map(|figure| blocks[figure].clone()), expected, "{blocks:#}");
    let device = &blocks["devices"][0];
    // Before it was on again: 3 of the first blocks, 2 of the next three, one of 3 MiB.
    assert_eq!(
        (&device["before_bytes"], &device["differences"]),
        (&json!(10 * MIB), &json!(0)),
        "{device:#}"
    );
    assert_eq!(device["allocated_bytes"], said["allocated"]);
    let lines: Vec<_> = report["memory"]["block_lines"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| &line["line"]["line"])
        .collect();
    assert_eq!(lines, [&said["lines"]["late"], &said["lines"]["last"]]);
}
