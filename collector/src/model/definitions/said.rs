//! Definitions as they were said, for whoever tells them again under other ids.

use super::Definitions;

/// A definition without its id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Said<'a> {
    pub kind: u16,
    pub fields: &'a [u64],
    pub text: &'a [u8],
}

impl Definitions {
    pub fn said(&self, id: u32) -> Option<Said<'_>> {
        let entry = self.entry(id)?;
        Some(Said { kind: entry.kind, fields: &entry.fields, text: entry.raw() })
    }

    /// Devices, in order of arrival.
    pub fn device_ids(&self) -> &[u32] {
        &self.devices
    }
}
