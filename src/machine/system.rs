//! Kernel, C library, shared memory, limits: what the tracer needs of the operating system.

use std::ffi::CStr;
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::cli::failure::reason;
use crate::machine::finding::Finding;

/// The preload library's own needs end here; see DESIGN: nothing above GLIBC_2.28.
const GLIBC_MIN: (u32, u32) = (2, 28);
/// What a traced process maps for itself at least.
const SEGMENT_BYTES: u64 = 16 << 20;

pub fn findings() -> Vec<Finding> {
    let mut findings = vec![system()];
    findings.push(shared_memory());
    findings.extend(limits());
    findings
}

fn system() -> Finding {
    // SAFETY: uname fills the zeroed struct with NUL-terminated strings; gnu_get_libc_version
    // returns a static string.
    let (kernel, machine, glibc) = unsafe {
        let mut names: libc::utsname = zeroed();
        libc::uname(&raw mut names);
        let text = |field: &[libc::c_char]| CStr::from_ptr(field.as_ptr()).to_string_lossy().into_owned();
        let glibc = CStr::from_ptr(libc::gnu_get_libc_version()).to_string_lossy().into_owned();
        (text(&names.release), text(&names.machine), glibc)
    };
    let text = format!("Linux {kernel} {machine}, glibc {glibc}");
    let mut numbers = glibc.split('.').map_while(|number| number.parse().ok());
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) if (major, minor) < GLIBC_MIN => {
            Finding::broken("system", text).hint("glibc 2.28 or newer is needed")
        }
        _ => Finding::good("system", text),
    }
}

/// Makes a sealed memory file as the library does, and maps it.
fn shared_memory() -> Finding {
    match try_segment() {
        Ok(()) => Finding::good("memory", format!("sealed memory files of {} MiB work", SEGMENT_BYTES >> 20)),
        Err((call, error)) => {
            let finding = Finding::broken("memory", format!("{call} failed: {}", reason(&error)));
            match error.raw_os_error() {
                Some(libc::ENOSYS | libc::EPERM) => {
                    finding.hint("a seccomp profile forbids memory files; allow memfd_create")
                }
                Some(libc::EFBIG) => {
                    finding.hint("raise the limit of file sizes").command("ulimit -f unlimited")
                }
                Some(libc::ENOMEM) => finding
                    .hint("raise the limit of address space, or the container's memory")
                    .command("ulimit -v unlimited"),
                _ => finding.hint("the container's or service's limits may be too tight"),
            }
        }
    }
}

fn try_segment() -> Result<(), (&'static str, io::Error)> {
    let failed = |call| move || (call, io::Error::last_os_error());
    let size = libc::off_t::try_from(SEGMENT_BYTES).unwrap_or(0);
    // SAFETY: the name is a C string; the descriptor is owned at once; the mapping is unmapped
    // before the descriptor goes. SIGXFSZ, which a low file size limit would raise, is blocked
    // around ftruncate by ignoring it.
    unsafe {
        let descriptor =
            libc::memfd_create(c"gputrace-doctor".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
        if descriptor < 0 {
            return Err(failed("memfd_create")());
        }
        let file = OwnedFd::from_raw_fd(descriptor);
        let before = libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        let sized = libc::ftruncate(file.as_raw_fd(), size);
        let error = failed("ftruncate")();
        libc::signal(libc::SIGXFSZ, before);
        if sized != 0 {
            return Err(error);
        }
        if libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_SHRINK | libc::F_SEAL_GROW) != 0 {
            return Err(failed("sealing")());
        }
        let bytes = SEGMENT_BYTES as usize;
        let mapping = libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        );
        if mapping == libc::MAP_FAILED {
            return Err(failed("mmap")());
        }
        libc::munmap(mapping, bytes);
    }
    Ok(())
}

fn limits() -> Vec<Finding> {
    let mut findings = Vec::new();
    let files = limit(libc::RLIMIT_NOFILE);
    if files < 64 {
        findings.push(
            Finding::limited("limits", format!("{files} open files"))
                .hint("raise the limit")
                .command("ulimit -n 1024"),
        );
    }
    let space = limit(libc::RLIMIT_AS);
    if space < 64 << 30 {
        findings.push(
            Finding::limited("limits", format!("{} MiB of address space", space >> 20))
                .hint("CUDA itself reserves far more")
                .command("ulimit -v unlimited"),
        );
    }
    findings
}

fn limit(resource: libc::__rlimit_resource_t) -> u64 {
    // SAFETY: getrlimit fills the zeroed struct.
    unsafe {
        let mut limit: libc::rlimit = zeroed();
        if libc::getrlimit(resource, &raw mut limit) == 0 { limit.rlim_cur } else { u64::MAX }
    }
}
