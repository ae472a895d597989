//! The process's resource limits, as they are now.

/// The soft limit; RLIM_INFINITY where it cannot be asked.
pub fn soft(resource: libc::__rlimit_resource_t) -> libc::rlim_t {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a live rlimit, which stays as it is where the call fails.
    unsafe { libc::getrlimit(resource, &raw mut limit) };
    limit.rlim_cur
}
