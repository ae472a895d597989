//! How this program's heap gives memory back.
//!
//! Batches of up to a megabyte are made on one thread and freed on another, by the thousand. glibc
//! raises the size from which blocks are mapped of their own at the first of them that is freed,
//! and from then on they are cut out of heaps that other blocks keep from shrinking: at two
//! million launches a second a collector grew to 750 MiB, and with the size held, to 60.

/// From here on a block is a mapping of its own, gone when it is freed. Batches are larger.
#[cfg(target_env = "gnu")]
const MAPPED_FROM_BYTES: libc::c_int = 256 << 10;

/// Once, before there are threads.
pub fn prepare() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes plain numbers, and no other thread allocates yet.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_FROM_BYTES);
        if is_address_space_limited() {
            // Each further arena begins with 128 MiB of addresses, of which it keeps 64: within 300 MiB
            // there was none left for the shared memory of the first process.
            libc::mallopt(libc::M_ARENA_MAX, 1);
        }
    }
}

#[cfg(target_env = "gnu")]
fn is_address_space_limited() -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a live rlimit.
    unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) == 0 && limit.rlim_cur != libc::RLIM_INFINITY }
}
