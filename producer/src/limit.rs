//! The process's resource limits, as they are now.

/// The soft limit; RLIM_INFINITY where it cannot be asked.
pub fn soft(resource: libc::__rlimit_resource_t) -> libc::rlim_t {
    crate::system::limit(resource).rlim_cur
}
