//! Encodes protobuf messages: the three wire types that a Perfetto trace needs.

/// A message that is being built. It is reused, so that an event allocates nothing.
#[derive(Debug, Default)]
pub struct Message(Vec<u8>);

/// The first bytes of a word, lowest first, and how many there are.
type WordBytes = (u128, usize);

/// Encodes a number, which has at most ten bytes.
#[inline(always)]
fn varint(value: u64) -> WordBytes {
    match value {
        0..0x80 => (value.into(), 1),
        0x80..0x100_0000_0000_0000 => {
            // Spreads the groups of seven bits: halves, quarters, eighths.
            let bits = value & 0x0fff_ffff | (value & 0x00ff_ffff_f000_0000) << 4;
            let bits = bits & 0x0000_3fff_0000_3fff | (bits & 0x0fff_c000_0fff_c000) << 2;
            let bits = bits & 0x007f_007f_007f_007f | (bits & 0x3f80_3f80_3f80_3f80) << 1;
            let count = (64 - bits.leading_zeros()).div_ceil(8);
            // Every byte but the last one has a bit that says that another follows.
            let follow = 0x0080_8080_8080_8080 & ((1 << (8 * (count - 1))) - 1);
            ((bits | follow).into(), count as usize)
        }
        _ => {
            let count = (64 - value.leading_zeros()).div_ceil(7);
            let byte = |at: u32| u128::from(value >> (7 * at) & 0x7f | u64::from(at + 1 < count) << 7);
            ((0..count).fold(0, |bytes, at| bytes | byte(at) << (8 * at)), count as usize)
        }
    }
}

#[inline(always)]
fn then((first, count): WordBytes, (second, more): WordBytes) -> WordBytes {
    (first | second << (8 * count), count + more)
}

#[inline(always)]
fn number(field: u32, value: u64) -> WordBytes {
    then(varint(u64::from(field) << 3), varint(value))
}

impl Message {
    pub fn clear(&mut self) {
        self.0.clear();
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// All of the word is copied, since that takes one instruction, and cut.
    #[inline(always)]
    fn word(&mut self, (bytes, count): WordBytes) {
        let whole = self.0.len() + count;
        self.0.extend_from_slice(&bytes.to_le_bytes());
        self.0.truncate(whole);
    }

    #[inline(always)]
    fn push(&mut self, value: u64) {
        self.word(varint(value));
    }

    #[inline(always)]
    pub fn number(&mut self, field: u32, value: u64) {
        self.word(number(field, value));
    }

    /// A message of two numbers inside this one, which all is written at once: `field`, the first number and
    /// its field have one byte each, and the second field at most two.
    #[inline(always)]
    pub fn pair(&mut self, field: u32, (one, first): (u32, u64), (two, second): (u32, u64)) {
        debug_assert!(field < 16 && one < 16 && first < 128 && two < 2048);
        let inside = then(number(one, first), number(two, second));
        let outside = then(varint(u64::from(field) << 3 | 2), varint(inside.1 as u64));
        self.word(then(outside, inside));
    }

    #[inline(always)]
    pub fn fixed64(&mut self, field: u32, value: u64) {
        self.push(u64::from(field) << 3 | 1);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    #[inline(always)]
    pub fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.push(u64::from(field) << 3 | 2);
        self.push(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    pub fn text(&mut self, field: u32, text: &str) {
        self.bytes(field, text.as_bytes());
    }

    /// A message inside this one. Its length comes before it, in one byte until it is known to need more.
    #[inline(always)]
    pub fn message(&mut self, field: u32, build: impl FnOnce(&mut Message)) {
        self.push(u64::from(field) << 3 | 2);
        let at = self.0.len();
        self.0.push(0);
        build(self);
        let (length, count) = varint((self.0.len() - at - 1) as u64);
        match (count, self.0.get_mut(at)) {
            (1, Some(byte)) => *byte = length as u8,
            _ => _ = self.0.splice(at..=at, length.to_le_bytes().into_iter().take(count)),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A field's value, as the wire has it.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum Value<'a> {
        Number(u64),
        Bytes(&'a [u8]),
    }

    impl<'a> Value<'a> {
        pub fn number(&self) -> u64 {
            match self {
                Value::Number(number) => *number,
                Value::Bytes(_) => panic!("not a number"),
            }
        }

        pub fn bytes(&self) -> &'a [u8] {
            match self {
                Value::Number(_) => panic!("not bytes"),
                Value::Bytes(bytes) => bytes,
            }
        }
    }

    fn read_varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in 0.. {
            let (first, rest) = bytes.split_first().expect("a whole varint");
            *bytes = rest;
            value |= u64::from(first & 0x7f) << (7 * shift);
            if *first < 0x80 {
                break;
            }
        }
        value
    }

    /// The fields of a message; panics if it is not valid.
    pub fn fields(mut bytes: &[u8]) -> Vec<(u32, Value<'_>)> {
        let mut found = Vec::new();
        while !bytes.is_empty() {
            let key = read_varint(&mut bytes);
            let value = match key & 7 {
                0 => Value::Number(read_varint(&mut bytes)),
                1 => {
                    let (word, rest) = bytes.split_first_chunk::<8>().expect("a whole word");
                    bytes = rest;
                    Value::Number(u64::from_le_bytes(*word))
                }
                2 => {
                    let length = read_varint(&mut bytes) as usize;
                    let (inside, rest) = bytes.split_at(length);
                    bytes = rest;
                    Value::Bytes(inside)
                }
                other => panic!("wire type {other}"),
            };
            found.push(((key >> 3) as u32, value));
        }
        found
    }

    proptest! {
        #[test]
        fn numbers_are_read_back(value: u64, bits in 0u32..64) {
            let value = value >> bits;
            let mut message = Message::default();
            message.push(value);
            let mut bytes = message.as_bytes();
            prop_assert_eq!(bytes.len() as u32, (64 - value.leading_zeros()).div_ceil(7).max(1));
            prop_assert_eq!((read_varint(&mut bytes), bytes), (value, &[][..]));
        }

        #[test]
        fn messages_are_read_back(numbers: [u64; 3], small in 0u64..300, text in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut message = Message::default();
            message.number(1, numbers[0]);
            message.message(99, |inner| {
                inner.number(2, small);
                inner.bytes(3, &text);
                inner.message(4, |empty| empty.fixed64(5, numbers[1]));
            });
            message.number(2047, numbers[2]);
            message.pair(4, (1, small % 128), (17, numbers[2]));
            let outer = fields(message.as_bytes());
            prop_assert_eq!(outer.len(), 4);
            prop_assert_eq!(&outer[0], &(1, Value::Number(numbers[0])));
            prop_assert_eq!(&outer[2], &(2047, Value::Number(numbers[2])));
            let inner = fields(outer[1].1.bytes());
            prop_assert_eq!(&inner[..2], &[(2, Value::Number(small)), (3, Value::Bytes(&text))]);
            let pair = [(1, Value::Number(small % 128)), (17, Value::Number(numbers[2]))];
            prop_assert_eq!(fields(outer[3].1.bytes()), pair);
            prop_assert_eq!(fields(inner[2].1.bytes()), [(5, Value::Number(numbers[1]))]);
        }
    }
}
