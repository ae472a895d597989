//! The traced programs of `top`: what the collectors of this user's sessions answer at their control sockets.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use gputrace_collector::live::{LiveMemoryRow, LiveProcess, LiveRow, LiveTables};
use gputrace_tui::{MemoryRow, Scene, SessionView, TableRow, Tables};
use serde_json::Value;

use crate::launch::control::{self, STATUS, TABLES};
use crate::launch::private_folder;

/// How long a session may take for one answer.
const LIMIT: Duration = Duration::from_secs(2);
/// How long a session may take for both of its answers, counters and tables, and for its thread to run.
const BOTH_LIMIT: Duration = Duration::from_millis(4500);
const LOOKS_EVERY: Duration = Duration::from_millis(5);

/// A session, and its processes by pid.
#[derive(Debug, Clone, Default)]
pub struct LiveSession {
    view: SessionView,
    processes: Vec<LiveProcess>,
}

/// What is known of one session.
#[derive(Debug)]
struct Slot {
    pid: u32,
    latest: Option<LiveSession>,
    /// When the request began that is not answered yet; `None` if there is none.
    asked: Option<Instant>,
}

/// The sessions by folder. Each request runs in a thread of its own, so that a stopped session delays no
/// other; a session gets no second request before the first has ended.
type Slots = Arc<Mutex<BTreeMap<PathBuf, Slot>>>;

/// Asks all sessions again and again until this value is dropped.
pub struct Sessions(Slots);

impl Sessions {
    /// All sessions, or that in one folder, which is this process's.
    pub fn start(interval: Duration, only: Option<PathBuf>) -> Sessions {
        let slots = Slots::default();
        let weak: Weak<_> = Arc::downgrade(&slots);
        let poll = move || {
            while let Some(slots) = weak.upgrade() {
                ask_all(&slots, only.as_deref());
                drop(slots);
                thread::sleep(interval);
            }
        };
        // If the thread cannot be started, the screen shows no sessions, but it still shows the devices.
        let _ = thread::Builder::new().name("gputrace-sessions".into()).spawn(poll);
        Sessions(slots)
    }

    pub fn latest(&self) -> Vec<LiveSession> {
        latest(&self.0)
    }
}

/// Asks all sessions once and waits for their answers.
pub fn all() -> Vec<LiveSession> {
    let (slots, begin) = (Slots::default(), Instant::now());
    ask_all(&slots, None);
    while begin.elapsed() < BOTH_LIMIT && lock(&slots).values().any(|slot| slot.asked.is_some()) {
        thread::sleep(LOOKS_EVERY);
    }
    latest(&slots)
}

fn lock(slots: &Slots) -> MutexGuard<'_, BTreeMap<PathBuf, Slot>> {
    slots.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Asks each session that has no unanswered request.
fn ask_all(slots: &Slots, only: Option<&Path>) {
    let usable = only.map_or_else(usable, |own| vec![(std::process::id(), own.to_owned())]);
    let mut locked = lock(slots);
    locked.retain(|path, _| usable.iter().any(|(_, usable)| usable == path));
    for (pid, path) in usable {
        let slot = locked.entry(path.clone()).or_insert(Slot { pid, latest: None, asked: None });
        if slot.asked.is_some() {
            continue;
        }
        slot.asked = Some(Instant::now());
        let slots = Arc::clone(slots);
        let question = move || {
            let answer = ask(&path.join(control::SOCKET), pid);
            if let Some(slot) = lock(&slots).get_mut(&path) {
                (slot.latest, slot.asked) = (answer, None);
            }
        };
        if thread::Builder::new().name("gputrace-ask".into()).spawn(question).is_err() {
            slot.asked = None;
        }
    }
}

/// The collector and the folder of each session of this user.
fn usable() -> Vec<(u32, PathBuf)> {
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let (_, sessions) = private_folder::sessions(own);
    let usable = sessions.into_iter().filter(|session| session.usable.is_ok());
    usable.map(|session| (u32::try_from(session.pid).unwrap_or(0), session.path)).collect()
}

fn latest(slots: &Slots) -> Vec<LiveSession> {
    let of_slot = |slot: &Slot| {
        let is_late = slot.asked.is_some_and(|asked| asked.elapsed() > BOTH_LIMIT);
        if is_late { Some(silent(slot.pid)) } else { slot.latest.clone() }
    };
    let mut found: Vec<LiveSession> = lock(slots).values().filter_map(of_slot).collect();
    found.sort_by_key(|found| found.view.pid);
    found
}

/// A session whose collector exists and does not answer: it is stopped, or the machine is overloaded.
fn silent(pid: u32) -> LiveSession {
    let problem = format!("its collector has not answered for {} seconds", LIMIT.as_secs());
    let view = SessionView { pid, problem: Some(problem), ..SessionView::default() };
    LiveSession { view, processes: Vec::new() }
}

/// Asks one session; `None` if it has ended.
fn ask(socket: &Path, pid: u32) -> Option<LiveSession> {
    let status = match control::ask(socket, STATUS, LIMIT) {
        Ok(status) => status,
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            return Some(silent(pid));
        }
        Err(_) => return None,
    };
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
        problem: None,
        command: words.collect::<Vec<_>>().join(" "),
        output: status["output"].as_str().unwrap_or("").to_owned(),
        launches: number(&recording["launches"]),
        host_calls: number(&recording["host_calls"]),
        device_records: number(&recording["device_records"]),
        events_per_second: recording["events_per_second"].as_f64().unwrap_or(0.0),
        lost: lost.map(|(_, count)| number(count)).fold(0, u64::saturating_add),
        hook_cost_ns: (!costs.is_empty()).then(|| costs.iter().sum::<f64>() / costs.len() as f64),
        processes: pids.filter_map(|process| u32::try_from(number(&process["pid"])).ok()).collect(),
        held_bytes: tables.processes.iter().map(|process| process.held_bytes).sum(),
        peak_bytes: tables.processes.iter().map(|process| process.peak_bytes).max().unwrap_or(0),
        tables: Tables {
            kernels: rows(tables.kernels),
            lines: rows(tables.lines),
            streams: rows(tables.streams),
            copies: rows(tables.copies),
            memory: tables.memory.into_iter().map(memory_row).collect(),
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

fn memory_row(row: LiveMemoryRow) -> MemoryRow {
    MemoryRow {
        name: row.name,
        kind: row.kind,
        is_on_device: row.is_on_device,
        live_bytes: row.live_bytes,
        live: row.live,
        most_bytes: row.most_bytes,
        allocations: row.allocations,
        allocations_per_second: row.allocations_per_second,
    }
}

/// Adds the sessions to a scene, and marks its processes that are traced.
pub fn add(scene: &mut Scene, found: Vec<LiveSession>) {
    let all_answered = found.iter().all(|found| found.view.problem.is_none());
    for process in &mut scene.processes {
        if process.is_host_pid {
            continue;
        }
        let of_session = found.iter().find(|found| found.view.processes.contains(&process.pid));
        process.is_traced = (of_session.is_some() || all_answered).then_some(of_session.is_some());
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
