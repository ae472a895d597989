//! Where each version of CPython stores the fields that stacks are read from.

pub mod debug_offsets;
mod table;

use gputrace_wire::definition::line_table;

/// No such field.
pub const ABSENT: u16 = u16::MAX;

/// The index of each word in the table of [`debug_offsets`]. Word 0 is the cookie, word 1 the version.
#[derive(Clone, Copy, Debug)]
pub struct OffsetWords {
    pub free_threaded: u16,
    pub thread_interp: u16,
    pub thread_frame: u16,
    pub thread_id: u16,
    pub frame_previous: u16,
    pub frame_code: u16,
    pub frame_instruction: u16,
    pub frame_owner: u16,
    pub code_file: u16,
    pub code_name: u16,
    pub code_table: u16,
    pub code_first_line: u16,
    pub code_start: u16,
    pub object_type: u16,
    pub object_size: u16,
    pub bytes_data: u16,
    pub text_state: u16,
    pub text_length: u16,
    pub text_ascii: u16,
}

/// Offsets in bytes, unless a field says otherwise. What each stack needs comes first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Layout {
    pub minor: u8,
    /// The bit at which a string's kind begins in its state.
    pub text_kind_shift: u8,
    /// The context with the thread's variables; 0 in that field if the thread has none.
    pub thread_context: u16,
    /// The innermost frame, or the structure that points to it.
    pub thread_frame: u16,
    /// If `thread_frame` points to a structure in between: the innermost frame in that structure.
    pub cframe_frame: u16,
    pub frame_previous: u16,
    pub frame_code: u16,
    pub frame_instruction: u16,
    pub thread_interp: u16,
    /// `pthread_self` of the thread that the state belongs to.
    pub thread_id: u16,
    /// The frame's owner, a byte.
    pub frame_owner: u16,
    /// Which copy of the instructions the frame runs (free-threaded builds from 3.14).
    pub frame_copy: u16,
    pub object_type: u16,
    /// The number of items of an object of variable size.
    pub object_size: u16,
    pub code_first_line: u16,
    pub code_flags: u16,
    pub code_file: u16,
    /// The qualified name, if there is one.
    pub code_name: u16,
    /// The instructions, if they are in the code object.
    pub code_start: u16,
    pub code_table: u16,
    /// A number that no other code object of the interpreter has.
    pub code_version: u16,
    /// The copies of the instructions, one for each thread.
    pub code_copies: u16,
    pub text_length: u16,
    pub text_hash: u16,
    pub text_state: u16,
    /// Where the letters of an ASCII string begin, and those of any other.
    pub text_ascii: u16,
    pub text_compact: u16,
    pub bytes_data: u16,
    /// The hash of a context variable.
    pub variable_hash: u16,
    /// Offsets of four pointers in a code object that together nearly always identify it.
    pub code_parts: [u16; 4],
}

/// The content of a frame's instruction field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Instruction {
    /// A byte offset, as an int; -1 before the first instruction.
    Bytes,
    /// The offset in instructions of two bytes each.
    Units,
    /// An address. One before the first instruction, or in other code, means "not begun".
    Address,
}

impl Layout {
    /// The layout of a version that does not publish its own.
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

    /// The smallest owner value of frames that are not Python code: the interpreter's own, pushed where C
    /// calls Python.
    #[inline(always)]
    pub fn first_shim_owner(&self) -> u8 {
        3
    }

    /// Bits of the pointer to a frame's code that do not belong to the address.
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
