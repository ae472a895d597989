//! What is counted, and that it is exact.

use std::fs;

use crate::harness::folder::Folder;
use crate::harness::process::finish;
use crate::harness::program::{Link, compiled};
use crate::harness::tool::{calls, count, dropped, gputrace, report, run, transfers};

#[test]
fn launches_copies_and_fills_are_all_there() {
    let traced = run("basic").succeed();
    let report = traced.report();
    assert_eq!(report["simulated"], true);
    assert_eq!(count(&report, "launches"), 10);
    assert_eq!(calls(&report, "first_kernel"), 7);
    assert_eq!(calls(&report, "second_kernel"), 3);
    assert_eq!(transfers(&report, "cpu_to_gpu"), (5, 5_000));
    assert_eq!(transfers(&report, "gpu_to_gpu"), (1, 3_000));
    assert_eq!(transfers(&report, "gpu_to_cpu"), (1, 65_536));
    assert_eq!(count(&report, "captured_launches"), 0);
    assert_eq!(count(&report, "device_only"), 0);
    assert_eq!(dropped(&report), 0);
    assert_eq!(report["device_time_coverage"].as_f64(), Some(1.0));
}

#[test]
fn simulated_device_s_own_times_come_out() {
    let report = run("basic").succeed().report();
    let row = |name: &str| {
        let rows = report["kernels"].as_array().unwrap();
        rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("{name}: {report:#}")).clone()
    };
    assert_eq!(row("first_kernel")["total_ns"], 7 * 20_000);
    assert_eq!(row("second_kernel")["total_ns"], 3 * 50_000);
    for field in ["min_ns", "mean_ns", "max_ns"] {
        assert_eq!(row("second_kernel")[field].as_f64(), Some(50_000.0), "{field}");
    }
    for field in ["median_ns", "p99_ns"] {
        let value = row("second_kernel")[field].as_f64().unwrap();
        assert!((value / 50_000.0 - 1.0).abs() <= 0.01, "{field}: {value}");
    }
    let configs = row("first_kernel")["configs"].as_array().unwrap().clone();
    assert_eq!(configs.len(), 1);
    assert_eq!(configs[0]["grid"], serde_json::json!([4, 1, 1]));
    assert_eq!(configs[0]["block"], serde_json::json!([64, 1, 1]));
    assert_eq!(configs[0]["calls"], 7);
}

#[test]
fn refused_launch_executes_nothing() {
    let report = run("failing").succeed().report();
    assert_eq!(count(&report, "launches"), 2);
    assert_eq!(calls(&report, "first_kernel"), 2);
}

#[test]
fn many_launches_lose_none() {
    let report = run("many").arg("50000").env("GPUTRACE_SIM_PACE", "off").succeed().report();
    assert_eq!(count(&report, "launches") + dropped(&report), 50_000);
    assert_eq!(dropped(&report), 0, "{report:#}");
    assert_eq!(calls(&report, "first_kernel"), 50_000);
}

/// Also those of a function whose first launch is like launches by another one.
#[test]
fn launches_are_recorded_by_the_function_that_made_them() {
    let folder = Folder::new();
    let driver = folder.join("driver");
    fs::create_dir(&driver).unwrap();
    fs::copy(compiled("checking_driver", Link::Shared), driver.join("libcuda.so.1")).unwrap();
    let out = folder.join("out");
    let mut run = gputrace();
    run.args(["run", "--device-times", "off", "-o"])
        .arg(&out)
        .arg("--")
        .arg(compiled("launches", Link::Driver));
    finish(run.arg("2").env("LD_LIBRARY_PATH", &driver)).expect_code(0);
    let report = report(&[out.join("trace.gputrace")]);
    let calls = report["calls"].as_array().unwrap();
    for variant in ["cuLaunchKernel", "cuLaunchCooperativeKernel", "cuLaunchKernelEx"] {
        for name in [variant.to_owned(), format!("{variant}_ptsz")] {
            let row =
                calls.iter().find(|row| row["name"] == *name).unwrap_or_else(|| panic!("{name} {calls:#?}"));
            assert_eq!(count(row, "calls"), 2 * 201, "{row:#}");
        }
    }
}
