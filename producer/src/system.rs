//! System calls made without the C library, and what they need: signal masks as one word.
//!
//! Any library can wrap a function of the C library: a sanitizer, another preload, the program. A wrapper
//! often resolves the real function with `dlsym` at its first call, holds a lock of its own, or allocates.
//! Our `dlsym`, our fork and exit handlers and our hooks run inside such wrappers, so a call back into one
//! of them recurses or waits for ever. The system call instruction itself cannot be wrapped.
//!
//! Each function is the system call of that name. It returns the kernel's answer: a negative number is a
//! negated errno value, and the calling thread's `errno` does not change.

#[cfg(not(target_arch = "x86_64"))]
compile_error!("system calls are made by x86-64's instruction and numbers");

use core::arch::asm;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::{offset_of, size_of};
use core::sync::atomic::AtomicU32;

/// Makes one system call.
///
/// # Safety
///
/// What the system call of that number requires of its arguments.
#[inline(always)]
pub unsafe fn call(number: i64, arguments: [usize; 6]) -> isize {
    let [first, second, third, fourth, fifth, sixth] = arguments;
    let answer: isize;
    // SAFETY: the kernel changes rax, rcx and r11, and the memory that the caller's arguments name.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => answer,
            in("rdi") first,
            in("rsi") second,
            in("rdx") third,
            in("r10") fourth,
            in("r8") fifth,
            in("r9") sixth,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    answer
}

/// Makes a process that runs `child` on its own stack and exits with the value that `child` returns.
/// Returns its pid.
///
/// # Safety
///
/// As for clone(2): the flags do not include CLONE_SETTLS or similar ones, `stack_top` is the end of
/// writable memory that nobody else uses until the child is gone, and `child` does only what the flags
/// allow.
pub unsafe fn clone(
    child: extern "C" fn(*mut c_void) -> c_int,
    stack_top: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
) -> c_int {
    let top = (stack_top as usize) & !15;
    let answer: isize;
    // SAFETY: the parent continues after the label as after any system call. The child has the caller's
    // registers, which it reads, and its own stack, and never returns here.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r8",
            "call r9",
            "mov edi, eax",
            "mov eax, {exit}",
            "syscall",
            "ud2",
            "2:",
            exit = const libc::SYS_exit,
            inlateout("rax") libc::SYS_clone as isize => answer,
            in("rdi") flags as usize,
            in("rsi") top,
            in("rdx") 0usize,
            in("r10") 0usize,
            in("r8") argument,
            in("r9") child,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    int(answer)
}

/// The answer of a system call that returns a C int.
fn int(answer: isize) -> c_int {
    answer as c_int
}

/// A signed argument as the register holds it: sign-extended.
fn word(value: c_int) -> usize {
    value as isize as usize
}

// --- Identity of the caller. None of these has preconditions.

pub fn getpid() -> i32 {
    // SAFETY: no arguments.
    int(unsafe { call(libc::SYS_getpid, [0; 6]) })
}

pub fn getppid() -> i32 {
    // SAFETY: no arguments.
    int(unsafe { call(libc::SYS_getppid, [0; 6]) })
}

pub fn gettid() -> i32 {
    // SAFETY: no arguments.
    int(unsafe { call(libc::SYS_gettid, [0; 6]) })
}

pub fn geteuid() -> u32 {
    // SAFETY: no arguments.
    int(unsafe { call(libc::SYS_geteuid, [0; 6]) }).cast_unsigned()
}

// --- Memory.

/// Maps memory; `None` if the kernel refuses.
///
/// # Safety
///
/// As for mmap: with `MAP_FIXED` the caller owns the range to replace.
pub unsafe fn mmap(
    wanted: *mut c_void,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    descriptor: c_int,
) -> Option<*mut c_void> {
    let arguments = [wanted.expose_provenance(), bytes, word(protection), word(flags), word(descriptor), 0];
    // SAFETY: the caller guarantees it.
    let answer = unsafe { call(libc::SYS_mmap, arguments) };
    // The last page of the address space is the kernel's: an address there is a negated errno value.
    (!(-4095..0).contains(&answer)).then(|| core::ptr::with_exposed_provenance_mut(answer as usize))
}

/// # Safety
/// Nobody uses the range from here on.
pub unsafe fn munmap(start: *mut c_void, bytes: usize) -> c_int {
    // SAFETY: the caller guarantees it.
    int(unsafe { call(libc::SYS_munmap, [start.expose_provenance(), bytes, 0, 0, 0, 0]) })
}

/// # Safety
/// Nobody needs more of the range than the new protection allows.
pub unsafe fn mprotect(start: *mut c_void, bytes: usize, protection: c_int) -> c_int {
    // SAFETY: the caller guarantees it.
    int(unsafe { call(libc::SYS_mprotect, [start.expose_provenance(), bytes, word(protection), 0, 0, 0]) })
}

/// # Safety
/// As the advice requires: some discard what the range holds.
pub unsafe fn madvise(start: *mut c_void, bytes: usize, advice: c_int) -> c_int {
    // SAFETY: the caller guarantees it.
    int(unsafe { call(libc::SYS_madvise, [start.expose_provenance(), bytes, word(advice), 0, 0, 0]) })
}

// --- Files and descriptors.

/// Opens a file.
///
/// # Safety
/// A C string.
pub unsafe fn open(path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller guarantees it; without O_CREAT there is no mode.
    int(unsafe {
        call(libc::SYS_openat, [word(libc::AT_FDCWD), path.expose_provenance(), word(flags), 0, 0, 0])
    })
}

/// Opens a file for reading, closed on exec.
pub fn open_to_read(path: &CStr) -> c_int {
    // SAFETY: a C string.
    unsafe { open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) }
}

/// # Safety
/// The descriptor is the caller's own.
pub unsafe fn close(descriptor: c_int) -> c_int {
    // SAFETY: the caller guarantees it.
    int(unsafe { call(libc::SYS_close, [word(descriptor), 0, 0, 0, 0, 0]) })
}

pub fn read(descriptor: c_int, into: &mut [u8]) -> isize {
    // SAFETY: the buffer is live and that long.
    unsafe {
        call(libc::SYS_read, [word(descriptor), into.as_mut_ptr().expose_provenance(), into.len(), 0, 0, 0])
    }
}

/// The beginning of a file; `None` where it cannot be read.
pub fn read_file<'b>(path: &CStr, into: &'b mut [u8]) -> Option<&'b [u8]> {
    let file = open_to_read(path);
    if file < 0 {
        return None;
    }
    let count = read(file, into);
    // SAFETY: opened above.
    unsafe { close(file) };
    into.get(..usize::try_from(count).ok()?)
}

pub fn pread(descriptor: c_int, into: &mut [u8], at: u64) -> isize {
    let arguments = [word(descriptor), into.as_mut_ptr().expose_provenance(), into.len(), at as usize, 0, 0];
    // SAFETY: the buffer is live and that long.
    unsafe { call(libc::SYS_pread64, arguments) }
}

pub fn write(descriptor: c_int, bytes: &[u8]) -> isize {
    // SAFETY: the slice is live.
    unsafe {
        call(libc::SYS_write, [word(descriptor), bytes.as_ptr().expose_provenance(), bytes.len(), 0, 0, 0])
    }
}

pub fn fcntl(descriptor: c_int, command: c_int, argument: c_int) -> c_int {
    let arguments = [word(descriptor), word(command), word(argument), 0, 0, 0];
    // SAFETY: the commands in use (descriptor flags, duplicates, seals) take a number and no pointer.
    int(unsafe { call(libc::SYS_fcntl, arguments) })
}

pub fn fstat(descriptor: c_int, about: &mut libc::stat) -> c_int {
    // SAFETY: on x86-64 the C library's structure is the kernel's.
    int(unsafe {
        call(libc::SYS_fstat, [word(descriptor), core::ptr::from_mut(about).expose_provenance(), 0, 0, 0, 0])
    })
}

/// # Safety
/// A C string.
pub unsafe fn stat(path: *const c_char, about: &mut libc::stat) -> c_int {
    // SAFETY: as in `fstat`; the caller guarantees the path.
    int(unsafe {
        call(
            libc::SYS_stat,
            [path.expose_provenance(), core::ptr::from_mut(about).expose_provenance(), 0, 0, 0, 0],
        )
    })
}

/// # Safety
/// A C string.
pub unsafe fn lstat(path: *const c_char, about: &mut libc::stat) -> c_int {
    // SAFETY: as in `fstat`; the caller guarantees the path.
    int(unsafe {
        call(
            libc::SYS_lstat,
            [path.expose_provenance(), core::ptr::from_mut(about).expose_provenance(), 0, 0, 0, 0],
        )
    })
}

/// # Safety
/// A C string.
pub unsafe fn access(path: *const c_char, mode: c_int) -> c_int {
    // SAFETY: the caller guarantees the path.
    int(unsafe { call(libc::SYS_access, [path.expose_provenance(), word(mode), 0, 0, 0, 0]) })
}

pub fn symlink(target: &CStr, link: &CStr) -> c_int {
    let arguments = [target.as_ptr().expose_provenance(), link.as_ptr().expose_provenance(), 0, 0, 0, 0];
    // SAFETY: two C strings.
    int(unsafe { call(libc::SYS_symlink, arguments) })
}

pub fn ftruncate(descriptor: c_int, bytes: usize) -> c_int {
    // SAFETY: numbers only.
    int(unsafe { call(libc::SYS_ftruncate, [word(descriptor), bytes, 0, 0, 0, 0]) })
}

pub fn memfd_create(name: &CStr, flags: u32) -> c_int {
    // SAFETY: a C string.
    int(unsafe {
        call(libc::SYS_memfd_create, [name.as_ptr().expose_provenance(), flags as usize, 0, 0, 0, 0])
    })
}

// --- Sockets.

pub fn socket(domain: c_int, kind: c_int) -> c_int {
    // SAFETY: numbers only.
    int(unsafe { call(libc::SYS_socket, [word(domain), word(kind), 0, 0, 0, 0]) })
}

pub fn socketpair(domain: c_int, kind: c_int, ends: &mut [c_int; 2]) -> c_int {
    let arguments = [word(domain), word(kind), 0, ends.as_mut_ptr().expose_provenance(), 0, 0];
    // SAFETY: the kernel writes two ints.
    int(unsafe { call(libc::SYS_socketpair, arguments) })
}

pub fn connect(socket: c_int, address: &libc::sockaddr_un) -> c_int {
    let (at, bytes) = (core::ptr::from_ref(address).expose_provenance(), size_of::<libc::sockaddr_un>());
    let arguments = [word(socket), at, bytes, 0, 0, 0];
    // SAFETY: the address is live and that long.
    int(unsafe { call(libc::SYS_connect, arguments) })
}

/// # Safety
/// Every pointer in the message is to live memory.
pub unsafe fn sendmsg(socket: c_int, message: &libc::msghdr, flags: c_int) -> isize {
    let arguments = [word(socket), core::ptr::from_ref(message).expose_provenance(), word(flags), 0, 0, 0];
    // SAFETY: the caller guarantees it.
    unsafe { call(libc::SYS_sendmsg, arguments) }
}

pub fn recv(socket: c_int, into: &mut [u8], flags: c_int) -> isize {
    let arguments = [word(socket), into.as_mut_ptr().expose_provenance(), into.len(), word(flags), 0, 0];
    // SAFETY: the buffer is live and that long; no address is asked for.
    unsafe { call(libc::SYS_recvfrom, arguments) }
}

/// # Safety
/// `value` is to `bytes` writable bytes.
pub unsafe fn getsockopt(
    socket: c_int,
    level: c_int,
    option: c_int,
    value: *mut c_void,
    bytes: &mut libc::socklen_t,
) -> c_int {
    let bytes = core::ptr::from_mut(bytes).expose_provenance();
    // SAFETY: the caller guarantees it.
    int(unsafe {
        call(
            libc::SYS_getsockopt,
            [word(socket), word(level), word(option), value.expose_provenance(), bytes, 0],
        )
    })
}

/// Waits for the descriptors, or with none of them for the time alone.
pub fn poll(descriptors: &mut [libc::pollfd], timeout_ms: c_int) -> c_int {
    let arguments =
        [descriptors.as_mut_ptr().expose_provenance(), descriptors.len(), word(timeout_ms), 0, 0, 0];
    // SAFETY: the slice is live.
    int(unsafe { call(libc::SYS_poll, arguments) })
}

// --- Time and the processor.

/// Sleeps that long, or until a signal arrives.
pub fn sleep_ns(duration_ns: u64) {
    const SECOND_NS: u64 = 1_000_000_000;
    let time = libc::timespec {
        tv_sec: (duration_ns / SECOND_NS) as libc::time_t,
        tv_nsec: (duration_ns % SECOND_NS) as libc::c_long,
    };
    // SAFETY: a valid time; what is left of it is not asked for.
    unsafe { call(libc::SYS_nanosleep, [(&raw const time).expose_provenance(), 0, 0, 0, 0, 0]) };
}

/// Lets another thread run.
pub fn yield_now() {
    // SAFETY: no arguments.
    unsafe { call(libc::SYS_sched_yield, [0; 6]) };
}

/// Sleeps while the word has that value, at most so long, until [`wake_all`] is called for it. It may also
/// return for no reason. True if that time has passed.
pub fn wait_while(word: &AtomicU32, value: u32, nanoseconds: u64) -> bool {
    let limit = libc::timespec {
        tv_sec: (nanoseconds / 1_000_000_000) as libc::time_t,
        tv_nsec: (nanoseconds % 1_000_000_000) as libc::c_long,
    };
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    let (word, limit) = (word.as_ptr().expose_provenance(), (&raw const limit).expose_provenance());
    // SAFETY: the word is a live 32-bit atomic and the limit a live timespec.
    let result = unsafe { call(libc::SYS_futex, [word, operation as usize, value as usize, limit, 0, 0]) };
    result == -(libc::ETIMEDOUT as isize)
}

/// Wakes all threads that sleep in [`wait_while`] for that word.
pub fn wake_all(word: &AtomicU32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    let word = word.as_ptr().expose_provenance();
    // SAFETY: the word is a live 32-bit atomic.
    unsafe { call(libc::SYS_futex, [word, operation as usize, i32::MAX as usize, 0, 0, 0]) };
}

/// Whether a seccomp filter checks the thread's system calls; also true if the kernel returns an error. A
/// filter may end the process at a call that it does not allow.
pub fn is_filtered() -> bool {
    // SAFETY: asks for a number.
    unsafe { prctl(libc::PR_GET_SECCOMP, [0; 4]) != 0 }
}

/// Registers the process for [`barrier_on_all_threads`]. False if the kernel refuses or has no such call. Not
/// tried, and also false, if a seccomp filter checks the thread's calls. Takes milliseconds in a process with
/// threads.
pub fn register_barrier() -> bool {
    !is_filtered() && membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
}

/// True after every thread of the process has passed a memory barrier; false if the kernel refuses. To be
/// called after [`register_barrier`] returned true.
pub fn barrier_on_all_threads() -> bool {
    membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)
}

fn membarrier(command: c_int) -> bool {
    // SAFETY: takes numbers only.
    unsafe { call(libc::SYS_membarrier, [command as usize, 0, 0, 0, 0, 0]) == 0 }
}

/// # Safety
/// As the option requires of its arguments.
pub unsafe fn prctl(option: c_int, arguments: [usize; 4]) -> c_int {
    let [second, third, fourth, fifth] = arguments;
    // SAFETY: the caller guarantees it.
    int(unsafe { call(libc::SYS_prctl, [word(option), second, third, fourth, fifth, 0]) })
}

/// The calling thread's name, NUL-terminated; all zero if the kernel gives none.
pub fn thread_name() -> [u8; 16] {
    let mut name = [0u8; 16];
    // SAFETY: the kernel writes at most 16 bytes.
    unsafe { prctl(libc::PR_GET_NAME, [name.as_mut_ptr().expose_provenance(), 0, 0, 0]) };
    name
}

/// A resource limit of this process; unlimited if the kernel gives none.
pub fn limit(resource: u32) -> libc::rlimit {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    let arguments = [0, resource as usize, 0, (&raw mut limit).expose_provenance(), 0, 0];
    // SAFETY: the kernel writes one structure, which on x86-64 is the C library's.
    unsafe { call(libc::SYS_prlimit64, arguments) };
    limit
}

/// The soft limit.
pub fn soft_limit(resource: u32) -> libc::rlim_t {
    limit(resource).rlim_cur
}

/// Sets a resource limit of this process, if that is allowed.
pub fn set_limit(resource: u32, limit: &libc::rlimit) {
    let arguments = [0, resource as usize, core::ptr::from_ref(limit).expose_provenance(), 0, 0, 0];
    // SAFETY: the kernel reads one live structure.
    unsafe { call(libc::SYS_prlimit64, arguments) };
}

pub fn uname() -> Option<libc::utsname> {
    // SAFETY: zero is valid for arrays of bytes; the kernel writes within the structure.
    unsafe {
        let mut machine: libc::utsname = core::mem::zeroed();
        (call(libc::SYS_uname, [(&raw mut machine).expose_provenance(), 0, 0, 0, 0, 0]) == 0)
            .then_some(machine)
    }
}

// --- Signals.

/// A set of signals in the kernel's format: signal N is bit N − 1.
pub type SignalSet = u64;

/// The set of these signals.
pub const fn signals(these: &[c_int]) -> SignalSet {
    let mut set = 0;
    let mut at = 0;
    while at < these.len() {
        // A const fn cannot iterate; the bound is the loop's own.
        #[allow(clippy::indexing_slicing)]
        let signal = these[at];
        set |= 1 << (signal - 1);
        at += 1;
    }
    set
}

/// The signals that the C library reserves (thread cancellation, setuid in all threads) and never blocks.
pub const RESERVED_SIGNALS: SignalSet = signals(&[32, 33]);

/// Every signal except those that the C library reserves.
pub const ALL_SIGNALS: SignalSet = !RESERVED_SIGNALS;

/// Changes the calling thread's mask (`SIG_BLOCK`, `SIG_SETMASK`); returns the one before.
pub fn signal_mask(how: c_int, set: SignalSet) -> SignalSet {
    let mut before: SignalSet = 0;
    let arguments = [
        word(how),
        (&raw const set).expose_provenance(),
        (&raw mut before).expose_provenance(),
        size_of::<SignalSet>(),
        0,
        0,
    ];
    // SAFETY: both sets are live and as long as the fourth argument says.
    unsafe { call(libc::SYS_rt_sigprocmask, arguments) };
    before
}

/// The signals pending for the calling thread or its process.
pub fn pending_signals() -> SignalSet {
    let mut pending: SignalSet = 0;
    let arguments = [(&raw mut pending).expose_provenance(), size_of::<SignalSet>(), 0, 0, 0, 0];
    // SAFETY: the set is live and that long.
    unsafe { call(libc::SYS_rt_sigpending, arguments) };
    pending
}

/// Takes one pending signal of the set, without waiting; false if none was pending.
pub fn take_signal(set: SignalSet) -> bool {
    let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let arguments = [
        (&raw const set).expose_provenance(),
        0,
        (&raw const at_once).expose_provenance(),
        size_of::<SignalSet>(),
        0,
        0,
    ];
    // SAFETY: the set and the time are live; no description of the signal is asked for.
    unsafe { call(libc::SYS_rt_sigtimedwait, arguments) > 0 }
}

/// The calling thread's alternate signal stack.
pub fn signal_stack() -> Option<libc::stack_t> {
    let mut stack = libc::stack_t { ss_sp: core::ptr::null_mut(), ss_flags: 0, ss_size: 0 };
    let arguments = [0, (&raw mut stack).expose_provenance(), 0, 0, 0, 0];
    // SAFETY: only asks; the kernel writes one structure.
    (unsafe { call(libc::SYS_sigaltstack, arguments) } == 0).then_some(stack)
}

const _: () = {
    // Layouts of the C library that are passed to the kernel unchanged: <asm/stat.h>, <asm/signal.h>.
    assert!(size_of::<libc::stat>() == 144 && offset_of!(libc::stat, st_size) == 48);
    assert!(size_of::<libc::stack_t>() == 24 && size_of::<libc::rlimit>() == 16);
};

#[cfg(test)]
mod tests {
    use core::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn ids_are_the_c_librarys() {
        // SAFETY: none has preconditions.
        let expected = unsafe { (libc::getpid(), libc::getppid(), libc::gettid(), libc::geteuid()) };
        assert_eq!((getpid(), getppid(), gettid(), geteuid()), expected);
    }

    #[test]
    fn wait_says_whether_its_time_has_passed() {
        let word = AtomicU32::new(1);
        assert!(wait_while(&word, 1, 1_000_000));
        assert!(!wait_while(&word, 2, u64::MAX >> 1), "the word has another value");
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| wait_while(&word, 1, 60_000_000_000));
            while !waits.is_finished() {
                word.store(3, Ordering::SeqCst);
                wake_all(&word);
            }
            assert!(!waits.join().unwrap());
        });
    }

    #[test]
    fn failure_is_a_negated_errno_value_and_errno_stays() {
        crate::stderr::set_errno(77);
        assert_eq!(open_to_read(c"/no/such/file"), -libc::ENOENT);
        // SAFETY: an address that is no page's begin, of which nothing is unmapped.
        assert_eq!(unsafe { munmap(core::ptr::without_provenance_mut(1), 1) }, -libc::EINVAL);
        // SAFETY: no bytes: the kernel refuses.
        assert_eq!(unsafe { mmap(core::ptr::null_mut(), 0, 0, libc::MAP_PRIVATE, -1) }, None);
        assert_eq!(crate::stderr::errno(), 77);
    }

    #[test]
    fn file_is_read_as_the_c_library_describes_it() {
        let path = c"/proc/self/comm";
        let file = open_to_read(path);
        assert!(file >= 0);
        // SAFETY: zero is valid for the structure.
        let (mut by_number, mut by_path, mut expected): (libc::stat, libc::stat, libc::stat) =
            unsafe { core::mem::zeroed() };
        assert_eq!(fstat(file, &mut by_number), 0);
        // SAFETY: a C string.
        unsafe {
            assert_eq!(stat(path.as_ptr(), &mut by_path), 0);
            assert_eq!(libc::stat(path.as_ptr(), &mut expected), 0);
        }
        let of = |about: &libc::stat| (about.st_dev, about.st_ino, about.st_mode);
        assert_eq!((of(&by_number), of(&by_path)), (of(&expected), of(&expected)));
        let mut name = [0u8; 64];
        let length = read(file, &mut name);
        assert!(length > 1);
        let begin = thread_name();
        assert_eq!(begin[0], std::fs::read("/proc/thread-self/comm").unwrap()[0]);
        // SAFETY: the test's own.
        assert_eq!(unsafe { close(file) }, 0);
    }

    #[test]
    fn mask_keeps_what_the_c_library_reserves() {
        assert_eq!(signals(&[1, 64]), 1 | 1 << 63);
        let before = signal_mask(libc::SIG_BLOCK, ALL_SIGNALS);
        let now = signal_mask(libc::SIG_SETMASK, before);
        // SIGKILL and SIGSTOP cannot be blocked.
        assert_eq!(now, ALL_SIGNALS & !signals(&[libc::SIGKILL, libc::SIGSTOP]));
        assert_eq!(signal_mask(libc::SIG_BLOCK, 0), before);
    }
}
