//! Evaluates an entry of `.eh_frame` for one code address: call frame instructions, followed up to that
//! address.
//!
//! Only what a walk needs is kept: where the CFA is, and where the caller's frame pointer and return
//! address are. Nothing is allocated, and little stack is used, since it may be a signal handler's. Forms
//! that compilers do not write are [`Unfit`].

use super::rule::{Kind, Rule, SavedBp};

/// Registers as DWARF numbers them on x86_64.
const BP: u64 = 6;
const SP: u64 = 7;
const RETURN: u64 = 16;
/// How many states an entry may push.
const REMEMBERED_MAX: usize = 8;

/// Not an entry, or one that a rule cannot represent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unfit;

/// Bytes that are read from the front.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'b> {
    pub bytes: &'b [u8],
    /// The address of the first byte in memory.
    pub address: u64,
}

impl<'b> Reader<'b> {
    fn take(&mut self, count: usize) -> Result<&'b [u8], Unfit> {
        let (taken, rest) = self.bytes.split_at_checked(count).ok_or(Unfit)?;
        self.bytes = rest;
        self.address = self.address.wrapping_add(count as u64);
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, Unfit> {
        self.take(1)?.first().copied().ok_or(Unfit)
    }

    /// The next `bytes` bytes, 8 at most, as a number.
    fn number(&mut self, bytes: usize) -> Result<u64, Unfit> {
        let mut word = [0; 8];
        word.get_mut(..bytes).ok_or(Unfit)?.copy_from_slice(self.take(bytes)?);
        Ok(u64::from_le_bytes(word))
    }

    fn unsigned(&mut self) -> Result<u64, Unfit> {
        let mut value = 0;
        for shift in (0..64u32).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Unfit)
    }

    fn signed(&mut self) -> Result<i64, Unfit> {
        let mut value = 0;
        for shift in (0..64u32).step_by(7) {
            let byte = self.byte()?;
            value |= i64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                let unused = 64u32.saturating_sub(shift + 7);
                return Ok(value << unused >> unused);
            }
        }
        Err(Unfit)
    }

    /// A pointer in one of the encodings of `.eh_frame`.
    fn pointer(&mut self, encoding: u8) -> Result<u64, Unfit> {
        let at = self.address;
        let value = match encoding & 0xf {
            0x0 | 0x4 | 0xc => self.number(8)?,
            0x1 => self.unsigned()?,
            0x2 => self.number(2)?,
            0x3 => self.number(4)?,
            0x9 => self.signed()?.cast_unsigned(),
            0xa => i64::from(self.number(2)? as i16).cast_unsigned(),
            0xb => i64::from(self.number(4)? as i32).cast_unsigned(),
            _ => return Err(Unfit),
        };
        match encoding & 0xf0 {
            0x00 => Ok(value),
            0x10 => Ok(value.wrapping_add(at)),
            _ => Err(Unfit),
        }
    }
}

/// What several functions have in common (a CIE).
#[derive(Clone, Copy, Debug)]
pub struct Common<'b> {
    code_unit: u64,
    data_unit: i64,
    pointer_encoding: u8,
    has_augmentation: bool,
    is_signal: bool,
    instructions: Reader<'b>,
}

/// The entry of one function (an FDE).
#[derive(Clone, Copy, Debug)]
pub struct Function<'b> {
    pub start: u64,
    pub end: u64,
    instructions: Reader<'b>,
}

impl<'b> Common<'b> {
    /// Reads what follows the length and the zero that marks a CIE.
    pub fn read(mut from: Reader<'b>) -> Result<Common<'b>, Unfit> {
        let version = from.byte()?;
        if !matches!(version, 1 | 3) {
            return Err(Unfit);
        }
        let mut letters = [0; 8];
        let mut count = 0;
        loop {
            match from.byte()? {
                0 => break,
                letter => *letters.get_mut(count).ok_or(Unfit)? = letter,
            }
            count += 1;
        }
        let code_unit = from.unsigned()?;
        let data_unit = from.signed()?;
        let returns_by = if version == 1 { from.byte()?.into() } else { from.unsigned()? };
        if returns_by != RETURN {
            return Err(Unfit);
        }
        let mut common = Common {
            code_unit,
            data_unit,
            pointer_encoding: 0,
            has_augmentation: false,
            is_signal: false,
            instructions: from,
        };
        for letter in letters.get(..count).unwrap_or_default() {
            match letter {
                b'z' => {
                    common.has_augmentation = true;
                    from.unsigned()?;
                }
                b'R' => common.pointer_encoding = from.byte()?,
                b'L' => _ = from.byte()?,
                b'P' => {
                    let encoding = from.byte()?;
                    from.pointer(encoding & 0xf)?;
                }
                b'S' => common.is_signal = true,
                b'B' => {}
                _ => return Err(Unfit),
            }
        }
        common.instructions = from;
        Ok(common)
    }
}

impl<'b> Function<'b> {
    /// Reads what follows the length and the offset of the CIE.
    pub fn read(common: &Common<'_>, mut from: Reader<'b>) -> Result<Function<'b>, Unfit> {
        let start = from.pointer(common.pointer_encoding)?;
        let length = from.pointer(common.pointer_encoding & 0xf)?;
        if common.has_augmentation {
            let bytes = usize::try_from(from.unsigned()?).map_err(|_| Unfit)?;
            from.take(bytes)?;
        }
        let end = start.checked_add(length).ok_or(Unfit)?;
        Ok(Function { start, end, instructions: from })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cfa {
    From(u64, i64),
    /// Stored at this offset from where the frame pointer points.
    AtBp(i64),
    Other,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Saved {
    Unchanged,
    Undefined,
    FromCfa(i64),
    FromBp(i64),
    Other,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct State {
    cfa: Cfa,
    bp: Saved,
    returns: Saved,
}

impl State {
    fn set(&mut self, register: u64, saved: Saved) {
        match register {
            BP => self.bp = saved,
            RETURN => self.returns = saved,
            _ => {}
        }
    }

    fn restore(&mut self, register: u64, initial: &State) {
        match register {
            BP => self.bp = initial.bp,
            RETURN => self.returns = initial.returns,
            _ => {}
        }
    }
}

/// The rule for an address in the function.
pub fn rule(common: &Common<'_>, function: &Function<'_>, pc: u64) -> Result<Rule, Unfit> {
    if pc < function.start || pc >= function.end {
        return Err(Unfit);
    }
    if common.is_signal {
        return Rule::new(Kind::Signal, 0, SavedBp::Unchanged).ok_or(Unfit);
    }
    let none = State { cfa: Cfa::Other, bp: Saved::Unchanged, returns: Saved::Other };
    let initial = follow(common, common.instructions, none, none, 0, u64::MAX)?;
    let state = follow(common, function.instructions, initial, initial, function.start, pc)?;
    state.rule()
}

impl State {
    fn rule(&self) -> Result<Rule, Unfit> {
        let outermost = Rule::new(Kind::Outermost, 0, SavedBp::Unchanged);
        match self.returns {
            Saved::Undefined => return outermost.ok_or(Unfit),
            Saved::FromCfa(-8) => {}
            _ => return Err(Unfit),
        }
        let (kind, offset) = match self.cfa {
            Cfa::From(SP, offset) => (Kind::Sp, offset),
            Cfa::From(BP, offset) => (Kind::Bp, offset),
            Cfa::AtBp(offset) => (Kind::AtBp, offset),
            _ => return Err(Unfit),
        };
        let bp = match self.bp {
            // Outermost functions declare it undefined; no frame above them uses it.
            Saved::Unchanged | Saved::Undefined => SavedBp::Unchanged,
            Saved::FromCfa(offset) => SavedBp::FromCfa(offset),
            Saved::FromBp(0) => SavedBp::AtBp,
            _ => return Err(Unfit),
        };
        Rule::new(kind, offset, bp).ok_or(Unfit)
    }
}

/// Follows instructions from `at` up to the first one for a later address.
fn follow(
    common: &Common<'_>,
    mut from: Reader<'_>,
    mut state: State,
    initial: State,
    mut at: u64,
    pc: u64,
) -> Result<State, Unfit> {
    let mut remembered = [state; REMEMBERED_MAX];
    let mut depth = 0;
    let scaled = |value: i64| value.checked_mul(common.data_unit).ok_or(Unfit);
    let signed = |value: u64| i64::try_from(value).map_err(|_| Unfit);
    while !from.bytes.is_empty() {
        let code = from.byte()?;
        let low = u64::from(code & 0x3f);
        let mut step = None;
        match code {
            0x40..=0x7f => step = Some(low),
            0x80..=0xbf => {
                let offset = scaled(signed(from.unsigned()?)?)?;
                state.set(low, Saved::FromCfa(offset));
            }
            0xc0..=0xff => state.restore(low, &initial),
            0x00 => {}
            0x01 => {
                let to = from.pointer(common.pointer_encoding)?;
                if to > pc {
                    break;
                }
                at = to;
            }
            0x02 => step = Some(from.number(1)?),
            0x03 => step = Some(from.number(2)?),
            0x04 => step = Some(from.number(4)?),
            0x05 => {
                let register = from.unsigned()?;
                state.set(register, Saved::FromCfa(scaled(signed(from.unsigned()?)?)?));
            }
            0x06 => state.restore(from.unsigned()?, &initial),
            0x07 => state.set(from.unsigned()?, Saved::Undefined),
            0x08 => state.set(from.unsigned()?, Saved::Unchanged),
            0x09 => {
                state.set(from.unsigned()?, Saved::Other);
                from.unsigned()?;
            }
            0x0a => {
                *remembered.get_mut(depth).ok_or(Unfit)? = state;
                depth += 1;
            }
            0x0b => {
                depth = depth.checked_sub(1).ok_or(Unfit)?;
                state = *remembered.get(depth).ok_or(Unfit)?;
            }
            0x0c => state.cfa = Cfa::From(from.unsigned()?, signed(from.unsigned()?)?),
            0x0d => {
                let register = from.unsigned()?;
                match &mut state.cfa {
                    Cfa::From(of, _) => *of = register,
                    _ => return Err(Unfit),
                }
            }
            0x0e | 0x13 => {
                let to = if code == 0x0e { signed(from.unsigned()?)? } else { scaled(from.signed()?)? };
                match &mut state.cfa {
                    Cfa::From(_, offset) => *offset = to,
                    _ => return Err(Unfit),
                }
            }
            0x0f => {
                state.cfa = expression(&mut from)?.map_or(Cfa::Other, |(offset, reads)| match reads {
                    true => Cfa::AtBp(offset),
                    false => Cfa::From(BP, offset),
                })
            }
            0x10 => {
                let register = from.unsigned()?;
                let saved = match expression(&mut from)? {
                    Some((offset, false)) => Saved::FromBp(offset),
                    _ => Saved::Other,
                };
                state.set(register, saved);
            }
            0x11 => {
                let register = from.unsigned()?;
                state.set(register, Saved::FromCfa(scaled(from.signed()?)?));
            }
            0x12 => state.cfa = Cfa::From(from.unsigned()?, scaled(from.signed()?)?),
            0x14 | 0x15 => {
                state.set(from.unsigned()?, Saved::Other);
                from.unsigned()?;
            }
            0x16 => {
                state.set(from.unsigned()?, Saved::Other);
                expression(&mut from)?;
            }
            // The arguments that a call has on the stack.
            0x2e => _ = from.unsigned()?,
            0x2f => {
                let register = from.unsigned()?;
                let offset = scaled(signed(from.unsigned()?)?)?.checked_neg().ok_or(Unfit)?;
                state.set(register, Saved::FromCfa(offset));
            }
            _ => return Err(Unfit),
        }
        if let Some(step) = step {
            let to = step.checked_mul(common.code_unit).and_then(|step| at.checked_add(step)).ok_or(Unfit)?;
            if to > pc {
                break;
            }
            at = to;
        }
    }
    Ok(state)
}

/// Decodes an expression that is an offset from the frame pointer, and whether the value there is read;
/// `None` for any other expression.
fn expression(from: &mut Reader<'_>) -> Result<Option<(i64, bool)>, Unfit> {
    const FROM_BP: u8 = 0x76;
    const READ: u8 = 0x06;
    let length = usize::try_from(from.unsigned()?).map_err(|_| Unfit)?;
    let mut inside = Reader { bytes: from.take(length)?, address: 0 };
    if inside.byte() != Ok(FROM_BP) {
        return Ok(None);
    }
    let Ok(offset) = inside.signed() else { return Ok(None) };
    Ok(match inside.bytes {
        [] => Some((offset, false)),
        [READ] => Some((offset, true)),
        _ => None,
    })
}
