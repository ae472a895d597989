//! What the preload library asks of the machine that it is loaded on.

use std::path::Path;
use std::process::Command;

use crate::harness::needs;
use crate::harness::process::finish;
use crate::harness::program::{Link, compiled};
use crate::harness::root::Root;
use crate::harness::tool::{self, bare, count};

/// What `readelf` says of a file; it comes with the compiler that the tests need.
fn readelf(option: &str, file: &Path) -> String {
    finish(Command::new("readelf").arg("-W").arg(option).arg(file)).expect_code(0).stdout
}

#[test]
fn library_needs_the_c_library_alone() {
    let dynamic = readelf("-d", tool::library());
    let needed = dynamic.lines().filter(|line| line.contains("(NEEDED)"));
    let needed: Vec<_> = needed.filter_map(|line| line.split(['[', ']']).nth(1)).collect();
    assert!(needed.contains(&"libc.so.6"), "{dynamic}");
    // glibc's own parts; those but the first and the loader are a part of the first since 2.34.
    let glibc = ["libc.so.6", "ld-linux-x86-64.so.2", "libm.so.6", "libpthread.so.0", "libdl.so.2"];
    assert!(needed.iter().all(|library| glibc.contains(library)), "{needed:?}");
}

/// The program's exceptions must go to the unwinder that it was linked with.
#[test]
fn library_exports_no_unwinder() {
    let symbols = readelf("--dyn-syms", tool::library());
    assert!(symbols.contains(" cuLaunchKernel"), "{symbols}");
    let unwinder: Vec<_> = symbols.lines().filter(|line| line.contains("_Unwind_")).collect();
    assert!(unwinder.is_empty(), "{unwinder:#?}");
}

#[test]
fn programs_start_in_an_image_without_libgcc() {
    let test = "programs_start_in_an_image_without_libgcc";
    let Some(root) = Root::with(test, &[&compiled("nothing", Link::Nothing), tool::library()]) else {
        return;
    };
    if root.has("libgcc_s.so.1") {
        return needs::skipped(test, "the C library of this machine needs libgcc_s itself");
    }
    let alone = finish(&mut root.command(&compiled("nothing", Link::Nothing))).expect_code(0);
    let mut preloaded = root.command(&compiled("nothing", Link::Nothing));
    let traced = finish(preloaded.env("LD_PRELOAD", tool::library())).expect_code(0);
    assert_eq!((traced.stdout, traced.stderr), (alone.stdout, alone.stderr));
}

/// The frames of a hook are unwound by the process's own unwinder, which finds its functions in
/// the library that does not need it.
#[test]
fn thread_may_end_inside_a_call() {
    let other = compiled("ends_inside", Link::Shared);
    let program = compiled("thread_ends_inside", Link::Driver);
    let mut alone = Command::new(&program);
    tool::clean(&mut alone);
    alone.env("LD_PRELOAD", &other).env("LD_LIBRARY_PATH", tool::simulated_folder());
    let expected = finish(&mut alone).expect_code(0).stdout;
    assert_eq!(expected, "the thread's result: null, cleaned up: 1\n");
    let order = format!("{}:{}", tool::library().display(), other.display());
    let traced = bare("thread_ends_inside").env("LD_PRELOAD", order).succeed();
    assert_eq!(traced.ended.stdout, expected);
    assert_eq!(count(&traced.report(), "launches"), 2);
    // Inside of a launch of a paused session too, where what the hook began has no end.
    let traced = bare("thread_ends_inside").arg("launch").env("GPUTRACE_START_PAUSED", "on");
    let order = format!("{}:{}", tool::library().display(), other.display());
    let traced = traced.env("LD_PRELOAD", order).succeed();
    assert_eq!(traced.ended.stdout, expected);
    assert_eq!(count(&traced.report()["recording"], "paused_launches"), 2);
    // Inside of one that is recorded the thread leaves the hook, so that its last launch is recorded too: the
    // first one of a function takes other steps than a later one.
    for later in [false, true] {
        let mut traced = bare("thread_ends_inside").arg("launch").arg("again");
        if later {
            traced = traced.arg("later");
        }
        let order = format!("{}:{}", tool::library().display(), other.display());
        let traced = traced.env("LD_PRELOAD", order).succeed();
        assert_eq!(traced.ended.stdout, expected);
        let report = traced.report();
        let launches = if later { 4 } else { 3 };
        assert_eq!((count(&report, "launches"), &report["dropped"]), (launches, &serde_json::json!({})));
    }
}
