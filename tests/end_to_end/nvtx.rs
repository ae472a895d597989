//! The program's own ranges, by NVTX: as frames, as spans with host and device time, and harmless
//! whatever a program does with them.
//!
//! The programs are built with NVIDIA's own headers, which come from PyPI and are never committed.
//! Where they cannot be had, the tests are skipped and say so.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::{env, fs};

use serde_json::Value;

use crate::harness::folder::Folder;
use crate::harness::process::finish;
use crate::harness::program::{Link, compiled};
use crate::harness::tool::{self, Run, bare_command, dropped, gputrace, run_command, run_with};
use crate::harness::{folder, life, needs};

const PACKAGES: [&str; 3] = ["nvidia-nvtx==13.5.25", "nvidia-nvtx-cu11==11.8.86", "nvtx==0.2.17"];

/// A virtual environment with the packages, made once.
fn environment() -> &'static Result<PathBuf, String> {
    static MADE: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    MADE.get_or_init(|| {
        let environment = folder::base().join("nvtx");
        let ready = environment.join("ready");
        if !ready.exists() {
            let _ = fs::remove_dir_all(&environment);
            succeed("python3 -m venv", Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
            let mut pip = Command::new(environment.join("bin/python"));
            pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(PACKAGES);
            succeed("pip install nvidia-nvtx", &mut pip)?;
            fs::write(ready, "").unwrap();
        }
        Ok(environment)
    })
}

fn succeed(what: &str, command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{what}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(format!("{what} failed: {}", said.trim().lines().next_back().unwrap_or_default()))
        }
    }
}

/// The environment, or `None` and a word that the test is skipped.
pub fn nvtx(test: &str) -> Option<&'static Path> {
    let made = if needs::python(test) { environment().as_ref() } else { return None };
    made.map_err(|why| needs::skipped(test, why)).ok().map(PathBuf::as_path)
}

/// The folder of that name somewhere in the packages.
fn packaged(environment: &Path, below: &str) -> PathBuf {
    let python = fs::read_dir(environment.join("lib")).unwrap().next().unwrap().unwrap().path();
    let path = python.join("site-packages/nvidia").join(below);
    assert!(path.is_dir(), "{} is missing", path.display());
    path
}

/// A program of tests/programs built with the headers of version 3.
pub fn built(environment: &Path, source: &str, more: &[&str]) -> PathBuf {
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let include = format!("-isystem{}", packaged(environment, "cu13/include").display());
    build(source, source, &[&include, &format!("-I{}", programs.display())], more)
}

fn build(source: &str, name: &str, before: &[&str], more: &[&str]) -> PathBuf {
    let folder = folder::base().join("programs");
    fs::create_dir_all(&folder).unwrap();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let program = folder.join(name.replace('.', "_"));
    let temporary = folder.join(format!("{name}.{:?}", std::thread::current().id()));
    let (variable, compiler) = if source.ends_with(".cpp") { ("CXX", "c++") } else { ("CC", "cc") };
    let mut command = Command::new(env::var_os(variable).unwrap_or_else(|| compiler.into()));
    command.args(["-O1", "-Wall", "-Werror", "-Wno-unused-function", "-pthread"]).args(before);
    command.arg("-o").arg(&temporary).arg(sources.join(source)).arg("-L").arg(tool::simulated_folder());
    let output =
        command.args(["-l:libcuda.so.1", "-ldl"]).args(more).output().expect("a C compiler is needed");
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
    fs::rename(&temporary, &program).unwrap();
    program
}

/// (calls, open, operations, whether host time is told) of a range.
#[track_caller]
fn range(report: &Value, domain: Option<&str>, name: &str) -> (u64, u64, u64) {
    let rows = report["ranges"].as_array().unwrap_or_else(|| panic!("no ranges: {report:#}"));
    let found = rows.iter().find(|row| row["name"] == name && row["domain"].as_str() == domain);
    let row = found.unwrap_or_else(|| panic!("no range {name}: {rows:#?}"));
    let number = |field: &str| row[field].as_u64().unwrap();
    assert_eq!(number("timed_operations"), number("operations"), "{row:#}");
    assert!((number("host_total_ns") > 0) == (number("calls") > 0), "{row:#}");
    if number("operations") > 0 {
        assert!(number("device_total_ns") >= 20_000 * number("operations"), "{row:#}");
    }
    (number("calls"), number("open"), number("operations"))
}

fn names(report: &Value) -> Vec<&str> {
    report["ranges"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect()
}

/// Lines of the flamegraph without the process and the weight.
fn stacks(folded: &str) -> Vec<String> {
    let stack = |line: &str| Some(line.rsplit_once(' ')?.0.split_once(';')?.1.to_owned());
    folded.lines().filter_map(stack).collect()
}

const RETURNED: &str = "before 0\nclosed 1\nclosed 1\nouter 1\ninner 2\ninner 2\ndomain 0\nouter 1\ndomain 0\n\
                        attributes 1\nattributes 1\nnumbers 1\n";

#[track_caller]
fn expect_ranges(traced: &tool::Traced) {
    assert_eq!(traced.ended.stdout, RETURNED);
    let report = traced.report();
    assert_eq!(dropped(&report), 0, "{report:#}");
    let of = |name| range(&report, None, name);
    assert_eq!(of("outer"), (1, 0, 9));
    assert_eq!(of("inn\u{e9}r \u{1f600}"), (1, 0, 2));
    assert_eq!(range(&report, Some("library"), "registered"), (1, 0, 9));
    assert_eq!(of("with attributes"), (2, 0, 6));
    assert_eq!(of("started early"), (1, 0, 0));
    assert_eq!(of("left open"), (0, 1, 7));
    assert_eq!(of("step #"), (300, 0, 300), "{:?}", names(&report));
    assert_eq!(of("before the driver"), (0, 1, 328));
    assert!(!names(&report).contains(&"closed before the driver"), "it was before the session");
    let mark = report["ranges"].as_array().unwrap().iter().find(|row| row["name"] == "a moment").unwrap();
    assert_eq!(mark["marks"], 1);
    let stacks = stacks(&traced.read("flame.folded"));
    let end = "cuLaunchKernel;first_kernel";
    for wanted in [
        format!("main;before the driver;{end}"),
        format!("main;before the driver;outer;inn\u{e9}r \u{1f600};{end}"),
        format!("main;before the driver;outer;library: registered;{end}"),
        format!("main;before the driver;library: registered;{end}"),
        format!("main;before the driver;with attributes;{end}"),
        format!("main;before the driver;step #;{end}"),
        format!("main;before the driver;left open;{end}"),
    ] {
        assert!(stacks.contains(&wanted), "{wanted} is not in {stacks:#?}");
    }
    let summary = traced.read("summary.txt");
    assert!(summary.contains("Ranges (NVTX)") && summary.contains("before the driver"), "{summary}");
}

#[test]
fn ranges_are_frames_and_spans_as_the_program_made_them() {
    let Some(environment) = nvtx("nvtx::ranges_are_frames_and_spans_as_the_program_made_them") else {
        return;
    };
    let program = built(environment, "nvtx_ranges.c", &[]);
    expect_ranges(&run_command(&program).succeed());
    expect_ranges(&bare_command(&program).succeed());
}

#[test]
fn library_of_version_2_has_the_same_ranges() {
    let Some(environment) = nvtx("nvtx::library_of_version_2_has_the_same_ranges") else { return };
    let (include, lib) = (packaged(environment, "nvtx/include"), packaged(environment, "nvtx/lib"));
    let before = [&format!("-isystem{}", include.display()), "-DVERSION_2"];
    let more =
        [&format!("-L{}", lib.display()), "-l:libnvToolsExt.so.1", &format!("-Wl,-rpath,{}", lib.display())];
    expect_ranges(&run_command(build("nvtx_ranges.c", "nvtx_ranges_2", &before, &more)).succeed());
}

#[test]
fn ranges_are_the_same_live_and_from_the_file() {
    let Some(environment) = nvtx("nvtx::ranges_are_the_same_live_and_from_the_file") else { return };
    let folder = Folder::new();
    let live = folder.join("live.json");
    let program = built(environment, "nvtx_ranges.c", &[]);
    let traced = run_with(&["--json", live.to_str().unwrap()], &program).succeed();
    let live: Value = serde_json::from_str(&fs::read_to_string(live).unwrap()).unwrap();
    assert!(!live["ranges"].as_array().unwrap().is_empty());
    assert_eq!(live["ranges"], traced.report()["ranges"]);
    let again = finish(gputrace().args(["flamegraph", "--folded"]).arg(traced.trace())).expect_code(0);
    assert_eq!(again.stdout, traced.read("flame.folded"));
}

#[test]
fn range_frames_are_where_the_option_puts_them() {
    let Some(environment) = nvtx("nvtx::range_frames_are_where_the_option_puts_them") else { return };
    let program = built(environment, "nvtx_scoped.cpp", &[]);
    let traced = run_with(&["--nvtx-frames", "none"], &program).succeed();
    assert_eq!(stacks(&traced.read("flame.folded")), ["main;cuLaunchKernel;first_kernel"]);
    let report = traced.report();
    assert_eq!(range(&report, None, "whole"), (1, 0, 4));
    // A unique_range is one that is ended by number.
    assert_eq!(range(&report, None, "unique"), (1, 0, 0));
    assert_eq!(range(&report, Some("a C++ library"), "registered once"), (2, 0, 4));
    for place in ["above", "below", "instead"] {
        let again =
            finish(gputrace().args(["flamegraph", "--folded", "--nvtx-frames", place]).arg(traced.trace()));
        let stacks = stacks(&again.expect_code(0).stdout);
        let inner = "a C++ library: registered once;cuLaunchKernel;first_kernel";
        assert_eq!(stacks, [format!("main;whole;{inner}")], "{place}");
    }
}

#[test]
fn python_package_s_ranges_are_above_or_below_the_lines() {
    let test = "nvtx::python_package_s_ranges_are_above_or_below_the_lines";
    let Some(environment) = nvtx(test) else { return };
    let client = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/nvtx_client.py");
    let python = environment.join("bin/python");
    let traced = run_command(&python).arg(&client).succeed();
    let report = traced.report();
    assert_eq!(range(&report, None, "decorated"), (2, 0, 4));
    assert_eq!(range(&report, Some("a package"), "inside"), (2, 0, 2));
    assert_eq!(range(&report, None, "started"), (1, 0, 0));
    assert_eq!(range(&report, None, "pushed"), (1, 0, 1));
    let with = |place: &str| {
        let mut command = gputrace();
        command.args(["flamegraph", "--folded", "--nvtx-frames", place]).arg(traced.trace());
        stacks(&finish(&mut command).expect_code(0).stdout)
    };
    let inside = |stacks: &[String]| stacks.iter().find(|stack| stack.contains("a package: inside")).cloned();
    let above = inside(&with("above")).unwrap();
    assert!(above.starts_with("main;decorated;a package: inside;"), "{above}");
    let (below, instead) = (inside(&with("below")).unwrap(), inside(&with("instead")).unwrap());
    assert!(below.contains(";decorated;a package: inside;cuLaunchKernel;"), "{below}");
    assert_eq!(instead, "main;decorated;a package: inside;cuLaunchKernel;first_kernel");
    if above.contains(".py:") {
        assert!(below.contains(".py:") && below.find(".py:") < below.find(";a package"), "{below}");
    }
}

#[test]
fn bad_arguments_to_nvtx_hurt_nobody() {
    let Some(environment) = nvtx("nvtx::bad_arguments_to_nvtx_hurt_nobody") else { return };
    let traced = run_command(built(environment, "nvtx_hostile.c", &[])).succeed();
    assert_eq!(traced.ended.stdout, "nothing open 1\nlevels 1\n");
    let report = traced.report();
    assert_eq!(report["launches"], 5);
    assert_eq!(report["dropped"]["ranges_too_deep"], 1000 - 64, "{report:#}");
    assert_eq!(range(&report, None, "deep").0, 64);
    assert_eq!(range(&report, Some("destroyed"), "after its domain"), (2, 0, 1));
    assert_eq!(range(&report, None, &"x".repeat(1024)), (1, 0, 1));
    assert_eq!(range(&report, None, "\u{fffd}\u{fffd}\u{fffd}w"), (1, 0, 0));
    assert_eq!(range(&report, None, "ended twice"), (1, 0, 0));
    for line in traced.read("flame.folded").lines() {
        assert!(line.rsplit_once(' ').is_some_and(|(_, weight)| weight.parse::<u64>().is_ok()), "{line}");
    }
}

#[test]
fn thread_s_ranges_end_with_it() {
    let Some(environment) = nvtx("nvtx::thread_s_ranges_end_with_it") else { return };
    let traced = run_command(built(environment, "nvtx_threads.c", &[])).succeed();
    let report = traced.report();
    assert_eq!(dropped(&report), 0, "{report:#}");
    assert_eq!(range(&report, None, "never popped"), (0, 20, 20));
    assert_eq!(range(&report, None, "nor this"), (0, 20, 20));
    assert_eq!(range(&report, None, "crossing"), (1, 0, 0));
    let folded = traced.read("flame.folded");
    assert!(folded.contains(";the named one"), "{folded}");
    for line in folded.lines() {
        assert_eq!(line.contains("second_kernel"), !line.contains("nor this"), "{line}");
    }
}

#[test]
fn streams_have_the_names_that_the_program_gave_them() {
    let Some(environment) = nvtx("nvtx::streams_have_the_names_that_the_program_gave_them") else { return };
    let traced = run_command(built(environment, "nvtx_names.c", &[])).go();
    let report = life::report_of_all(&traced);
    let streams = report["in_flight"].as_array().unwrap();
    let mut names: Vec<_> = streams.iter().map(|stream| stream["stream_name"].as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, [None, Some("the copies"), Some("the kernels")], "{report:#}");
    assert!(traced.read("summary.txt").contains("stream the copies:"), "{}", traced.read("summary.txt"));
    let of_report = report["streams"].as_array().unwrap().iter();
    let named: Vec<_> = of_report.filter_map(|stream| stream["name"].as_str()).collect();
    assert!(
        named.len() == 2 && named.contains(&"the copies") && named.contains(&"the kernels"),
        "{report:#}"
    );
    let by_stream = ["flamegraph", "--folded", "--group-by", "stream"];
    let folded = finish(gputrace().args(by_stream).arg(traced.trace())).stdout;
    assert!(folded.lines().any(|line| line.starts_with("stream the kernels;cuLaunchKernel;")), "{folded}");
}

#[test]
fn forked_child_is_in_the_ranges_that_it_was_forked_in() {
    let Some(environment) = nvtx("nvtx::forked_child_is_in_the_ranges_that_it_was_forked_in") else {
        return;
    };
    let traced = run_command(built(environment, "nvtx_fork.c", &[])).succeed();
    assert_eq!(traced.ended.stdout, "child 0\nstatus 0\nstatus 0\nparent 0\n");
    let report = life::report_of_all(&traced);
    assert_eq!(range(&report, None, "around the fork"), (2, 0, 6));
    assert_eq!(range(&report, None, "in the child"), (1, 0, 2));
    assert_eq!(range(&report, None, "after exec"), (1, 0, 3));
    assert_eq!(range(&report, None, "in the parent"), (1, 0, 4));
}

#[test]
fn modules_with_nvtx_of_their_own_come_and_go() {
    let Some(environment) = nvtx("nvtx::modules_with_nvtx_of_their_own_come_and_go") else { return };
    let plugin = built(environment, "nvtx_plugin.c", &["-shared", "-fPIC"]);
    let traced = run_command(compiled("nvtx_plugin_host", Link::Driver)).arg(plugin).succeed();
    assert_eq!(traced.ended.stdout, "0 0\n".repeat(5));
    assert_eq!(range(&traced.report(), None, "of a module"), (5, 0, 5));
}

#[test]
fn nvtx_of_another_tool_stays_its_own() {
    let Some(environment) = nvtx("nvtx::nvtx_of_another_tool_stays_its_own") else { return };
    let other = compiled("nvtx_other_tool", Link::Shared);
    let program = built(environment, "nvtx_ranges.c", &[]);
    let traced = run_command(program).env("NVTX_INJECTION64_PATH", other).succeed();
    assert!(traced.ended.stdout.starts_with("the other tool\n"), "{}", traced.ended.stdout);
    let report = traced.report();
    assert_eq!(report["launches"], 328);
    assert!(names(&report).is_empty());
    assert!(report["notices"].to_string().contains("NVTX ranges are another tool's"), "{report:#}");
}

#[test]
fn child_without_our_library_is_left_alone() {
    let Some(environment) = nvtx("nvtx::child_without_our_library_is_left_alone") else { return };
    let traced = run_command(built(environment, "nvtx_child.c", &[])).go().expect_code(0);
    assert_eq!(traced.ended.stdout, "set 1 1\n");
}

#[test]
fn ranges_that_are_not_asked_for_are_not_recorded() {
    let test = "nvtx::ranges_that_are_not_asked_for_are_not_recorded";
    let Some(environment) = nvtx(test) else { return };
    let program = built(environment, "nvtx_ranges.c", &[]);
    let without = |run: Run| {
        let traced = run.succeed();
        assert!(names(&traced.report()).is_empty());
        assert!(traced.ended.stdout.starts_with("before -2\n"), "{}", traced.ended.stdout);
        assert!(!traced.read("summary.txt").contains("Ranges"));
    };
    without(run_with(&["--stacks", "python"], &program));
    without(bare_command(&program).env("GPUTRACE_STACKS", "none"));
}
