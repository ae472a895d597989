//! The traced programs of `top`: what the collectors of this user's sessions answer at their control sockets.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use gputrace_collector::live::{LiveProcess, LiveRow, LiveTables};
use gputrace_tui::{Scene, SessionView, TableRow, Tables};
use serde_json::Value;

use crate::launch::control::{self, STATUS, TABLES};
use crate::launch::private_folder;

/// How long a session may take: it may be stopped, and others wait behind it.
const LIMIT: Duration = Duration::from_secs(2);

/// A session, and its processes by pid.
#[derive(Debug, Clone, Default)]
pub struct LiveSession {
    view: SessionView,
    processes: Vec<LiveProcess>,
}

/// Asks all sessions again and again, on a thread of its own, until this value goes.
pub struct Sessions(Arc<Mutex<Vec<LiveSession>>>);

impl Sessions {
    pub fn start(interval: Duration) -> Sessions {
        let latest = Arc::new(Mutex::new(Vec::new()));
        let weak: Weak<Mutex<Vec<LiveSession>>> = Arc::downgrade(&latest);
        let poll = move || {
            while let Some(latest) = weak.upgrade() {
                let found = all();
                *latest.lock().unwrap_or_else(PoisonError::into_inner) = found;
                drop(latest);
                thread::sleep(interval);
            }
        };
        // Without the thread there are no sessions on the screen; the devices still are.
        let _ = thread::Builder::new().name("gputrace-sessions".into()).spawn(poll);
        Sessions(latest)
    }

    pub fn latest(&self) -> Vec<LiveSession> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// All sessions that answer now.
pub fn all() -> Vec<LiveSession> {
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let (_, sessions) = private_folder::sessions(own);
    let usable = sessions.iter().filter(|session| session.usable.is_ok());
    let mut found: Vec<LiveSession> =
        usable.filter_map(|session| ask(&session.path.join(control::SOCKET))).collect();
    found.sort_by_key(|found| found.view.pid);
    found
}

fn ask(socket: &Path) -> Option<LiveSession> {
    let status = control::ask(socket, STATUS, LIMIT).ok()?;
    let tables = control::ask(socket, TABLES, LIMIT).ok();
    let tables = tables.and_then(|answer| serde_json::from_value(answer["tables"].clone()).ok());
    let tables: LiveTables = tables.unwrap_or_default();
    let recording = &status["recording"];
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let words = status["command"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let pids = recording["processes"].as_array().into_iter().flatten();
    let lost = recording["dropped"].as_object().into_iter().flatten();
    let costs: Vec<f64> = tables.processes.iter().filter_map(|process| process.hook_cost_ns).collect();
    let view = SessionView {
        pid: u32::try_from(number(&status["pid"])).unwrap_or(0),
        command: words.collect::<Vec<_>>().join(" "),
        output: status["output"].as_str().unwrap_or("").to_owned(),
        launches: number(&recording["launches"]),
        host_calls: number(&recording["host_calls"]),
        device_records: number(&recording["device_records"]),
        events_per_second: recording["events_per_second"].as_f64().unwrap_or(0.0),
        lost: lost.map(|(_, count)| number(count)).fold(0, u64::saturating_add),
        hook_cost_ns: (!costs.is_empty()).then(|| costs.iter().sum::<f64>() / costs.len() as f64),
        processes: pids.filter_map(|process| u32::try_from(number(&process["pid"])).ok()).collect(),
        tables: Tables {
            kernels: rows(tables.kernels),
            lines: rows(tables.lines),
            streams: rows(tables.streams),
            copies: rows(tables.copies),
        },
    };
    Some(LiveSession { view, processes: tables.processes })
}

fn rows(rows: Vec<LiveRow>) -> Vec<TableRow> {
    let row = |row: LiveRow| TableRow {
        name: row.name,
        calls: row.calls,
        total_ns: row.total_ns,
        bytes: row.bytes,
    };
    rows.into_iter().map(row).collect()
}

/// Adds the sessions to a scene, and marks its processes that are traced.
pub fn add(scene: &mut Scene, found: Vec<LiveSession>) {
    for process in &mut scene.processes {
        if process.is_host_pid {
            continue;
        }
        let of_session = found.iter().find(|found| found.view.processes.contains(&process.pid));
        process.is_traced = of_session.is_some();
        let live = of_session.and_then(|found| found.processes.iter().find(|live| live.pid == process.pid));
        process.allocations = live.and_then(|live| live.allocations);
    }
    for device in &mut scene.devices {
        let on_device = scene.processes.iter().filter(|process| process.device == device.info.index);
        let known: Vec<u64> = on_device.filter_map(|process| process.allocations).collect();
        device.allocations = (!known.is_empty()).then(|| known.iter().sum());
    }
    scene.sessions = found.into_iter().map(|found| found.view).collect();
}
