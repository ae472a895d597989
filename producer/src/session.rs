//! A session: this process's segment, its socket, and whether anything is recorded at all.
//!
//! ```text
//!            claim            start failed
//!   IDLE ───────────► STARTING ───────────► OFF     (for good; reported once)
//!                        ▲ │                 ▲
//!      claim by a forked │ │ start           │ refused, collector gone for good
//!      child             │ ▼                 │
//!                     RUNNING ───────────────┴─► ENDED  (exit)
//! ```
//!
//! Each transition is a function below, and nothing else changes the state. The state word also
//! identifies the process. A forked child inherits its parent's state, but reads generation 0 in
//! the wiped page, so it records nothing until its own first successful `cuInit` claims the state.
//! What the child inherited is leaked.

use core::mem::size_of;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::io::Write as _;

use gputrace_wire::clock::Anchor;
use gputrace_wire::control::Control;
use gputrace_wire::counter::Counter;
use gputrace_wire::definition::kind;
use gputrace_wire::handshake::{self, Head};
use gputrace_wire::run_settings::Frames;
use gputrace_wire::segment;

use crate::connection::Connection;
use crate::descriptor::Descriptor;
use crate::held_back::HeldBack;
use crate::hook_state::{HookState, Launches, Recording, Timing};
use crate::rings::{OwnedRing, Populated, RingSums, Rings};
use crate::segment::{Segment, SegmentPlan};
use crate::socket::{Received, Socket};
use crate::{clock, early_calls, fork, loader, memory, slot_memory, stderr, system};

mod state {
    pub const IDLE: u32 = 0;
    pub const STARTING: u32 = 1;
    pub const RUNNING: u32 = 2;
    pub const ENDED: u32 = 3;
    pub const OFF: u32 = 4;
}

/// The lower half holds the state. The upper half identifies the process that the state belongs to; it is 0
/// while IDLE. In a forked child, a thread's compare-exchange therefore fails once another thread of the
/// child has changed the state, even where both states are RUNNING.
static STATE: AtomicU64 = AtomicU64::new(state::IDLE as u64);
/// Inherited through fork, so that a child's session never has its parent's number.
static LAST_GENERATION: AtomicU32 = AtomicU32::new(0);

/// One session of one process. Never freed.
#[derive(Debug)]
pub struct Session {
    pub pid: i32,
    pub generation: u32,
    primary: Segment,
    rings: Rings,
    /// As measured at the session's begin.
    pub ticks_per_second: u64,
    connection: Connection,
    /// The clock that stamps device records, once there is one.
    device_clock: AtomicPtr<()>,
    epoch: AtomicU32,
    /// Whether the service thread may still write an entry.
    has_service: AtomicBool,
    /// How many stacks and functions were first seen while they got no device times.
    first_seen_untimed: AtomicU32,
}

/// Why a session did not start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StartError {
    /// The sealed memory file could not be made: memfd is missing or forbidden, or a limit is too low.
    Memory,
    /// The collector did not accept the segment.
    HandOver,
}

/// The running session; `None` before the start, after the end, and in a forked child.
#[inline(always)]
pub fn current() -> Option<&'static Session> {
    if fork::generation() == 0 { None } else { published() }
}

/// The session that this process started last; `None` before the first one, and in a forked child. It is
/// running if the process's generation is not 0.
#[inline(always)]
pub fn published() -> Option<&'static Session> {
    let current = fork::of_process().session.load(Ordering::Acquire).cast::<Session>();
    // SAFETY: the pointer is null, or points to a session that `start` wrote completely before storing it
    // with Release. Sessions are never freed.
    unsafe { current.as_ref() }
}

/// The right to start this process's session. One thread holds it, and must call [`start`] or [`turn_off`].
#[derive(Debug)]
pub struct Claim(());

/// Claims the start of this process's session. `None` if the process has or had a session, if another
/// thread is starting one, or if tracing is off for good.
pub fn claim() -> Option<Claim> {
    let found = STATE.load(Ordering::Acquire);
    (may_be_claimed(found) && take_over(found)).then_some(Claim(()))
}

/// Whether the state is IDLE, or belongs to the process that forked this one. A child of `vfork` shares the
/// memory of a running session and sees its generation, so it may not claim.
fn may_be_claimed(found: u64) -> bool {
    match found as u32 {
        state::IDLE => true,
        state::OFF => false,
        _ => fork::generation() == 0 && (found >> 32) as i32 != own_pid(),
    }
}

/// Moves from the state `found` to STARTING; false if another thread changed the state in the meantime.
fn take_over(found: u64) -> bool {
    STATE.compare_exchange(found, own(state::STARTING), Ordering::AcqRel, Ordering::Acquire).is_ok()
}

/// The state word for this process in `state`.
fn own(state: u32) -> u64 {
    u64::from(own_pid().cast_unsigned()) << 32 | u64::from(state)
}

fn own_pid() -> i32 {
    system::getpid()
}

/// Whether a thread of this process is starting its session: the session is claimed and not yet published.
#[cold]
pub fn is_starting() -> bool {
    // Only this state asks for the process id, because every hooked call without a session runs this check.
    let found = STATE.load(Ordering::Acquire);
    found as u32 == state::STARTING && found == own(state::STARTING)
}

/// Starts a session with the collector at the other end of `socket`.
///
/// `command` is the command line, its arguments separated by NUL. `before` prepares what hooked calls need
/// besides the session. After `before` the session is published, and calls of any thread are recorded.
pub fn start(
    _: Claim,
    socket: Socket,
    command: &[u8],
    before: impl FnOnce(&'static Session),
) -> Result<&'static Session, StartError> {
    let socket = socket.out_of_the_way();
    match build(socket, command) {
        Ok(session) => {
            let of_process = fork::of_process();
            of_process.change_hooks(|_| HookState::from_word(0));
            of_process.slot_distance.store(slot_memory::distance(), Ordering::Relaxed);
            of_process.session.store(core::ptr::from_ref(session).cast_mut().cast(), Ordering::Release);
            before(session);
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

/// Turns recording off in this process for good.
pub fn turn_off() {
    STATE.store(own(state::OFF), Ordering::Release);
    fork::set_generation(0);
}

/// Registers the fork handlers of `fork` and of `loader`.
fn prepare_for_forks() {
    // The C library locks and allocates while it registers a handler.
    let _held_back = HeldBack::new();
    fork::prepare();
    loader::prepare();
}

fn build(socket: Socket, command: &[u8]) -> Result<&'static Session, StartError> {
    prepare_for_forks();
    clock::kind();
    // Mapped before the hand-over: once the collector knows this process, only the hand-over itself may
    // fail.
    let mapped = memory::map_bytes(size_of::<Session>()).ok_or(StartError::Memory)?.cast::<Session>();
    let (plan, (primary, descriptor)) = [SegmentPlan::PRIMARY, SegmentPlan::PRIMARY_SMALL]
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
    match Descriptor::from_raw(descriptor) {
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
        ticks_per_second,
        connection,
        device_clock: AtomicPtr::new(core::ptr::null_mut()),
        epoch: AtomicU32::new(0),
        has_service: AtomicBool::new(false),
        first_seen_untimed: AtomicU32::new(0),
    };
    // SAFETY: the mapping is large enough, page-aligned, ours alone, and never unmapped.
    Ok(unsafe {
        mapped.write(session);
        &*mapped
    })
}

impl Session {
    /// Whether this process records into this session now. In a forked child it does not: the session's
    /// memory is not mapped there.
    #[inline(always)]
    pub fn is_current(&self) -> bool {
        fork::generation() == self.generation
    }

    /// Whether this is the session of this process. In a forked child it is not.
    #[inline(always)]
    pub fn is_of_process(&self) -> bool {
        core::ptr::addr_eq(fork::of_process().session.load(Ordering::Relaxed), self)
    }

    /// What hooks do with calls now. It changes when the session is paused or goes on, and when a setting
    /// changes.
    #[inline(always)]
    pub fn hook_state(&self) -> HookState {
        fork::of_process().hook_state().with_held_calls(false)
    }

    /// Whether calls of the driver's are to wait before they begin, for which somebody else cares.
    pub fn hold_calls(&self, are_held: bool) {
        self.change_hooks(|state| state.with_held_calls(are_held));
    }

    /// When the calls of the driver's began that threads are inside of: [`time_of_call`].
    ///
    /// [`time_of_call`]: crate::thread::time_of_call
    pub fn calls_under_way(&self) -> impl Iterator<Item = u32> {
        self.rings.calls_under_way()
    }

    pub fn recording(&self) -> Recording {
        self.hook_state().recording()
    }

    pub fn timing(&self) -> Timing {
        self.hook_state().timing()
    }

    /// Called before the session's first call, and by whoever pauses the session or lets it go on: one thread
    /// at a time.
    pub fn set_recording(&self, recording: Recording) {
        self.change_hooks(|state| state.with_recording(recording));
    }

    /// Called before the session's first call, if it begins paused.
    pub fn begin_paused(&self) {
        self.change_hooks(HookState::paused_from_begin);
    }

    /// If the session has been paused from its begin, it goes on to be so, but counts no launches and copies
    /// under way.
    pub fn count_no_launches_under_way(&self) {
        self.change_hooks(|state| {
            if state.counts_under_way() { state.with_recording(Recording::Off) } else { state }
        });
    }

    /// Called by whoever switches device times: one thread at a time.
    pub fn set_timing(&self, timing: Timing) {
        self.change_hooks(|state| state.with_timing(timing));
    }

    /// Whether copies and fills get device times whatever the timing is. Called as [`Session::set_timing`]
    /// is.
    pub fn set_times_transfers(&self, times: bool) {
        self.change_hooks(|state| state.with_times_transfers(times));
    }

    /// What is recorded of launches outside of windows. Called as [`Session::set_timing`] is.
    pub fn set_launches(&self, launches: Launches) {
        self.change_hooks(|state| state.with_launches(launches));
    }

    /// Begins a window of device times; [`Session::set_timing`] ends it.
    pub fn begin_window(&self, window: u32) {
        self.change_hooks(|state| state.in_window(window));
    }

    /// How many stacks and functions were first seen while they got no device times.
    pub fn first_seen_untimed(&self) -> u32 {
        self.first_seen_untimed.load(Ordering::Relaxed)
    }

    /// Sums over all threads.
    pub fn ring_sums(&self) -> RingSums {
        self.rings.sums()
    }

    /// Whose frames hooks record, of those that they can.
    pub fn set_frames(&self, frames: Frames) {
        self.change_hooks(|state| state.with_frames(frames));
    }

    /// Whether hooks count launches, to find the first and the last one of a range.
    pub fn set_counts_launches(&self, counts: bool) {
        self.change_hooks(|state| state.with_counts_launches(counts));
    }

    fn change_hooks(&self, change: impl Fn(HookState) -> HookState) {
        fork::of_process().change_hooks(change);
    }

    /// Adds to a process-wide counter.
    pub fn count(&self, counter: Counter, amount: u64) {
        if self.is_current()
            && let Some(word) = self.primary.counters().get(counter as usize)
        {
            word.fetch_add(amount, Ordering::Relaxed);
        }
    }

    /// Adds the calls that came while the session was starting to the session's lost events.
    pub fn add_early_calls(&self) {
        let early = early_calls::take();
        if early > 0
            && let Some(word) = self.primary.counters().get(Counter::BeforeSession as usize)
        {
            word.fetch_add(early, Ordering::Relaxed);
        }
    }

    /// A process-wide counter's value.
    pub fn counted(&self, counter: Counter) -> u64 {
        self.primary.counters().get(counter as usize).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Raises a process-wide counter that keeps the largest value seen.
    pub fn raise(&self, counter: Counter, value: u64) {
        if self.is_current()
            && let Some(word) = self.primary.counters().get(counter as usize)
        {
            word.fetch_max(value, Ordering::Relaxed);
        }
    }

    /// Writes a definition and returns its id. Returns 0 when the area is full, which is counted, and after
    /// the session's end.
    pub fn define(&self, kind: u16, fields: &[u64], text: &[u8]) -> u32 {
        if !self.is_current() {
            return 0;
        }
        if matches!(kind, kind::STACK | kind::FUNCTION) && self.timing() != Timing::On {
            self.first_seen_untimed.fetch_add(1, Ordering::Relaxed);
        }
        self.primary.area().append(kind, fields, text).unwrap_or_else(|| {
            self.count(Counter::DefinitionsFull, 1);
            0
        })
    }

    /// Whether half of the definitions area is used. The other half is reserved for definitions of which
    /// there are few.
    pub fn definitions_are_half_full(&self) -> bool {
        let area = self.primary.area();
        area.reserved.load(Ordering::Relaxed) >= area.words.len() as u64 / 2
    }

    /// One line for the user, kept in the trace.
    pub fn notice(&self, severity: u64, rung: u64, text: &[u8]) {
        self.define(kind::NOTICE, &[severity, rung], text);
    }

    /// Records whether the service thread may still write an entry. Its creator sets this; the thread clears
    /// it, or its creator does if the thread cannot start.
    pub(crate) fn set_has_service(&self, has: bool) {
        self.has_service.store(has, Ordering::Release);
    }

    /// Whether the collector waits for a flush of what the device libraries hold.
    pub fn is_flush_asked(&self) -> bool {
        let control = self.control();
        control.flush.load(Ordering::Relaxed) != control.flushed.load(Ordering::Relaxed)
    }

    pub fn control(&self) -> &'static Control {
        self.primary.control()
    }

    /// The connection's current socket, which may be none.
    pub fn socket(&self) -> Socket {
        self.connection.socket()
    }

    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    fn head(&self, kind: u32, value: u64) -> Head {
        Head::new(kind, self.pid as u32, self.generation, value)
    }

    /// Whether this session can still be announced to another collector.
    pub fn can_rejoin(&self) -> bool {
        self.connection.may_be_taken_over() && self.rings.primary_file().is_some()
    }

    /// Joins the collector that listens now, with the same memory. Called by the service thread, and by the
    /// thread that ends the session: after the service thread ended, or where the service thread does not
    /// return in time.
    pub fn rejoin(&self) -> bool {
        let Some(file) = self.rings.primary_file() else { return false };
        let Some(socket) = self.connection.another().map(Socket::out_of_the_way) else { return false };
        // A thread that added a segment in the meantime would send it over the new connection before the
        // earlier segments, or over one of our descriptor numbers that is being closed.
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

    /// Hangs up: the collector is gone.
    pub fn disconnect(&self) {
        // If another thread is sending on the descriptor, the descriptor stays open until the next join or
        // the end.
        self.rings.while_nobody_grows(|| self.connection.hang_up());
    }

    /// Hands over the segments that the collector has not seen. Closes their files once no other collector
    /// will need them.
    pub fn hand_over(&self) {
        self.rings.hand_over(&self.connection, self.head(handshake::kind::SEGMENT, 0));
    }

    /// Sets the clock that stamps device records from now on.
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

    /// The ring reserved for device records, or for the service thread.
    pub fn reserved_ring(&self, role: u64) -> Option<OwnedRing> {
        self.rings.reserved(role)
    }

    /// Takes a free ring for the calling thread; makes another segment if there is none.
    pub fn take_ring(&self) -> Option<OwnedRing> {
        self.rings.take(&self.connection, self.head(handshake::kind::SEGMENT, 0))
    }

    /// Populates memory ahead of its writers; see [`Rings::populate`].
    pub fn populate(&self, last: &mut Populated) {
        self.rings.populate(last);
    }

    /// Whether this process started the session. A child of `vfork`, which shares our memory, did not.
    pub fn is_ours(&self) -> bool {
        self.pid == own_pid()
    }

    /// Ends the session: nothing is recorded after it. True for the one caller that ended it.
    pub fn end(&self) -> bool {
        self.is_ours()
            && STATE
                .compare_exchange(own(state::RUNNING), own(state::ENDED), Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
    }

    /// Sends the good-bye message, after everything was published. The segment is marked as ended only
    /// where that is so: a service thread that did not stop in time may still write an anchor.
    pub fn say_bye(&self, reason: u64) {
        // The last attempt to hand over segments that a full socket did not take. Segments left after it
        // are lost, and their events counted.
        self.hand_over();
        for (counter, unseen) in [
            (Counter::NoRing, self.rings.seen_by_nobody()),
            (Counter::PausedLaunches, self.rings.paused_launches_seen_by_nobody()),
        ] {
            if let Some(word) = self.primary.counters().get(counter as usize) {
                word.fetch_add(unseen, Ordering::Relaxed);
            }
        }
        self.add_early_calls();
        if !self.has_service.load(Ordering::Acquire) {
            // SYNC: pairs with the collector's Acquire load: it sees everything in the rings before the
            // state.
            self.primary.header.state.store(segment::state::ENDED, Ordering::Release);
        }
        let bye = self.head(handshake::kind::BYE, reason);
        let is_said = self.socket().send(bye, b"", None);
        // A collector that has taken over by now receives what the rings hold.
        let is_said = is_said || (self.can_rejoin() && self.rejoin() && self.socket().send(bye, b"", None));
        if !is_said && self.connection.has_nobody() {
            self.say_left_behind();
        }
    }

    /// Announces an exec to the collector. A successful exec closes the socket.
    pub fn announce_exec(&self) {
        self.hand_over();
        self.socket().send(self.head(handshake::kind::BYE, handshake::bye::EXEC), b"", None);
    }

    /// Reports the number of entries that no collector has read or will read. It includes entries that a
    /// killed collector had read but not stored, as long as they are still in the rings.
    pub fn say_left_behind(&self) {
        let count = self.rings.left_behind();
        if count > 0 {
            let mut text = [0u8; 20];
            let _ = write!(&mut text[..], "{count}");
            let digits = text.split(|byte| *byte == 0).next().unwrap_or_default();
            stderr::line(&[b"the collector is gone: ", digits, b" entries that it had not read are lost"]);
        }
    }

    /// Abandons the session when the program goes on without it: the collector receives a good-bye and does
    /// not wait for more. Must be called before any other thread uses the socket.
    pub fn abandon(&self) {
        self.say_bye(handshake::bye::STOPPED);
        turn_off();
        self.close();
    }

    /// Closes the descriptors after the last message. If a thread is adding a segment at this moment, they
    /// stay open: the exit or exec that follows closes them.
    pub fn close(&self) {
        self.rings.while_nobody_grows(|| {
            self.connection.close();
            self.rings.close_files();
        });
    }

    /// Waits, while `goes_on` returns true, for the collector's message that the outputs are written.
    /// Returns the collector's summary.
    pub fn wait_for_done<'p>(
        &self,
        mut goes_on: impl FnMut() -> bool,
        packet: &'p mut [u8],
    ) -> Option<&'p [u8]> {
        loop {
            let (kind, length) = match self.socket().receive(100, packet) {
                Received::Message(head, text) if head.kind == handshake::kind::SAY => {
                    crate::stderr::raw_if_ready(text);
                    if goes_on() {
                        continue;
                    }
                    return None;
                }
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
    fn state_that_has_changed_is_not_taken_over() {
        // The state that a forked child inherits: RUNNING, of its parent. Two of its threads read it.
        let inherited = u64::from(own_pid().cast_unsigned() + 1) << 32 | u64::from(state::RUNNING);
        STATE.store(inherited, Ordering::Release);
        assert!(take_over(inherited), "the first thread starts the session");
        STATE.store(own(state::RUNNING), Ordering::Release);
        assert!(!take_over(inherited), "the second comes when it runs");
        assert_eq!(STATE.load(Ordering::Acquire), own(state::RUNNING));
        STATE.store(u64::from(state::IDLE), Ordering::Release);
    }
}
