//! The address space that a limit leaves to the program, and whether ours fits beside it.
//!
//! Owns nothing. A C library that cannot map a thread's own data ends the process, and so do many
//! programs where malloc returns nothing: of a small rest we take no part.

use crate::system;

/// What RLIMIT_AS has to leave, as the messages in `interpose` say. Where addresses are plenty, a session takes up to 500 MiB
/// of them: places for rings and buffers that may come, and the 64 MiB that the C library sets aside for each thread that
/// allocates. The rest stays the program's. On a GPU the driver alone takes far more.
const ADDRESSES_WANTED: u64 = 1 << 30;
/// What RLIMIT_DATA has to leave: of those addresses, what may be written to, and the rest for the program.
const DATA_WANTED: u64 = 128 << 20;

/// x86-64 has pages of this size only.
const PAGE_BYTES: u64 = 4096;

/// What limits leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    Enough,
    Hardly,
    /// There is a limit, and nobody says how much is in use.
    Unknown,
}

pub fn room() -> Room {
    let limits = [(libc::RLIMIT_AS, ADDRESSES_WANTED), (libc::RLIMIT_DATA, DATA_WANTED)]
        .map(|(resource, wanted)| (system::soft_limit(resource), wanted));
    if limits.iter().all(|(limit, _)| *limit == libc::RLIM_INFINITY) {
        return Room::Enough;
    }
    let Some(used) = used() else { return Room::Unknown };
    let is_enough =
        limits.iter().zip(used).all(|((limit, wanted), used)| limit.saturating_sub(used) >= *wanted);
    if is_enough { Room::Enough } else { Room::Hardly }
}

/// The bytes that count against RLIMIT_AS, and those against RLIMIT_DATA, in use now.
fn used() -> Option<[u64; 2]> {
    let mut text = [0; 128];
    let text = system::read_file(c"/proc/self/statm", &mut text)?;
    parse(text).map(|pages| pages.map(|pages| pages.saturating_mul(PAGE_BYTES)))
}

/// The first and the sixth number: all pages, and those of data and stack.
fn parse(text: &[u8]) -> Option<[u64; 2]> {
    let mut words = str::from_utf8(text).ok()?.split_ascii_whitespace().map(str::parse);
    Some([words.next()?.ok()?, words.nth(4)?.ok()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_line_is_read() {
        assert_eq!(parse(b"1203 240 180 12 0 77 0\n"), Some([1203, 77]));
        assert_eq!(parse(b"1203 240 180 12 0\n"), None);
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn what_is_mapped_counts() {
        let before = used().unwrap();
        let memory = vec![1u8; 64 << 20];
        let after = used().unwrap();
        assert!((0..2).all(|kind| after[kind] >= before[kind] + (60 << 20)), "{before:?} {after:?}");
        drop(memory);
    }
}
