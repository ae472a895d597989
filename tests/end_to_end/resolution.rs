//! Every way to a driver entry leads through a hook, and look-ups that fail, fail as ever.

use std::process::Command;

use crate::harness::life::same_as_untraced;
use crate::harness::process::finish;
use crate::harness::program::{Link, compiled};
use crate::harness::tool::{self, bare, calls, count, run};

#[track_caller]
fn launches_through(how: &str) {
    let report = run("resolve").arg(how).succeed().report();
    assert_eq!(count(&report, "launches"), 3, "{how}");
    assert_eq!(calls(&report, "first_kernel"), 3, "{how}");
    assert_eq!(count(&report, "device_only"), 0, "{how}");
}

macro_rules! ways {
    ($($name:ident: $how:literal;)*) => { $(#[test] fn $name() { launches_through($how); })* };
}

ways! {
    dlsym_from_a_handle: "dlsym";
    dlsym_default: "default";
    dlsym_next: "next";
    the_per_thread_flavour: "per_thread";
    get_proc_address_version_1: "v1";
    get_proc_address_version_2: "v2";
    get_proc_address_per_thread: "v2_per_thread";
    get_proc_address_asked_for_through_itself: "asked_for_itself";
    get_proc_address_as_cudart_does: "dlsym_then_v2";
}

/// The program's view with the library must be the view without, word for word.
#[track_caller]
fn look_ups_are_the_same_with_and_without_us(
    program: &std::path::Path,
    arguments: &[&std::ffi::OsStr],
    simulated: bool,
) -> String {
    let view = |traced: bool| {
        let mut command = Command::new(program);
        tool::clean(&mut command);
        command.args(arguments);
        if traced {
            command.env("LD_PRELOAD", tool::library());
        }
        if simulated {
            command.env("LD_LIBRARY_PATH", tool::simulated_folder());
        }
        finish(&mut command).expect_code(0).stdout
    };
    let without = view(false);
    assert_eq!(view(true), without);
    without
}

#[test]
fn linker_errors_are_the_programs() {
    let seen =
        look_ups_are_the_same_with_and_without_us(&compiled("linker_errors", Link::Nothing), &[], false);
    assert!(seen.contains("dlopen: /nonexistent/first.so: cannot open"), "{seen}");
}

#[test]
fn look_ups_without_cuda_fail_as_ever() {
    let seen = look_ups_are_the_same_with_and_without_us(&compiled("look_ups", Link::Nothing), &[], false);
    assert!(seen.contains("RTLD_DEFAULT cuInit: nothing"), "{seen}");
    assert!(seen.contains("libm cos: found"), "{seen}");
    assert!(seen.contains("RTLD_DEFAULT cuptiSubscribe: nothing"), "{seen}");
}

/// We load CUPTI for ourselves, and the program is not to find it.
#[test]
fn program_that_loads_no_cupti_finds_none_while_it_is_traced() {
    let traced = same_as_untraced("probes_cupti", &[]);
    traced.launches(3);
    assert!(traced.run.ended.stdout.contains("cuptiSubscribe: nothing"), "{}", traced.run.ended.stdout);
}

#[test]
fn local_plugin_finds_what_is_in_its_own_scope() {
    let plugin = compiled("plugin", Link::DriverShared);
    let host = compiled("plugin_host", Link::Nothing);
    let seen = look_ups_are_the_same_with_and_without_us(&host, &[plugin.as_os_str()], true);
    assert!(seen.contains("cuLaunchKernel: plugin default found"), "{seen}");
    assert!(seen.contains("no_such_symbol: plugin default nothing"), "{seen}");
}

/// Where another preloaded library stands.
#[derive(Clone, Copy, Debug)]
enum Other {
    BeforeUs,
    AfterUs,
}

/// A program with another interposer beside us says what it says with that one alone, and its
/// launches are recorded.
#[track_caller]
fn beside(interposer: &str, how: &str, place: Other, program: &str, argument: &str, launches: u64) {
    let other = compiled(interposer, Link::Shared);
    let mut alone = Command::new(compiled(program, Link::Driver));
    tool::clean(&mut alone);
    alone.arg(argument).env("INTERPOSER", how).env("LD_PRELOAD", &other);
    let expected = finish(alone.env("LD_LIBRARY_PATH", tool::simulated_folder())).expect_code(0).stdout;
    assert!(expected.contains("saw"), "{expected}");
    let (ours, other) = (tool::library().display(), other.display());
    let order = match place {
        Other::BeforeUs => format!("{other}:{ours}"),
        Other::AfterUs => format!("{ours}:{other}"),
    };
    let traced = bare(program).arg(argument).env("INTERPOSER", how).env("LD_PRELOAD", order).succeed();
    let case = format!("{interposer} {how} {place:?} {program} {argument}");
    assert_eq!(traced.ended.stdout, expected, "{case}");
    let report = traced.report();
    assert_eq!(count(&report, "launches"), launches, "{case}: {report:#}");
    assert_eq!(count(&report, "device_only"), 0, "{case}");
}

#[test]
fn interposer_before_us_may_look_up_by_handle() {
    for how in ["handle", "early"] {
        beside("interposer", how, Other::BeforeUs, "basic", "", 10);
    }
}

#[test]
fn interposer_before_us_may_look_up_the_next() {
    beside("interposer", "next", Other::BeforeUs, "basic", "", 10);
}

#[test]
fn interposer_after_us_may_look_up_by_handle() {
    for how in ["handle", "early"] {
        beside("interposer", how, Other::AfterUs, "basic", "", 10);
    }
}

#[test]
fn interposer_after_us_may_look_up_the_next() {
    beside("interposer", "next", Other::AfterUs, "basic", "", 10);
}

#[test]
fn interposer_s_function_is_the_default_one() {
    for place in [Other::BeforeUs, Other::AfterUs] {
        beside("interposer", "handle", place, "resolve", "default", 3);
    }
}

#[test]
fn interposer_is_passed_by_a_look_up_that_passes_it_without_us() {
    for place in [Other::BeforeUs, Other::AfterUs] {
        beside("interposer", "handle", place, "resolve", "v2", 3);
    }
    beside("interposer", "handle", Other::BeforeUs, "resolve", "dlsym", 3);
}

#[test]
fn dlsym_may_be_hooked_before_us() {
    for (how, launches) in [("dlsym", 3), ("default", 3), ("v2", 3)] {
        beside("look_up_hook", "", Other::BeforeUs, "resolve", how, launches);
    }
}

#[test]
fn dlsym_may_be_hooked_after_us() {
    for (how, launches) in [("dlsym", 3), ("v2", 3)] {
        beside("look_up_hook", "", Other::AfterUs, "resolve", how, launches);
    }
}

/// What our `dlsym` needs to find libc's must not be what is being looked up.
#[test]
fn wrappers_of_libc_functions_find_the_real_ones_through_us() {
    let (ours, other) = (tool::library().display().to_string(), compiled("wraps_libc", Link::Shared));
    let other = other.display().to_string();
    for order in [format!("{other}:{ours}"), format!("{ours}:{other}")] {
        for switch in ["off", "on"] {
            let mut command = Command::new("/bin/echo");
            tool::clean(&mut command);
            command.arg("there").env("LD_PRELOAD", &order).env("GPUTRACE", switch);
            assert_eq!(finish(&mut command).expect_code(0).stdout, "there\n", "{order} {switch}");
        }
        let traced = bare("basic").env("LD_PRELOAD", &order).succeed();
        assert_eq!(count(&traced.report(), "launches"), 10, "{order}");
    }
}
