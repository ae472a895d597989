//! Starts a collector when none runs: with `LD_PRELOAD` alone.
//!
//! The collector is a grandchild in a process session of its own. The process between is made by `clone`
//! without an exit signal, so that neither SIGCHLD nor the program's own `wait(-1)` reports it, and we reap
//! it by its pid. Both share our memory until the exec, as after `vfork`: no page table is copied, no fork
//! handler runs, and they use only raw system calls. The collector inherits no descriptor but its end of
//! the socket: a pipe held open would block the pipe's reader.
//!
//! An orphan becomes a child of the nearest subreaper above it, or of process 1. If that is the program
//! itself ([`would_be_adopted`]), no collector is started. Otherwise the program would have a child that it
//! did not make, and a program that waits for all its children would wait for the collector, which waits
//! for the program's end.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicI32, Ordering};
use std::io::Write as _;

use crate::held_back::HeldBack;
use crate::memory;
use crate::socket::Socket;
use crate::stderr::KeepErrno;
use crate::system;

const STACK_BYTES: usize = 64 * 1024;
const FIFO: isize = libc::SCHED_FIFO as isize;
const ROUND_ROBIN: isize = libc::SCHED_RR as isize;
/// The descriptor number of the socket in the collector.
pub const DESCRIPTOR: i32 = 3;

/// The collector's pid, once one was started; 0 before.
static COLLECTOR: AtomicI32 = AtomicI32::new(0);

struct Plan {
    executable: *const c_char,
    arguments: *const *const c_char,
    environment: *const *const c_char,
    socket: i32,
    inner_stack: *mut c_void,
}

/// Whether orphans become children of the calling process. The collector would then too.
pub fn would_be_adopted() -> bool {
    let mut subreaper: c_int = 0;
    // SAFETY: the kernel writes one int to a live variable. Before Linux 3.4 there were no subreapers, and
    // the variable stays 0.
    unsafe {
        system::prctl(libc::PR_GET_CHILD_SUBREAPER, [(&raw mut subreaper).expose_provenance(), 0, 0, 0])
    };
    subreaper != 0 || system::getpid() == 1
}

/// Starts `executable` with these arguments and environment (both null-terminated arrays of C strings) and
/// returns our end of the socket.
///
/// # Safety
///
/// The arrays and the strings in them must be valid for the duration of the call.
pub unsafe fn start(
    executable: &CStr,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) -> Option<Socket> {
    let _errno = KeepErrno::new();
    let mut ends = [-1; 2];
    if system::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, &mut ends) != 0 {
        return None;
    }
    let [ours, theirs] = ends;
    let outer_stack = memory::map_bytes(STACK_BYTES);
    let inner_stack = memory::map_bytes(STACK_BYTES);
    let mut started = false;
    if let (Some(outer_stack), Some(inner_stack)) = (outer_stack, inner_stack) {
        let plan = Plan {
            executable: executable.as_ptr(),
            arguments,
            environment,
            socket: theirs,
            inner_stack: top_of(inner_stack),
        };
        // SAFETY: both children run on stacks of their own and read `plan`, which lives until `clone`
        // returns: with CLONE_VFORK that is after the outer child ended. Signals are blocked meanwhile, so
        // that no handler of the program runs in a child that shares its memory. The outer child is reaped
        // by its pid; `__WCLONE` finds children without an exit signal.
        unsafe {
            let _held_back = HeldBack::with_faults();
            let child = system::clone(
                outer,
                top_of(outer_stack),
                libc::CLONE_VM | libc::CLONE_VFORK,
                (&raw const plan).cast_mut().cast(),
            );
            if child > 0 {
                let mut status = 0;
                let (child, to) = (child as usize, (&raw mut status).expose_provenance());
                let wait = || system::call(libc::SYS_wait4, [child, to, libc::__WCLONE as usize, 0, 0, 0]);
                while wait() == -(libc::EINTR as isize) {}
                started = libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0;
            }
        }
    }
    for stack in [outer_stack, inner_stack].into_iter().flatten() {
        // SAFETY: both children have ended or replaced their memory; nobody uses the stacks.
        unsafe { system::munmap(stack.cast(), STACK_BYTES) };
    }
    // SAFETY: our copy of the collector's end; the collector has its own.
    unsafe { system::close(theirs) };
    let socket = if started { Socket::from_raw(ours) } else { None };
    if socket.is_none() {
        // SAFETY: the descriptor was made above and is not used again.
        unsafe { system::close(ours) };
    }
    socket
}

fn top_of(stack: *mut u8) -> *mut c_void {
    // Stacks grow down on every processor we run on; the top stays 16-byte aligned.
    stack.wrapping_add(STACK_BYTES - 64).cast()
}

/// The process between: leaves the program's process session, starts the collector, ends.
extern "C" fn outer(plan: *mut c_void) -> c_int {
    // SAFETY: `start` passed a plan that outlives this process.
    let shared = unsafe { &*plan.cast::<Plan>() };
    // SAFETY: raw calls on memory shared with a parent that waits; `inner` never returns.
    unsafe {
        system::call(libc::SYS_setsid, [0; 6]);
        let child = system::clone(
            inner,
            shared.inner_stack,
            libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
            plan,
        );
        COLLECTOR.store(child, Ordering::Release);
        system::call(libc::SYS_exit_group, [usize::from(child <= 0), 0, 0, 0, 0, 0]);
    }
    1
}

/// The future collector: opens /dev/null as the three standard descriptors, keeps the socket, closes the
/// rest.
extern "C" fn inner(plan: *mut c_void) -> c_int {
    // SAFETY: as in `outer`.
    let plan = unsafe { &*plan.cast::<Plan>() };
    // SAFETY: raw system calls only; the strings outlive the exec. The program's exec and exit functions of
    // libc are hooked by us, so they are not used here.
    unsafe {
        let duplicate = |from: c_int, to: c_int| {
            system::call(libc::SYS_dup3, [from as usize, to as usize, 0, 0, 0, 0]);
        };
        let null = system::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        // The socket is first moved above the standard descriptors, since its number may be one of them.
        let socket = system::fcntl(plan.socket, libc::F_DUPFD, 16);
        for standard in 0..3 {
            duplicate(null, standard);
        }
        duplicate(socket, DESCRIPTOR);
        let first = DESCRIPTOR + 1;
        if system::call(libc::SYS_close_range, [first as usize, u32::MAX as usize, 0, 0, 0, 0]) != 0 {
            for descriptor in first..1024 {
                system::close(descriptor);
            }
        }
        raise_limits();
        // The collector inherits the thread's scheduling class. In a real-time class it would keep the
        // launching thread off its core.
        let plain = libc::sched_param { sched_priority: 0 };
        if matches!(system::call(libc::SYS_sched_getscheduler, [0; 6]), FIFO | ROUND_ROBIN) {
            let arguments = [0, libc::SCHED_OTHER as usize, (&raw const plain).expose_provenance(), 0, 0, 0];
            system::call(libc::SYS_sched_setscheduler, arguments);
        }
        system::signal_mask(libc::SIG_SETMASK, 0);
        let (path, arguments, environment) = (
            plan.executable.expose_provenance(),
            plan.arguments.expose_provenance(),
            plan.environment.expose_provenance(),
        );
        system::call(libc::SYS_execve, [path, arguments, environment, 0, 0, 0]);
        system::call(libc::SYS_exit_group, [127, 0, 0, 0, 0, 0]);
    }
    127
}

/// Raises the collector's limits to their hard limits. The program's own limits were not set for the
/// collector.
fn raise_limits() {
    for resource in
        [libc::RLIMIT_AS, libc::RLIMIT_DATA, libc::RLIMIT_FSIZE, libc::RLIMIT_CPU, libc::RLIMIT_NOFILE]
    {
        // The calling process shares our memory but has its own limits.
        let limit = system::limit(resource);
        system::set_limit(resource, &libc::rlimit { rlim_cur: limit.rlim_max, ..limit });
    }
}

/// A number that changes while the collector works or wants to. It is the collector's processor time; it is
/// the current time while the collector is runnable or waits for a disk. It is also the current time if
/// that cannot be read, because nothing then shows that the collector is stopped.
pub fn signs_of_life() -> u64 {
    let now_ns = crate::clock::monotonic_ns();
    let mut buffer = [0u8; 512];
    let Some(line) = read_status(&mut buffer) else { return now_ns };
    // The name is in parentheses and may contain anything, a parenthesis too; the text after it has none.
    let after_name = line.iter().rposition(|byte| *byte == b')').and_then(|at| line.get(at + 1..));
    let mut fields = after_name.unwrap_or_default().split(|byte| *byte == b' ').filter(|f| !f.is_empty());
    match fields.next() {
        // R is running, D waits for a disk.
        Some(b"R" | b"D") | None => now_ns,
        // The eleventh and twelfth fields after the state: time in user mode and in the kernel.
        Some(_) => fields.skip(10).take(2).fold(1, |sum, field| sum + number(field)),
    }
}

/// Reads the collector's line in /proc.
fn read_status(buffer: &mut [u8; 512]) -> Option<&[u8]> {
    let collector = COLLECTOR.load(Ordering::Acquire);
    if collector <= 0 {
        return None;
    }
    let mut path = [0u8; 32];
    write!(&mut path[..], "/proc/{collector}/stat\0").ok()?;
    system::read_file(CStr::from_bytes_until_nul(&path).ok()?, buffer)
}

fn number(digits: &[u8]) -> u64 {
    digits.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit.wrapping_sub(b'0') % 10))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::Received;

    #[test]
    fn stopped_process_shows_no_life_and_a_running_one_does() {
        let mut child = std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        COLLECTOR.store(child.id().cast_signed(), Ordering::Release);
        let first = signs_of_life();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while signs_of_life() == first {
            assert!(std::time::Instant::now() < deadline, "it works and nothing changes");
        }
        let send = |signal| {
            // SAFETY: plain numbers; the target is the child made above.
            unsafe { libc::kill(child.id().cast_signed(), signal) }
        };
        send(libc::SIGSTOP);
        let is_stopped = || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
            stat.contains(") T ")
        };
        while !is_stopped() {
            assert!(std::time::Instant::now() < deadline, "it was not stopped");
        }
        let stopped = signs_of_life();
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert_eq!(signs_of_life(), stopped);
        assert!(stopped < 1_000_000, "processor time in hundredths, not a moment: {stopped}");
        child.kill().unwrap();
        child.wait().unwrap();
        COLLECTOR.store(0, Ordering::Release);
    }

    #[test]
    fn missing_program_is_noticed_by_the_hang_up() {
        let arguments = [c"x".as_ptr(), core::ptr::null()];
        // SAFETY: both arrays are null-terminated and outlive the call.
        let socket = unsafe { start(c"/nonexistent/x", arguments.as_ptr(), arguments.as_ptr().add(1)) };
        let socket = socket.expect("the process in between has started one that then failed to exec");
        let mut packet = [0; 64];
        assert!(matches!(socket.receive(60_000, &mut packet), Received::Gone));
        socket.close();
    }
}
