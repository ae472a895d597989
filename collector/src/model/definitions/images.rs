//! The programs and libraries that a process had mapped, and the native frames of its stacks in them.

use gputrace_wire::definition::{image as field, kind};

use super::Definitions;

/// A mapped program or library.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Image {
    /// The loader's or the kernel's path, in bytes.
    pub path: Vec<u8>,
    /// Empty if the image has none.
    pub build_id: Vec<u8>,
    /// The file's length and modification time, if it has no build id.
    pub file_bytes: u64,
    pub modified_ns: u64,
}

impl Definitions {
    pub fn image(&self, id: u32) -> Option<Image> {
        let entry = self.of_kind(id, kind::IMAGE)?;
        let words = (field::BUILD_ID..field::BUILD_ID + 4).map(|index| entry.field(index));
        let mut build_id: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        build_id.truncate(usize::try_from(entry.field(field::BUILD_ID_BYTES)).unwrap_or(usize::MAX));
        Some(Image {
            path: entry.raw().to_vec(),
            build_id,
            file_bytes: entry.field(field::FILE_BYTES),
            modified_ns: entry.field(field::MODIFIED_NS),
        })
    }

    /// The native frames in stacks, as (image, address in its file). Frames repeat as often as in the stacks.
    pub fn native_frames(&self) -> impl Iterator<Item = (u32, u64)> {
        // Most traces have no images, and their stacks need not be searched.
        let any = self.entries.iter().flatten().any(|entry| entry.kind == kind::IMAGE);
        let stacks = self.entries.iter().take(if any { usize::MAX } else { 0 }).flatten();
        let stacks = stacks.filter(|entry| entry.kind == kind::STACK);
        let pairs = stacks.flat_map(|entry| entry.fields.as_chunks::<2>().0);
        let named = pairs.map(|[of, at]| (u32::try_from(*of).unwrap_or(0), *at));
        named.filter(|(of, _)| self.kind(*of) == Some(kind::IMAGE))
    }
}
