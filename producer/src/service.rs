//! The service thread: the one thread of our own in a traced process.
//!
//! It anchors the clocks, populates shared memory ahead of its writers, receives the collector's messages,
//! and calls the vendor layer's function at every turn and whenever the collector asks for a flush.
//!
//! It is started only once the driver has threads of its own, blocks all signals, and is inside the guard
//! for life. It sleeps on a futex, so that the exit path can wake it without a descriptor.

use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use gputrace_wire::definition::role;
use gputrace_wire::handshake::kind;

use crate::held_back::HeldBack;
use crate::rings::Populated;
use crate::session::{self, Session};
use crate::socket::Received;
use crate::system;
use crate::{clock, stderr, thread};

/// The vendor layer's function, called at each turn, about every [`PERIOD_NS`].
pub type Turn = fn(&'static Session);
/// The vendor layer's function for what is due between two turns. Called at each turn's end, and again once
/// the time has passed that it returned, in nanoseconds; [`NOTHING_DUE`] for none.
pub type Between = fn(&'static Session) -> u64;
pub const NOTHING_DUE: u64 = u64::MAX;

const PERIOD_NS: u64 = 50_000_000;
/// Two anchors close together at the start give a good tick rate early; later ones correct drift.
const FIRST_PERIOD_NS: u64 = 5_000_000;
const STACK_BYTES: usize = 1 << 20;
/// The interval between two checks whether a flush is done.
const FLUSH_STEP_NS: u64 = 200_000;
/// The interval between two attempts to find another collector: the first, and the longest.
const REJOIN_FIRST_NS: u64 = 500_000_000;
const REJOIN_MOST_NS: u64 = 10_000_000_000;
/// How long another collector is sought if none announced a takeover.
const REJOIN_PATIENCE_NS: u64 = 30_000_000_000;

mod state {
    pub const NONE: u32 = 0;
    pub const RUNS: u32 = 1;
    pub const ASKED_TO_STOP: u32 = 2;
    pub const STOPPED: u32 = 3;
}

static STATE: AtomicU32 = AtomicU32::new(state::NONE);
static TURN: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
static BETWEEN: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
/// The function called when the thread is asked to stop.
static LAST_TURN: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
/// The generation that the thread was started for: a forked child starts its own thread.
static STARTED_FOR: AtomicU32 = AtomicU32::new(0);

/// Sets the function that is called between turns. Always the same one.
pub fn set_between(between: Between) {
    BETWEEN.store(between as *mut (), Ordering::Release);
}

/// Starts the thread once per session.
pub fn start(session: &'static Session, turn: Turn) {
    if STARTED_FOR.swap(session.generation, Ordering::AcqRel) == session.generation {
        return;
    }
    TURN.store(turn as *mut (), Ordering::Release);
    STATE.store(state::RUNS, Ordering::Release);
    session.set_has_service(true);
    // A new thread keeps the signal mask that its creator has at that moment.
    let _held_back = HeldBack::with_faults();
    // SAFETY: the attributes are on this stack and are initialised before use; the thread gets a 'static
    // argument.
    let made = unsafe {
        let mut attributes = core::mem::zeroed();
        let mut id = core::mem::zeroed();
        libc::pthread_attr_init(&mut attributes);
        libc::pthread_attr_setstacksize(&mut attributes, STACK_BYTES);
        libc::pthread_attr_setdetachstate(&mut attributes, libc::PTHREAD_CREATE_DETACHED);
        let made =
            libc::pthread_create(&mut id, &attributes, main, core::ptr::from_ref(session).cast_mut().cast());
        libc::pthread_attr_destroy(&mut attributes);
        made == 0
    };
    if !made {
        session.set_has_service(false);
        STATE.store(state::NONE, Ordering::Release);
        session.notice(
            1,
            0,
            b"no service thread: the process may start no more threads; clocks are anchored at exit only",
        );
    }
}

/// Makes the thread call `last` and end, and waits for it while `goes_on` returns true. After that the
/// thread's ring is quiet. The thread can take longer when the vendor's library holds it; `say_bye` then
/// does not mark the segment as ended. False if there is no thread.
pub fn stop(last: Turn, mut goes_on: impl FnMut() -> bool) -> bool {
    // SYNC: the exchange below publishes this store to the thread.
    LAST_TURN.store(last as *mut (), Ordering::Release);
    if STATE.compare_exchange(state::RUNS, state::ASKED_TO_STOP, Ordering::AcqRel, Ordering::Acquire).is_err()
    {
        return false;
    }
    wake();
    while STATE.load(Ordering::Acquire) != state::STOPPED && goes_on() {
        wait(state::ASKED_TO_STOP, 2_000_000);
    }
    true
}

/// Makes the thread take a turn now, and waits for the turn's end while `goes_on` returns true. False if
/// there is no thread.
pub fn flush(session: &Session, mut goes_on: impl FnMut() -> bool) -> bool {
    let control = session.control();
    let asked = control.flush.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
    let is_done = || control.flushed.load(Ordering::Acquire).wrapping_sub(asked).cast_signed() >= 0;
    while STATE.load(Ordering::Acquire) == state::RUNS {
        if is_done() || !goes_on() {
            return true;
        }
        // Repeated, because the thread may not be asleep yet.
        wake();
        system::sleep_ns(FLUSH_STEP_NS);
    }
    false
}

/// Called at a session's start, before the session has a service thread. After a fork the parent's thread
/// does not exist in the child.
pub fn forget() {
    STATE.store(state::NONE, Ordering::Release);
}

extern "C" fn main(session: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: `start` passed a reference to a session, which is never freed.
    let session = unsafe { &*session.cast_const().cast::<Session>() };
    // SAFETY: names the calling thread; the string is static.
    unsafe { system::prctl(libc::PR_SET_NAME, [c"gputrace".as_ptr().expose_provenance(), 0, 0, 0]) };
    thread::with(|slot| {
        slot.enter_for_life();
        if !slot.attach(session, role::SERVICE) {
            return;
        }
        let mut turns = 0u32;
        let mut populated = Populated::NOTHING;
        let mut collector = Collector::NEW;
        loop {
            slot.emit(session, &[session.anchor().to_cell()]);
            session.populate(&mut populated);
            // SYNC: pairs with the collector's Release store. The collector loads `flushed` with Acquire,
            // so that it sees everything that the turn wrote to the rings.
            let asked = session.control().flush.load(Ordering::Acquire);
            take(&TURN, session);
            session.control().flushed.store(asked, Ordering::Release);
            // The turn after the session's end is the last one, and everything it wrote is complete.
            if !session.is_current() {
                break;
            }
            collector.attend(session);
            session.hand_over();
            if STATE.load(Ordering::Acquire) != state::RUNS {
                break;
            }
            wait_for_turn(session, if turns < 4 { FIRST_PERIOD_NS } else { PERIOD_NS });
            turns = turns.saturating_add(1);
            if STATE.load(Ordering::Acquire) != state::RUNS {
                break;
            }
        }
        if STATE.load(Ordering::Acquire) == state::ASKED_TO_STOP {
            take(&LAST_TURN, session);
        }
        slot.emit(session, &[session.anchor().to_cell()]);
    });
    session.set_has_service(false);
    STATE.store(state::STOPPED, Ordering::Release);
    wake();
    core::ptr::null_mut()
}

fn take(turn: &AtomicPtr<()>, session: &'static Session) {
    let turn = turn.load(Ordering::Acquire);
    if !turn.is_null() {
        // SAFETY: only `start` and `stop` store there, and they store this type.
        unsafe { core::mem::transmute::<*mut (), Turn>(turn)(session) };
    }
}

/// Waits for the next turn, and does what is due before.
fn wait_for_turn(session: &'static Session, period_ns: u64) {
    let turn_ns = clock::monotonic_ns() + period_ns;
    let is_asked = || STATE.load(Ordering::Acquire) != state::RUNS || session.is_flush_asked();
    loop {
        let due_ns = between(session);
        let left_ns = turn_ns.saturating_sub(clock::monotonic_ns());
        if left_ns == 0 || is_asked() {
            return;
        }
        wait(state::RUNS, due_ns.min(left_ns));
        // A thread that asks for a turn wakes this one, after it has raised its number.
        if due_ns >= left_ns || is_asked() {
            return;
        }
    }
}

fn between(session: &'static Session) -> u64 {
    let between = BETWEEN.load(Ordering::Acquire);
    if between.is_null() || !session.is_current() {
        return NOTHING_DUE;
    }
    // SAFETY: only `set_between` stores there, and it stores this type.
    unsafe { core::mem::transmute::<*mut (), Between>(between)(session) }
}

/// The collector, as this side sees it.
struct Collector {
    at: At,
    /// When the collector first disappeared, since the last WELCOME.
    gone_since_ns: Option<u64>,
    /// The interval before the next attempt to find another collector.
    pause_ns: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    /// Messages come through the socket.
    Socket,
    /// The collector is gone or unreachable; another one is sought at `next_ns`.
    Nowhere { next_ns: u64 },
    /// No message can arrive any more, and no other collector is sought.
    Unheard,
}

impl Collector {
    const NEW: Collector = Collector { at: At::Socket, gone_since_ns: None, pause_ns: REJOIN_FIRST_NS };

    /// Receives the collector's messages, or looks for another collector.
    fn attend(&mut self, session: &'static Session) {
        match self.at {
            At::Socket => self.listen(session),
            At::Nowhere { next_ns } if clock::monotonic_ns() >= next_ns => self.look(session),
            At::Nowhere { .. } | At::Unheard => {}
        }
    }

    fn listen(&mut self, session: &'static Session) {
        let mut packet = [0u8; 4096];
        // No honest collector sends more at once. The messages of one that sends without end wait for the
        // next turn.
        for _ in 0..64 {
            match session.socket().receive(0, &mut packet) {
                Received::Nothing => return,
                Received::Message(head, text) if head.kind == kind::REFUSED => {
                    stderr::line(&[b"the collector refused this process: ", text]);
                    session::turn_off();
                    self.at = At::Unheard;
                    return;
                }
                Received::Message(head, text) if head.kind == kind::SAY => stderr::raw_if_ready(text),
                Received::Message(head, _) if head.kind == kind::WELCOME => {
                    session.connection().apply_welcome(head.value);
                    if self.gone_since_ns.take().is_some() {
                        session.notice(
                            1,
                            0,
                            b"joined another collector; events that did not fit were dropped and counted",
                        );
                    }
                    self.pause_ns = REJOIN_FIRST_NS;
                }
                Received::Message(..) => {}
                Received::Gone if session.can_rejoin() => {
                    session.disconnect();
                    if self.gone_since_ns.is_none() {
                        stderr::line(&[b"the collector is gone: events that fit are kept for another one"]);
                    }
                    return self.wait_for_another(session);
                }
                Received::Gone => return self.give_up(session),
                // The program closed our descriptor. The collector has the memory and watches the process
                // itself, so recording goes on. Where possible the session joins the collector again.
                Received::Lost if session.can_rejoin() => return self.wait_for_another(session),
                Received::Lost => {
                    self.at = At::Unheard;
                    return;
                }
            }
        }
    }

    fn wait_for_another(&mut self, session: &'static Session) {
        let now_ns = clock::monotonic_ns();
        let since_ns = *self.gone_since_ns.get_or_insert(now_ns);
        let is_hopeless = now_ns.saturating_sub(since_ns) > REJOIN_PATIENCE_NS
            && !session.connection().is_takeover_promised();
        if is_hopeless || !session.can_rejoin() {
            return self.give_up(session);
        }
        self.at = At::Nowhere { next_ns: now_ns + self.pause_ns };
        self.pause_ns = (self.pause_ns * 2).min(REJOIN_MOST_NS);
    }

    fn look(&mut self, session: &'static Session) {
        if session.rejoin() {
            self.at = At::Socket;
        } else {
            self.wait_for_another(session);
        }
    }

    /// Nobody empties the rings any more; further recording would only drop events.
    fn give_up(&mut self, session: &Session) {
        stderr::line(&[b"the collector is gone: nothing is recorded from here on"]);
        session.say_left_behind();
        session::turn_off();
        session.close();
        self.at = At::Unheard;
    }
}

fn wait(while_state: u32, nanoseconds: u64) {
    system::wait_while(&STATE, while_state, nanoseconds);
}

fn wake() {
    system::wake_all(&STATE);
}
