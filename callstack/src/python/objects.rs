//! The interpreter's objects other than code and frames: dicts, tuples, numbers, strings, attributes of
//! instances.
//!
//! Everything read here belongs to the calling thread or is no longer changed (see [`super::callers`]). An
//! invalid pointer, or an object of an unexpected type, counts as damage.

use super::layout::Layout;
use super::memory::{Memory, is_plausible};
use super::walk::Damaged;

/// How many entries of a dict are searched.
const ENTRIES_MAX: u64 = 64;
/// The pointer to an instance's dict is within these first bytes.
const DICT_OFFSET_MAX: u64 = 4096;

/// Flags of types: what their instances store, and which kind of type it is.
mod flag {
    pub const INLINE_VALUES: u64 = 1 << 2;
    pub const MANAGED_DICT: u64 = 1 << 4;
    pub const LONG: u64 = 1 << 24;
    pub const TUPLE: u64 = 1 << 26;
    pub const DICT: u64 = 1 << 29;
}

/// Offsets in a type, from the end of the object header.
mod in_type {
    pub const NAME: u64 = 8;
    pub const BASIC_SIZE: u64 = 16;
    pub const FLAGS: u64 = 152;
    pub const DICT_OFFSET: u64 = 272;
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttributeValue {
    Attribute(u64),
    Nothing,
}

/// A way to read, and the layout.
#[derive(Debug)]
pub struct Objects<'l, M> {
    memory: M,
    pub layout: &'l Layout,
    /// The type of strings.
    pub text: u64,
}

impl<'l, M: Memory> Objects<'l, M> {
    pub fn new(memory: M, layout: &'l Layout, text: u64) -> Objects<'l, M> {
        Objects { memory, layout, text }
    }

    /// The offset of an object's own fields.
    #[inline(always)]
    pub fn head(&self) -> u64 {
        u64::from(self.layout.object_type) + 8
    }

    /// The same for an object of variable size.
    #[inline(always)]
    pub fn after_size(&self) -> u64 {
        self.head() + 8
    }

    #[inline(always)]
    fn is_free_threaded(&self) -> bool {
        self.head() > 16
    }

    #[inline(always)]
    pub fn word(&self, base: u64, offset: u64) -> Result<u64, Damaged> {
        self.may_hold(base)?;
        self.memory.word(base, offset).ok_or(Damaged)
    }

    #[inline(always)]
    pub fn half(&self, base: u64, offset: u64) -> Result<u32, Damaged> {
        self.may_hold(base)?;
        self.memory.half(base, offset).ok_or(Damaged)
    }

    #[inline(always)]
    fn byte(&self, base: u64, offset: u64) -> Result<u8, Damaged> {
        self.memory.byte(base, offset).ok_or(Damaged)
    }

    #[inline(always)]
    fn may_hold(&self, base: u64) -> Result<(), Damaged> {
        if self.memory.may_hold(base) { Ok(()) } else { Err(Damaged) }
    }

    /// The object's field of that index, a word.
    #[inline(always)]
    pub fn field(&self, object: u64, index: u64) -> Result<u64, Damaged> {
        self.word(object, self.head() + 8 * index)
    }

    #[inline(always)]
    pub fn type_of(&self, object: u64) -> Result<u64, Damaged> {
        self.word(object, self.layout.object_type.into())
    }

    #[inline(always)]
    pub fn is_of(&self, object: u64, of: u64) -> Result<(), Damaged> {
        if self.type_of(object)? == of { Ok(()) } else { Err(Damaged) }
    }

    #[inline(always)]
    fn flags(&self, of: u64) -> Result<u64, Damaged> {
        self.word(of, self.head() + in_type::FLAGS)
    }

    #[inline(always)]
    pub fn is_dict(&self, object: u64) -> Result<bool, Damaged> {
        Ok(self.flags(self.type_of(object)?)? & flag::DICT != 0)
    }

    /// Whether it is a tuple with that number of items.
    #[inline(always)]
    pub fn is_tuple_of(&self, object: u64, items: u64) -> Result<bool, Damaged> {
        let is_tuple = self.flags(self.type_of(object)?)? & flag::TUPLE != 0;
        Ok(is_tuple && self.size(object)? == items)
    }

    /// The number of items of an object of variable size.
    #[inline(always)]
    pub fn size(&self, object: u64) -> Result<u64, Damaged> {
        self.word(object, self.head())
    }

    #[inline(always)]
    pub fn item(&self, tuple: u64, index: u64) -> Result<u64, Damaged> {
        // From 3.14 on a tuple keeps its hash before its items.
        let hash = if self.layout.minor >= 14 { 8 } else { 0 };
        self.word(tuple, self.after_size() + hash + 8 * index)
    }

    /// Whether a type has that name.
    pub fn type_is_named(&self, of: u64, name: &[u8]) -> Result<bool, Damaged> {
        let at = self.word(of, self.head() + in_type::NAME)?;
        self.may_hold(at & !7)?;
        // Byte by byte: nothing is read after the end of a shorter name.
        for (offset, wanted) in (0..).zip(name.iter().chain(&[0])) {
            if self.byte(at, offset)? != *wanted {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether the object is a string of exactly these letters.
    #[inline(always)]
    pub fn text_is(&self, object: u64, text: &[u8]) -> Result<bool, Damaged> {
        Ok(self.text_length(object)? == Some(text.len() as u64) && self.has_letters(object, text)?)
    }

    /// Whether the object is a string that begins with these letters.
    #[inline(always)]
    pub fn text_begins(&self, object: u64, text: &[u8]) -> Result<bool, Damaged> {
        let is_long_enough = self.text_length(object)?.is_some_and(|length| length > text.len() as u64);
        Ok(is_long_enough && self.has_letters(object, text)?)
    }

    #[inline(always)]
    fn text_length(&self, object: u64) -> Result<Option<u64>, Damaged> {
        if self.type_of(object)? != self.text {
            return Ok(None);
        }
        self.word(object, self.layout.text_length.into()).map(Some)
    }

    /// Whether a string that is long enough begins so. A string that is not ASCII has other fields there,
    /// at least as many bytes.
    #[inline(always)]
    fn has_letters(&self, object: u64, text: &[u8]) -> Result<bool, Damaged> {
        let mut letters = [0; 16];
        let into = letters.get_mut(..text.len()).ok_or(Damaged)?;
        if !self.memory.read(object, self.layout.text_ascii.into(), into) {
            return Err(Damaged);
        }
        Ok(into == text)
    }

    /// A non-negative number of at most that many digits.
    #[inline(always)]
    pub fn number(&self, object: u64, digits_max: u64) -> Result<u128, Damaged> {
        const DIGIT_BITS: u32 = 30;
        if self.flags(self.type_of(object)?)? & flag::LONG == 0 {
            return Err(Damaged);
        }
        let said = self.size(object)?;
        // Before 3.12 the count's sign is the number's sign; since then the lowest bits contain it.
        let digits = match self.layout.minor {
            ..=11 => said,
            _ if said & 3 == 2 => return Err(Damaged),
            _ => said >> 3,
        };
        if digits > digits_max {
            return Err(Damaged);
        }
        let mut number = 0u128;
        for index in (0..digits).rev() {
            let digit = self.half(object, self.after_size() + 4 * index)?;
            if number >> (u128::BITS - DIGIT_BITS) != 0 || digit >> DIGIT_BITS != 0 {
                return Err(Damaged);
            }
            number = number << DIGIT_BITS | u128::from(digit);
        }
        Ok(number)
    }

    /// The value of the first key for which the closure returns true; 0 if there is none.
    #[inline(always)]
    pub fn in_dict(
        &self,
        dict: u64,
        is_it: impl FnMut(u64) -> Result<bool, Damaged>,
    ) -> Result<u64, Damaged> {
        let (keys, values) = (self.field(dict, 2)?, self.field(dict, 3)?);
        let values = if values == 0 { 0 } else { values.wrapping_add(self.before_values()) };
        self.in_keys(keys, values, is_it)
    }

    /// The number of bytes before the first of an object's values.
    #[inline(always)]
    fn before_values(&self) -> u64 {
        if self.layout.minor >= 13 { 8 } else { 0 }
    }

    /// The same for a dict's keys; the values are beside the keys if `values` is 0.
    #[inline(always)]
    fn in_keys(
        &self,
        keys: u64,
        values: u64,
        mut is_it: impl FnMut(u64) -> Result<bool, Damaged>,
    ) -> Result<u64, Damaged> {
        self.may_hold(keys)?;
        let (count, entries, has_hash) = if self.layout.minor <= 10 {
            let size = self.word(keys, 8)?;
            let width = match size {
                0..=0xff => 1,
                0x100..=0xffff => 2,
                // No program has so many.
                _ => return Err(Damaged),
            };
            (self.word(keys, 32)?, 40 + size * width, true)
        } else {
            let index_bytes = self.byte(keys, 9)?;
            if index_bytes > 40 {
                return Err(Damaged);
            }
            (self.word(keys, 24)?, 32 + (1u64 << index_bytes), self.byte(keys, 10)? == 0)
        };
        let (stride, first) = if has_hash { (24, 8) } else { (16, 0) };
        for index in 0..count.min(ENTRIES_MAX) {
            let at = entries + stride * index + first;
            let key = self.word(keys, at)?;
            if key != 0 && is_it(key)? {
                return if values == 0 { self.word(keys, at + 8) } else { self.word(values, 8 * index) };
            }
        }
        Ok(0)
    }

    /// Whether the object's attributes are in a dict with keys of its own, which are freed when the dict
    /// grows. Shared keys live as long as the type.
    #[inline(always)]
    pub fn has_dict_of_its_own(&self, object: u64) -> Result<bool, Damaged> {
        let (dict, _) = self.kept_in(object)?;
        Ok(dict != 0 && self.is_dict(dict)? && self.field(dict, 3)? == 0)
    }

    /// An attribute of the object itself.
    #[inline(always)]
    pub fn attribute(&self, object: u64, name: &[u8]) -> Result<AttributeValue, Damaged> {
        let of = self.type_of(object)?;
        let is_it = |key| self.text_is(key, name);
        let cached_keys = || self.word(of, self.head() + if self.layout.minor >= 12 { 864 } else { 856 });
        let found = match self.kept_in(object)? {
            (0, 0) => 0,
            (0, values) => self.in_keys(cached_keys()?, values, is_it)?,
            (dict, _) if self.is_dict(dict)? => self.in_dict(dict, is_it)?,
            _ => return Err(Damaged),
        };
        Ok(if found == 0 { AttributeValue::Nothing } else { AttributeValue::Attribute(found) })
    }

    /// The dict of an object's attributes, or the attributes' values, which belong to the keys of the
    /// object's type.
    #[inline(always)]
    fn kept_in(&self, object: u64) -> Result<(u64, u64), Damaged> {
        let of = self.type_of(object)?;
        let flags = self.flags(of)?;
        let minor = self.layout.minor;
        Ok(if minor <= 10 || flags & flag::MANAGED_DICT == 0 {
            let offset = self.word(of, self.head() + in_type::DICT_OFFSET)?;
            // 0 means none; a negative offset is for objects of variable size.
            match offset {
                1..=DICT_OFFSET_MAX => (self.word(object, offset)?, 0),
                _ => (0, 0),
            }
        } else if minor == 11 {
            let values = self.word(object.wrapping_sub(32), 0)?;
            if values != 0 { (0, values) } else { (self.word(object.wrapping_sub(24), 0)?, 0) }
        } else if minor == 12 {
            match self.word(object.wrapping_sub(24), 0)? {
                values if values & 1 != 0 => (0, values.wrapping_add(1)),
                dict => (dict, 0),
            }
        } else {
            let before = if self.is_free_threaded() { 8 } else { 24 };
            match self.word(object.wrapping_sub(before), 0)? {
                0 if flags & flag::INLINE_VALUES != 0 => {
                    let size = self.word(of, self.head() + in_type::BASIC_SIZE)?;
                    let values = object.wrapping_add(size.min(DICT_OFFSET_MAX));
                    // The last byte before the values is non-zero if the values are valid.
                    let counts = is_plausible(values) && self.byte(values, 3)? != 0;
                    (0, if counts { values.wrapping_add(8) } else { 0 })
                }
                dict => (dict, 0),
            }
        })
    }
}
