//! `gputrace devices`, on a simulated NVML and the simulated CUDA driver.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::folder::Folder;
use crate::harness::nvml::{DEVICE, gputrace_with};
use crate::harness::process::finish;

fn listed(script: &str) -> Value {
    let folder = Folder::new();
    let ended = finish(gputrace_with(script, &folder).args(["devices", "--json"])).expect_code(0);
    serde_json::from_str(&ended.stdout).unwrap()
}

#[test]
fn devices_have_what_both_drivers_know() {
    let listed = listed(DEVICE);
    assert_eq!(listed["problems"], json!([]));
    let device = &listed["devices"][0];
    for (key, value) in [
        ("index", json!(0)),
        ("name", json!("Fake H100")),
        ("vendor", json!("NVIDIA")),
        ("backend", json!("nvml")),
        ("uuid", json!("GPU-1")),
        ("vram_total", json!(80_u64 << 30)),
        ("compute_capability", json!("9.0")),
        ("driver_version", json!("580.95.05")),
        ("cuda_version", json!("13.0")),
        ("pci_bus_id", json!("0000:10:00.0")),
        ("ecc", json!(true)),
        ("max_sm_mhz", json!(1980)),
    ] {
        assert_eq!(device[key], value, "{key}");
    }
    assert_eq!(device["link"]["max_generation"], 5);
    assert_eq!(device["link"]["peak_bytes_per_sec"], 63_015_384_608_u64);
    let cuda = &device["cuda"];
    for (key, value) in [
        ("multiprocessors", json!(132)),
        ("warp_size", json!(32)),
        ("shared_bytes_per_multiprocessor", json!(233_472)),
        ("registers_per_block", json!(65_536)),
        ("l2_cache_bytes", json!(52_428_800)),
        ("max_block", json!([1024, 1024, 64])),
        ("max_grid", json!([2_147_483_647, 65_535, 65_535])),
        ("integrated", json!(false)),
        ("unified_addressing", json!(true)),
        ("concurrent_kernels", json!(true)),
    ] {
        assert_eq!(cuda[key], value, "{key}");
    }
}

#[test]
fn devices_hidden_from_programs_are_listed_too() {
    let folder = Folder::new();
    let mut command = gputrace_with(DEVICE, &folder);
    let ended = finish(command.args(["devices", "--json"]).env("CUDA_VISIBLE_DEVICES", "")).expect_code(0);
    let listed: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(listed["devices"][0]["cuda"]["multiprocessors"], 132);
}

#[test]
fn devices_as_text_have_a_row_for_each_fact() {
    let folder = Folder::new();
    let ended = finish(gputrace_with(DEVICE, &folder).arg("devices")).expect_code(0);
    let row = |name: &str| {
        let line = ended.stdout.lines().find(|line| line.starts_with(&format!("   {name} ")));
        line.map(|line| line[3 + name.len()..].trim().to_owned()).unwrap_or_default()
    };
    assert!(ended.stdout.starts_with("0: Fake H100 (NVIDIA)\n"), "{}", ended.stdout);
    assert_eq!(row("link now"), "generation 4 x16");
    assert_eq!(row("link at most"), "generation 5 x16, 63.0 GB/s each way");
    assert_eq!(row("memory"), "80 GiB");
    assert_eq!(row("clocks at most"), "graphics 1980 MHz, SM 1980 MHz, memory 2619 MHz");
    assert_eq!(row("a block"), "1024 threads, 65536 registers, 48 KiB shared memory, 227 KiB on request");
    assert_eq!(row("NUMA node"), "N/A");
    assert_eq!(ended.stderr, "");
}

#[test]
fn devices_and_the_links_between_them_are_listed() {
    let script = "[device]\nname = A\npci = 00000000:01:00.0\ntopology = 0 30\nnvlink = 1 1\n\
                  [device]\nname = B\npci = 00000000:02:00.0\n";
    let listed = listed(script);
    assert_eq!(listed["links"], json!([{ "devices": [0, 1], "path": "PHB", "nvlinks": 2 }]));
    let folder = Folder::new();
    let ended = finish(gputrace_with(script, &folder).arg("devices")).expect_code(0);
    assert!(ended.stdout.ends_with("links between devices:\n   0 - 1   2 NVLink, PHB\n"), "{}", ended.stdout);
}

/// What a device does not report is null, and no zero.
#[test]
fn device_without_facts_is_listed_without_them() {
    let listed = listed("[device]\n");
    let device = listed["devices"][0].as_object().unwrap();
    for key in ["vram_total", "driver_version", "compute_capability", "uuid", "pci_bus_id", "ecc", "cuda"] {
        assert_eq!(device[key], Value::Null, "{key}");
    }
}

#[test]
fn lost_device_is_warned_about_and_the_others_are_listed() {
    let folder = Folder::new();
    let script = "[device]\nname = A\nlost @ 0s..\n[device]\nname = B\n";
    let ended = finish(gputrace_with(script, &folder).arg("devices")).expect_code(0);
    assert!(ended.stdout.contains("1: B (NVIDIA)\n"), "{}", ended.stdout);
    assert!(ended.stderr.starts_with("gputrace: warning: device 0 is lost: "), "{}", ended.stderr);
}

#[test]
fn hostile_name_cannot_command_the_terminal() {
    let folder = Folder::new();
    let ended = finish(gputrace_with("[device]\nname = A\u{1b}[2J\n", &folder).arg("devices")).expect_code(0);
    assert!(!ended.stdout.contains('\u{1b}'), "{:?}", ended.stdout);
}

#[test]
fn drivers_that_fail_are_explained() {
    let cases = [
        ("fail nvmlInit_v2 = 9\n", "no GPU can be read: no GPU driver: ", "install the vendor's driver"),
        ("fail nvmlInit_v2 = 4\n", "no GPU can be read: no permission: ", "join the group"),
        (
            "fail nvmlInit_v2 = 18\n",
            "no GPU can be read: the driver's library and its kernel module",
            "restart",
        ),
        (
            "count = 4294967295\n",
            "the driver's library cannot be used: it reports 4294967295 devices",
            "GPUTRACE_NVML",
        ),
        ("", "no GPU was found", ""),
    ];
    for (script, message, hint) in cases {
        let folder = Folder::new();
        let ended = finish(gputrace_with(script, &folder).arg("devices")).expect_code(1);
        assert!(ended.stderr.contains(message) && ended.stderr.contains(hint), "{script}: {}", ended.stderr);
        assert_eq!(ended.stdout, "");
    }
}

#[test]
fn library_that_is_missing_or_none_is_explained() {
    let folder = Folder::new();
    let path = folder.join("libnvidia-ml.so.1");
    let ended = || {
        finish(gputrace_with("", &folder).arg("devices").env("GPUTRACE_NVML", &path)).expect_code(1).stderr
    };
    assert!(ended().contains("no GPU driver: "), "{}", ended());
    fs::write(&path, "no library").unwrap();
    assert!(ended().contains("the driver's library cannot be used: "), "{}", ended());
}

/// The CUDA driver is asked by a child, whose end is no end of ours.
#[test]
fn devices_are_listed_without_a_cuda_driver() {
    let folder = Folder::new();
    let mut command = gputrace_with(DEVICE, &folder);
    fs::write(folder.join("libcuda.so.1"), "no library").unwrap();
    let ended = finish(command.arg("devices").env("LD_LIBRARY_PATH", folder.path())).expect_code(0);
    assert!(ended.stdout.contains("Fake H100"), "{}", ended.stdout);
    assert!(ended.stderr.contains("the CUDA driver's properties are not known: "), "{}", ended.stderr);
}

#[test]
fn cuda_driver_that_crashes_does_no_harm() {
    let folder = Folder::new();
    let source = folder.join("crash.c");
    fs::write(
        &source,
        "void abort(void);\n__attribute__((constructor)) static void crash(void) { abort(); }\n",
    )
    .unwrap();
    let mut compiler = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    compiler.args(["-shared", "-fPIC", "-o"]).arg(folder.join("libcuda.so.1")).arg(&source);
    assert!(compiler.status().unwrap().success());
    let mut command = gputrace_with(DEVICE, &folder);
    let ended = finish(command.arg("devices").env("LD_LIBRARY_PATH", folder.path())).expect_code(0);
    assert!(ended.stdout.contains("Fake H100"), "{}", ended.stdout);
    assert!(ended.stderr.contains("ended without an answer (signal: 6 (SIGABRT)"), "{}", ended.stderr);
}
