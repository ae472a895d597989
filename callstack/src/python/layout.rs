//! Where a version of CPython keeps what a stack is read from.

pub mod debug_offsets;
mod table;

use gputrace_wire::definition::line_table;

/// No such field.
pub const ABSENT: u16 = u16::MAX;

/// Offsets in bytes, but for what says otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    pub minor: u8,
    pub thread_interp: u16,
    /// `pthread_self` of the thread that the state belongs to.
    pub thread_id: u16,
    /// The context whose variables the thread has; 0 there where it has none.
    pub thread_context: u16,
    /// The innermost frame, or what names it.
    pub thread_frame: u16,
    /// Where `thread_frame` names something between: the innermost frame in that.
    pub cframe_frame: u16,
    pub frame_previous: u16,
    pub frame_code: u16,
    pub frame_instruction: u16,
    /// Who owns the frame, a byte.
    pub frame_owner: u16,
    /// Which copy of its instructions a frame runs (free-threaded builds from 3.14).
    pub frame_copy: u16,
    pub object_type: u16,
    /// The number of items of an object of variable size.
    pub object_size: u16,
    pub code_first_line: u16,
    pub code_flags: u16,
    pub code_file: u16,
    /// The qualified name where there is one.
    pub code_name: u16,
    /// The instructions, where they are in the code object.
    pub code_start: u16,
    pub code_table: u16,
    /// A number that no other code object of the interpreter has.
    pub code_version: u16,
    /// The copies of the instructions, one a thread.
    pub code_copies: u16,
    pub text_length: u16,
    pub text_hash: u16,
    pub text_state: u16,
    /// Where in the state a string's kind begins, in bits.
    pub text_kind_shift: u8,
    /// Where an ASCII string's letters begin, and any other's.
    pub text_ascii: u16,
    pub text_compact: u16,
    pub bytes_data: u16,
    /// The hash of a context variable.
    pub variable_hash: u16,
    /// Objects that a code object has to itself, or nearly.
    pub code_parts: [u16; 4],
}

/// What a frame's instruction field holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Instruction {
    /// A byte offset, as an int; -1 before the first instruction.
    Bytes,
    /// The same in instructions of two bytes.
    Units,
    /// An address; one before the first instruction, or another code's, is "not begun".
    Address,
}

impl Layout {
    /// The layout of a version that does not tell its own.
    pub fn of_minor(minor: u8) -> Option<Layout> {
        match minor {
            8 => Some(table::V3_8),
            9 => Some(table::V3_9),
            10 => Some(table::V3_10),
            11 => Some(table::V3_11),
            12 => Some(table::V3_12),
            _ => None,
        }
    }

    #[inline(always)]
    pub fn instruction(&self) -> Instruction {
        match self.minor {
            ..=9 => Instruction::Bytes,
            10 => Instruction::Units,
            _ => Instruction::Address,
        }
    }

    /// The least owner of frames that are no Python code: the interpreter's own, pushed where C
    /// calls Python.
    #[inline(always)]
    pub fn first_shim_owner(&self) -> u8 {
        3
    }

    /// Bits of the pointer to a frame's code that are not of the address.
    #[inline(always)]
    pub fn code_tag(&self) -> u64 {
        if self.minor >= 14 { 7 } else { 0 }
    }

    /// One of [`line_table`].
    pub fn table_form(&self) -> u64 {
        match self.minor {
            ..=9 => line_table::LNOTAB,
            10 => line_table::RANGES,
            _ => line_table::LOCATIONS,
        }
    }
}
