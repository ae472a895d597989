//! A library of the program's that was linked to a static libcupti, as PyTorch's were up to 1.13: its
//! CUPTI finds the driver free, or it is said that it cannot.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::folder::Folder;
use crate::harness::process::finish;
use crate::harness::tool::{self, Traced, calls, count, dropped, run_command};

/// What such a library is known by.
const OF_CUPTI: [&str; 2] = ["-DMARK", "-DNEEDS"];
const LAUNCHES: u64 = 12;
const BEFORE_THE_CLIENT: u64 = 5;

struct Programs {
    folder: Folder,
}

impl Programs {
    fn new() -> Self {
        Self { folder: Folder::new() }
    }

    fn compile(&self, source: &str, output: &str, arguments: &[&str]) -> PathBuf {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
        let output = self.folder.join(output);
        let mut compiler = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
        compiler.args([
            "-std=gnu11",
            "-O1",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-Wno-unused-function",
            "-pthread",
        ]);
        compiler.arg("-o").arg(&output).arg(sources.join(source)).args(arguments).arg("-ldl");
        let ended = compiler.output().expect("a C compiler (cc) is needed");
        assert!(ended.status.success(), "{compiler:?}\n{}", String::from_utf8_lossy(&ended.stderr));
        output
    }

    fn library(&self, definitions: &[&str]) -> PathBuf {
        self.library_named("libinner.so", definitions)
    }

    fn library_named(&self, name: &str, definitions: &[&str]) -> PathBuf {
        let arguments = [&["-shared", "-fPIC"], definitions].concat();
        self.compile("inner_cupti.c", name, &arguments)
    }

    /// A program that loads it, or that is linked to `library`.
    fn host(&self, library: Option<&Path>) -> PathBuf {
        let simulated = format!("-L{}", tool::simulated_folder().display());
        let mut arguments = vec![simulated.as_str(), "-l:libcuda.so.1", "-Wl,--no-as-needed"];
        let path = format!("-Wl,-rpath,{}", self.folder.join("").display());
        if let Some(library) = library {
            arguments.extend(["-DLINKED", library.to_str().unwrap(), &path]);
        }
        self.compile("inner_cupti_host.c", "host", &arguments)
    }

    /// A copy of the simulated libcupti, which knows its version by its name.
    fn cupti(&self, name: &str) -> PathBuf {
        let copy = self.folder.join(name);
        fs::copy(tool::simulated_folder().join("libcupti.so"), &copy).unwrap();
        copy
    }
}

fn alone(program: &Path, arguments: &[&Path]) -> String {
    let mut command = Command::new(program);
    tool::clean(&mut command);
    finish(command.args(arguments).env("LD_LIBRARY_PATH", tool::simulated_folder())).expect_code(0).stdout
}

fn traced(program: &Path, arguments: &[&Path], cupti: Option<&Path>) -> Traced {
    let run = arguments.iter().fold(run_command(program), |run, argument| run.arg(argument));
    match cupti {
        Some(cupti) => run.env("GPUTRACE_CUPTI", cupti),
        None => run,
    }
    .succeed()
}

/// All launches are there, so many of them with device times.
#[track_caller]
fn expect_timed(traced: &Traced, timed: u64) {
    let report = traced.report();
    assert_eq!((count(&report, "launches"), calls(&report, "first_kernel")), (LAUNCHES, LAUNCHES));
    assert_eq!(report["kernels"][0]["timed_calls"], timed, "{report:#}");
    assert_eq!(dropped(&report), 0, "{report:#}");
}

/// Where the program says the same untraced: its client got what it asked for.
fn expected_of(program: &Path, arguments: &[&Path]) -> String {
    let expected = alone(program, arguments);
    for text in ["the driver is there", "register 0", "subscribe 0", "7 of kind 10", " callbacks"] {
        assert!(expected.contains(text), "{text}: {expected}");
    }
    expected
}

#[test]
fn of_a_library_that_is_there_at_cuinit_it_is_left_alone() {
    for when in ["linked", "before"] {
        let programs = Programs::new();
        let library = programs.library(&[&OF_CUPTI[..], &["-DMIB=4", "-DDEVICE_MIB=4"]].concat());
        let host = programs.host((when == "linked").then_some(&library));
        let copy = programs.cupti("inner.so.version-130001");
        let arguments = [Path::new(when), &library, &copy];
        let expected = expected_of(&host, &arguments);
        let traced = traced(&host, &arguments, None);
        assert_eq!(traced.ended.stdout, expected, "{when}");
        expect_timed(&traced, 0);
        let said = "no device times: libinner.so has a CUPTI linked in";
        assert!(traced.summary_words().contains(said), "{}", traced.read("summary.txt"));
        let line = format!("gputrace: {said}");
        assert_eq!(traced.ended.stderr.matches(&line).count(), 1, "{}", traced.ended.stderr);
    }
}

#[test]
fn of_a_library_that_comes_later_it_gets_the_driver_if_ours_lets_go() {
    let programs = Programs::new();
    let (library, host) = (programs.library(&OF_CUPTI), programs.host(None));
    let (ours, theirs) =
        (programs.cupti("libcupti.so.version-28"), programs.cupti("inner.so.version-130001"));
    let arguments = [Path::new("after"), &library, &theirs];
    let expected = expected_of(&host, &arguments);
    let traced = traced(&host, &arguments, Some(&ours));
    assert_eq!(traced.ended.stdout, expected);
    expect_timed(&traced, BEFORE_THE_CLIENT);
    let said = "no device times from here on: the CUPTI linked into libinner.so took CUPTI over";
    assert!(traced.summary_words().contains(said), "{}", traced.read("summary.txt"));
}

/// What asked there before held none, asked often, and was unloaded.
#[test]
fn of_a_library_that_comes_to_lie_where_another_asked_it_is_found() {
    let programs = Programs::new();
    let (library, host) = (programs.library(&OF_CUPTI), programs.host(None));
    let other = programs.library_named("libother.so", &["-DNEEDS"]);
    let (ours, theirs) =
        (programs.cupti("libcupti.so.version-28"), programs.cupti("inner.so.version-130001"));
    let arguments = [Path::new("after"), &library, &theirs, &other];
    let expected = expected_of(&host, &arguments);
    assert!(expected.contains("in the same place"), "{expected}");
    let traced = traced(&host, &arguments, Some(&ours));
    assert_eq!(traced.ended.stdout, expected);
    expect_timed(&traced, BEFORE_THE_CLIENT);
    let said = "the CUPTI linked into libinner.so took CUPTI over";
    assert!(traced.summary_words().contains(said), "{}", traced.read("summary.txt"));
}

/// CUPTI 13.0 never lets go of the driver, so the other is refused: once that is said, in both places.
#[test]
fn of_a_library_that_comes_later_it_is_refused_and_said_if_ours_never_lets_go() {
    let programs = Programs::new();
    let (library, host) = (programs.library(&OF_CUPTI), programs.host(None));
    let (ours, theirs) =
        (programs.cupti("libcupti.so.version-130001"), programs.cupti("inner.so.version-26"));
    let traced = traced(&host, &[Path::new("after"), &library, &theirs], Some(&ours));
    assert!(traced.ended.stdout.contains("subscribe 39\n"), "{}", traced.ended.stdout);
    expect_timed(&traced, LAUNCHES);
    let said = "the CUPTI linked into libinner.so cannot have the driver";
    assert!(traced.summary_words().contains(said), "{}", traced.read("summary.txt"));
    let line = format!("gputrace: {said}");
    assert_eq!(traced.ended.stderr.matches(&line).count(), 1, "{}", traced.ended.stderr);
}

/// A library may ask for the driver's tables and hold no CUPTI.
#[test]
fn a_library_without_one_changes_nothing() {
    let programs = Programs::new();
    let (library, host) = (programs.library(&["-DNEEDS"]), programs.host(None));
    let theirs = programs.cupti("libcupti.so.version-28");
    for when in ["before", "after"] {
        let arguments = [Path::new(when), &library, &theirs];
        let traced = traced(&host, &arguments, None);
        assert!(traced.ended.stdout.contains("the driver is there"), "{}", traced.ended.stdout);
        assert!(traced.ended.stdout.contains("subscribe 39\n"), "it is nobody's that we know");
        expect_timed(&traced, LAUNCHES);
        assert!(!traced.ended.stderr.contains("linked in"), "{when}: {}", traced.ended.stderr);
    }
}

/// What is searched is fetched into memory, so that shows how much it was.
#[test]
fn of_a_big_library_nothing_is_searched_or_a_part() {
    const BIG: &str = "-DMIB=80";
    for (definitions, least_kb, most_kb) in
        [(&[BIG][..], 0, 2 << 10), (&[BIG, "-DNEEDS"], 40 << 10, 60 << 10)]
    {
        let programs = Programs::new();
        let (library, host) = (programs.library(definitions), programs.host(None));
        let traced = traced(&host, &[Path::new("before"), &library], None);
        let in_memory_kb: u64 = traced.ended.stdout.trim().trim_end_matches(" kB").parse().unwrap();
        assert!((least_kb..=most_kb).contains(&in_memory_kb), "{definitions:?}: {in_memory_kb} kB");
        expect_timed(&traced, LAUNCHES);
    }
}
