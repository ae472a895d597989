//! Reads the headers of a mapped image: the address it was linked for, its build id, its table of frames.

use crate::python::memory::Memory;

pub const BUILD_ID_MAX: usize = 32;
const HEADER_BYTES: u64 = 56;
/// More program headers than any linker writes.
const HEADERS_MAX: u64 = 64;
/// How many bytes of notes are read of one segment.
const NOTES_MAX: u64 = 4096;

const LOAD: u32 = 1;
const NOTE: u32 = 4;
const EH_FRAME: u32 = 0x6474_e550;
const GNU_BUILD_ID: u32 = 3;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Image {
    /// The difference between mapped addresses and the file's.
    pub bias: u64,
    /// The lowest address mapped, and the end of the highest mapping.
    pub start: u64,
    pub end: u64,
    /// `.eh_frame_hdr`; 0 if there is none.
    pub frames: u64,
    pub build_id: [u8; BUILD_ID_MAX],
    pub build_id_bytes: usize,
}

/// Reads the image whose first page is at `start`.
pub fn read<M: Memory>(memory: &M, start: u64) -> Option<Image> {
    // 64 bits, little endian.
    let [magic @ .., class, order] = memory.word(start, 0)?.to_le_bytes().first_chunk::<6>().copied()?;
    if magic != *b"\x7fELF" || (class, order) != (2, 1) {
        return None;
    }
    let headers = start.checked_add(memory.word(start, 32)?)?;
    let size = memory.half(start, 54)? & 0xffff;
    let count = u64::from(memory.half(start, 56)? & 0xffff);
    if u64::from(size) != HEADER_BYTES || count > HEADERS_MAX {
        return None;
    }
    let header = |index: u64| headers.checked_add(index * HEADER_BYTES);
    let mut lowest = u64::MAX;
    let mut highest = 0;
    for index in 0..count {
        let at = header(index)?;
        if memory.half(at, 0)? == LOAD {
            let address = memory.word(at, 16)?;
            lowest = lowest.min(address & !0xfff);
            highest = highest.max(address.checked_add(memory.word(at, 40)?)?);
        }
    }
    if lowest >= highest {
        return None;
    }
    let bias = start.wrapping_sub(lowest);
    let mut image = Image { bias, start, end: bias.wrapping_add(highest), ..Image::default() };
    for index in 0..count {
        let at = header(index)?;
        let address = bias.wrapping_add(memory.word(at, 16)?);
        match memory.half(at, 0)? {
            EH_FRAME => image.frames = address,
            NOTE if image.build_id_bytes == 0 => {
                build_id(memory, address, memory.word(at, 40)?.min(NOTES_MAX), &mut image);
            }
            _ => {}
        }
    }
    Some(image)
}

fn build_id<M: Memory>(memory: &M, from: u64, bytes: u64, image: &mut Image) -> Option<()> {
    let padded = |length: u32| (u64::from(length) + 3) & !3;
    let mut at = 0;
    while at + 12 <= bytes {
        let (name, length) = (memory.half(from, at)?, memory.half(from, at + 4)?);
        let kind = memory.half(from, at + 8)?;
        let after_name = at + 12 + padded(name);
        let length_here = length as usize;
        if kind == GNU_BUILD_ID && name == 4 && memory.half(from, at + 12)?.to_le_bytes() == *b"GNU\0" {
            let buffer = image.build_id.get_mut(..length_here)?;
            if memory.read(from, after_name, buffer) {
                image.build_id_bytes = length_here;
            }
            return Some(());
        }
        at = after_name + padded(length);
    }
    None
}
