//! Device metrics in the trace: what the simulated NVML reports while a program runs on the simulated device.

use std::fs;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use serde_json::{Value, json};

use crate::harness::folder::Folder;
use crate::harness::nvml::{DEVICE, gputrace_with};
use crate::harness::process::{Ended, finish};
use crate::harness::program::{Link, compiled};
use crate::harness::session::{Session, ctl};
use crate::harness::tool::{self, gputrace, run, run_with};
use crate::idle_flame;
use crate::python_stacks::interpreters;

/// `gputrace run` on the devices of a script: what it printed, and the report of its trace.
fn traced(script: &str, options: &[&str], program: &str, arguments: &[&str]) -> (Ended, Value) {
    let folder = Folder::new();
    let mut command = gputrace_with(script, &folder);
    command.args(["run", "--simulate", "-o"]).arg(folder.join("out")).args(options);
    command.arg("--json").arg(folder.join("live.json"));
    let ended = finish(command.arg("--").arg(compiled(program, Link::Driver)).args(arguments));
    let ended = ended.expect_code(0);
    let report = tool::report(&[folder.join("out/trace.gputrace")]);
    let live: Value = serde_json::from_slice(&fs::read(folder.join("live.json")).unwrap()).unwrap();
    assert_eq!(live["devices"], report["devices"], "live and from the file");
    assert_eq!(live["anomalies"], report["anomalies"], "live and from the file");
    (ended, report)
}

fn metrics(report: &Value) -> &Value {
    &report["devices"][0]["metrics"]
}

#[test]
fn report_has_what_the_device_did() {
    // A thousand watts.
    let script = DEVICE.replace("energy = 123456789\n", "energy = 1000000..101000000/100s\n");
    let (ended, report) = traced(&script, &[], "flight", &["end", "1.5"]);
    let metrics = metrics(&report);
    let samples = metrics["samples"].as_u64().unwrap();
    assert!((5..=30).contains(&samples), "{metrics:#}");
    for (key, value) in [
        ("interval_ns", json!(100_000_000)),
        ("failed_samples", json!(0)),
        ("power_watts", json!({"mean": 287.5, "min": 287.5, "max": 287.5})),
        ("power_limit_watts", json!(450.0)),
        ("temperature_celsius", json!({"mean": 67.0, "min": 67.0, "max": 67.0})),
        ("sm_clock_mhz", json!({"mean": 1965.0, "min": 1965.0, "max": 1965.0})),
        ("sm_clock_max_mhz", json!(1980.0)),
        // Generation 5 with 16 lanes.
        ("pcie_peak_bytes_per_second", json!(63_015_384_608.0)),
        ("memory_clock_mhz", json!({"mean": 2619.0, "min": 2619.0, "max": 2619.0})),
        ("memory_peak_bytes", json!(18_u64 << 30)),
        ("gpu_busy_percent", json!({"mean": 78.0, "min": 78.0, "max": 78.0})),
    ] {
        assert_eq!(metrics[key], value, "{key}: {metrics:#}");
    }
    let sampled_ns = metrics["sampled_ns"].as_u64().unwrap();
    let watts = metrics["energy"]["joules"].as_f64().unwrap() / (sampled_ns as f64 / 1e9);
    assert!((watts - 1000.0).abs() < 50.0, "{metrics:#}");
    assert_eq!(metrics["energy"]["source"], "counter");
    assert_eq!(metrics["throttled"], json!([{"reason": "power cap", "ns": sampled_ns}]));
    for absent in
        ["memory_temperature_celsius", "pcie_sent_bytes_per_second", "throttled_for_power_ns", "problem"]
    {
        assert_eq!(metrics.get(absent), None, "{absent} was not asked for");
    }
    let words = ended.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains(" J; 288 W, peak 288 W; 67 °C, peak 67 °C; memory peak 18.0 GiB"), "{words}");
    assert!(words.contains("SM 1965 MHz; memory 2619 MHz clocks lowered: power cap "), "{words}");
}

#[test]
fn energy_of_a_device_without_a_counter_is_the_integral_of_its_power() {
    let script = DEVICE.replace("energy = 123456789\n", "");
    let (_, report) = traced(&script, &["--device-metrics=20ms"], "flight", &["end", "1"]);
    let metrics = metrics(&report);
    assert_eq!(metrics["energy"]["source"], "power");
    let seconds = metrics["sampled_ns"].as_f64().unwrap() / 1e9;
    let watts = metrics["energy"]["joules"].as_f64().unwrap() / seconds;
    assert!((watts - 287.5).abs() < 0.1, "{metrics:#}");
    assert_eq!(metrics["interval_ns"], 20_000_000);
}

#[test]
fn anomaly_has_what_the_device_did_at_that_moment() {
    let script = DEVICE.replace("sm = 1965\n", "sm = 1980\nsm = 1200 @ 1.5s..\n");
    let script = script.replace("reasons = 0x4\n", "reasons = 0\nreasons = 0x4 @ 1.5s..\n");
    let (ended, report) = traced(&script, &[], "slow_run", &["3"]);
    let anomaly = &report["anomalies"]["list"][0];
    assert_eq!(anomaly["name"], "uneven_kernel", "{report:#}");
    let state = json!({
        "sm_clock_mhz": 1200,
        "usual_sm_clock_mhz": 1980,
        "throttle_reasons": ["power cap"],
        "is_slower": true,
    });
    assert_eq!(anomaly["device_state"], state, "{anomaly:#}");
    let line = "uneven_kernel: SM clock 1980 → 1200 MHz, power cap\n";
    assert!(ended.stderr.contains(line), "{}", ended.stderr);
}

/// The report of a planted program on the devices of a script, and its summary.
fn planted(script: &str, fault: &str) -> Option<(Value, String)> {
    let (_, python) = interpreters("device_metrics").pop()?;
    let folder = Folder::new();
    let mut command = gputrace_with(script, &folder);
    command.args(["run", "--simulate", "-o"]).arg(folder.join("out")).arg("--");
    finish(command.arg(python).arg(idle_flame::program()).arg(fault)).expect_code(0);
    let summary = fs::read_to_string(folder.join("out/summary.txt")).unwrap();
    Some((tool::report(&[folder.join("out/trace.gputrace")]), summary))
}

#[test]
fn lowered_clocks_of_a_busy_device_are_a_finding() {
    // Lowered from some time on, and all the time.
    for from in ["1s", "0s"] {
        let script = DEVICE.replace("sm = 1965\n", &format!("sm = 1980\nsm = 1200 @ {from}..\n"));
        let script = script.replace("reasons = 0x4\n", &format!("reasons = 0\nreasons = 0x4 @ {from}..\n"));
        let Some((report, _)) = planted(&script, "long_busy") else { return };
        let list = report["findings"]["list"].as_array().unwrap();
        assert_eq!(list[0]["rule"], "throttled", "{list:#?}");
        let title = list[0]["title"].as_str().unwrap();
        assert!(title.starts_with("GPU 0 ran with lowered clocks for "), "{title}");
        assert!(title.contains("(power cap)") && title.ends_with(" MHz on average of 1980"), "{title}");
    }
}

#[test]
fn bandwidth_of_copies_is_compared_with_the_link() {
    let Some((report, summary)) = planted(DEVICE, "mixed_copies") else { return };
    let to_gpu = &report["transfers"][0];
    assert_eq!(to_gpu["direction"], "cpu_to_gpu", "{to_gpu:#}");
    let share = |copies: &Value| copies["link_share"].as_f64().unwrap();
    let expected = |copies: &Value| copies["bandwidth_mbps"].as_f64().unwrap() * 1e6 / 63_015_384_608.0;
    let by_memory = to_gpu["by_memory"].as_array().unwrap();
    let kinds: Vec<_> = by_memory.iter().map(|copies| (&copies["source"], &copies["calls"])).collect();
    assert!(kinds.contains(&(&json!("pageable"), &json!(100))), "{to_gpu:#}");
    assert!(kinds.contains(&(&json!("pinned"), &json!(300))), "{to_gpu:#}");
    for copies in by_memory.iter().chain([to_gpu]) {
        assert!((share(copies) - expected(copies)).abs() < 1e-9, "{copies:#}");
    }
    for row in ["of link", "  pageable to device", "  pinned to device"] {
        assert!(summary.contains(row), "{summary}");
    }
}

#[test]
fn device_metrics_off_takes_no_samples() {
    let (_, report) = traced(DEVICE, &["--device-metrics", "off"], "flight", &["end", "0.5"]);
    assert_eq!(report["devices"][0].get("metrics"), None);
    let folder = Folder::new();
    let mut command = gputrace_with(DEVICE, &folder);
    command.env("GPUTRACE_DEVICE_METRICS", "off").args(["run", "--simulate", "-o"]).arg(folder.join("out"));
    finish(command.arg("--").arg(compiled("flight", Link::Driver)).args(["end", "0.5"])).expect_code(0);
    let report = tool::report(&[folder.join("out/trace.gputrace")]);
    assert_eq!(report["devices"][0].get("metrics"), None);
}

#[test]
fn slow_queries_are_made_where_they_are_asked_for() {
    let (_, report) = traced(DEVICE, &["--device-metrics=50ms,slow"], "flight", &["end", "1.5"]);
    let metrics = metrics(&report);
    assert_eq!(metrics["pcie_sent_bytes_per_second"]["max"], 12_400_000_000.0, "{metrics:#}");
    assert_eq!(metrics["throttled_for_power_ns"], 0, "the script's counter stands still: {metrics:#}");
}

/// No NVML knows a simulated device, so that is nothing to report.
#[test]
fn simulated_device_alone_is_not_sampled() {
    let traced = run("basic").succeed();
    assert_eq!(traced.report()["devices"][0].get("metrics"), None);
    assert!(!traced.ended.stderr.contains("sampled"), "{}", traced.ended.stderr);
}

#[test]
fn missing_driver_is_noted_once_and_nothing_fails() {
    let traced =
        run("flight").arg("end").arg("0.5").env("GPUTRACE_NVML", "/nonexistent/libnvidia-ml.so").succeed();
    let report = traced.report();
    assert_eq!(metrics(&report)["samples"], 0);
    assert!(metrics(&report)["problem"].as_str().unwrap().contains("/nonexistent"), "{report:#}");
    let talk = &traced.ended.stderr;
    assert_eq!(talk.matches("device metrics are not sampled").count(), 1, "{talk}");
}

#[test]
fn lost_device_is_sampled_again_once_it_is_back() {
    let script = format!("{DEVICE}lost @ 400ms..700ms\n");
    let (ended, report) = traced(&script, &["--device-metrics=50ms"], "flight", &["end", "3"]);
    let metrics = metrics(&report);
    let (samples, failed) =
        (metrics["samples"].as_u64().unwrap(), metrics["failed_samples"].as_u64().unwrap());
    assert!(failed > 0 && samples > failed + 5, "{metrics:#}");
    assert!(metrics["problem"].as_str().unwrap().contains("lost"), "{metrics:#}");
    assert_eq!(metrics["power_watts"]["min"], 287.5, "no value is made up: {metrics:#}");
    assert!(ended.stderr.contains("samples of a device have no values"), "{}", ended.stderr);
}

#[test]
fn driver_that_never_answers_delays_nothing() {
    let script = format!("{DEVICE}hang nvmlDeviceGetPowerUsage @ 0s..\n");
    let begin = std::time::Instant::now();
    let (_, report) = traced(&script, &[], "flight", &["end", "0.5"]);
    assert!(begin.elapsed().as_secs() < 30, "{:?}", begin.elapsed());
    assert_eq!(report["devices"][0].get("metrics").and_then(|metrics| metrics.get("power_watts")), None);
}

#[test]
fn flight_recorder_keeps_the_samples_of_its_window() {
    let (_, report) = traced(DEVICE, &["--flight-recorder=1"], "flight", &["end", "3"]);
    let metrics = metrics(&report);
    let samples = metrics["samples"].as_u64().unwrap();
    assert!((5..=25).contains(&samples), "of one second, and what was gathered with it: {metrics:#}");
    assert_eq!(metrics["sm_clock_mhz"]["max"], 1965.0);
}

#[test]
fn auto_collect_samples_too() {
    let folder = Folder::new();
    let mut command = Command::new(compiled("flight", Link::Driver));
    tool::clean(&mut command);
    let script = folder.join("nvml.script");
    fs::write(&script, DEVICE).unwrap();
    command.args(["end", "1"]).env("LD_PRELOAD", tool::library());
    command.env("LD_LIBRARY_PATH", tool::simulated_folder()).env("GPUTRACE_OUT", folder.join("out"));
    command.env("GPUTRACE_NVML", crate::harness::nvml::library()).env("GPUTRACE_SIM_NVML", script);
    finish(&mut command).expect_code(0);
    let report = tool::report(&[folder.join("out/trace.gputrace")]);
    assert_eq!(metrics(&report)["sm_clock_mhz"]["max"], 1965.0, "{report:#}");
}

#[test]
fn values_that_make_no_sense_are_refused_or_warned_about() {
    for wrong in ["1ms", "fast", "off,slow", "2h"] {
        let ended = run_with(&["--device-metrics", wrong], compiled("basic", Link::Driver)).go();
        assert_eq!(ended.ended.code(), Some(2), "{wrong}: {}", ended.ended.stderr);
        assert!(ended.ended.stderr.contains("10ms to 1h"), "{wrong}: {}", ended.ended.stderr);
    }
    let traced = run("basic").env("GPUTRACE_DEVICE_METRICS", "fast").succeed();
    let talk = &traced.ended.stderr;
    assert!(talk.contains("GPUTRACE_DEVICE_METRICS=fast: an interval is a time"), "{talk}");
    assert!(talk.contains("the default, 100ms, holds"), "{talk}");
}

#[test]
fn sampling_is_switched_while_the_program_runs() {
    let folder = Folder::new();
    let mut command = gputrace_with(DEVICE, &folder);
    command.args(["run", "--simulate", "--device-metrics", "off", "-o"]).arg(folder.join("out"));
    let mut session = Session::start(command.arg("--").arg(compiled("toggled", Link::Driver)));
    assert_eq!(session.line(), "ready");
    let shown = || {
        let status = ctl(session.pid(), &["status", "--json"]).expect_code(0).stdout;
        serde_json::from_str::<Value>(&status).unwrap()["settings"]["device-metrics"].clone()
    };
    assert_eq!(shown(), "off");
    sleep(Duration::from_millis(300));
    let said = ctl(session.pid(), &["set", "device-metrics=20ms"]).expect_code(0).stdout;
    let on_s = said.strip_prefix("device-metrics=20ms, ").and_then(|rest| rest.split(' ').next()).unwrap();
    let on_s: f64 = on_s.parse().unwrap();
    assert_eq!(shown(), "20ms");
    sleep(Duration::from_millis(1000));
    let answer = ctl(session.program(), &["set", "device-metrics=off", "--json"]).expect_code(0).stdout;
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["set"], json!({ "device-metrics": "off" }));
    let seconds = answer["at_s"].as_f64().unwrap() - on_s;
    assert!(seconds > 1.0, "{answer}");
    sleep(Duration::from_millis(1000));
    session.release();
    let (status, stderr) = session.end();
    assert!(status.success(), "{stderr}");
    let report = tool::report(&[folder.join("out/trace.gputrace")]);
    // Each 20 ms while it was on, not before, and not afterwards. A busy machine takes fewer.
    let samples = metrics(&report)["samples"].as_f64().unwrap();
    assert!((10.0..seconds / 0.02 + 5.0).contains(&samples), "{seconds} s: {:#}", metrics(&report));
    assert_eq!(metrics(&report)["interval_ns"], 20_000_000);
}

/// The fields of a protobuf message: numbers, and the bytes of what has a length.
fn fields(mut message: &[u8]) -> Vec<(u64, u64, &[u8])> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let length = bytes.iter().position(|byte| *byte < 0x80).unwrap() + 1;
        let (number, rest) = bytes.split_at(length);
        *bytes = rest;
        number.iter().rev().fold(0, |value, byte| value << 7 | u64::from(byte & 0x7f))
    }
    let mut found = Vec::new();
    while !message.is_empty() {
        let key = varint(&mut message);
        let (number, length) = match key & 7 {
            0 => (varint(&mut message), 0),
            1 => (0, 8),
            2 => (0, varint(&mut message) as usize),
            other => panic!("wire type {other}"),
        };
        let (bytes, rest) = message.split_at(length);
        message = rest;
        found.push((key >> 3, number, bytes));
    }
    found
}

/// The values of the counters with a name, in the order of the file.
fn perfetto_counters(trace: &[u8], name: &str) -> Vec<Value> {
    let number =
        |of: &[(u64, u64, &[u8])], field| of.iter().find(|known| known.0 == field).map(|known| known.1);
    let mut tracks = Vec::new();
    let mut values = Vec::new();
    for (_, _, packet) in fields(trace) {
        for (field, _, bytes) in fields(packet) {
            // A track, or an event.
            if !matches!(field, 60 | 11) {
                continue;
            }
            let inside = fields(bytes);
            if field == 60 && inside.iter().any(|known| known.0 == 2 && known.2 == name.as_bytes()) {
                tracks.extend(number(&inside, 1));
            } else if field == 11 && number(&inside, 11).is_some_and(|track| tracks.contains(&track)) {
                values.extend(number(&inside, 30).map(Value::from));
            }
        }
    }
    values
}

#[test]
fn exports_have_every_sample_of_the_report() {
    let folder = Folder::new();
    let script = DEVICE.replace("sm = 1965\n", "sm = 1200..1900/2s\nreasons = 4\n");
    let mut command = gputrace_with(&script, &folder);
    command.args(["run", "--simulate", "--device-metrics", "20ms", "-o"]).arg(folder.join("out"));
    finish(command.arg("--").arg(compiled("flight", Link::Driver)).args(["end", "1.0"])).expect_code(0);
    let trace = folder.join("out/trace.gputrace");
    let samples = metrics(&tool::report(std::slice::from_ref(&trace)))["samples"].as_u64().unwrap();
    let counted = |options: &[&str]| {
        let ended =
            finish(gputrace().args(["export", "--format", "chrome", "-o", "-"]).args(options).arg(&trace));
        let chrome: Value = serde_json::from_str(&ended.expect_code(0).stdout).unwrap();
        let is_clock = |event: &&Value| event["ph"] == "C" && event["name"] == "SM clock";
        let events = chrome["traceEvents"].as_array().unwrap();
        events.iter().filter(is_clock).filter(|event| event["args"]["MHz"].is_number()).count() as u64
    };
    assert_eq!(counted(&[]), samples);
    let (before, after) = (counted(&["--to", "0.5"]), counted(&["--from", "0.5"]));
    assert!(before > 0 && after > 0, "{before} and {after}");
    assert_eq!(before + after, samples);
    assert_eq!(counted(&["--filter", "device=0"]), samples);
    assert_eq!(counted(&["--filter", "device=5"]), 0);
    assert_eq!(counted(&["--filter", "device=0,process=*flight*"]), samples);
    assert_eq!(counted(&["--filter", "kernel=*"]), 0, "samples have no kernel");
    for format in ["perfetto", "parquet"] {
        let to = folder.join(format);
        finish(gputrace().args(["export", "--format", format, "-o"]).arg(&to).arg(&trace)).expect_code(0);
    }
    let table = fs::File::open(folder.join("parquet/device_samples.parquet")).unwrap();
    let table = SerializedFileReader::new(table).unwrap();
    let column = |name: &str| {
        let mut values = Vec::new();
        for row in table.get_row_iter(None).unwrap() {
            let row = row.unwrap();
            match row.get_column_iter().find(|(column, _)| *column == name).unwrap().1 {
                Field::ULong(value) => values.push(Value::from(*value)),
                Field::Null => {}
                other => panic!("{name} is {other}"),
            }
        }
        values
    };
    let clocks = column("sm_clock_mhz");
    assert_eq!(clocks.len() as u64, samples);
    assert!(clocks.iter().all(|mhz| (1200..=1900).contains(&mhz.as_u64().unwrap())), "{clocks:?}");
    assert_eq!(column("memory_temperature_c"), Vec::<Value>::new(), "not read, so not known");
    let perfetto = fs::read(folder.join("perfetto")).unwrap();
    assert_eq!(perfetto_counters(&perfetto, "SM clock"), clocks);
    assert_eq!(perfetto_counters(&perfetto, "memory temperature"), Vec::<Value>::new());
    let has = |text: &[u8]| perfetto.windows(text.len()).any(|window| window == text);
    assert!(has(b"SM clock") && has(b"clocks lowered") && has(b"power cap"));
}

#[test]
fn setting_that_makes_no_sense_is_refused_and_changes_nothing() {
    let folder = Folder::new();
    let mut session = Session::run(&folder, &[], compiled("toggled", Link::Driver), &[]);
    assert_eq!(session.line(), "ready");
    for (words, why) in [
        (&["set"][..], "KEY=VALUE"),
        (&["set", "device-metrics"], "the keys are stacks, device-times, torch-ops, memory, device-metrics"),
        (
            &["set", "clocks=low"],
            "'clocks' cannot be set while a session runs; the keys are stacks, device-times",
        ),
        (&["set", "device-metrics=1us"], "an interval is a time from 10ms to 1h"),
        (&["stop", "device-metrics=off"], "goes with set only"),
    ] {
        let refused = ctl(session.pid(), words).expect_code(2);
        assert!(refused.stderr.contains(why), "{words:?}: {}", refused.stderr);
    }
    let status = ctl(session.pid(), &["status"]).expect_code(0).stdout;
    assert!(status.contains(", device-metrics=100ms\n"), "{status}");
    session.release();
    assert!(session.end().0.success());
}

#[test]
fn memory_that_is_not_the_program_s_is_what_was_sampled_beyond_its_own() {
    let (ended, report) = traced(DEVICE, &["--device-metrics=20ms"], "basic", &[]);
    let process = &report["memory"]["processes"][0];
    let (used, peak) = (18_u64 << 30, process["peak_bytes"].as_u64().unwrap());
    let expected = [
        ("source", json!("samples")),
        ("at_ns", Value::Null),
        ("used_bytes", json!(used)),
        ("accounted_bytes", json!(peak)),
        ("not_accounted_bytes", json!(used - peak)),
    ];
    for (key, value) in expected {
        assert_eq!(process["device_use"][key], value, "{key}: {}", process["device_use"]);
    }
    assert!(peak > 0 && ended.stderr.contains("not accounted: contexts"), "{}", ended.stderr);
}
