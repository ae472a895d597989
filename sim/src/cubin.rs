//! What the engine needs from a binary image: the kernels that it has, by the names of its sections.
//!
//! Their code is for a real device and is not looked at: a launch takes the time that the device's rule says.

use crate::error::{Code, Result};
use crate::ptx::{Entry, Image};

/// Where ELF's header stops.
pub const HEADER_BYTES: usize = 64;
/// `EM_CUDA`.
const CUDA: u16 = 190;
const SECTION_BYTES: usize = 64;
const TEXT: &[u8] = b".text.";
/// Registers of every kernel: the image has them in an undocumented form.
const REGISTERS: u32 = 32;

/// The length of an image by its header: the section headers or the program headers come last.
pub fn length(header: &[u8; HEADER_BYTES]) -> usize {
    let end = |at: usize, size: usize, count: usize| -> Option<usize> {
        let bytes = usize::from(short(header, size)?).checked_mul(short(header, count)?.into())?;
        word(header, at)?.checked_add(bytes)
    };
    end(40, 58, 60).unwrap_or(0).max(end(32, 54, 56).unwrap_or(0)).max(HEADER_BYTES)
}

/// Reads an image.
pub fn read(image: &[u8]) -> Result<Image> {
    if short(image, 18) != Some(CUDA) || short(image, 58).map(usize::from) != Some(SECTION_BYTES) {
        return Err(Code::NO_BINARY_FOR_GPU);
    }
    let entries = entries(image).filter(|entries| !entries.is_empty()).ok_or(Code::INVALID_IMAGE)?;
    Ok(Image { entries, version: 90, target: 90, ..Image::default() })
}

fn entries(image: &[u8]) -> Option<Vec<Entry>> {
    let sections = word(image, 40)?;
    let section = |number: u16| sections.checked_add(usize::from(number) * SECTION_BYTES);
    let names = word(image, section(short(image, 62)?)?.checked_add(24)?)?;
    let mut entries = Vec::new();
    for number in 1..short(image, 60)? {
        let name = image.get(names.checked_add(half(image, section(number)?)?)?..)?;
        let name = name.split(|byte| *byte == 0).next()?;
        if let Some(name) = name.strip_prefix(TEXT) {
            let name = String::from_utf8(name.to_vec()).ok()?;
            entries.push(Entry { name, registers: REGISTERS, ..Entry::default() });
        }
    }
    Some(entries)
}

fn word(bytes: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?)).ok()
}

fn half(bytes: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?)).ok()
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cubin_s_kernels_are_its_sections_of_code() {
        let image = include_bytes!("../../tests/fixtures/cubins/two.cubin");
        let names: Vec<_> = read(image).unwrap().entries.into_iter().map(|entry| entry.name).collect();
        assert_eq!(names, ["second", "first"]);
        assert_eq!(length(image.first_chunk().unwrap()), image.len());
        // Up to its end it is no image, and never more is read than is there.
        for end in 0..image.len() {
            let _ = read(&image[..end]);
        }
        assert!(read(&image[..HEADER_BYTES]).is_err());
    }
}
