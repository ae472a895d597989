//! Programs built with a sanitizer run as without us, and are traced.

use std::path::Path;
use std::process::Command;

use crate::harness::folder::Folder;
use crate::harness::life::report_of_all;
use crate::harness::needs;
use crate::harness::process::{Ended, finish};
use crate::harness::sanitizer::{CLANG, GCC, GCC_SHARED_ASAN, Sanitizer};
use crate::harness::tool::{self, Run, Traced, bare_command, count, dropped, run_command};

const ASAN: Sanitizer = GCC_SHARED_ASAN;

/// The simulated driver keeps each thread's list of contexts, also without us.
fn suppressions(folder: &Folder) -> String {
    let file = folder.join("leaks");
    std::fs::write(&file, "leak:libcuda.so.1\n").unwrap();
    format!("suppressions={}:print_suppressions=0", file.display())
}

fn untraced(program: &Path, arguments: &[&str], leaks: &str) -> Ended {
    let mut command = tool::clean_command(program);
    command.args(arguments).env("LD_LIBRARY_PATH", tool::simulated_folder()).env("LSAN_OPTIONS", leaks);
    finish(&mut command)
}

/// The program by itself, and as `run` starts it: same output, same end, all launches.
#[track_caller]
fn same(
    sanitizer: Sanitizer,
    run: impl FnOnce(&Path) -> Run,
    arguments: &[&str],
    how: &str,
) -> (Ended, Traced) {
    let folder = Folder::new();
    let leaks = suppressions(&folder);
    let program = sanitizer.compiled("sanitized", &folder);
    let alone = untraced(&program, arguments, &leaks);
    let run = run(&program).env("LSAN_OPTIONS", &leaks);
    let traced = arguments.iter().fold(run, |run, argument| run.arg(argument)).go();
    let end = |ended: &Ended| (ended.code(), ended.signal(), ended.stdout.clone());
    let said = format!("{sanitizer:?} {how} {arguments:?}\n{alone:#?}\n{:#?}", traced.ended);
    assert_eq!(end(&alone), end(&traced.ended), "{said}");
    let report = report_of_all(&traced);
    assert_eq!((count(&report, "launches"), dropped(&report)), (8, 0), "{said}\n{report:#}");
    (alone, traced)
}

fn under_run(program: &Path) -> Run {
    run_command(program)
}

/// None of these has a library of its own that must come first.
#[test]
fn sanitized_programs_run_and_are_traced() {
    let test = "sanitized_programs_run_and_are_traced";
    for sanitizer in CLANG.into_iter().chain(GCC) {
        if sanitizer.works(test) {
            let (alone, _) = same(sanitizer, under_run, &[], "under run");
            assert_eq!(alone.code(), Some(7), "{alone:#?}");
            same(sanitizer, |program| bare_command(program), &[], "bare");
        }
    }
}

#[test]
fn sanitized_programs_run_where_tracing_is_off() {
    let test = "sanitized_programs_run_where_tracing_is_off";
    for sanitizer in CLANG.into_iter().chain(GCC).chain([ASAN]) {
        if !sanitizer.works(test) {
            continue;
        }
        let folder = Folder::new();
        let (leaks, program) = (suppressions(&folder), sanitizer.compiled("sanitized", &folder));
        let alone = untraced(&program, &[], &leaks);
        let off = run_command(&program).env("GPUTRACE", "off").env("LSAN_OPTIONS", &leaks).go().ended;
        assert_eq!((alone.code(), &alone.stdout), (off.code(), &off.stdout), "{sanitizer:?}\n{off:#?}");
    }
}

/// A sanitizer still finds the program's own faults, and its exit code is the program's.
#[test]
fn sanitized_programs_have_their_faults_reported() {
    let test = "sanitized_programs_have_their_faults_reported";
    for sanitizer in [CLANG[0], GCC[2], ASAN] {
        if sanitizer.works(test) {
            let (alone, traced) = same(sanitizer, under_run, &["address"], "under run");
            assert_ne!(alone.code(), Some(7));
            for ended in [&alone, &traced.ended] {
                assert!(ended.stderr.contains("heap-use-after-free"), "{ended:#?}");
            }
        }
    }
}

/// It ends a process in which another library comes before it: `run` puts it first.
#[test]
fn sanitized_by_gcc_s_shared_asan_runs_and_is_traced() {
    if ASAN.works("sanitized_by_gcc_s_shared_asan_runs_and_is_traced") {
        let (alone, _) = same(ASAN, under_run, &[], "under run");
        assert_eq!(alone.code(), Some(7), "{alone:#?}");
    }
}

/// Bare, its own message stays, and its own option helps, which README's limits say.
#[test]
fn sanitized_by_gcc_s_shared_asan_explains_its_end_with_auto_collect() {
    if !ASAN.works("sanitized_by_gcc_s_shared_asan_explains_its_end_with_auto_collect") {
        return;
    }
    let folder = Folder::new();
    let program = ASAN.compiled("sanitized", &folder);
    let refused = bare_command(&program).go().expect_code(1);
    assert!(refused.ended.stderr.contains("does not come first"), "{refused:#?}");
    let option = |program: &Path| bare_command(program).env("ASAN_OPTIONS", "verify_asan_link_order=0");
    same(ASAN, option, &[], "with its option");
}

/// The sanitizer is preloaded into the program alone: what the program starts is as without it.
#[test]
fn sanitized_programs_start_children_without_a_sanitizer() {
    let test = "sanitized_programs_start_children_without_a_sanitizer";
    if !(needs::python(test) && ASAN.works(test)) {
        return;
    }
    let folder = Folder::new();
    let program = ASAN.compiled("sanitized_children", &folder);
    let ours = tool::library().display().to_string();
    let children = |preload: &str| format!("own {preload}\nsh {preload}\ncode 4\npython {preload}\ncode 6\n");
    let options = "detect_leaks=0";
    let mut alone = tool::clean_command(&program);
    alone.env("LD_LIBRARY_PATH", tool::simulated_folder()).env("ASAN_OPTIONS", options);
    assert_eq!(finish(&mut alone).expect_code(7).stdout, children("none"));
    let traced = run_command(&program).env("ASAN_OPTIONS", options).go().expect_code(7);
    assert_eq!(traced.ended.stdout, children(&ours), "{}", traced.ended.stderr);
    assert_eq!(count(&traced.report(), "launches"), 1);
    // What the user preloads stays behind ours, in children too. gputrace itself gets it as well.
    let traced = run_command(&program).env("ASAN_OPTIONS", options).env("LD_PRELOAD", "libm.so.6").go();
    assert_eq!(traced.expect_code(7).ended.stdout, children(&format!("{ours}:libm.so.6")));
    // And where nothing is traced.
    let off = run_command(&program).env("ASAN_OPTIONS", options).env("GPUTRACE", "off").go().expect_code(7);
    assert_eq!(off.ended.stdout, children(&ours));
}

#[test]
fn sanitized_python_by_preload_runs() {
    let test = "sanitized_python_by_preload_runs";
    if !(needs::python(test) && ASAN.works(test)) {
        return;
    }
    let asan = finish(Command::new("gcc").arg("-print-file-name=libasan.so")).expect_code(0).stdout;
    let asan = asan.trim_end();
    let script = "import ctypes, os, sys\n\
                  driver = ctypes.CDLL('libcuda.so.1')\n\
                  print(driver.cuInit(0), os.environ['LD_PRELOAD'])\n\
                  sys.stdout.flush()\n\
                  sys.exit(os.waitstatus_to_exitcode(os.system('exit 3')))";
    // The interpreter itself: python3 may be a script.
    let which = ["-c", "import sys; print(sys.executable)"];
    let python = finish(Command::new("python3").args(which)).expect_code(0).stdout;
    let both = format!("{asan}:{}", tool::library().display());
    let traced = bare_command(python.trim_end())
        .env("LD_PRELOAD", &both)
        .env("ASAN_OPTIONS", "detect_leaks=0")
        .arg("-c")
        .arg(script)
        .go()
        .expect_code(3);
    assert_eq!(traced.ended.stdout, format!("0 {both}\n"), "{}", traced.ended.stderr);
    assert!(traced.ended.stderr.contains("nothing lost"), "{}", traced.ended.stderr);
}
