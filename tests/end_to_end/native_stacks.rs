//! Native stacks: the C, C++ and Python frames of every launch, in order, named from the files that were
//! mapped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use gputrace_wire::definition::kind;

use crate::harness::folder::Folder;
use crate::harness::recorded::Recorded;
use crate::harness::tool::{self, Traced, run_with};

mod libraries;
mod memory;
mod python;

const NATIVE: [&str; 2] = ["--stacks", "native"];

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name)
}

/// Compiles without frame pointers, and links to the driver.
fn build(compiler: &str, source: &Path, options: &[&str], to: &Path) {
    let mut command = Command::new(compiler);
    command.args(["-O2", "-fomit-frame-pointer", "-pthread", "-Wall", "-Wno-unused-function"]).args(options);
    command.arg("-I").arg(source.parent().unwrap()).arg("-o").arg(to).arg(source);
    command.arg("-L").arg(tool::simulated_folder()).args(["-l:libcuda.so.1", "-ldl"]);
    let output = command.output().unwrap_or_else(|error| panic!("{compiler} is needed: {error}"));
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
}

/// The line of a program that bears the mark `line: NAME`.
fn line(program: &str, mark: &str) -> usize {
    let text = fs::read_to_string(source(program)).unwrap();
    let found = text.lines().position(|line| line.contains(&format!("/* line: {mark} */")));
    found.unwrap_or_else(|| panic!("no line {mark}")) + 1
}

/// The frames of each folded line, from the thread's on to the call.
fn stacks(folded: &str) -> Vec<Vec<String>> {
    let of_line = |line: &str| {
        let (frames, weight) = line.rsplit_once(' ').unwrap();
        assert!(weight.parse::<u64>().is_ok(), "{line}");
        let frames: Vec<String> = frames.split(';').map(str::to_owned).collect();
        let call = frames.iter().rposition(|frame| frame.starts_with("cuLaunch")).unwrap();
        frames[2..call].to_vec()
    };
    folded.lines().map(of_line).collect()
}

#[track_caller]
fn assert_one(stacks: &[Vec<String>], expected: &[String]) {
    assert!(stacks.iter().any(|stack| stack == expected), "{expected:#?}\nis not among {stacks:#?}");
}

/// Only those parts of a stack that a test knows all about, by function.
fn functions<'s>(stack: &'s [String], known: &[&str]) -> Vec<&'s str> {
    let names = stack.iter().map(|frame| frame.split(' ').next().unwrap());
    names.filter(|name| known.contains(name)).collect()
}

const CHAIN: [&str; 12] = [
    "main",
    "compared",
    "with_variable_room",
    "with_aligned",
    "with_room",
    "inlined",
    "launch_blocks",
    "in_thread",
    "interrupted",
    "in_handler",
    "deep",
    "[truncated]",
];

fn chain(options: &[&str]) -> (Traced, Folder) {
    let folder = Folder::new();
    let program = folder.join("native_chain");
    build("cc", &source("native_chain.c"), options, &program);
    (run_with(&NATIVE, &program).succeed(), folder)
}

/// The loader says the bounds of one segment then, which begins without the image's headers.
#[test]
fn program_whose_segments_leave_a_gap_has_its_frames() {
    let names = |options: &[&str]| {
        let (traced, _folder) = chain(options);
        let stacks = stacks(&traced.read("flame.folded"));
        stacks.iter().map(|stack| functions(stack, &CHAIN).join(" ")).collect::<Vec<_>>()
    };
    let whole = names(&[]);
    assert_eq!(whole.len(), 5, "{whole:#?}");
    assert_eq!(names(&["-Wl,--section-start=.data=0x1000000"]), whole);
    assert_eq!(names(&["-no-pie", "-Wl,--section-start=.data=0x1000000"]), whole);
}

#[test]
fn calls_have_their_lines_and_inlined_functions() {
    let (traced, _folder) = chain(&["-g"]);
    let stacks = stacks(&traced.read("flame.folded"));
    assert_eq!(stacks.len(), 6, "{stacks:#?}");
    let at = |mark: &str| {
        let function = mark.split('.').next().unwrap();
        format!("{function} native_chain.c:{}", line("native_chain.c", mark))
    };
    let text = fs::read_to_string(source("native_chain.c")).unwrap();
    let call = text.lines().position(|line| line.contains("OK(cuLaunchKernel(")).unwrap() + 1;
    let mut expected: Vec<String> = ["main", "with_variable_room", "with_aligned", "with_room", "inlined"]
        .iter()
        .map(|mark| at(mark))
        .collect();
    expected.push(format!("launch_blocks native_chain.c:{call}"));
    assert_one(&stacks, &expected);
    // Through the C library's sort, on the way there and back.
    let sorted = stacks.iter().find(|stack| stack.iter().any(|frame| frame.starts_with("compared"))).unwrap();
    let known = functions(sorted, &CHAIN);
    assert_eq!(known[0], "main");
    assert_eq!(
        known[known.len() - 5..],
        ["with_variable_room", "with_aligned", "with_room", "inlined", "launch_blocks"]
    );
    let report = traced.report();
    let charged = &report["lines"][0];
    assert_eq!(
        (charged["function"].as_str(), charged["line"].as_u64()),
        (Some("launch_blocks"), Some(call as u64))
    );
    assert_eq!(charged["charged_calls"], 6);
    let lines = report["lines"].as_array().unwrap();
    let own: Vec<_> = lines.iter().filter(|line| line["own"] == true).map(|line| &line["path"]).collect();
    // Modules are loaded from the header that all programs share.
    let sources = ["native_chain.c", "driver.h"].map(|name| source(name).to_str().unwrap().to_owned());
    let is_one = |path: &&serde_json::Value| sources.iter().any(|source| **path == **source);
    assert!(own.len() >= 6 && own.iter().all(is_one), "{own:?}");
}

#[test]
fn threads_begin_with_the_programs_own_function() {
    let (traced, _folder) = chain(&["-g"]);
    let stacks = stacks(&traced.read("flame.folded"));
    let in_thread = stacks.iter().find(|stack| stack[0].starts_with("in_thread")).unwrap();
    assert_eq!(functions(in_thread, &CHAIN), ["in_thread", "with_room", "inlined", "launch_blocks"]);
    assert_eq!(in_thread.len(), 4, "{in_thread:?}");
}

#[test]
fn signal_handlers_are_followed_to_what_they_interrupted() {
    let (traced, _folder) = chain(&["-g"]);
    let stacks = stacks(&traced.read("flame.folded"));
    // One on a stack of its own, one not.
    let raised: Vec<_> =
        stacks.iter().filter(|stack| stack[1..].iter().any(|f| f.starts_with("interrupted"))).collect();
    assert_eq!(raised.len(), 2, "{stacks:#?}");
    for stack in raised {
        let known = functions(stack, &CHAIN);
        assert_eq!(known[..2], ["main", "interrupted"]);
        assert_eq!(known[known.len() - 3..], ["with_room", "inlined", "launch_blocks"]);
    }
}

#[test]
fn deep_recursion_is_cut_and_marked() {
    let (traced, _folder) = chain(&["-g"]);
    let stacks = stacks(&traced.read("flame.folded"));
    let deep = stacks.iter().find(|stack| stack.len() > 100).unwrap();
    assert_eq!(deep[0], "[truncated]");
    assert!((250..=256).contains(&deep.len()), "{}", deep.len());
    assert!(deep[1..deep.len() - 1].iter().all(|frame| frame.starts_with("deep native_chain.c")));
}

#[test]
fn program_without_symbols_has_addresses() {
    let (traced, folder) = chain(&["-s"]);
    let stacks = stacks(&traced.read("flame.folded"));
    let own = |frame: &String| frame.starts_with("[native_chain+0x") && frame.ends_with(']');
    // main and four of its functions, of which none is inlined for all that can be known.
    assert!(stacks.iter().any(|stack| stack.len() == 5 && stack.iter().all(own)), "{stacks:#?}");
    // The same addresses in a program with symbols are those functions.
    let named = folder.join("named");
    build("cc", &source("native_chain.c"), &[], &named);
    let traced = run_with(&NATIVE, &named).succeed();
    let stacks = self::stacks(&traced.read("flame.folded"));
    let functions = ["main", "with_variable_room", "with_aligned", "with_room", "launch_blocks"];
    assert_one(&stacks, &functions.map(|function| format!("{function} named")));
    let lines = traced.report()["lines"].as_array().unwrap().clone();
    assert!(
        lines.iter().any(|line| line["function"] == "launch_blocks" && line["line"].is_null()),
        "{lines:#?}"
    );
}

#[test]
fn names_of_cpp_are_those_of_the_source() {
    let folder = Folder::new();
    let program = folder.join("native_names");
    build("c++", &source("native_names.cpp"), &[], &program);
    let traced = run_with(&NATIVE, &program).succeed();
    let stacks = stacks(&traced.read("flame.folded"));
    let expected = [
        "main native_names",
        "simulation::Grid::step native_names",
        "simulation::Grid::step(char const*, int)::{lambda(int)#1}::operator() const native_names",
        "simulation::Grid::operator< native_names",
        "simulation::(anonymous namespace)::relax<double> native_names",
    ];
    assert_one(&stacks, &expected.map(str::to_owned));
}

#[test]
fn odd_file_names_keep_folded_lines_apart() {
    let folder = Folder::new();
    let odd = folder.join("odd;name\n 7.c");
    fs::copy(source("native_names.cpp"), &odd).unwrap();
    fs::copy(source("driver.h"), folder.join("driver.h")).unwrap();
    let program = folder.join("odd;program 9");
    build("c++", &odd, &["-g", "-x", "c++"], &program);
    let traced = run_with(&NATIVE, &program).succeed();
    let folded = traced.read("flame.folded");
    assert_eq!(folded.lines().count(), 1, "{folded}");
    let stacks = stacks(&folded);
    assert!(stacks[0][0].starts_with("main odd:name"), "{folded}");
    assert!(stacks[0].len() >= 5);
}

#[test]
fn native_frames_are_recorded_on_request_only() {
    let folder = Folder::new();
    let program = folder.join("native_chain");
    build("cc", &source("native_chain.c"), &["-g"], &program);
    let options: [&[&str]; 3] = [&[], &["--stacks", "python,nvtx"], &["--stacks", "none"]];
    for options in options {
        let recorded = Recorded::of(&run_with(options, &program).succeed());
        let any =
            recorded.definitions.values().any(|record| [kind::IMAGE, kind::STACK].contains(&record.kind));
        assert!(!any && recorded.launches.iter().all(|(_, stack)| *stack == 0), "{options:?}");
    }
}

/// Those that come when the tables are full are counted, and whatever was known stays.
#[test]
fn stacks_beyond_capacity_are_counted() {
    const LAUNCHES: u64 = 1 << 17;
    const STACKS: usize = 1 << 16;
    let folder = Folder::new();
    let program = folder.join("native_many");
    build("cc", &source("native_many.c"), &[], &program);
    let options = ["--stacks", "native", "--device-times", "off", "--on-full", "wait"];
    let traced = run_with(&options, &program).succeed();
    let recorded = Recorded::of(&traced);
    let dropped = &traced.report()["dropped"];
    let counted = recorded.counter("stacks_full");
    assert_eq!(tool::count(dropped, "stacks_full"), counted);
    // A collector that gets no processor loses some, with a stack or without.
    let lost = dropped["ring_full"].as_u64().unwrap_or(0);
    let all = recorded.launches.len() as u64 + lost;
    assert!((LAUNCHES..=LAUNCHES + 1).contains(&all), "{all}: {dropped:#}");
    let known = recorded.launches.iter().take_while(|(_, stack)| *stack != 0).count();
    let (with, without) = recorded.launches.split_at(known);
    assert!(without.iter().all(|(_, stack)| *stack == 0), "one that came later has a stack");
    // And the wait at the end.
    let least = without.len() as u64 + 1;
    assert!((least..=least + lost).contains(&counted), "{counted} counted, {least} seen, {lost} lost");
    let stacks = recorded.definitions.values().filter(|record| record.kind == kind::STACK).count();
    assert_eq!(stacks, STACKS);
    let frames = |stack: &u32| recorded.definitions[stack].fields.as_chunks::<2>().0.len();
    assert!(with.iter().all(|(_, stack)| frames(stack) > 18));
}
