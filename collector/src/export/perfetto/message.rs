//! Encodes protobuf messages: the three wire types that a Perfetto trace needs.

/// A message that is being built. It is reused, so that an event allocates nothing.
#[derive(Debug, Default)]
pub struct Message(Vec<u8>);

/// A varint has at most ten bytes.
const VARINT_MAX: usize = 10;

/// Encodes a number into `bytes`, and returns how many of them it has.
#[inline(always)]
fn varint(mut value: u64, bytes: &mut [u8; VARINT_MAX]) -> usize {
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = value as u8 | 0x80;
        value >>= 7;
        if value == 0 {
            *byte &= 0x7f;
            return at + 1;
        }
    }
    VARINT_MAX
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

    #[inline(always)]
    fn push(&mut self, value: u64) {
        if value < 0x80 {
            return self.0.push(value as u8);
        }
        let mut bytes = [0; VARINT_MAX];
        let count = varint(value, &mut bytes);
        self.0.extend_from_slice(bytes.get(..count).unwrap_or_default());
    }

    #[inline(always)]
    pub fn number(&mut self, field: u32, value: u64) {
        self.push(u64::from(field) << 3);
        self.push(value);
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

    /// Adds the fields of another message.
    #[inline(always)]
    pub fn append(&mut self, other: &Message) {
        self.0.extend_from_slice(&other.0);
    }

    /// A message inside this one. Its length comes before it, in one byte until it is known to need more.
    #[inline(always)]
    pub fn message(&mut self, field: u32, build: impl FnOnce(&mut Message)) {
        self.push(u64::from(field) << 3 | 2);
        let at = self.0.len();
        self.0.push(0);
        build(self);
        let mut bytes = [0; VARINT_MAX];
        let count = varint((self.0.len() - at - 1) as u64, &mut bytes);
        let length = bytes.get(..count).unwrap_or_default();
        match length {
            [one] => self.0.get_mut(at).into_iter().for_each(|byte| *byte = *one),
            _ => _ = self.0.splice(at..=at, length.iter().copied()),
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
        fn messages_are_read_back(numbers: [u64; 3], small in 0u64..300, text in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut message = Message::default();
            message.number(1, numbers[0]);
            message.message(99, |inner| {
                inner.number(2, small);
                inner.bytes(3, &text);
                inner.message(4, |empty| empty.fixed64(5, numbers[1]));
            });
            message.number(2047, numbers[2]);
            let outer = fields(message.as_bytes());
            prop_assert_eq!(outer.len(), 3);
            prop_assert_eq!(&outer[0], &(1, Value::Number(numbers[0])));
            prop_assert_eq!(&outer[2], &(2047, Value::Number(numbers[2])));
            let inner = fields(outer[1].1.bytes());
            prop_assert_eq!(&inner[..2], &[(2, Value::Number(small)), (3, Value::Bytes(&text))]);
            prop_assert_eq!(fields(inner[2].1.bytes()), [(5, Value::Number(numbers[1]))]);
        }
    }
}
