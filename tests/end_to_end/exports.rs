//! `gputrace export`: formats, filters, and what can go wrong. Each test is about all formats that there
//! are, but for those of one.

use std::ffi::OsStr;
use std::fs;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use gputrace_collector::export::{FORMATS, FormatEntry, Target};
use serde_json::Value;

use crate::harness::folder::Folder;
use crate::harness::process::{Ended, finish};
use crate::harness::program::{Link, compiled};
use crate::harness::tool::{clean, clean_command, gputrace, run_command};
use crate::nvtx;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn demo() -> PathBuf {
    fixture("demo-h200.gputrace")
}

fn pytorch() -> PathBuf {
    fixture("pytorch-h200.gputrace")
}

fn export(format: &str, arguments: &[&str], traces: &[&Path]) -> Ended {
    finish(gputrace().args(["export", "--format", format]).args(arguments).args(traces))
}

/// Into a file or folder of that name.
fn export_to(format: &FormatEntry, output: &Path, traces: &[&Path]) -> Ended {
    export(format.name, &["-o", output.to_str().unwrap()], traces)
}

fn streams() -> impl Iterator<Item = &'static FormatEntry> {
    FORMATS.iter().filter(|format| format.target == Target::Stream)
}

/// The names in a folder.
fn names(folder: &Folder) -> Vec<String> {
    let entries = fs::read_dir(folder.path()).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// The sum of the weights of folded lines.
fn weight(folded: &str) -> u64 {
    folded.lines().map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

// --- what is written

#[test]
fn folded_is_what_flamegraph_writes() {
    for traces in [&[demo()][..], &[pytorch()], &[demo(), pytorch()]] {
        let traces: Vec<&Path> = traces.iter().map(PathBuf::as_path).collect();
        let flamegraph = finish(gputrace().args(["flamegraph", "--folded"]).args(&traces)).expect_code(0);
        let exported = export("folded", &[], &traces).expect_code(0);
        assert_eq!(exported.stdout, flamegraph.stdout);
        assert_eq!(exported.stderr, "");
    }
}

#[test]
fn every_format_is_written_whole_and_the_last_line_names_it() {
    let folder = Folder::new();
    for format in FORMATS {
        let output = folder.join(format.name);
        let ended = export_to(format, &output, &[&demo(), &pytorch()]).expect_code(0);
        let last = ended.stderr.lines().last().unwrap_or_default();
        let count: u64 = last.split(' ').nth(1).unwrap().parse().unwrap();
        assert!(count > 0 && last.ends_with(&format!("in {}", output.display())), "{}", ended.stderr);
        assert!(output.exists(), "{}", format.name);
        // A second one replaces it.
        export_to(format, &output, &[&demo()]).expect_code(0);
    }
    let mut expected: Vec<&str> = FORMATS.iter().map(|format| format.name).collect();
    expected.sort_unstable();
    assert_eq!(names(&folder), expected);
}

#[test]
fn stdout_has_what_a_file_has_and_gz_is_compressed() {
    let folder = Folder::new();
    for format in streams() {
        let plain = folder.join("plain");
        let compressed = folder.join("compressed.gz");
        export_to(format, &plain, &[&demo()]).expect_code(0);
        export_to(format, &compressed, &[&demo()]).expect_code(0);
        let plain = fs::read(plain).unwrap();
        let mut unpacked = Vec::new();
        let packed = fs::read(&compressed).unwrap();
        flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut unpacked).unwrap();
        for arguments in [&[][..], &["-o", "-"]] {
            let mut command = gputrace();
            command.args(["export", "--format", format.name]).args(arguments).arg(demo());
            let printed = command.output().unwrap();
            assert!(printed.status.success() && printed.stderr.is_empty(), "{}", format.name);
            // What is compressed inside the format may differ in its own header's time.
            assert!(printed.stdout == plain && unpacked == plain, "{}", format.name);
        }
    }
    assert_eq!(names(&folder), ["compressed.gz", "plain"]);
}

#[test]
fn metrics_are_compressed_if_the_name_ends_in_gz() {
    let folder = Folder::new();
    let path = folder.join("metrics.gz");
    let metrics = |more: &[&str]| export("otlp-json", &[&["--signal", "metrics"], more].concat(), &[&demo()]);
    metrics(&["-o", path.to_str().unwrap()]).expect_code(0);
    let mut unpacked = String::new();
    flate2::read::GzDecoder::new(fs::File::open(path).unwrap()).read_to_string(&mut unpacked).unwrap();
    assert_eq!(unpacked, metrics(&[]).expect_code(0).stdout);
    assert!(unpacked.starts_with("{\"resourceMetrics\":"), "{unpacked}");
}

#[test]
fn filters_and_intervals_are_of_every_format() {
    let all = export("folded", &[], &[&demo()]).stdout;
    let of = |arguments: &[&str]| export("folded", arguments, &[&demo()]).expect_code(0).stdout;
    let kernels = of(&["--filter", "kernel=gemm*"]);
    assert!(kernels.lines().all(|line| line.contains(";gemm_")) && weight(&kernels) > 0, "{kernels}");
    assert_eq!(of(&["--filter", "kernel=gemm*,device=0", "--filter", "device=1"]), kernels);
    assert_eq!(of(&["--filter", "thread=main"]), all);
    assert_eq!(of(&["--filter", r"process=gputrace,kernel=gemm\_*"]), kernels);
    assert_eq!(of(&["--filter", "device=1"]), "");
    assert_eq!(of(&["--from", "0", "--to", "1h"]), all);
    assert_eq!(of(&["--from", "1h"]), "");
    for format in FORMATS {
        let folder = Folder::new();
        let output = folder.join("out");
        let output = ["-o", output.to_str().unwrap()];
        let said = export(format.name, &[&output[..], &["--filter", "kernel=gemm*"]].concat(), &[&demo()]);
        let said = said.expect_code(0).stderr;
        assert!(said.contains(" of the trace's events were left out by --filter, --from or --to"), "{said}");
        export(format.name, &[&output[..], &["--from", "1h"]].concat(), &[&demo()]).expect_code(0);
    }
}

/// A range's name holds for the calls, the kernels and the ranges in it.
#[test]
fn filter_by_range_takes_what_is_inside() {
    assert_eq!(export("folded", &["--filter", "range=*"], &[&demo()]).expect_code(0).stdout, "");
    let Some(environment) = nvtx::nvtx("filter_by_range_takes_what_is_inside") else { return };
    let traced = run_command(nvtx::built(environment, "nvtx_ranges.c", &[])).succeed();
    let stacks = |arguments: &[&str]| -> Vec<String> {
        let folded = export("folded", arguments, &[&traced.trace()]).expect_code(0).stdout;
        folded.lines().map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect()
    };
    let is_outer = |stack: &String| stack.split(';').any(|frame| frame.contains("outer"));
    let expected: Vec<String> = stacks(&[]).into_iter().filter(is_outer).collect();
    assert!(expected.len() > 1, "{expected:?}");
    assert_eq!(stacks(&["--filter", "range=outer"]), expected);
    let all = export("otlp-json", &["--all"], &[&traced.trace()]).expect_code(0).stdout;
    assert!(all.contains("\"name\":\"outer\""), "{all}");
    // Of 300 names that differ in their numbers one is found all the same.
    let spans = export("otlp-json", &["--all", "--filter", "range=step 299"], &[&traced.trace()]);
    let spans = spans.expect_code(0).stdout;
    let count = |name: &str| spans.matches(&format!("\"name\":\"{name}\"")).count();
    assert_eq!((count("step 299"), count("step 298")), (1, 0), "{spans}");
    assert!(count("cuda_kernel: first_kernel") > 0, "{spans}");
}

// --- the command line

#[test]
fn unknown_format_lists_the_known_ones() {
    let ended = export("flded", &[], &[&demo()]).expect_code(2);
    let known: Vec<&str> = FORMATS.iter().map(|format| format.name).collect();
    assert!(ended.stderr.contains(&format!("[possible values: {}]", known.join(", "))), "{}", ended.stderr);
    assert!(ended.stderr.contains("a similar value exists: 'folded'"), "{}", ended.stderr);
}

#[test]
fn options_that_make_no_sense_are_errors_before_anything_is_read() {
    for (arguments, part) in [
        (&["--filter", "kernl=x"][..], "the keys are process, thread, stream, device, kernel, range"),
        (&["--filter", "gemm"], "is not KEY=GLOB"),
        (&["--filter", ""], "is not KEY=GLOB"),
        (&["--from=-1"], "it is never negative"),
        (&["--from", "soon"], "a time counts from the trace's begin"),
        (&["--from", "2", "--to", "1s"], "--from is after --to"),
        (&["--signal", "metrics"], "--signal metrics is for --format otlp-json"),
    ] {
        let ended = export("folded", arguments, &[Path::new("no-such-trace")]).expect_code(2);
        assert!(ended.stderr.contains(part), "{arguments:?}: {}", ended.stderr);
    }
    let many: Vec<&str> = (0..65).flat_map(|_| ["--filter", "device=0"]).collect();
    let ended = export("folded", &many, &[&demo()]).expect_code(2);
    assert!(ended.stderr.contains("more than 64 conditions"), "{}", ended.stderr);
    let ended = export("otlp-json", &["--signal", "metrics", "--from", "1"], &[&demo()]).expect_code(2);
    assert!(ended.stderr.contains("for whole traces"), "{}", ended.stderr);
}

#[test]
fn format_that_is_no_stream_is_not_written_to_stdout() {
    for format in FORMATS.iter().filter(|format| format.target != Target::Stream) {
        for arguments in [&[][..], &["-o", "-"]] {
            let ended = export(format.name, arguments, &[&demo()]).expect_code(2);
            assert!(ended.stderr.contains("name it with -o"), "{}", ended.stderr);
        }
        let ended = export_to(format, Path::new("x.gz"), &[&demo()]).expect_code(2);
        assert!(ended.stderr.contains("never compressed"), "{}", ended.stderr);
    }
}

// --- outputs that cannot be written

#[test]
fn missing_folder_is_an_error() {
    let folder = Folder::new();
    for format in FORMATS {
        let ended = export_to(format, &folder.join("missing/out"), &[&demo()]).expect_code(73);
        assert!(ended.stderr.starts_with("gputrace: cannot write "), "{}", ended.stderr);
        let why = "no such file or directory\n  hint: make its folder first, or choose another one\n";
        assert!(ended.stderr.ends_with(why), "{}", ended.stderr);
    }
    assert_eq!(names(&folder), [""; 0]);
}

#[test]
fn folder_or_device_where_a_file_belongs_is_refused() {
    let folder = Folder::new();
    fs::create_dir(folder.join("mine")).unwrap();
    fs::write(folder.join("mine/dear"), "").unwrap();
    for format in FORMATS {
        let ended = export_to(format, &folder.join("mine"), &[&demo()]);
        assert!(matches!(ended.code(), Some(73 | 74)), "{}: {}", format.name, ended.stderr);
        if format.target != Target::Stream {
            let ended = export_to(format, Path::new("/dev/null"), &[&demo()]).expect_code(73);
            assert!(ended.stderr.contains("cannot write /dev/null: it is no f"), "{}", ended.stderr);
        }
    }
    assert_eq!(names(&folder), ["mine"]);
    assert!(folder.join("mine/dear").exists());
}

/// A limit on file sizes stands in for a full disk. `ulimit` counts in KiB.
#[test]
fn full_disk_leaves_nothing_and_is_reported() {
    let folder = Folder::new();
    for format in FORMATS {
        for ending in ["", ".gz"] {
            if format.target != Target::Stream && !ending.is_empty() {
                continue;
            }
            // A snapshot of the few allocations takes less than 1 KiB.
            let limit = u8::from(format.name != "torch-snapshot");
            let script =
                "trap '' XFSZ; ulimit -f \"$4\"; exec \"$0\" export --format \"$1\" -o \"$2\" \"$3\"";
            let mut command = Command::new("bash");
            clean(&mut command);
            command.args(["-c", script]).arg(gputrace().get_program()).arg(format.name);
            command.arg(folder.join(&format!("out{ending}"))).arg(pytorch());
            command.arg(limit.to_string());
            let ended = finish(&mut command).expect_code(74);
            assert!(ended.stderr.contains("cannot write to "), "{}: {}", format.name, ended.stderr);
            assert_eq!(names(&folder), [""; 0], "{}", format.name);
        }
    }
    for format in streams() {
        let ended = export_to(format, Path::new("/dev/full"), &[&demo()]).expect_code(74);
        assert_eq!(
            ended.stderr,
            "gputrace: cannot write to /dev/full: no space left on device\n  \
             hint: free some space, or choose another file system\n"
        );
    }
}

#[test]
fn reader_that_went_away_is_no_error() {
    for format in streams() {
        let script = "\"$0\" export --format \"$1\" \"$2\" | true; exit ${PIPESTATUS[0]}";
        let mut command = clean_command("bash");
        command.args(["-c", script]).arg(gputrace().get_program()).arg(format.name).arg(pytorch());
        let ended = finish(&mut command).expect_code(0);
        assert_eq!(ended.stderr, "", "{}", format.name);
    }
}

// --- traces that cannot be read

#[test]
fn bad_trace_is_an_error_of_every_format_and_leaves_nothing() {
    let folder = Folder::new();
    let bytes = fs::read(demo()).unwrap();
    let mut newer = bytes.clone();
    newer[10] = newer[10].wrapping_add(1);
    let inputs = Folder::new();
    for (name, bytes, code) in [
        ("newer", &newer[..], 65),
        ("empty", b"", 65),
        ("begun", &bytes[..10], 65),
        ("text", b"no trace at all, but something else\n", 65),
    ] {
        let input = inputs.join(name);
        fs::write(&input, bytes).unwrap();
        for format in FORMATS {
            let ended = export_to(format, &folder.join("out"), &[&input]).expect_code(code);
            assert_eq!(ended.stderr.lines().count(), 1, "{}: {name}: {}", format.name, ended.stderr);
            assert_eq!(names(&folder), [""; 0], "{}: {name}", format.name);
        }
    }
    for format in FORMATS {
        let missing = inputs.join("missing");
        export_to(format, &folder.join("out"), &[&missing]).expect_code(66);
        assert_eq!(names(&folder), [""; 0], "{}", format.name);
    }
}

#[test]
fn truncated_trace_is_exported_as_far_as_it_goes() {
    let bytes = fs::read(pytorch()).unwrap();
    let inputs = Folder::new();
    let cut = inputs.join("cut");
    fs::write(&cut, &bytes[..bytes.len() * 3 / 4]).unwrap();
    for format in FORMATS {
        let folder = Folder::new();
        let output = folder.join("out");
        let ended = export_to(format, &output, &[&cut]).expect_code(3);
        let warnings = ended.stderr.matches(" was read in part: ").count();
        assert_eq!((warnings, output.exists()), (1, true), "{}: {}", format.name, ended.stderr);
        // One that cannot be read, beside one that can.
        let ended = export_to(format, &output, &[&demo(), &inputs.join("missing")]).expect_code(66);
        assert_eq!(ended.stderr.matches("warning: skipped").count(), 1, "{}", ended.stderr);
    }
}

#[test]
fn trace_without_events_is_exported() {
    let traced = run_command("true").go().expect_code(0);
    let trace = traced.trace();
    assert!(trace.exists());
    for format in FORMATS {
        let folder = Folder::new();
        export_to(format, &folder.join("out"), &[&trace]).expect_code(0);
    }
}

/// Names of every byte: of the program's file, and of its threads.
#[test]
fn hostile_names_are_escaped() {
    let folder = Folder::new();
    let name: Vec<u8> = (1..=255).filter(|byte| *byte != b'/').collect();
    let program = folder.path().join(OsStr::from_bytes(&name));
    fs::copy(compiled("every_byte", Link::Driver), &program).unwrap();
    let traced = run_command(&program).succeed();
    let trace = traced.trace();
    for format in FORMATS {
        let output = folder.join(format.name);
        export_to(format, &output, &[&trace]).expect_code(0);
        let is_text = ["folded", "otlp-json", "chrome", "speedscope"].contains(&format.name);
        if !is_text {
            continue;
        }
        let text = String::from_utf8(fs::read(&output).unwrap()).unwrap();
        let control = text.bytes().find(|byte| byte.is_ascii_control() && !b"\n\x7f".contains(byte));
        assert_eq!(control, None, "{}", format.name);
        match format.name {
            "folded" => assert!(weight(&text) > 0, "{text}"),
            "otlp-json" => {
                text.lines().for_each(|line| drop(serde_json::from_str::<Value>(line).unwrap()));
            }
            _ => drop(serde_json::from_str::<Value>(&text).unwrap()),
        }
    }
}
