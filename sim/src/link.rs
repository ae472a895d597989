//! The linker of `cuLinkCreate`: it takes PTX text and gives it back as one image.

use crate::error::{Code, Result};
use crate::handle::Handle;
use crate::module::read_image;
use crate::world::World;

/// A link under way. Dropping it frees the image that the program was shown.
#[derive(Default)]
pub struct Link {
    text: String,
    image: Option<std::ffi::CString>,
}

/// `CU_JIT_INPUT_PTX`.
const PTX: u32 = 1;

impl World {
    /// `cuLinkAddData`.
    pub fn add_to_link(&mut self, link: Handle, kind: u32, data: &[u8]) -> Result {
        let held = self.links.get_mut(link)?;
        if kind != PTX {
            return Err(Code::NO_BINARY_FOR_GPU);
        }
        let end = data.iter().position(|&byte| byte == 0).unwrap_or(data.len());
        read_image(&data[..end]).map_err(|_| Code::INVALID_PTX)?;
        held.text.push_str(std::str::from_utf8(&data[..end]).map_err(|_| Code::INVALID_PTX)?);
        held.text.push('\n');
        Ok(())
    }

    /// `cuLinkComplete`: address and length of the image, which lives as long as the link.
    pub fn complete_link(&mut self, link: Handle) -> Result<(u64, u64)> {
        let held = self.links.get_mut(link)?;
        let image = std::ffi::CString::new(held.text.as_str()).map_err(|_| Code::INVALID_PTX)?;
        let image = held.image.insert(image).as_bytes_with_nul();
        Ok((image.as_ptr() as u64, image.len() as u64))
    }
}
