//! How much address space a limit leaves to the program, and whether ours fits beside it.
//!
//! Owns nothing. A C library that cannot map a thread's own data ends the process, and many programs end
//! when malloc fails. Of a small rest we therefore take nothing.

use crate::system;

/// What RLIMIT_AS has to leave; the messages in `interpose` state the same number. Where address space is
/// plentiful, a session reserves up to 500 MiB: ranges for rings and buffers that may be needed later, and
/// the 64 MiB that the C library reserves for each thread that allocates. The rest stays the program's. On
/// a GPU the driver alone takes far more.
const ADDRESSES_WANTED: u64 = 1 << 30;
/// What RLIMIT_DATA has to leave: the writable part of those addresses, and the program's own data.
const DATA_WANTED: u64 = 128 << 20;

/// x86-64 has base pages of this size only.
const PAGE_BYTES: u64 = 4096;

/// How much the limits leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AddressSpace {
    Enough,
    Hardly,
    /// There is a limit, and the amount in use is unknown.
    Unknown,
}

pub fn available() -> AddressSpace {
    let limits = [(libc::RLIMIT_AS, ADDRESSES_WANTED), (libc::RLIMIT_DATA, DATA_WANTED)]
        .map(|(resource, wanted)| (system::soft_limit(resource), wanted));
    if limits.iter().all(|(limit, _)| *limit == libc::RLIM_INFINITY) {
        return AddressSpace::Enough;
    }
    let Some(used) = used() else { return AddressSpace::Unknown };
    let is_enough =
        limits.iter().zip(used).all(|((limit, wanted), used)| limit.saturating_sub(used) >= *wanted);
    if is_enough { AddressSpace::Enough } else { AddressSpace::Hardly }
}

/// The bytes in use now that count against RLIMIT_AS, and those against RLIMIT_DATA.
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
    fn kernels_line_is_read() {
        assert_eq!(parse(b"1203 240 180 12 0 77 0\n"), Some([1203, 77]));
        assert_eq!(parse(b"1203 240 180 12 0\n"), None);
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn mapped_bytes_count() {
        let counts = || {
            let before = used().unwrap();
            let memory = vec![1u8; 64 << 20];
            let after = used().unwrap();
            drop(memory);
            (0..2).all(|kind| after[kind] >= before[kind] + (60 << 20))
        };
        // Another test may unmap as much meanwhile.
        assert!((0..50).any(|_| counts()));
    }
}
