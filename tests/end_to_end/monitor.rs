//! `gputrace monitor`, on a simulated NVML: JSON lines, the page for Prometheus, and OTLP.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use prost::Message;
use serde_json::{Value, json};

use crate::harness::back_end::{BackEnd, Reply};
use crate::harness::folder::Folder;
use crate::harness::needs;
use crate::harness::nvml::{DEVICE, gputrace_with};
use crate::harness::process::finish;
use crate::harness::session::{Session, eventually};

/// Ends it as a service manager does, and returns what it said.
fn ended(session: Session) -> (Option<i32>, String) {
    session.send(libc::SIGTERM);
    let (status, said) = session.end();
    (status.code(), said)
}

fn lines(script: &str, options: &[&str], count: usize) -> Vec<Value> {
    let folder = Folder::new();
    let mut session = Session::start(gputrace_with(script, &folder).arg("monitor").args(options));
    let lines = (0..count).map(|_| serde_json::from_str(&session.line()).unwrap()).collect();
    assert_eq!(ended(session), (Some(0), String::new()));
    lines
}

#[test]
fn monitor_writes_each_sample_as_a_line_of_json() {
    let lines = lines(DEVICE, &["--interval", "50ms"], 25);
    let last = lines.last().unwrap();
    for (pointer, value) in [
        ("/device_index", json!(0)),
        ("/name", json!("Fake H100")),
        ("/uuid", json!("GPU-1")),
        ("/utilization/gpu_percent", json!(78)),
        ("/utilization/encoder_percent", json!(3)),
        ("/memory/used", json!(18_u64 << 30)),
        ("/memory/reserved", json!(1_u64 << 30)),
        ("/thermal/temperature_celsius", json!(67)),
        ("/thermal/temperature_threshold_shutdown", json!(95)),
        ("/power/power_draw_watts", json!(287.5)),
        ("/power/power_limit_watts", json!(450.0)),
        ("/clocks/sm_mhz", json!(1965)),
        ("/pcie/tx_bytes_per_sec", json!(12_400_000_000_u64)),
        ("/pcie/max_link_gen", json!(5)),
        ("/throttle/reasons", json!(["power cap"])),
        ("/errors/xid_last", json!(79)),
        ("/processes/0/pid", json!(4_000_001)),
        ("/processes/0/memory", json!(512 << 20)),
        ("/memory/allocations", Value::Null),
    ] {
        assert_eq!(last.pointer(pointer), Some(&value), "{pointer}: {last}");
    }
    let read_us = last["read_us"].as_f64().unwrap();
    assert!(read_us > 0.0 && read_us < 50_000.0, "{read_us}");
    let times: Vec<f64> = lines.iter().map(|line| line["wall_time"].as_f64().unwrap()).collect();
    assert!(times.windows(2).all(|pair| pair[0] < pair[1]), "{times:?}");
}

#[test]
fn monitor_reports_a_lost_device_and_its_return() {
    let folder = Folder::new();
    let script = format!("{DEVICE}lost @ 500ms..1s\n");
    let mut session = Session::start(gputrace_with(&script, &folder).args(["monitor", "--interval=50ms"]));
    let mut states = Vec::new();
    while states.len() < 3 {
        let line: Value = serde_json::from_str(&session.line()).unwrap();
        let is_good = line.get("problem").is_none();
        if !is_good {
            assert!(line["problem"].as_str().unwrap().starts_with("device 0 is lost: "), "{line}");
            assert_eq!(line["memory"]["used"], Value::Null);
        }
        if states.last() != Some(&is_good) {
            states.push(is_good);
        }
    }
    assert_eq!(states, [true, false, true]);
    assert_eq!(ended(session).0, Some(0));
}

#[test]
fn monitor_of_a_hanging_device_goes_on_with_the_others() {
    let folder = Folder::new();
    let script =
        format!("{DEVICE}hang nvmlDeviceGetPowerUsage @ 0s..\n[device]\nname = Other\ngpu = 5\nmem = 1\n");
    let mut session = Session::start(gputrace_with(&script, &folder).args(["monitor", "--interval=50ms"]));
    let (mut others, mut hung) = (0, None);
    while hung.is_none() || others < 5 {
        let line: Value = serde_json::from_str(&session.line()).unwrap();
        match line["device_index"].as_u64() {
            Some(0) => hung = line["problem"].as_str().map(str::to_owned),
            _ => others += 1,
        }
    }
    assert!(hung.unwrap().starts_with("the driver does not answer for device 0"));
    assert_eq!(ended(session).0, Some(0), "a thread that hangs does not keep the program");
}

/// A page, by a client that is not ours.
fn get(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Starts it with a page on a port that the system chooses.
fn serving(folder: &Folder, script: &str) -> (std::process::Child, SocketAddr) {
    let mut command = gputrace_with(script, folder);
    command.args(["monitor", "--interval=20ms", "--prometheus", "0"]).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    stderr.read_line(&mut line).unwrap();
    let address =
        line.trim().strip_prefix("gputrace: serves http://").unwrap().strip_suffix("/metrics").unwrap();
    let address = address.parse().unwrap();
    std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
    (child, address)
}

fn stop(mut child: std::process::Child) {
    // SAFETY: kill takes plain numbers; the child is ours and not reaped yet.
    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

const GET: &str = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

/// The page once it has the values that are read last.
fn page(address: SocketAddr) -> String {
    eventually("a whole page", || {
        let answer = get(address, GET);
        answer
            .contains("gputrace_gpu_xid_errors_total{")
            .then(|| answer.split_once("\r\n\r\n").unwrap().1.to_owned())
    })
}

#[test]
fn monitor_serves_a_page_with_dcgm_s_names_and_ours() {
    let folder = Folder::new();
    let (child, address) = serving(&folder, DEVICE);
    assert!(address.ip().is_loopback());
    let page = page(address);
    let value = |name: &str, label: &str| {
        let line = page.lines().find(|line| line.starts_with(&format!("{name}{{")) && line.contains(label));
        line.and_then(|line| line.rsplit(' ').next()).unwrap_or_default().to_owned()
    };
    for (name, label, expected) in [
        ("DCGM_FI_DEV_GPU_TEMP", "UUID=\"GPU-1\"", "67"),
        ("DCGM_FI_DEV_POWER_USAGE", "gpu=\"0\"", "287.5"),
        ("DCGM_FI_DEV_SM_CLOCK", "modelName=\"Fake H100\"", "1965"),
        ("DCGM_FI_DEV_FB_USED", "Hostname=", "18432"),
        ("DCGM_FI_DEV_FB_FREE", "device=\"nvidia0\"", "62464"),
        ("DCGM_FI_DEV_GPU_UTIL", "pci_bus_id=\"0000:10:00.0\"", "78"),
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "", "123456789"),
        ("DCGM_FI_DEV_PCIE_TX_THROUGHPUT", "", "12400000"),
        ("DCGM_FI_DEV_XID_ERRORS", "", "79"),
        ("gputrace_gpu_up", "", "1"),
        ("gputrace_gpu_utilization_ratio", "unit=\"encoder\"", "0.03"),
        ("gputrace_gpu_memory_used_bytes", "uuid=\"GPU-1\"", "19327352832"),
        ("gputrace_gpu_clock_hertz", "domain=\"graphics\"", "1980000000"),
        ("gputrace_gpu_throttle_reason", "reason=\"power cap\"", "1"),
        ("gputrace_gpu_throttle_seconds_total", "cause=\"power\"", "0.005"),
        ("gputrace_gpu_xid_errors_total", "", "1"),
        ("gputrace_gpu_process_memory_bytes", "pid=\"4000001\"", "536870912"),
    ] {
        assert_eq!(value(name, label), expected, "{name} {label}\n{page}");
    }
    assert!(!page.contains("DCGM_FI_DEV_MEMORY_TEMP"), "the device has no such sensor");
    stop(child);
}

/// DCGM's names break Prometheus' own rules, so only ours are checked.
#[test]
fn page_passes_promtool() {
    let folder = Folder::new();
    let program = std::env::var_os("PROMTOOL").unwrap_or_else(|| "promtool".into());
    let is_there =
        Command::new(&program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !is_there.is_ok_and(|status| status.success()) {
        needs::skipped("page_passes_promtool", "there is no promtool: scripts/check-prometheus gets one");
        return;
    }
    let (child, address) = serving(&folder, DEVICE);
    let page = page(address);
    stop(child);
    let ours: Vec<&str> = page.lines().filter(|line| !line.contains("DCGM_FI_")).collect();
    assert!(ours.len() > 60, "{page}");
    std::fs::write(folder.join("page"), ours.join("\n") + "\n").unwrap();
    let mut command = Command::new(program);
    command.args(["check", "metrics"]).stdin(std::fs::File::open(folder.join("page")).unwrap());
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && said.is_empty(), "{said}");
}

#[test]
fn page_is_served_to_well_formed_requests_only() {
    let folder = Folder::new();
    let (child, address) = serving(&folder, DEVICE);
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n", "200"),
        ("GET /metrics?name=x HTTP/1.1\r\n\r\n", "200"),
        ("HEAD /metrics HTTP/1.1\r\n\r\n", "200"),
        ("GET /../etc/passwd HTTP/1.1\r\n\r\n", "404"),
        ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
        ("\r\n\r\n", "405"),
    ] {
        let answer = get(address, request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {answer}");
    }
    // A client that says nothing does not keep others out.
    let silent: Vec<_> = (0..8).map(|_| TcpStream::connect(address).unwrap()).collect();
    let begin = Instant::now();
    assert!(get(address, GET).starts_with("HTTP/1.1 200 "));
    assert!(begin.elapsed() < Duration::from_secs(60));
    drop(silent);
    stop(child);
}

#[test]
fn monitor_sends_hardware_metrics_over_otlp() {
    let (folder, back_end) = (Folder::new(), BackEnd::new(&[Reply::Takes]));
    let mut command = gputrace_with(DEVICE, &folder);
    command.args(["monitor", "--interval=20ms", "--otlp", &back_end.url()]);
    command.env("OTEL_METRIC_EXPORT_INTERVAL", "100").env("OTEL_SERVICE_NAME", "node-7");
    let session = Session::start(&mut command);
    // Each value by its metric and the attribute that the points of a metric differ in.
    let found = |request: &[u8]| {
        let request = ExportMetricsServiceRequest::decode(request).unwrap();
        let json = serde_json::to_value(&request).unwrap();
        let of = &json["resourceMetrics"][0];
        assert!(of["resource"].to_string().contains("\"node-7\""), "{of}");
        of["scopeMetrics"][0]["metrics"].clone()
    };
    let metrics = eventually("all metrics", || {
        let requests = back_end.requests();
        let last = requests.last().map(|request| found(&request.body))?;
        last.to_string().contains("\"hw.errors\"").then_some(last)
    });
    let point = |name: &str, word: &str| {
        let metric = metrics.as_array().unwrap().iter().find(|metric| metric["name"] == name).unwrap();
        let data = metric.get("gauge").or_else(|| metric.get("sum")).unwrap();
        let points = data["dataPoints"].as_array().unwrap();
        let point = points.iter().find(|point| point.to_string().contains(word)).unwrap().clone();
        assert!(
            point.to_string().contains("\"hw.id\"") && point.to_string().contains("\"GPU-1\""),
            "{point}"
        );
        point["asDouble"].as_f64().unwrap()
    };
    assert_eq!(point("hw.gpu.utilization", "\"general\""), 0.78);
    assert_eq!(point("hw.gpu.utilization", "\"encoder\""), 0.03);
    assert_eq!(point("hw.gpu.memory.usage", ""), (18_u64 << 30) as f64);
    assert_eq!(point("hw.gpu.memory.utilization", ""), 0.225);
    assert_eq!(point("hw.temperature", "\"gpu\""), 67.0);
    assert_eq!(point("hw.temperature.limit", "\"high.critical\""), 95.0);
    assert_eq!(point("hw.power", ""), 287.5);
    assert_eq!(point("hw.energy", ""), 0.0, "since the start");
    assert_eq!(point("hw.errors", "\"corrected\""), 0.0);
    assert_eq!(point("hw.status", "\"ok\""), 1.0);
    let (code, said) = ended(session);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("data points to "), "{said}");
}

#[test]
fn metrics_that_no_back_end_took_are_reported() {
    let folder = Folder::new();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut command = gputrace_with(DEVICE, &folder);
    command.args(["monitor", "--interval=20ms", "--otlp", &format!("http://{closed}"), "--json-lines"]);
    let mut session = Session::start(command.env("OTEL_METRIC_EXPORT_INTERVAL", "50"));
    (0..5).for_each(|_| drop(session.line()));
    let (code, said) = ended(session);
    assert_eq!(code, Some(69), "{said}");
    assert!(said.contains("not delivered: "), "{said}");
}

#[test]
fn address_in_use_is_explained() {
    let folder = Folder::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let ended =
        finish(gputrace_with(DEVICE, &folder).args(["monitor", "--prometheus", &port])).expect_code(71);
    assert_eq!(
        ended.stderr,
        format!(
            "gputrace: cannot listen on 127.0.0.1:{port}: address already in use\n  hint: choose another port\n"
        )
    );
}

#[test]
fn senseless_options_of_monitor_are_refused() {
    let folder = Folder::new();
    for (options, message) in [
        (["--interval", "0"], "an interval is a time from 10ms to 1h"),
        (["--interval", "365d"], "an interval is a time from 10ms to 1h"),
        (["--interval", "8760h"], "an interval is a time from 10ms to 1h"),
        (["--prometheus", "nowhere"], "an address is a port"),
        (["--otlp", "not a url"], "nothing is sent over OTLP: "),
    ] {
        let ended = finish(gputrace_with(DEVICE, &folder).arg("monitor").args(options)).expect_code(2);
        assert!(ended.stderr.contains(message), "{options:?}: {}", ended.stderr);
    }
}

#[test]
fn monitor_without_a_driver_ends_with_its_reason() {
    let folder = Folder::new();
    let mut command = gputrace_with("fail nvmlInit_v2 = 9\n", &folder);
    let ended = finish(command.arg("monitor")).expect_code(1);
    assert!(ended.stderr.starts_with("gputrace: no GPU can be read: no GPU driver: "), "{}", ended.stderr);
    assert_eq!(ended.stdout, "");
}

/// `gputrace monitor | head -1`.
#[test]
fn monitor_ends_quietly_once_nobody_reads_its_stdout() {
    let folder = Folder::new();
    let mut command = gputrace_with(DEVICE, &folder);
    command.args(["monitor", "--interval=20ms"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
}

#[test]
fn full_disk_behind_stdout_is_an_error() {
    let folder = Folder::new();
    let mut command = gputrace_with(DEVICE, &folder);
    command.args(["monitor", "--interval=20ms"]).stderr(Stdio::piped());
    command.stdout(std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
    let output = command.spawn().unwrap().wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(74));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot write to stdout: "));
}
