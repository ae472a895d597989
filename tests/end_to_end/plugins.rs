//! Libraries that use CUDA and come and go while the program runs.

use std::process::Command;

use crate::harness::process::finish;
use crate::harness::program::{Link, compiled};
use crate::harness::tool::{self, Traced, count, dropped, run_command};

/// The program says what it says without us; what was recorded is returned.
#[track_caller]
fn loads(times: u32, how: &str) -> Traced {
    let plugin = compiled("cuda_plugin", Link::DriverShared);
    let program = compiled("loads_plugin", Link::Nothing);
    let mut alone = Command::new(&program);
    tool::clean(&mut alone);
    alone.arg(&plugin).arg(times.to_string()).arg(how).env("LD_LIBRARY_PATH", tool::simulated_folder());
    let expected = finish(&mut alone).expect_code(5).stdout;
    assert_eq!(expected, format!("{} launches, the plugin stayed 0 times\n", 2 * times));
    let traced = run_command(&program).arg(&plugin).arg(times.to_string()).arg(how).go().expect_code(5);
    assert_eq!(traced.ended.stdout, expected, "{}", traced.ended.stderr);
    traced
}

#[test]
fn plugin_may_be_unloaded_and_loaded_again_fifty_times() {
    for how in ["local", "global"] {
        let report = loads(50, how).report();
        assert_eq!(count(&report, "launches"), 100, "{how}: {report:#}");
        assert_eq!(count(&report, "device_only"), 0, "{how}");
        assert_eq!(dropped(&report), 0, "{how}");
    }
}

/// Its own scope comes first for such a plugin, and we are not in it: it runs as ever, and that
/// nothing was seen is said.
#[test]
fn deep_bound_plugin_runs_as_ever_and_is_reported_as_not_traced() {
    let traced = loads(3, "deep");
    assert_eq!(count(&traced.report(), "launches"), 0);
    assert!(traced.ended.stderr.contains("No CUDA call was seen: "), "{}", traced.ended.stderr);
}

/// Where the program itself is traced, what such a plugin does on the device is known, and not who
/// asked for it.
#[test]
fn deep_bound_plugin_of_a_traced_program_shows_as_device_records_without_a_call() {
    let plugin = compiled("cuda_plugin", Link::DriverShared);
    let traced = run_command(compiled("deep_host", Link::Driver)).arg(&plugin).go().expect_code(5);
    assert_eq!(traced.ended.stdout, "2 launches by the plugin\n");
    let report = traced.report();
    assert_eq!((count(&report, "launches"), count(&report, "device_only")), (3, 2), "{report:#}");
    assert!(traced.ended.stderr.contains("2 device-only"), "{}", traced.ended.stderr);
}
