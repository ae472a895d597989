//! Starts a session, right after the program's first successful `cuInit` and never before.
//!
//! Until then a process pays for an occasional symbol look-up and nothing else: no thread, file, process
//! or descriptor is made.

use core::ffi::CStr;
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::io::Write as _;

use gputrace_callstack::native::bounds;
use gputrace_producer::session::{self, Claim, Session};
use gputrace_producer::{clock, early_calls, on_full, service, system, thread, untraced};

use crate::describe::context::Service;
use crate::frames::torch::{blocks, operators};
use crate::frames::{native, python};
use crate::hook::{beginning, capture};
use crate::lifecycle::device_times::DEVICE_TIMES;
use crate::lifecycle::{checks, collector, definitions, finish, run_settings};
use crate::nvtx;
use crate::process::{detour, settings};
use crate::symbols::driver::{self, SUCCESS, Status};
use crate::symbols::entry::{self, Entry};
use crate::table::tables;

/// The hash of the call that starts a session.
pub const INIT: u32 = entry::hash(b"cuInit");

/// Handles a hooked call that returned while there was no session. A successful `cuInit` starts one.
/// `was_starting` says whether another thread was starting one when the call began.
#[cold]
pub fn without_session(entry: &'static Entry, was_starting: bool, status: Status) -> Status {
    if settings::is_turned_off() {
        return status;
    }
    if entry.hash == INIT && status == SUCCESS {
        thread::with(|slot| {
            let Some(inside) = slot.enter() else { return };
            // Only one thread claims the start, so that only one collector is started.
            match session::claim() {
                Some(claim) => {
                    // SYNC: stored before the session is published, so that `wait` sees one of the two.
                    UNDER_WAY.store(system::getpid(), Ordering::Release);
                    detour::run(|| begin(claim));
                    UNDER_WAY.store(0, Ordering::Release);
                }
                None => {
                    // Calls made by a signal handler from here on are recorded or counted.
                    drop(inside);
                    wait();
                }
            }
        });
    } else if entry.hash == INIT {
        thread::with(|slot| {
            if let Some(_inside) = slot.enter()
                && is_first_failure()
            {
                detour::run(|| not_initialised(status));
            }
        });
    } else if (was_starting || session::is_starting()) && !thread::with(|slot| slot.is_inside()) {
        // The thread did not call `cuInit` itself, or its wait for the session reached the limit.
        early_calls::count();
    }
    status
}

/// The process id while the start of that process's first session runs, from the claim until device
/// records are collected; otherwise 0.
static UNDER_WAY: AtomicI32 = AtomicI32::new(0);

/// The longest time that a thread's `cuInit` waits for a session started by another thread. The other
/// thread may need a lock that this thread holds (the loader's, in a library's constructor), so the wait
/// is bounded.
const WAIT_NS: u64 = 100_000_000;
const WAIT_STEP_NS: u64 = 100_000;

/// Waits until the session that another thread starts is recording, so that no launch after this thread's
/// `cuInit` is missed. In a child of fork or vfork no thread starts one, and this returns at once.
pub fn wait() {
    // Order of the starting thread: claim, store UNDER_WAY, publish, clear UNDER_WAY. A reader that sees
    // the session published also sees that UNDER_WAY was stored.
    let is_under_way = || session::is_starting() || UNDER_WAY.load(Ordering::Acquire) == system::getpid();
    let deadline_ns = clock::monotonic_ns() + WAIT_NS;
    while is_under_way() && clock::monotonic_ns() < deadline_ns {
        system::sleep_ns(WAIT_STEP_NS);
    }
}

/// Whether this is the first failed `cuInit` of the process. A program that retries reports it only once.
fn is_first_failure() -> bool {
    /// The process whose `cuInit` failed last. A forked child has its own process id.
    static FAILED: AtomicU32 = AtomicU32::new(0);
    let pid = system::getpid().cast_unsigned();
    FAILED.swap(pid, Ordering::Relaxed) != pid
}

/// CUDA is not available, so there is no session. Reports the status to `gputrace run`, once a process.
fn not_initialised(status: Status) {
    let Some(session_path) = settings::get(settings::SESSION) else { return };
    // The program may have changed the variable since it began.
    if settings::is_off(settings::ENABLED) {
        return;
    }
    let mut word = [0u8; 32];
    let mut buffer = &mut word[..];
    if write!(buffer, "{}{status}", untraced::NOT_INITIALISED).is_ok() {
        let left = buffer.len();
        let written = word.get(..word.len() - left).unwrap_or_default();
        untraced::leave_word(session_path.to_bytes(), written);
    }
}

/// Starts the session, or says why there is none. The caller is inside (guarded) and runs on a large enough
/// stack.
fn begin(claim: Claim) {
    if settings::is_off(settings::ENABLED) {
        return session::turn_off();
    }
    let session_path = settings::get(settings::SESSION);
    if let Err(why) = begin_with(claim, session_path) {
        untraced::say(session_path.map(CStr::to_bytes), why);
    }
}

fn begin_with(claim: Claim, session_path: Option<&CStr>) -> Result<(), &'static [u8]> {
    let bare = session_path.is_none();
    let socket = checks::pass(bare)
        .and_then(|()| collector::connect(session_path))
        .inspect_err(|_| session::turn_off())?;
    service::forget();
    on_full::set_waits(settings::get(settings::ON_FULL).is_some_and(|value| value == c"wait"));
    let mut command = [0u8; 4096];
    let command = definitions::command_line(&mut command);
    native::prepare();
    python::prepare();
    let device_times = DEVICE_TIMES.get();
    driver::RUN.set(&device_times.run_call);
    let mut made = None;
    let make = |session: &Session| {
        beginning::begin_session(session);
        made = tables::make(session, device_times.graph_number);
        run_settings::begin_session(session, made);
    };
    let session = session::start(claim, socket, command, make).map_err(checks::why_not)?;
    let Some(tables) = made else {
        session.abandon();
        return Err(b"no memory for the tables of handles (RLIMIT_AS too low)");
    };
    capture::count_wanted(session);
    session.add_early_calls();
    // Other threads' calls are recorded from here on.
    tables.notice_missing_tables(session);
    finish::register(bare);
    let (driver_version, simulated) = definitions::define(session, tables, command);
    python::search(session);
    blocks::begin_session(session);
    operators::prepare();
    operators::turn(session);
    nvtx::define(session);
    (device_times.start)(session, tables, driver_version, simulated);
    Ok(())
}

/// What the service thread does.
pub const SERVICE: Service = Service { turn, between };

/// Between turns.
fn between(session: &'static Session) -> u64 {
    if UNDER_WAY.load(Ordering::Acquire) == session.pid {
        return service::NOTHING_DUE;
    }
    (DEVICE_TIMES.get().between)(session)
}

/// The periodic work of the service thread.
fn turn(session: &'static Session) {
    bounds::turn(session);
    if UNDER_WAY.load(Ordering::Acquire) == session.pid {
        return;
    }
    session.add_early_calls();
    // A program that embeds Python may load it at any time.
    if session.is_current() {
        python::search(session);
        operators::turn(session);
        native::forget_unloaded();
    }
    run_settings::turn(session);
    (DEVICE_TIMES.get().turn)(session);
}
