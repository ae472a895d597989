//! A session: this process's segment, its socket, and whether anything is recorded at all.
//!
//! ```text
//!            start            start failed
//!   IDLE ───────────► STARTING ───────────► OFF     (for good; said once)
//!    ▲                   │
//!    │ first call after  │ ready
//!    │ a fork            ▼
//!    └─────────────── RUNNING ─────────────► ENDED  (exit, exec, refused, collector gone)
//! ```
//!
//! Every transition is a function below and nowhere else. A forked child inherits RUNNING in
//! ordinary memory but generation 0 in the wiped page, and the page is what counts: the child is
//! idle until its own first call of interest, and leaks what it inherited.

use core::mem::size_of;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use gputrace_wire::clock::Anchor;
use gputrace_wire::control::Control;
use gputrace_wire::counter::Counter;
use gputrace_wire::definition::{self, kind};
use gputrace_wire::handshake::{self, Head};
use gputrace_wire::segment::{self, RingHeader};

use crate::segment::{Plan, Segment};
use crate::socket::{Received, Socket};
use crate::{clock, fork, memory};

/// The most segments of further threads: 16 × 64 rings beside the first 62.
const MORE_SEGMENTS: usize = 16;

mod state {
    pub const IDLE: u32 = 0;
    pub const STARTING: u32 = 1;
    pub const RUNNING: u32 = 2;
    pub const ENDED: u32 = 3;
    pub const OFF: u32 = 4;
}

static STATE: AtomicU32 = AtomicU32::new(state::IDLE);
static CURRENT: AtomicPtr<Session> = AtomicPtr::new(core::ptr::null_mut());
/// Inherited through fork, so that a child's session never has its parent's number.
static LAST_GENERATION: AtomicU32 = AtomicU32::new(0);

/// One session of one process. Never freed.
#[derive(Debug)]
pub struct Session {
    pub pid: i32,
    pub generation: u32,
    primary: Segment,
    plan: Plan,
    more: [AtomicPtr<Segment>; MORE_SEGMENTS],
    more_count: AtomicUsize,
    growing: AtomicBool,
    socket: Socket,
    /// The clock that device records are stamped in, once there is one.
    device_clock: AtomicPtr<()>,
    epoch: AtomicU32,
}

/// Why a session did not start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StartError {
    /// Another thread is starting one, or there is or was one.
    NotIdle,
    /// No sealed memory file: memfd is missing or forbidden, or a limit is too low.
    Memory,
    /// The collector did not take the hand-over.
    HandOver,
}

/// The running session; `None` before the start, after the end, and in a forked child.
#[inline(always)]
pub fn current() -> Option<&'static Session> {
    if fork::generation() == 0 {
        return None;
    }
    // SAFETY: the pointer is null or to a session that was written whole before it was stored
    // (Release in `start`) and is never freed.
    unsafe { CURRENT.load(Ordering::Acquire).as_ref() }
}

/// Whether this process may start a session: it never had one, or it is a fork of one that had.
pub fn is_idle() -> bool {
    match STATE.load(Ordering::Acquire) {
        state::IDLE => true,
        // Generation 0 while running or ended: a fork's child. It has one thread yet, or its
        // threads race here and the exchange lets all of them through to the one in `start`.
        found @ (state::RUNNING | state::ENDED) if fork::generation() == 0 && was_forked() => {
            let _ = STATE.compare_exchange(found, state::IDLE, Ordering::AcqRel, Ordering::Acquire);
            true
        }
        _ => false,
    }
}

/// Whether the session in memory belongs to another process: the one that forked us.
fn was_forked() -> bool {
    // SAFETY: see `current`; a session is never freed, and a fork's child has a copy of it.
    let session = unsafe { CURRENT.load(Ordering::Acquire).as_ref() };
    // SAFETY: getpid has no preconditions.
    session.is_some_and(|session| session.pid != unsafe { libc::getpid() })
}

/// Starts a session with the collector at the other end of `socket`.
///
/// `command` is the command line, arguments separated by NUL.
pub fn start(socket: Socket, command: &[u8]) -> Result<&'static Session, StartError> {
    if STATE.compare_exchange(state::IDLE, state::STARTING, Ordering::AcqRel, Ordering::Acquire).is_err() {
        return Err(StartError::NotIdle);
    }
    match build(socket, command) {
        Ok(session) => {
            CURRENT.store(core::ptr::from_ref(session).cast_mut(), Ordering::Release);
            fork::set_generation(session.generation);
            STATE.store(state::RUNNING, Ordering::Release);
            Ok(session)
        }
        Err(error) => {
            socket.close();
            STATE.store(state::OFF, Ordering::Release);
            Err(error)
        }
    }
}

/// Nothing will be recorded in this process, for good.
pub fn turn_off() {
    STATE.store(state::OFF, Ordering::Release);
    fork::set_generation(0);
}

fn build(socket: Socket, command: &[u8]) -> Result<&'static Session, StartError> {
    fork::prepare();
    clock::kind();
    let (plan, (primary, descriptor)) = [Plan::PRIMARY, Plan::PRIMARY_SMALL]
        .into_iter()
        .find_map(|plan| Some((plan, Segment::create(plan)?)))
        .ok_or(StartError::Memory)?;
    // SAFETY: getpid and getppid have no preconditions.
    let (pid, parent) = unsafe { (libc::getpid(), libc::getppid()) };
    let generation = LAST_GENERATION.fetch_add(1, Ordering::AcqRel) + 1;

    let header = primary.header;
    header.pid.store(pid as u32, Ordering::Relaxed);
    header.parent_pid.store(parent as u32, Ordering::Relaxed);
    header.generation.store(generation, Ordering::Relaxed);
    header.tick_kind.store(clock::kind(), Ordering::Relaxed);
    header.ticks_per_second.store(clock::measure_ticks_per_second(), Ordering::Relaxed);
    let start = clock::anchor(None, 0);
    header.start_ticks.store(start.ticks, Ordering::Relaxed);
    header.start_monotonic_ns.store(start.monotonic_ns, Ordering::Relaxed);
    header.start_realtime_ns.store(start.realtime_ns, Ordering::Relaxed);
    primary.publish();

    let head = Head::new(handshake::kind::HELLO, pid as u32, generation, 0);
    let text = command.get(..handshake::TEXT_MAX.min(4096)).unwrap_or(command);
    let sent = socket.send(head, text, Some(descriptor));
    // SAFETY: the descriptor is ours; the mapping does not need it any more.
    unsafe { libc::close(descriptor) };
    if !sent {
        return Err(StartError::HandOver);
    }
    let room = memory::map_bytes(size_of::<Session>()).ok_or(StartError::Memory)?.cast::<Session>();
    let session = Session {
        pid,
        generation,
        primary,
        plan,
        more: [const { AtomicPtr::new(core::ptr::null_mut()) }; MORE_SEGMENTS],
        more_count: AtomicUsize::new(0),
        growing: AtomicBool::new(false),
        socket,
        device_clock: AtomicPtr::new(core::ptr::null_mut()),
        epoch: AtomicU32::new(0),
    };
    // SAFETY: the mapping is large enough, page-aligned, ours alone, and never unmapped.
    Ok(unsafe {
        room.write(session);
        &*room
    })
}

impl Session {
    /// Adds to a process-wide counter.
    pub fn count(&self, counter: Counter, amount: u64) {
        if let Some(word) = self.primary.counters().get(counter as usize) {
            word.fetch_add(amount, Ordering::Relaxed);
        }
    }

    /// Says something once; 0 when the area is full, which is counted.
    pub fn define(&self, kind: u16, fields: &[u64], text: &[u8]) -> u32 {
        self.primary.area().append(kind, fields, text).unwrap_or_else(|| {
            self.count(Counter::DefinitionsFull, 1);
            0
        })
    }

    /// One line for the user, kept in the trace.
    pub fn notice(&self, severity: u64, rung: u64, text: &[u8]) {
        self.define(kind::NOTICE, &[severity, rung], text);
    }

    pub fn control(&self) -> &'static Control {
        self.primary.control()
    }

    pub fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Says which clock device records are stamped in from now on.
    pub fn set_device_clock(&self, clock: fn() -> u64, epoch: u32) {
        self.epoch.store(epoch, Ordering::Release);
        self.device_clock.store(clock as *mut (), Ordering::Release);
    }

    pub fn clear_device_clock(&self) {
        self.device_clock.store(core::ptr::null_mut(), Ordering::Release);
    }

    /// Reads all clocks now.
    pub fn anchor(&self) -> Anchor {
        let clock = self.device_clock.load(Ordering::Acquire);
        let clock = (!clock.is_null()).then(|| {
            // SAFETY: only `set_device_clock` stores here, and it stores this type.
            unsafe { core::mem::transmute::<*mut (), fn() -> u64>(clock) }
        });
        clock::anchor(clock, self.epoch.load(Ordering::Acquire))
    }

    /// The ring kept for device records, or the service thread's.
    pub fn reserved_ring(
        &self,
        role: u64,
    ) -> Option<(&'static RingHeader, gputrace_wire::ring::Ring<'static>)> {
        let index = if role == definition::role::DEVICE_RECORDS { 0 } else { 1 };
        Some((self.primary.rings.get(index)?, self.primary.ring(self.plan, index)?))
    }

    /// Takes a free ring for the calling thread, making another segment if there is none.
    pub fn take_ring(&self) -> Option<(&'static RingHeader, gputrace_wire::ring::Ring<'static>)> {
        if let Some(found) = take_from(&self.primary, self.plan, 2) {
            return Some(found);
        }
        loop {
            let count = self.more_count.load(Ordering::Acquire);
            for slot in self.more.iter().take(count) {
                // SAFETY: entries below `more_count` were stored before it and are never freed.
                let segment = unsafe { slot.load(Ordering::Acquire).as_ref() }?;
                if let Some(found) = take_from(segment, Plan::MORE_THREADS, 0) {
                    return Some(found);
                }
            }
            if !self.grow(count) {
                return None;
            }
        }
    }

    /// Adds a segment of rings. False if another thread is at it (its caller tries again at the
    /// next event) or there can be no more.
    fn grow(&self, seen: usize) -> bool {
        if self.growing.swap(true, Ordering::AcqRel) {
            return false;
        }
        let count = self.more_count.load(Ordering::Acquire);
        let grown = if count != seen { true } else { self.add_segment(count) };
        self.growing.store(false, Ordering::Release);
        grown
    }

    fn add_segment(&self, count: usize) -> bool {
        let Some(slot) = self.more.get(count) else { return false };
        let Some((segment, descriptor)) = Segment::create(Plan::MORE_THREADS) else { return false };
        let Some(room) = memory::map_bytes(size_of::<Segment>()) else { return false };
        segment.publish();
        let head = Head::new(handshake::kind::SEGMENT, self.pid as u32, self.generation, 0);
        let sent = self.socket.send(head, b"", Some(descriptor));
        // SAFETY: the descriptor was made above and is not used again.
        unsafe { libc::close(descriptor) };
        if !sent {
            return false;
        }
        let room = room.cast::<Segment>();
        // SAFETY: the mapping is large enough, page-aligned, ours alone, and never unmapped.
        unsafe { room.write(segment) };
        slot.store(room, Ordering::Release);
        self.more_count.store(count + 1, Ordering::Release);
        true
    }

    /// Populates what the program's threads will write next, on their rings' first lap. `heads`
    /// keeps where they were at the last call: a ring that stands still gets no more memory.
    pub fn populate(&self, heads: &mut [u64; 64]) {
        /// 512 KiB: 160 000 launches a second between two calls.
        const AHEAD_CELLS: u64 = 8192;
        for (index, (ring, last)) in self.primary.rings.iter().zip(heads.iter_mut()).enumerate().skip(2) {
            let head = ring.head.load(Ordering::Relaxed);
            if head != *last && head < ring.capacity_cells.load(Ordering::Relaxed) {
                self.primary.populate(self.plan, index, head, AHEAD_CELLS);
            }
            *last = head;
        }
    }

    /// Whether this is the process that started the session. A vfork's child, which shares our
    /// memory, is not.
    pub fn is_ours(&self) -> bool {
        // SAFETY: getpid has no preconditions.
        self.pid == unsafe { libc::getpid() }
    }

    /// Ends the session: nothing is recorded after it. True for the one caller who ended it.
    pub fn end(&self) -> bool {
        self.is_ours()
            && STATE
                .compare_exchange(state::RUNNING, state::ENDED, Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
    }

    /// Says good-bye, after everything was published.
    pub fn say_bye(&self, reason: u64) {
        // SYNC: pairs with the collector's Acquire load; what the rings hold comes before it.
        self.primary.header.state.store(segment::state::ENDED, Ordering::Release);
        self.socket.send(
            Head::new(handshake::kind::BYE, self.pid as u32, self.generation, reason),
            b"",
            None,
        );
    }

    /// Waits for the collector to say that the outputs are there. Returns its summary's length.
    pub fn wait_for_done<'p>(&self, limit_ms: i32, packet: &'p mut [u8]) -> Option<&'p [u8]> {
        let deadline = clock::monotonic_ns() + limit_ms.max(0) as u64 * 1_000_000;
        loop {
            let left = deadline.saturating_sub(clock::monotonic_ns()) / 1_000_000;
            if left == 0 {
                return None;
            }
            let (kind, length) = match self.socket.receive(left.min(1_000) as i32, packet) {
                Received::Message(head, text) => (head.kind, text.len()),
                Received::Nothing => continue,
                Received::Gone => return None,
            };
            if kind == handshake::kind::DONE {
                return packet.get(handshake::HEAD_BYTES..handshake::HEAD_BYTES + length);
            }
        }
    }
}

fn take_from(
    segment: &Segment,
    plan: Plan,
    first: usize,
) -> Option<(&'static RingHeader, gputrace_wire::ring::Ring<'static>)> {
    use gputrace_wire::segment::ring_state::{FREE, OWNED};
    for (index, header) in segment.rings.iter().enumerate().skip(first) {
        // SYNC: Acquire pairs with the Release store of FREE by the ring's last owner, so that
        // its positions and cells come before ours.
        if header.state.load(Ordering::Relaxed) == FREE
            && header.state.compare_exchange(FREE, OWNED, Ordering::Acquire, Ordering::Relaxed).is_ok()
        {
            return Some((header, segment.ring(plan, index)?));
        }
    }
    None
}
