//! Whole frames: every table, state and size.

use gputrace_monitor::{
    GpuBackend, GpuClockMetrics, GpuDeviceInfo, GpuMemoryMetrics, GpuMetrics, GpuMonitorError,
    GpuPcieMetrics, GpuPowerMetrics, GpuThermalMetrics, GpuUtilization, GpuVendor,
};
use ratatui::backend::TestBackend;
use ratatui::style::Color;

use crate::{
    DeviceView, Glyphs, MemoryRow, Palette, Pending, ProcessRow, Scene, SessionView, Tab, TableRow, Tables,
    View,
};

const GIB: u64 = 1 << 30;

fn device(index: u32) -> DeviceView {
    let mut info = GpuDeviceInfo::new(index, "NVIDIA GeForce RTX 4090", GpuVendor::Nvidia, GpuBackend::Nvml);
    info.driver_version = Some("580.159".into());
    let sample = GpuMetrics {
        utilization: GpuUtilization {
            gpu_percent: Some(78),
            memory_percent: Some(62),
            encoder_percent: Some(0),
            decoder_percent: None,
        },
        memory: GpuMemoryMetrics {
            total: Some(24 * GIB),
            used: Some(18 * GIB),
            free: Some(6 * GIB),
            ..GpuMemoryMetrics::default()
        },
        thermal: Some(GpuThermalMetrics {
            temperature_celsius: Some(67),
            fan_speed_percent: Some(45),
            ..GpuThermalMetrics::default()
        }),
        power: Some(GpuPowerMetrics {
            power_draw_watts: Some(287.0),
            power_limit_watts: Some(450.0),
            ..GpuPowerMetrics::default()
        }),
        clocks: Some(GpuClockMetrics {
            graphics_mhz: Some(2520),
            memory_mhz: Some(10501),
            sm_mhz: Some(2520),
            video_mhz: None,
        }),
        pcie: Some(GpuPcieMetrics {
            tx_bytes_per_sec: Some(12_400_000_000),
            rx_bytes_per_sec: Some(8_700_000_000),
            link_gen: Some(4),
            link_width: Some(16),
            max_link_gen: Some(4),
            max_link_width: Some(16),
            ..GpuPcieMetrics::default()
        }),
        ..GpuMetrics::empty(index)
    };
    DeviceView { info, sample, history: (0..600).map(|at| Some(at / 6)).collect(), allocations: Some(1247) }
}

fn process(pid: u32) -> ProcessRow {
    ProcessRow {
        pid,
        is_host_pid: pid == 2,
        device: 0,
        user: Some("anna".into()),
        command: Some(format!("python train.py --rank {pid}")),
        memory: Some(u64::from(pid) * GIB),
        gpu_percent: Some(pid),
        allocations: (pid == 1).then_some(1247),
        is_traced: (pid != 2).then_some(pid == 1),
    }
}

fn memory(name: &str, kind: &str, live_bytes: u64) -> MemoryRow {
    MemoryRow {
        name: name.into(),
        kind: kind.into(),
        is_on_device: kind == "device",
        live_bytes,
        live: 17,
        most_bytes: 3 * live_bytes,
        allocations: 12_345,
        allocations_per_second: (kind == "device").then_some(250.4),
    }
}

fn session() -> SessionView {
    let row = |name: &str, total_ns, calls| TableRow { name: name.into(), calls, total_ns, bytes: None };
    SessionView {
        pid: 900,
        command: "python train.py".into(),
        launches: 12_345,
        events_per_second: 4321.0,
        lost: 0,
        hook_cost_ns: Some(41.2),
        processes: vec![1],
        held_bytes: 3 * GIB,
        peak_bytes: 4 * GIB,
        tables: Tables {
            kernels: vec![row("gemm", Some(3_000_000), 3), row("softmax", Some(1_000_000), 2)],
            lines: vec![row("train_step train.py:64", Some(4_000_000), 5)],
            streams: vec![row("default stream", None, 5)],
            copies: vec![TableRow { bytes: Some(5 << 20), ..row("memcpy cpu_to_gpu", Some(10), 1) }],
            memory: vec![memory("load model.py:12", "device", 2 * GIB), memory("batch", "pinned", GIB)],
        },
        ..SessionView::default()
    }
}

fn scene() -> Scene {
    Scene {
        devices: vec![device(0)],
        processes: vec![process(1), process(2)],
        sessions: vec![session()],
        is_opening: false,
        problems: Vec::new(),
        time: "12:01:33".into(),
    }
}

/// A whole frame, with the row of keys, which [`crate::plain`] leaves out.
fn text(scene: &Scene, view: &View, (columns, rows): (u16, u16)) -> String {
    let mut terminal = ratatui::Terminal::new(TestBackend::new(columns, rows)).unwrap();
    let palette = Palette::new(false);
    terminal.draw(|frame| crate::draw(frame, scene, view, &Glyphs::ASCII, palette)).unwrap();
    let cells = terminal.backend().buffer().content();
    let lines = cells
        .chunks(usize::from(columns))
        .map(|line| line.iter().map(|cell| cell.symbol()).collect::<String>());
    lines.map(|line| line.trim_end().to_owned() + "\n").collect()
}

#[test]
fn frame_of_80_by_24_has_all_parts() {
    let frame = text(&scene(), &View::default(), (80, 24));
    for part in [
        "1 GPU, driver 580.159  12:01:33",
        "+ GPU 0: NVIDIA GeForce RTX 4090 -",
        "GPU:",
        "78 %",
        "Dec:",
        "N/A",
        "Used:   18.0 GiB / 24.0 GiB",
        "Free:   6.0 GiB",
        "Allocs: 1,247",
        "75.0 %",
        "Power: 287 / 450 W",
        "67 C (WARM)",
        "Fan:   45 %",
        "SM 2520 MHz",
        "100% |",
        "PCIe: Gen4 x16 | TX: 12.4 GB/s | RX: 8.7 GB/s",
        " 1 Processes ",
        "COMMAND",
        "1            0   anna",
        "yes",
        "2 host",
        "q quit",
    ] {
        assert!(frame.contains(part), "{part:?} is missing in\n{frame}");
    }
}

#[test]
fn tall_frame_has_the_headings_of_the_specification() {
    let frame = text(&scene(), &View::default(), (120, 40));
    for heading in ["Utilization", "Memory", "Power & Thermal", "Clocks", "Utilization History (last 60s)"] {
        assert!(frame.contains(heading), "{heading:?} is missing in\n{frame}");
    }
    assert!(frame.contains("Graphics: 2520 MHz") && frame.contains("Memory:   10501 MHz"), "{frame}");
}

#[test]
fn every_table_shows_its_rows() {
    let shown = |tab| text(&scene(), &View { tab, ..View::default() }, (100, 30));
    let kernels = shown(Tab::Kernels);
    assert!(
        kernels.contains("3.0 ms") && kernels.contains("75.0 %") && kernels.contains("gemm"),
        "{kernels}"
    );
    assert!(kernels.contains("nothing lost, 41 ns a hook, 4,321 events/s, 12,345 launches"), "{kernels}");
    assert!(shown(Tab::Lines).contains("train_step train.py:64"));
    let streams = shown(Tab::Streams);
    assert!(streams.contains("default stream") && streams.contains("N/A"), "{streams}");
    assert!(shown(Tab::Copies).contains("5.0 MiB"));
    let without = Scene { sessions: Vec::new(), ..scene() };
    assert!(
        text(&without, &View { tab: Tab::Kernels, ..View::default() }, (100, 30))
            .contains("gputrace run -- CMD")
    );
}

#[test]
fn table_of_memory_shows_who_holds_how_much() {
    let view = View { tab: Tab::Memory, ..View::default() };
    let frame = text(&scene(), &view, (80, 24));
    assert!(frame.contains("nothing lost, 3.0 GiB held on devices, at most 4.0 GiB"), "{frame}");
    let row = "2.0 GiB    66.7 %   17        250        load model.py:12";
    assert!(frame.contains(row), "{frame}");
    // Memory of the host is no part of that, and its rate is not known yet.
    assert!(frame.contains("1.0 GiB    -        17        -          batch (pinned)"), "{frame}");
    assert!(!frame.contains("MOST"), "{frame}");
    let wide = text(&scene(), &view, (400, 60));
    assert!(wide.contains("12,345") && wide.contains("6.0 GiB") && wide.contains("MOST"), "{wide}");
    let filtered = text(&scene(), &View { filter: "pinned".into(), ..view }, (80, 24));
    assert!(filtered.contains("batch") && !filtered.contains("model.py"), "{filtered}");
}

#[test]
fn page_of_keys_is_whole_on_80_by_24() {
    let scene = Scene { devices: (0..8).map(device).collect(), ..scene() };
    let frame = text(&scene, &View { shows_help: true, ..View::default() }, (80, 24));
    for (keys, what) in crate::keys::HELP {
        assert!(frame.contains(keys) && frame.contains(what), "{keys} is missing in\n{frame}");
    }
    assert!(frame.contains("TX goes to the host."), "{frame}");
}

#[test]
fn counters_of_a_session_are_whole_on_80_columns() {
    let mut busy = scene();
    busy.sessions[0] = SessionView { host_calls: 98_765_432, device_records: 98_765_432, ..session() };
    let frame = text(&busy, &View { tab: Tab::Kernels, ..View::default() }, (80, 24));
    assert!(frame.contains("98,765,432 device records") && frame.contains("TIME "), "{frame}");
}

#[test]
fn table_of_many_rows_scrolls_to_the_selected_one() {
    let mut long = scene();
    let row = |at: u64| TableRow { name: format!("kernel_{at}_"), calls: at, ..TableRow::default() };
    long.sessions[0].tables.kernels = (0..100).map(row).collect();
    let mut view = View { tab: Tab::Kernels, ..View::default() };
    view.step(isize::MAX, &long);
    view.fit(&long);
    let frame = text(&long, &view, (80, 24));
    assert!(frame.contains("kernel_99_") && !frame.contains("kernel_0_"), "{frame}");
}

#[test]
fn what_nobody_knows_is_not_called_untraced() {
    let mut silent = scene();
    let problem = Some("its collector has not answered".to_owned());
    silent.sessions = vec![SessionView { pid: 900, problem, ..SessionView::default() }];
    silent.processes[0].is_traced = None;
    silent.devices[0].allocations = None;
    assert!(text(&silent, &View::default(), (80, 24)).contains("Allocs: N/A"));
    let kernels = text(&silent, &View { tab: Tab::Kernels, ..View::default() }, (80, 24));
    assert!(kernels.contains("Session 900\nits collector has not answered\n"), "{kernels}");
}

#[test]
fn empty_screen_says_what_to_do() {
    let frame = |scene: &Scene| text(scene, &View::default(), (80, 24));
    let empty = Scene { devices: Vec::new(), processes: Vec::new(), sessions: Vec::new(), ..scene() };
    assert!(frame(&empty).contains("gputrace doctor") && frame(&empty).contains("no GPU"));
    let opening = Scene { is_opening: true, ..empty };
    assert!(frame(&opening).contains("reading the devices") && !frame(&opening).contains("doctor"));
    let idle = Scene { processes: Vec::new(), ..scene() };
    assert!(frame(&idle).contains("No process uses a GPU now."));
}

#[test]
fn several_devices_have_a_line_each_and_one_is_in_detail() {
    let scene = Scene { devices: (0..3).map(device).collect(), ..scene() };
    let frame = text(&scene, &View { device: 2, ..View::default() }, (90, 30));
    assert!(frame.contains("3 GPUs") && frame.contains("+ GPU 2: NVIDIA"), "{frame}");
    assert_eq!(
        frame.lines().filter(|line| line.contains("67 C") && line.contains("287 W")).count(),
        3,
        "{frame}"
    );
}

#[test]
fn lost_device_says_why_instead_of_values() {
    let mut lost = scene();
    let problem = GpuMonitorError::DeviceLost { index: 0, why: "it fell off the bus".into() };
    lost.devices[0].sample = GpuMetrics::failed(0, problem);
    let frame = text(&lost, &View::default(), (80, 24));
    assert!(frame.contains("no values: device 0 is lost: it fell off the bus"), "{frame}");
    assert!(!frame.contains("78 %"));
}

#[test]
fn states_of_the_view_are_in_sight() {
    let of = |view: View| text(&scene(), &view, (90, 40));
    assert!(of(View { is_paused: true, ..View::default() }).contains("paused"));
    assert!(of(View { filter: "train".into(), ..View::default() }).contains("filter: train"));
    assert!(of(View { shows_help: true, ..View::default() }).contains("kill the selected process"));
    let pending = Some(Pending { pid: 7, signal: libc::SIGKILL });
    assert!(of(View { pending, ..View::default() }).contains("send SIGKILL to process 7?"));
    assert!(
        of(View { message: "no signal was sent".into(), ..View::default() }).contains("no signal was sent")
    );
    let editing = View { edits_filter: true, filter: "ab".into(), ..View::default() };
    assert!(of(editing).contains("filter: ab_"));
}

#[test]
fn every_size_has_a_frame() {
    let views = [
        View::default(),
        View { tab: Tab::Kernels, ..View::default() },
        View { tab: Tab::Memory, ..View::default() },
        View { shows_help: true, ..View::default() },
    ];
    for columns in [1, 2, 7, 20, 79, 80, 400] {
        for rows in [1, 2, 5, 10, 24, 60] {
            for view in &views {
                for glyphs in [Glyphs::ASCII, Glyphs::UNICODE] {
                    let frame = crate::plain(&scene(), view, (columns, rows), &glyphs);
                    assert!(frame.lines().count() <= usize::from(rows));
                }
            }
        }
    }
}

#[test]
fn frame_without_utf8_is_ascii() {
    let mut named = scene();
    named.processes[0].command = Some("größe 東京".into());
    for tab in Tab::ALL {
        let frame = text(&named, &View { tab, ..View::default() }, (100, 40));
        assert!(frame.is_ascii(), "{frame}");
    }
}

#[test]
fn colours_appear_only_where_they_are_wanted() {
    let colours = |palette| {
        let mut terminal = ratatui::Terminal::new(TestBackend::new(100, 40)).unwrap();
        let drawn = |frame: &mut ratatui::Frame<'_>| {
            crate::draw(frame, &scene(), &View::default(), &Glyphs::UNICODE, palette);
        };
        terminal.draw(drawn).unwrap();
        let cells = terminal.backend().buffer().content();
        cells.iter().filter(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset).count()
    };
    assert!(colours(Palette::new(true)) > 100);
    assert_eq!(colours(Palette::new(false)), 0);
}

#[test]
fn hostile_names_do_not_reach_the_terminal() {
    let mut hostile = scene();
    hostile.devices[0].info.name = "GPU\x1b[2J\u{202e}".into();
    hostile.processes[0].command = Some("a\x07\x1b]0;title\x07b".into());
    hostile.sessions[0].tables.kernels[0].name = "k\r\n\x1bc".into();
    hostile.problems.push("p\x1b[31m".into());
    for tab in [Tab::Processes, Tab::Kernels] {
        let frame = text(&hostile, &View { tab, ..View::default() }, (120, 40));
        assert!(!frame.chars().any(|letter| letter.is_control() && letter != '\n'), "{frame:?}");
        assert!(!frame.contains('\u{202e}'));
    }
}

#[test]
fn scene_is_json_with_units_in_its_names() {
    let json = serde_json::to_value(scene()).unwrap();
    assert_eq!(json["devices"][0]["sample"]["memory"]["used"], 18 * GIB);
    assert_eq!(json["devices"][0]["sample"]["utilization"]["decoder_percent"], serde_json::Value::Null);
    assert_eq!(json["processes"][0]["is_traced"], true);
    assert_eq!(json["sessions"][0]["tables"]["kernels"][0]["total_ns"], 3_000_000);
}

#[test]
fn narrow_tables_keep_names() {
    for columns in [24, 30, 40, 45, 50, 59] {
        let shown = |tab| text(&scene(), &View { tab, ..View::default() }, (columns, 40));
        let (processes, kernels) = (shown(Tab::Processes), shown(Tab::Kernels));
        assert!(processes.contains("2 host") && processes.contains("python"), "{columns}: {processes}");
        assert!(kernels.contains("75.0 %") && kernels.contains("softmax"), "{columns}: {kernels}");
    }
}
