//! A session: this process's segment, its socket, and whether anything is recorded at all.
//!
//! ```text
//!            claim            start failed
//!   IDLE ───────────► STARTING ───────────► OFF     (for good; said once)
//!                        ▲ │                 ▲
//!      claim by a forked │ │ start           │ refused, collector gone for good
//!      child             │ ▼                 │
//!                     RUNNING ───────────────┴─► ENDED  (exit)
//! ```
//!
//! Every transition is a function below and nowhere else. The state is kept together with the
//! process that it is of: a forked child inherits its parent's, but generation 0 in the wiped
//! page, so nothing is recorded there until the child's own first call of interest claims the
//! state for the child. What it inherited is leaked.

use core::mem::size_of;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::io::Write as _;

use gputrace_wire::clock::Anchor;
use gputrace_wire::control::Control;
use gputrace_wire::counter::Counter;
use gputrace_wire::definition::kind;
use gputrace_wire::handshake::{self, Head};
use gputrace_wire::segment;

use crate::connection::Connection;
use crate::descriptor::Descriptor;
use crate::held_back::HeldBack;
use crate::rings::{Place, Rings};
use crate::segment::{Plan, Segment};
use crate::socket::{Received, Socket};
use crate::{clock, early_calls, fork, loader, memory, stderr, system};

mod state {
    pub const IDLE: u32 = 0;
    pub const STARTING: u32 = 1;
    pub const RUNNING: u32 = 2;
    pub const ENDED: u32 = 3;
    pub const OFF: u32 = 4;
}

/// The state in the lower half; in the upper one the process that it is of, 0 while IDLE. With it
/// an exchange by one thread of a forked child fails once another thread of the child went on,
/// though both states are called RUNNING.
static STATE: AtomicU64 = AtomicU64::new(state::IDLE as u64);
static CURRENT: AtomicPtr<Session> = AtomicPtr::new(core::ptr::null_mut());
/// Inherited through fork, so that a child's session never has its parent's number.
static LAST_GENERATION: AtomicU32 = AtomicU32::new(0);

/// One session of one process. Never freed.
#[derive(Debug)]
pub struct Session {
    pub pid: i32,
    pub generation: u32,
    primary: Segment,
    rings: Rings,
    connection: Connection,
    /// The clock that device records are stamped in, once there is one.
    device_clock: AtomicPtr<()>,
    epoch: AtomicU32,
    /// Whether the service thread may still write an entry.
    has_service: AtomicBool,
}

/// Why a session did not start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StartError {
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

/// The right to start this process's session; one thread has it. Whoever has it calls [`start`]
/// or [`turn_off`].
#[derive(Debug)]
pub struct Claim(());

/// Claims the start of this process's session. `None` where it has or had one, where another
/// thread starts one, and where tracing is off for good.
pub fn claim() -> Option<Claim> {
    let found = STATE.load(Ordering::Acquire);
    (may_be_claimed(found) && take_over(found)).then_some(Claim(()))
}

/// Whether the state is IDLE, or is a fork's parent's. A child of `vfork`, which shares the memory
/// of a running session, sees the session's generation.
fn may_be_claimed(found: u64) -> bool {
    match found as u32 {
        state::IDLE => true,
        state::OFF => false,
        _ => fork::generation() == 0 && (found >> 32) as i32 != own_pid(),
    }
}

/// Goes from the state that was found to STARTING; false if somebody went on meanwhile.
fn take_over(found: u64) -> bool {
    STATE.compare_exchange(found, own(state::STARTING), Ordering::AcqRel, Ordering::Acquire).is_ok()
}

/// The state word of this process in that state.
fn own(state: u32) -> u64 {
    u64::from(own_pid().cast_unsigned()) << 32 | u64::from(state)
}

fn own_pid() -> i32 {
    system::getpid()
}

/// Whether a thread of this process is starting its session: it is claimed and not published yet.
#[cold]
pub fn is_starting() -> bool {
    // The process is asked for only in that state: every hooked call without a session comes by here.
    let found = STATE.load(Ordering::Acquire);
    found as u32 == state::STARTING && found == own(state::STARTING)
}

/// Starts a session with the collector at the other end of `socket`.
///
/// `command` is the command line, arguments separated by NUL. `before` makes what calls need besides the
/// session; then the session is published, and calls of any thread are recorded.
pub fn start(
    _: Claim,
    socket: Socket,
    command: &[u8],
    before: impl FnOnce(&'static Session),
) -> Result<&'static Session, StartError> {
    let socket = socket.out_of_the_way();
    match build(socket, command) {
        Ok(session) => {
            before(session);
            CURRENT.store(core::ptr::from_ref(session).cast_mut(), Ordering::Release);
            fork::set_generation(session.generation);
            STATE.store(own(state::RUNNING), Ordering::Release);
            Ok(session)
        }
        Err(error) => {
            socket.close();
            STATE.store(own(state::OFF), Ordering::Release);
            Err(error)
        }
    }
}

/// Nothing will be recorded in this process, for good.
pub fn turn_off() {
    STATE.store(own(state::OFF), Ordering::Release);
    fork::set_generation(0);
}

/// Registers what runs at a fork.
fn prepare_for_forks() {
    // The C library locks and allocates for that.
    let _held_back = HeldBack::new();
    fork::prepare();
    loader::prepare();
}

fn build(socket: Socket, command: &[u8]) -> Result<&'static Session, StartError> {
    prepare_for_forks();
    clock::kind();
    // Before the hand-over, so that nothing but the hand-over can fail once the collector knows us.
    let room = memory::map_bytes(size_of::<Session>()).ok_or(StartError::Memory)?.cast::<Session>();
    let (plan, (primary, descriptor)) = [Plan::PRIMARY, Plan::PRIMARY_SMALL]
        .into_iter()
        .find_map(|plan| Some((plan, Segment::create(plan)?)))
        .ok_or(StartError::Memory)?;
    let (pid, parent) = (system::getpid(), system::getppid());
    let generation = LAST_GENERATION.fetch_add(1, Ordering::AcqRel) + 1;

    let header = primary.header;
    header.pid.store(pid as u32, Ordering::Relaxed);
    header.parent_pid.store(parent as u32, Ordering::Relaxed);
    header.generation.store(generation, Ordering::Relaxed);
    header.tick_kind.store(clock::kind(), Ordering::Relaxed);
    let ticks_per_second = clock::measure_ticks_per_second();
    header.ticks_per_second.store(ticks_per_second, Ordering::Relaxed);
    let start = clock::anchor(None, 0);
    header.start_ticks.store(start.ticks, Ordering::Relaxed);
    header.start_monotonic_ns.store(start.monotonic_ns, Ordering::Relaxed);
    header.start_realtime_ns.store(start.realtime_ns, Ordering::Relaxed);
    primary.publish();

    let head = Head::new(handshake::kind::HELLO, pid as u32, generation, 0);
    let text = command.get(..handshake::TEXT_MAX.min(4096)).unwrap_or(command);
    let sent = socket.send(head, text, Some(descriptor));
    let connection = Connection::new(socket);
    let rings = Rings::new(primary, plan, ticks_per_second);
    match Descriptor::adopt(descriptor) {
        Some(file) if sent && connection.may_be_taken_over() => rings.keep(file),
        // SAFETY: the descriptor is ours; the mapping does not need it any more.
        _ => unsafe {
            system::close(descriptor);
        },
    }
    if !sent {
        // SAFETY: the segment was made above and nobody has seen it.
        unsafe { primary.discard() };
        return Err(StartError::HandOver);
    }
    let session = Session {
        pid,
        generation,
        primary,
        rings,
        connection,
        device_clock: AtomicPtr::new(core::ptr::null_mut()),
        epoch: AtomicU32::new(0),
        has_service: AtomicBool::new(false),
    };
    // SAFETY: the mapping is large enough, page-aligned, ours alone, and never unmapped.
    Ok(unsafe {
        room.write(session);
        &*room
    })
}

impl Session {
    /// Whether it is what this process records into now. In a forked child it is not, and its
    /// memory is not even there.
    #[inline(always)]
    pub fn is_current(&self) -> bool {
        fork::generation() == self.generation
    }

    /// Adds to a process-wide counter.
    pub fn count(&self, counter: Counter, amount: u64) {
        if self.is_current()
            && let Some(word) = self.primary.counters().get(counter as usize)
        {
            word.fetch_add(amount, Ordering::Relaxed);
        }
    }

    /// Adds the calls that came while the session was starting to what it lost.
    pub fn add_early_calls(&self) {
        let early = early_calls::take();
        if early > 0
            && let Some(word) = self.primary.counters().get(Counter::BeforeSession as usize)
        {
            word.fetch_add(early, Ordering::Relaxed);
        }
    }

    /// Raises a process-wide counter that keeps the largest value seen.
    pub fn raise(&self, counter: Counter, value: u64) {
        if self.is_current()
            && let Some(word) = self.primary.counters().get(counter as usize)
        {
            word.fetch_max(value, Ordering::Relaxed);
        }
    }

    /// Says something once; 0 when the area is full, which is counted, and when the session is over.
    pub fn define(&self, kind: u16, fields: &[u64], text: &[u8]) -> u32 {
        if !self.is_current() {
            return 0;
        }
        self.primary.area().append(kind, fields, text).unwrap_or_else(|| {
            self.count(Counter::DefinitionsFull, 1);
            0
        })
    }

    /// Whether half of the room for definitions is used: the rest is for what there is little of.
    pub fn definitions_are_half_full(&self) -> bool {
        let area = self.primary.area();
        area.reserved.load(Ordering::Relaxed) >= area.words.len() as u64 / 2
    }

    /// One line for the user, kept in the trace.
    pub fn notice(&self, severity: u64, rung: u64, text: &[u8]) {
        self.define(kind::NOTICE, &[severity, rung], text);
    }

    /// For the service thread: whether it may still write an entry.
    pub(crate) fn set_has_service(&self, has: bool) {
        self.has_service.store(has, Ordering::Release);
    }

    /// Whether the collector waits for what the device libraries hold.
    pub fn is_flush_asked(&self) -> bool {
        let control = self.control();
        control.flush.load(Ordering::Relaxed) != control.flushed.load(Ordering::Relaxed)
    }

    pub fn control(&self) -> &'static Control {
        self.primary.control()
    }

    /// The connection's socket as of now; it may be none.
    pub fn socket(&self) -> Socket {
        self.connection.socket()
    }

    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    fn head(&self, kind: u32, value: u64) -> Head {
        Head::new(kind, self.pid as u32, self.generation, value)
    }

    /// Whether another collector could be told of this session.
    pub fn can_rejoin(&self) -> bool {
        self.connection.may_be_taken_over() && self.rings.primary_file().is_some()
    }

    /// Joins whoever listens now, with the same memory. For the service thread, and for the one who
    /// ends the session: after that thread ended, or where it does not come back in time.
    pub fn rejoin(&self) -> bool {
        let Some(file) = self.rings.primary_file() else { return false };
        let Some(socket) = self.connection.another().map(Socket::out_of_the_way) else { return false };
        // A thread that adds a segment meanwhile would send it over the new connection before the
        // earlier ones, or over a number of ours that is closed under it.
        let joined = self.rings.while_nobody_grows(|| {
            let joined = socket.send(self.head(handshake::kind::HELLO, 0), b"", Some(file));
            if joined {
                self.connection.replace(socket);
                self.rings.hand_over_while_held(&self.connection, self.head(handshake::kind::SEGMENT, 0));
            }
            joined
        });
        if joined != Some(true) {
            socket.close();
        }
        joined == Some(true)
    }

    /// Nobody is at the other end any more.
    pub fn disconnect(&self) {
        // Where a thread is sending there the number stays, until one joins again or the end.
        self.rings.while_nobody_grows(|| self.connection.hang_up());
    }

    /// Hands over the segments that the collector has not seen; closes their files once it is
    /// known that nobody else will want them.
    pub fn hand_over(&self) {
        self.rings.hand_over(&self.connection, self.head(handshake::kind::SEGMENT, 0));
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
    pub fn reserved_ring(&self, role: u64) -> Option<Place> {
        self.rings.reserved(role)
    }

    /// Takes a free ring for the calling thread, making another segment if there is none.
    pub fn take_ring(&self) -> Option<Place> {
        self.rings.take(&self.connection, self.head(handshake::kind::SEGMENT, 0))
    }

    /// Populates ring memory ahead of its writers; see [`Rings::populate`].
    pub fn populate(&self, heads: &mut [u64; 64]) {
        self.rings.populate(heads);
    }

    /// Whether this is the process that started the session. A vfork's child, which shares our
    /// memory, is not.
    pub fn is_ours(&self) -> bool {
        self.pid == own_pid()
    }

    /// Ends the session: nothing is recorded after it. True for the one caller who ended it.
    pub fn end(&self) -> bool {
        self.is_ours()
            && STATE
                .compare_exchange(own(state::RUNNING), own(state::ENDED), Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
    }

    /// Says good-bye, after everything was published. The segment says that it has ended only
    /// where that is so: a service thread that did not stop in time may write an anchor yet.
    pub fn say_bye(&self, reason: u64) {
        // A last try for what a full socket did not take; what is left then is lost, and counted.
        self.hand_over();
        if let Some(word) = self.primary.counters().get(Counter::NoRing as usize) {
            word.fetch_add(self.rings.seen_by_nobody(), Ordering::Relaxed);
        }
        self.add_early_calls();
        if !self.has_service.load(Ordering::Acquire) {
            // SYNC: pairs with the collector's Acquire load; what the rings hold comes before it.
            self.primary.header.state.store(segment::state::ENDED, Ordering::Release);
        }
        let bye = self.head(handshake::kind::BYE, reason);
        let is_said = self.socket().send(bye, b"", None);
        // What is in the rings goes to whoever has taken over by now.
        let is_said = is_said || (self.can_rejoin() && self.rejoin() && self.socket().send(bye, b"", None));
        if !is_said && self.connection.has_nobody() {
            self.say_left_behind();
        }
    }

    /// Tells the collector that an exec is about to be called, which closes the socket if it succeeds.
    pub fn announce_exec(&self) {
        self.hand_over();
        self.socket().send(self.head(handshake::kind::BYE, handshake::bye::EXEC), b"", None);
    }

    /// Says what no collector has read and none will. What one had read and not stored when it was
    /// killed is in this number too where it is still in the rings.
    pub fn say_left_behind(&self) {
        let count = self.rings.left_behind();
        if count > 0 {
            let mut text = [0u8; 20];
            let room = &mut text[..];
            let _ = write!({ room }, "{count}");
            let digits = text.split(|byte| *byte == 0).next().unwrap_or_default();
            stderr::line(&[b"the collector is gone: ", digits, b" entries that it had not read are lost"]);
        }
    }

    /// Gives the session up when the program goes on without it: the collector hears a good-bye and
    /// does not wait for more. Only before anybody but the caller uses the socket.
    pub fn abandon(&self) {
        self.say_bye(handshake::bye::STOPPED);
        turn_off();
        self.close();
    }

    /// Gives back the descriptors, when all is said. Where a thread is adding a segment at this
    /// moment they stay: the exit or the exec that comes next closes them.
    pub fn close(&self) {
        self.rings.while_nobody_grows(|| {
            self.connection.close();
            self.rings.close_files();
        });
    }

    /// Waits for the collector to say that the outputs are there, while `goes_on` says so. Returns
    /// its summary.
    pub fn wait_for_done<'p>(
        &self,
        mut goes_on: impl FnMut() -> bool,
        packet: &'p mut [u8],
    ) -> Option<&'p [u8]> {
        loop {
            let (kind, length) = match self.socket().receive(100, packet) {
                Received::Message(head, text) => (head.kind, text.len()),
                Received::Nothing if goes_on() => continue,
                Received::Nothing | Received::Gone | Received::Lost => return None,
            };
            if kind == handshake::kind::DONE {
                return packet.get(handshake::HEAD_BYTES..handshake::HEAD_BYTES + length);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_that_somebody_went_on_from_is_not_taken_over() {
        // What a forked child inherits: RUNNING, of its parent. Two of its threads look at it.
        let inherited = u64::from(own_pid().cast_unsigned() + 1) << 32 | u64::from(state::RUNNING);
        STATE.store(inherited, Ordering::Release);
        assert!(take_over(inherited), "the first thread starts the session");
        STATE.store(own(state::RUNNING), Ordering::Release);
        assert!(!take_over(inherited), "the second comes when it runs");
        assert_eq!(STATE.load(Ordering::Acquire), own(state::RUNNING));
        STATE.store(u64::from(state::IDLE), Ordering::Release);
    }
}
