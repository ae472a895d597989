//! Starts a session, right after the program's first successful `cuInit` and never before.
//!
//! Until then a process pays for an occasional symbol look-up and nothing else: no thread, file, process
//! or descriptor is made.

use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::io::Write as _;

use gputrace_callstack::native::bounds;
use gputrace_producer::address_space::{self, AddressSpace};
use gputrace_producer::held_back::HeldBack;
use gputrace_producer::session::{self, Claim, Session, StartError};
use gputrace_producer::socket::{NotConnected, Socket};
use gputrace_producer::{
    clock, collector_process, descriptor, early_calls, on_full, segment, service, stderr, system, thread,
    untraced,
};
use gputrace_wire::definition::{kind, library_role};

use crate::api::{self, Entry};
use crate::driver::{self, SUCCESS, Status};
use crate::resolve::{failed_look_up, originals};
use crate::tables::{self, Tables};
use crate::{
    cupti, detour, device, environment, finish, native, nvtx, preload_once, python, settings, torch,
};

/// Runs when the library is loaded: only steps that must be early and cost nothing.
#[ctor::ctor(unsafe)]
fn loaded() {
    preload_once::forget();
    settings::remember();
    // The program calls our `dlsym`, `_exit` and the like even when tracing is turned off.
    failed_look_up::prepare();
    finish::prepare();
    if settings::is_turned_off() {
        return;
    }
    thread::prepare();
    stderr::remember();
    nvtx::prepare();
}

/// Handles a hooked call that returned while there was no session. A successful `cuInit` starts one.
/// `was_starting` says whether another thread was starting one when the call began.
#[cold]
pub fn without_session(entry: &'static Entry, was_starting: bool, status: Status) -> Status {
    const INIT: u32 = api::hash(b"cuInit");
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

/// A condition that prevents a session: a message for the user, or `None`. The argument is true if this
/// process would start the collector itself.
type Check = fn(bool) -> Option<&'static [u8]>;

/// Checks made before the session starts. The first obstacle is reported.
const CHECKS: [Check; 3] = [has_descriptors, has_address_space, keeps_no_orphans];

fn has_descriptors(_: bool) -> Option<&'static [u8]> {
    (!descriptor::has_free_number())
        .then_some(b"hardly any descriptor is free, and the program may need those (RLIMIT_NOFILE)")
}

fn has_address_space(_: bool) -> Option<&'static [u8]> {
    match address_space::available() {
        AddressSpace::Enough => None,
        AddressSpace::Hardly => Some(
            b"less than 1 GiB of address space is left, or 128 MiB of data, and the program may need that \
              (RLIMIT_AS, RLIMIT_DATA)",
        ),
        AddressSpace::Unknown => Some(
            b"there is a limit of address space, and how much is in use cannot be known (/proc/self/statm cannot be read)",
        ),
    }
}

fn keeps_no_orphans(bare: bool) -> Option<&'static [u8]> {
    (bare && collector_process::would_be_adopted()).then_some(
        b"this process adopts orphans (it is process 1, or a subreaper), so a collector would become its \
          child; start it by `gputrace run`",
    )
}

/// Connects to the session's collector, or starts one if no session is given.
fn connect(session_path: Option<&CStr>) -> Result<Socket, &'static [u8]> {
    let Some(path) = session_path else {
        return start_collector()
            .ok_or(b"the collector could not be started (set GPUTRACE_COLLECTOR to the gputrace program)");
    };
    Socket::connect(path.to_bytes()).map_err(|error| match error {
        NotConnected::Nobody => {
            &b"nobody answers at GPUTRACE_SESSION (has `gputrace run` ended, or may no socket be had?)"[..]
        }
        NotConnected::NotOurs => {
            b"the session at GPUTRACE_SESSION is another user's, or others can enter its folder (if this process \
              changed its user, put `gputrace run` behind that)"
        }
    })
}

/// Starts the session. The caller is inside (guarded) and runs on a large enough stack.
pub fn begin(claim: Claim) {
    if settings::is_off(settings::ENABLED) {
        return session::turn_off();
    }
    let session_path = settings::get(settings::SESSION);
    let bare = session_path.is_none();
    let say = |why: &[u8]| untraced::say(session_path.map(CStr::to_bytes), why);
    let obstacle = CHECKS.iter().find_map(|check| check(bare));
    let socket = match obstacle.map_or_else(|| connect(session_path), Err) {
        Ok(socket) => socket,
        Err(why) => {
            session::turn_off();
            return say(why);
        }
    };
    service::forget();
    on_full::set_waits(settings::get(settings::ON_FULL).is_some_and(|value| value == c"wait"));
    let mut command = [0u8; 4096];
    let command = command_line(&mut command);
    native::prepare();
    let mut made = None;
    match session::start(claim, socket, command, |session| made = tables::make(session)) {
        Ok(session) => match made {
            Some(tables) => {
                session.add_early_calls();
                describe(session, tables, command, bare);
            }
            None => {
                session.abandon();
                say(b"no memory for the tables of handles (RLIMIT_AS too low)");
            }
        },
        Err(StartError::Memory) => say(no_shared_memory()),
        Err(StartError::HandOver) => say(b"the collector did not take the hand-over"),
    }
}

/// The reason why no memory file could be made, as far as the limits show it.
fn no_shared_memory() -> &'static [u8] {
    if segment::is_kept_out_by_file_limit() {
        b"no shared memory to be had (RLIMIT_FSIZE too low: ulimit -f)"
    } else {
        b"no shared memory to be had (memfd_create forbidden, or RLIMIT_AS too low)"
    }
}

/// Defines the process and starts the collection. Other threads' calls are recorded meanwhile.
fn describe(session: &'static Session, tables: &'static Tables, command: &[u8], bare: bool) {
    tables.notice_missing_tables(session);
    finish::register(bare);
    let mut version = 0;
    driver::driver_version(&mut version);
    let parent = system::getppid();
    let simulated = device::is_simulated();
    let [rank, local_rank] = crate::rank::fields();
    let fields = [
        session.pid as u64,
        parent as u64,
        version as u64,
        u64::from(simulated),
        rank,
        local_rank,
        u64::from(redacts()),
    ];
    session.define(kind::PROCESS, &fields, command);
    crate::origin::define(session, redacts());
    let driver = originals::path_of(originals::find_in_driver("cuInit\0")).map_or(&b""[..], CStr::to_bytes);
    session.define(kind::LIBRARY, &[library_role::DRIVER, version as u64], driver);
    let mut count = 0;
    driver::device_count(&mut count);
    for ordinal in 0..count {
        tables.device(session, ordinal);
    }
    python::prepare();
    python::search(session);
    torch::operators::prepare();
    torch::operators::search(session);
    nvtx::define(session);
    cupti::start(session, tables, version, simulated);
}

/// The periodic work of the service thread.
pub fn turn(session: &'static Session) {
    bounds::turn(session);
    if UNDER_WAY.load(Ordering::Acquire) == session.pid {
        return;
    }
    session.add_early_calls();
    // A program that embeds Python may load it at any time.
    if session.is_current() {
        python::search(session);
        torch::operators::search(session);
        native::forget_unloaded();
    }
    cupti::turn(session);
}

/// Starts `gputrace collect` for auto-collect (LD_PRELOAD alone).
fn start_collector() -> Option<Socket> {
    let mut path = [0u8; 4096];
    let executable: &CStr = match settings::get(settings::COLLECTOR) {
        Some(path) => path,
        None => beside_us(&mut path)?,
    };
    // SAFETY: access only looks at the file; the path is a C string.
    if unsafe { system::access(executable.as_ptr(), libc::X_OK) } != 0 {
        return None;
    }
    let mut pid = [0u8; 16];
    write!(&mut pid[..], "{}\0", system::getpid()).ok()?;
    let arguments = [
        executable.as_ptr(),
        c"collect".as_ptr(),
        c"--fd".as_ptr(),
        c"3".as_ptr(),
        c"--pid".as_ptr(),
        pid.as_ptr().cast(),
        core::ptr::null(),
    ];
    // The environment array is memory that is allocated and freed here.
    let _held_back = HeldBack::new();
    let environment = environment_without(&[b"LD_PRELOAD=", b"GPUTRACE_SESSION=", b"NVTX_INJECTION64_PATH="]);
    // SAFETY: both arrays are null-terminated and live across the call, and so do their strings: those of
    // the environment belong to the program.
    unsafe { collector_process::start(executable, arguments.as_ptr(), environment.as_ptr()) }
}

/// The program's environment without some variables.
fn environment_without(prefixes: &[&[u8]]) -> Vec<*const c_char> {
    let mut kept = Vec::with_capacity(128);
    kept.extend(environment::entries().filter(|entry| {
        // SAFETY: a C string of the environment's.
        let text = unsafe { CStr::from_ptr(*entry) }.to_bytes();
        !prefixes.iter().any(|prefix| text.starts_with(prefix))
    }));
    kept.push(core::ptr::null());
    kept
}

/// The `gputrace` in the folder that this library was loaded from.
fn beside_us(path: &mut [u8; 4096]) -> Option<&CStr> {
    let own = originals::own_path()?.to_bytes();
    let folder = own.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    let name = b"gputrace\0";
    path.get_mut(..folder)?.copy_from_slice(own.get(..folder)?);
    path.get_mut(folder..folder + name.len())?.copy_from_slice(name);
    CStr::from_bytes_until_nul(path).ok()
}

/// The command line, redacted if the user asked for that. The redacted form is the first word only: a
/// process that sets its title has all its arguments in its first argument.
fn command_line(buffer: &mut [u8; 4096]) -> &[u8] {
    const TAKEN_OUT: &[u8] = b"\0[redacted]";
    let length = system::read_file(c"/proc/self/cmdline", buffer.as_mut_slice()).map_or(0, <[u8]>::len);
    let line = buffer.get(..length).unwrap_or_default();
    let word = line.iter().position(|byte| *byte == 0 || byte.is_ascii_whitespace());
    match word {
        Some(end) if redacts() && end + 1 < length => match buffer.get_mut(end..end + TAKEN_OUT.len()) {
            Some(target) => {
                target.copy_from_slice(TAKEN_OUT);
                buffer.get(..end + TAKEN_OUT.len()).unwrap_or_default()
            }
            None => buffer.get(..end).unwrap_or_default(),
        },
        _ => buffer.get(..length).unwrap_or_default(),
    }
}

/// Whether command lines, and titles that are set later, are reduced to the program's name.
fn redacts() -> bool {
    settings::get(settings::REDACT).is_some() && !settings::is_off(settings::REDACT)
}
