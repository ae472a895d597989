//! Definitions as they were said, for whoever tells them again under other ids.

use gputrace_wire::definition::{self, kind};

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

    /// The pieces of a line table from that one on, each with its bytes; so many at most.
    pub fn pieces(&self, first: u32, pieces_max: usize) -> Vec<&[u8]> {
        let (mut pieces, mut next) = (Vec::new(), first);
        while pieces.len() < pieces_max
            && let Some(entry) = self.of_kind(next, kind::LINES)
        {
            pieces.push(entry.raw());
            next = entry.id(definition::lines::MORE);
        }
        pieces
    }
}
