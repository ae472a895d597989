//! What a frame costs: 1000 of them at 400 columns and 60 rows, with 8 devices and 200 processes, whose
//! values change from frame to frame. Fails above the goal. `cargo bench -p gputrace-tui`.

use std::time::{Duration, Instant};

use gputrace_monitor::{GpuBackend, GpuDeviceInfo, GpuMetrics, GpuVendor};
use gputrace_tui::{DeviceView, Glyphs, Palette, ProcessRow, Scene, SessionView, Tab, TableRow, View, draw};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;
use ratatui::{TerminalOptions, Viewport};

const FRAMES: u64 = 1000;
const P99_MAX: Duration = Duration::from_millis(10);

fn percent(device: u32, at: u64) -> Option<u32> {
    Some(((at * 7 + u64::from(device) * 13) % 101) as u32)
}

fn scene(frame: u64) -> Scene {
    let device = |index: u32| {
        let info = GpuDeviceInfo::new(index, "NVIDIA H100 80GB HBM3", GpuVendor::Nvidia, GpuBackend::Nvml);
        let mut sample = GpuMetrics::empty(index);
        sample.utilization.gpu_percent = percent(index, frame + 600);
        (sample.memory.total, sample.memory.used) = (Some(80 << 30), Some((frame % 80) << 30));
        let history = (frame..frame + 600).map(|at| percent(index, at)).collect();
        DeviceView { info, sample, history, allocations: Some(frame) }
    };
    let process = |number: u64| ProcessRow {
        pid: 10_000 + number as u32,
        is_host_pid: false,
        device: (number % 8) as u32,
        user: Some("anna".into()),
        command: Some(format!("python train.py --rank {number} {}", "--option=value ".repeat(20))),
        memory: Some(((number * 37 + frame) % 200) << 20),
        gpu_percent: Some(((number + frame) % 101) as u32),
        allocations: Some(number),
        is_traced: Some(number.is_multiple_of(2)),
    };
    let row = |number: u64| TableRow {
        name: format!("void cutlass::Kernel<{}>", "cutlass_80_simt_sgemm, ".repeat(number as usize % 20)),
        calls: number * frame,
        total_ns: Some(number * 1000 + frame),
        bytes: None,
    };
    let mut session = SessionView { pid: 7, command: "python train.py".into(), ..SessionView::default() };
    session.tables.kernels = (0..100).map(row).collect();
    Scene {
        devices: (0..8).map(device).collect(),
        processes: (0..200).map(process).collect(),
        sessions: vec![session],
        ..Scene::default()
    }
}

fn main() {
    let mut is_slow = false;
    for tab in [Tab::Processes, Tab::Kernels] {
        let options = TerminalOptions { viewport: Viewport::Fixed(Rect::new(0, 0, 400, 60)) };
        let mut terminal = Terminal::with_options(CrosstermBackend::new(Vec::new()), options).unwrap();
        let mut times: Vec<Duration> = (0..FRAMES)
            .map(|number| {
                let (scene, view) = (scene(number), View { tab, ..View::default() });
                let begin = Instant::now();
                let drawn = |frame: &mut ratatui::Frame<'_>| {
                    draw(frame, &scene, &view, &Glyphs::UNICODE, Palette::new(true));
                };
                terminal.draw(drawn).unwrap();
                begin.elapsed()
            })
            .collect();
        times.sort();
        let at = |share: usize| times[(times.len() * share / 100).min(times.len() - 1)];
        println!("a frame of {}: median {:?}, p99 {:?}, most {:?}", tab.name(), at(50), at(99), at(100));
        is_slow |= at(99) > P99_MAX;
    }
    assert!(!is_slow, "the goal is {P99_MAX:?} for 99 of 100 frames");
}
