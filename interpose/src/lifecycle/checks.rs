//! What prevents a session, in words for the user.

use gputrace_producer::address_space::{self, AddressSpace};
use gputrace_producer::session::StartError;
use gputrace_producer::{collector_process, descriptor, segment};

/// A condition that prevents a session: a message for the user, or `None`. The argument is true if this
/// process would start the collector itself.
type Check = fn(bool) -> Option<&'static [u8]>;

/// Checks made before the session starts. The first obstacle is reported.
const CHECKS: [Check; 3] = [has_descriptors, has_address_space, keeps_no_orphans];

/// # Errors
/// The first obstacle. `bare` is true if this process would start the collector itself.
pub fn pass(bare: bool) -> Result<(), &'static [u8]> {
    CHECKS.iter().find_map(|check| check(bare)).map_or(Ok(()), Err)
}

fn has_descriptors(_: bool) -> Option<&'static [u8]> {
    (!descriptor::has_free_number()).then_some(b"hardly any descriptor is free: raise RLIMIT_NOFILE")
}

fn has_address_space(_: bool) -> Option<&'static [u8]> {
    match address_space::available() {
        AddressSpace::Enough => None,
        AddressSpace::Hardly => Some(
            b"less than 1 GiB of address space is left, or 128 MiB of data: raise RLIMIT_AS or RLIMIT_DATA",
        ),
        AddressSpace::Unknown => {
            Some(b"address space is limited and its use is unknown: /proc/self/statm cannot be read")
        }
    }
}

fn keeps_no_orphans(bare: bool) -> Option<&'static [u8]> {
    (bare && collector_process::would_be_adopted())
        .then_some(b"this process reaps orphans (process 1 or a subreaper): start it by `gputrace run`")
}

/// Why the producer could start no session, as far as the limits show it.
pub fn why_not(error: StartError) -> &'static [u8] {
    match error {
        StartError::HandOver => b"the collector did not take the hand-over",
        StartError::Memory if segment::is_kept_out_by_file_limit() => {
            b"no shared memory: raise RLIMIT_FSIZE (ulimit -f)"
        }
        StartError::Memory => b"no shared memory: allow memfd_create, or raise RLIMIT_AS",
    }
}
