//! Numbers and texts as bytes: LEB128 for numbers of any size, zigzag for signed ones.

/// Reads what the functions below write. Reading beyond the end returns `None`.
#[derive(Clone, Copy, Debug)]
pub struct Bytes<'a> {
    rest: &'a [u8],
}

impl<'a> Bytes<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Bytes { rest: bytes }
    }

    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    #[inline]
    pub fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for (index, byte) in self.rest.iter().enumerate().take(10) {
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                self.rest = self.rest.get(index + 1..)?;
                // The tenth byte holds one bit.
                return (index < 9 || *byte <= 1).then_some(value);
            }
        }
        None
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.varint()?.try_into().ok()
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.varint()?.try_into().ok()
    }

    /// A count of items of at least one byte each; `None` if it exceeds the bytes left.
    pub fn count(&mut self) -> Option<usize> {
        let count = usize::try_from(self.varint()?).ok()?;
        (count <= self.rest.len()).then_some(count)
    }

    pub fn text(&mut self) -> Option<&'a [u8]> {
        let length = self.count()?;
        self.take(length)
    }
}

#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    if value < 0x80 {
        return out.push(value as u8);
    }
    // Collected first, since a capacity check for each byte is slower.
    let mut bytes = [0; 10];
    let mut used = 0;
    for byte in &mut bytes {
        used += 1;
        *byte = value as u8 & 0x7f;
        value >>= 7;
        if value == 0 {
            break;
        }
        *byte |= 0x80;
    }
    out.extend_from_slice(bytes.get(..used).unwrap_or_default());
}

/// How many bytes [`put_varint`] takes.
#[inline]
pub fn varint_bytes(value: u64) -> usize {
    (70 - (value | 1).leading_zeros() as usize) / 7
}

pub fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    put_varint(out, text.len() as u64);
    out.extend_from_slice(text);
}

/// Maps numbers of small magnitude and either sign to small numbers.
#[inline]
pub fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

#[inline]
pub fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -((value & 1).cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn varints_round_trip(value in prop_oneof![any::<u64>(), 0u64..1000, Just(u64::MAX)]) {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            prop_assert_eq!(out.len(), varint_bytes(value));
            prop_assert_eq!(Bytes::new(&out).varint(), Some(value));
            prop_assert_eq!(unzigzag(zigzag(value.cast_signed())), value.cast_signed());
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..24)) {
            let mut reader = Bytes::new(&bytes);
            while reader.varint().is_some() {}
            let mut reader = Bytes::new(&bytes);
            while reader.text().is_some() {}
        }
    }

    #[test]
    fn overlong_varints_are_refused() {
        assert_eq!(Bytes::new(&[0xff; 11]).varint(), None);
        assert_eq!(Bytes::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]).varint(), None);
        assert_eq!(Bytes::new(&[0x80]).varint(), None);
    }
}
