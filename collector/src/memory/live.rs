//! A live allocation, in 16 bytes: there may be a million.

/// The most bytes that an allocation counts with. No device has an address space of so much.
pub(super) const BYTES_MAX: u64 = (1 << 48) - 1;

/// Halves of numbers, so that nothing is lost to alignment. With its address, and with what a tree of so many
/// leaves free, an allocation takes 40 bytes where addresses come in any order, and 50 where they ascend.
#[derive(Clone, Copy, Debug)]
pub(super) struct Live {
    since_ns: [u32; 2],
    bytes_low: u32,
    bytes_high: u16,
    site: u16,
}

const _: () = assert!(size_of::<Live>() == 16 && align_of::<Live>() == 4);

impl Live {
    /// Of at most [`BYTES_MAX`] bytes.
    pub fn new(bytes: u64, since_ns: u64, site: u16) -> Live {
        let bytes = bytes.min(BYTES_MAX);
        Live {
            since_ns: [since_ns as u32, (since_ns >> 32) as u32],
            bytes_low: bytes as u32,
            bytes_high: (bytes >> 32) as u16,
            site,
        }
    }

    pub fn bytes(&self) -> u64 {
        u64::from(self.bytes_high) << 32 | u64::from(self.bytes_low)
    }

    pub fn since_ns(&self) -> u64 {
        let [low, high] = self.since_ns.map(u64::from);
        high << 32 | low
    }

    pub fn site(&self) -> usize {
        usize::from(self.site)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_that_were_put_in() {
        for (bytes, since_ns, site) in
            [(0, 0, 0), (1 << 47 | 5, u64::MAX - 1, u16::MAX), (BYTES_MAX, 1 << 32, 7)]
        {
            let live = Live::new(bytes, since_ns, site);
            assert_eq!((live.bytes(), live.since_ns(), live.site()), (bytes, since_ns, site.into()));
        }
        assert_eq!(Live::new(u64::MAX, 0, 0).bytes(), BYTES_MAX);
    }
}
