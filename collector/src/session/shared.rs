//! What the recorder, its threads and its handles share: orders, requests, refusals, and what was stored.

use std::os::fd::OwnedFd;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use gputrace_wire::atomic::{AtomicU32, AtomicU64, Ordering};
use gputrace_wire::run_settings::RunSettings;
use rustix::event::{EventfdFlags, eventfd};

use crate::error::Error;
use crate::flight_recorder::DumpRequest;
use crate::session::death::Death;
use crate::session::live_order::{LiveOrder, OrderedBy, ReportedState};
use crate::stream::clock::monotonic_ns;

/// The most dumps that are requested and not yet begun.
const DUMPS_WAITING: usize = 4;
/// The most requests for a new status that are not yet answered.
const LOOKS_WAITING: usize = 16;
/// The most processes whose reports are kept.
const STATES_MAX: usize = 200;
/// The most refusals that are kept; further ones are counted.
const REFUSED_MAX: usize = 100;

/// The most texts for the user that wait for a process to write them.
const TEXTS_MAX: usize = 16;

/// Orders to the drain thread, and what it reports.
pub(super) struct Shared {
    /// Readable when there are new orders.
    pub wake: OwnedFd,
    orders: Mutex<Orders>,
    ended: Mutex<bool>,
    ended_changed: Condvar,
    refused: Mutex<Vec<(u32, String)>>,
    /// Lines about processes that never connected.
    missed: Mutex<Vec<String>>,
    /// Refusals beyond those that are kept.
    refused_more: AtomicU64,
    /// Batches that the processing thread has finished.
    pub stored: AtomicU64,
    /// `None` once the session has ended.
    dumps: Mutex<Option<Vec<DumpRequest>>>,
    /// Who waits for a new status; `None` once the session has ended.
    looks: Mutex<Option<Vec<Sender<()>>>>,
    /// The last process that was reaped, and how it died.
    death: Mutex<Option<(u32, Death)>>,
    /// Texts for the user that no process has been given.
    texts: Mutex<Vec<String>>,
    recording: Mutex<LiveOrder>,
    settings: Mutex<LiveOrder>,
    /// Who gave the last order to record or to pause.
    ordered_by: Mutex<OrderedBy>,
    /// CLOCK_MONOTONIC of the first order to record; 0 if there was none.
    started_ns: AtomicU64,
    /// What the running processes report, at most [`STATES_MAX`] of them.
    states: Mutex<Vec<ReportedState>>,
    /// CLOCK_MONOTONIC when the first program joined; 0 until then.
    first_joined_ns: AtomicU64,
    /// Whether the last capture range of a program has ended.
    pub capture_is_over: AtomicU32,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Orders {
    pub finish: bool,
    /// How long to wait for processes that run on.
    pub deadline: Instant,
}

/// Ignores poisoning: no value is half changed at a point where a thread can panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub fn new() -> Result<Shared, Error> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| Error::System { operation: "eventfd", source: errno.into() })?;
        Ok(Shared {
            wake,
            orders: Mutex::new(Orders { finish: false, deadline: Instant::now() }),
            ended: Mutex::new(false),
            ended_changed: Condvar::new(),
            refused: Mutex::new(Vec::new()),
            missed: Mutex::new(Vec::new()),
            refused_more: AtomicU64::new(0),
            stored: AtomicU64::new(0),
            dumps: Mutex::new(Some(Vec::new())),
            looks: Mutex::new(Some(Vec::new())),
            death: Mutex::new(None),
            texts: Mutex::new(Vec::new()),
            recording: Mutex::new(LiveOrder::default()),
            settings: Mutex::new(LiveOrder::default()),
            ordered_by: Mutex::new(OrderedBy::default()),
            started_ns: AtomicU64::new(0),
            states: Mutex::new(Vec::new()),
            first_joined_ns: AtomicU64::new(0),
            capture_is_over: AtomicU32::new(0),
        })
    }

    pub fn order_finish(&self, grace: Duration) {
        *lock(&self.orders) = Orders { finish: true, deadline: Instant::now() + grace };
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Orders all processes, and those that join later, to pause or to record. Returns the order's number.
    pub fn order_recording(&self, is_paused: bool, by: OrderedBy) {
        let mut order = lock(&self.recording);
        order.wanted = ((order.wanted >> 1).wrapping_add(1) << 1) | u32::from(is_paused);
        *lock(&self.ordered_by) = by;
        if !is_paused {
            let now_ns = monotonic_ns();
            let _ = self.started_ns.compare_exchange(0, now_ns, Ordering::Relaxed, Ordering::Relaxed);
        }
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Keeps a text for the user until a process is given it, or the session's end.
    pub fn keep_text(&self, text: String) {
        let mut texts = lock(&self.texts);
        if texts.len() < TEXTS_MAX {
            texts.push(text);
        }
    }

    pub fn take_texts(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.texts))
    }

    /// Notes that a program has joined.
    pub fn note_joined(&self) {
        let now_ns = monotonic_ns();
        let _ = self.first_joined_ns.compare_exchange(0, now_ns, Ordering::Relaxed, Ordering::Relaxed);
    }

    pub fn first_joined_ns(&self) -> Option<u64> {
        Some(self.first_joined_ns.load(Ordering::Relaxed)).filter(|ns| *ns != 0)
    }

    pub fn recording(&self) -> LiveOrder {
        lock(&self.recording).clone()
    }

    pub fn ordered_by(&self) -> OrderedBy {
        *lock(&self.ordered_by)
    }

    pub fn started_ns(&self) -> Option<u64> {
        Some(self.started_ns.load(Ordering::Relaxed)).filter(|ns| *ns != 0)
    }

    /// Orders all processes, and those that join later, to change settings. Returns the order's number.
    pub fn order_settings(&self, change: RunSettings) {
        let mut order = lock(&self.settings);
        order.wanted = change.next_order(order.wanted);
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    pub fn settings(&self) -> LiveOrder {
        lock(&self.settings).clone()
    }

    /// Notes for which processes the order `applied` is in effect.
    pub fn note_recording(&self, applied: u32, (processes, waiting): (usize, Vec<u32>)) {
        let mut order = lock(&self.recording);
        (order.applied, order.processes, order.waiting) = (applied, processes, waiting);
    }

    pub fn note_settings(&self, applied: u32, (processes, waiting): (usize, Vec<u32>)) {
        let mut order = lock(&self.settings);
        (order.applied, order.processes, order.waiting) = (applied, processes, waiting);
    }

    pub fn note_states(&self, states: impl Iterator<Item = ReportedState>) {
        *lock(&self.states) = states.take(STATES_MAX).collect();
    }

    pub fn states(&self) -> Vec<ReportedState> {
        lock(&self.states).clone()
    }

    pub fn order_dump(&self, request: DumpRequest) -> Result<(), &'static str> {
        let mut dumps = lock(&self.dumps);
        match &mut *dumps {
            None => return Err("the session is at its end, and writes what it holds"),
            Some(waiting) if waiting.len() >= DUMPS_WAITING => {
                return Err("too many dumps were asked for at once");
            }
            Some(waiting) => waiting.push(request),
        }
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        Ok(())
    }

    pub fn take_dumps(&self) -> Vec<DumpRequest> {
        lock(&self.dumps).as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Requests a new status; `reply` is answered once it is written. False if it will not be.
    pub fn order_look(&self, reply: Sender<()>) -> bool {
        let mut looks = lock(&self.looks);
        let Some(waiting) = looks.as_mut().filter(|waiting| waiting.len() < LOOKS_WAITING) else {
            return false;
        };
        waiting.push(reply);
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        true
    }

    pub fn take_looks(&self) -> Vec<Sender<()>> {
        lock(&self.looks).as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Ends all requests. Dropping their senders wakes those who wait.
    pub fn close_requests(&self) {
        *lock(&self.dumps) = None;
        *lock(&self.looks) = None;
    }

    pub fn note_death(&self, pid: u32, death: Death) {
        *lock(&self.death) = Some((pid, death));
    }

    /// How a process died that this program reaped itself.
    pub fn death_of(&self, pid: u32) -> Option<Death> {
        lock(&self.death).filter(|(dead, _)| *dead == pid).map(|(_, death)| death)
    }

    pub fn orders(&self) -> Orders {
        *lock(&self.orders)
    }

    pub fn clear_wake(&self) {
        let _ = rustix::io::read(&self.wake, &mut [0u8; 8]);
    }

    /// The single process has ended, or never joined.
    pub fn set_ended(&self) {
        *lock(&self.ended) = true;
        self.ended_changed.notify_all();
    }

    /// Blocks until the single process has ended.
    pub fn wait_for_end(&self) {
        let mut ended = lock(&self.ended);
        while !*ended {
            ended = self.ended_changed.wait(ended).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub fn has_ended(&self) -> bool {
        *lock(&self.ended)
    }

    /// Keeps that a peer is not recorded, and why.
    pub fn refuse(&self, pid: u32, why: &str) {
        let mut refused = lock(&self.refused);
        if refused.len() < REFUSED_MAX {
            refused.push((pid, why.to_owned()));
        } else {
            self.refused_more.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The same, unless that process has been refused already.
    pub fn refuse_unless_known(&self, pid: u32, why: &str) {
        let is_known = lock(&self.refused).iter().any(|(known, _)| *known == pid);
        if !is_known {
            self.refuse(pid, why);
        }
    }

    /// Keeps a line about processes that should be recorded and do not connect.
    pub fn miss(&self, line: String) {
        lock(&self.missed).push(line);
    }

    /// Lines that say which processes were missed or refused, and why.
    pub fn take_refused(&self) -> Vec<String> {
        let mut lines = std::mem::take(&mut *lock(&self.missed));
        let refused = std::mem::take(&mut *lock(&self.refused));
        lines.extend(refused.into_iter().map(|(pid, why)| format!("process {pid}: {why}")));
        let more = self.refused_more.load(Ordering::Relaxed);
        if more > 0 {
            lines.push(format!("{more} more"));
        }
        lines
    }
}
