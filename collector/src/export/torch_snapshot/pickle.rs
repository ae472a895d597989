//! Python's pickle format, protocol 4, as far as dictionaries, lists, texts and whole numbers need it.
//!
//! The viewer at pytorch.org/memory_viz has a reader of its own, which knows few operations: these are those
//! that Python itself writes for such values.

use std::io::{self, Write};

const PROTOCOL: u8 = 4;

/// A value that was written before and is named again, by its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Memo(u32);

/// Writes one value. A container is opened, filled and closed.
pub struct Pickle<W: Write> {
    out: W,
    memos: u32,
}

impl<W: Write> Pickle<W> {
    pub fn new(mut out: W) -> io::Result<Pickle<W>> {
        out.write_all(&[0x80, PROTOCOL])?;
        Ok(Pickle { out, memos: 0 })
    }

    /// Keys and values follow, in turn, up to [`Pickle::end_dict`].
    pub fn begin_dict(&mut self) -> io::Result<()> {
        self.out.write_all(b"}(")
    }

    pub fn end_dict(&mut self) -> io::Result<()> {
        self.out.write_all(b"u")
    }

    /// Items follow, up to [`Pickle::end_list`].
    pub fn begin_list(&mut self) -> io::Result<()> {
        self.out.write_all(b"](")
    }

    pub fn end_list(&mut self) -> io::Result<()> {
        self.out.write_all(b"e")
    }

    pub fn text(&mut self, text: &str) -> io::Result<()> {
        match u8::try_from(text.len()) {
            Ok(length) => self.out.write_all(&[0x8c, length])?,
            Err(_) => {
                let length = u32::try_from(text.len()).map_err(io::Error::other)?;
                self.out.write_all(b"X")?;
                self.out.write_all(&length.to_le_bytes())?;
            }
        }
        self.out.write_all(text.as_bytes())
    }

    pub fn number(&mut self, number: u64) -> io::Result<()> {
        match (u8::try_from(number), i32::try_from(number)) {
            (Ok(number), _) => self.out.write_all(&[b'K', number]),
            (_, Ok(number)) => {
                self.out.write_all(b"J")?;
                self.out.write_all(&number.to_le_bytes())
            }
            _ => {
                // Two's complement: one byte more where the highest bit is set.
                let bytes = u128::from(number).to_le_bytes();
                let length = (u64::BITS - number.leading_zeros()) as usize / 8 + 1;
                self.out.write_all(&[0x8a, length as u8])?;
                self.out.write_all(bytes.get(..length).unwrap_or_default())
            }
        }
    }

    pub fn flag(&mut self, is_true: bool) -> io::Result<()> {
        self.out.write_all(&[if is_true { 0x88 } else { 0x89 }])
    }

    /// Joins the last two values.
    pub fn pair(&mut self) -> io::Result<()> {
        self.out.write_all(&[0x86])
    }

    /// Numbers the value that was written last.
    pub fn memoize(&mut self) -> io::Result<Memo> {
        self.out.write_all(&[0x94])?;
        let memo = Memo(self.memos);
        self.memos += 1;
        Ok(memo)
    }

    pub fn again(&mut self, Memo(number): Memo) -> io::Result<()> {
        match u8::try_from(number) {
            Ok(number) => self.out.write_all(&[b'h', number]),
            Err(_) => {
                self.out.write_all(b"j")?;
                self.out.write_all(&number.to_le_bytes())
            }
        }
    }

    /// Ends the value, and returns what it was written to.
    pub fn end(mut self) -> io::Result<W> {
        self.out.write_all(b".")?;
        Ok(self.out)
    }
}
