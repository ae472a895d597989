//! Handles: opaque values that stay recognisable after their object is gone.
//!
//! A handle holds kind, generation and slot. A stale, foreign or made-up one is
//! found out without touching memory through it.

use crate::error::{Code, Result};

/// What a C program holds: the bits of an opaque pointer.
pub type Handle = u64;

const SLOT_BITS: u32 = 22;
const GENERATION_BITS: u32 = 22;

struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// The objects of one kind, by handle.
pub struct Table<T> {
    kind: u8,
    wrong: Code,
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

impl<T> Table<T> {
    /// An empty table. `kind` differs between tables and is below 16; `wrong` answers a bad handle.
    pub const fn new(kind: u8, wrong: Code) -> Self {
        Table { kind, wrong, slots: Vec::new(), free: Vec::new() }
    }

    /// The fourth bit is always set, so a handle is never 0, 1 or 2 (which mean special streams); the kind
    /// lies above the 48 bits of an address, so that following a handle as a pointer faults at once.
    fn compose(&self, slot: u32, generation: u32) -> Handle {
        (u64::from(self.kind) << 50) | (u64::from(generation) << (SLOT_BITS + 4)) | (u64::from(slot) << 4) | 8
    }

    fn slot_of(&self, handle: Handle) -> Result<usize> {
        let slot = (handle >> 4) & ((1 << SLOT_BITS) - 1);
        let generation = (handle >> (SLOT_BITS + 4)) & ((1 << GENERATION_BITS) - 1);
        match self.slots.get(slot as usize) {
            Some(held)
                if held.value.is_some()
                    && self.compose(slot as u32, held.generation) == handle
                    && u64::from(held.generation) == generation =>
            {
                Ok(slot as usize)
            }
            _ => Err(self.wrong),
        }
    }

    /// Keeps `value` and returns its handle.
    pub fn insert(&mut self, value: T) -> Result<Handle> {
        if let Some(slot) = self.free.pop() {
            let held = &mut self.slots[slot as usize];
            held.value = Some(value);
            let generation = held.generation;
            return Ok(self.compose(slot, generation));
        }
        if self.slots.len() >= 1 << SLOT_BITS {
            return Err(Code::OUT_OF_MEMORY);
        }
        self.slots.push(Slot { generation: 1, value: Some(value) });
        Ok(self.compose(self.slots.len() as u32 - 1, 1))
    }

    /// The object, if the handle is alive.
    pub fn get(&self, handle: Handle) -> Result<&T> {
        let slot = self.slot_of(handle)?;
        self.slots[slot].value.as_ref().ok_or(self.wrong)
    }

    /// The object for change, if the handle is alive.
    pub fn get_mut(&mut self, handle: Handle) -> Result<&mut T> {
        let slot = self.slot_of(handle)?;
        self.slots[slot].value.as_mut().ok_or(self.wrong)
    }

    /// Takes the object out; its handle is wrong from now on.
    pub fn remove(&mut self, handle: Handle) -> Result<T> {
        let slot = self.slot_of(handle)?;
        let held = &mut self.slots[slot];
        held.generation = (held.generation + 1) & ((1 << GENERATION_BITS) - 1);
        self.free.push(slot as u32);
        held.value.take().ok_or(self.wrong)
    }

    /// Whether the handle is alive.
    pub fn contains(&self, handle: Handle) -> bool {
        self.slot_of(handle).is_ok()
    }

    /// All objects with their handles.
    pub fn iter(&self) -> impl Iterator<Item = (Handle, &T)> {
        self.slots.iter().enumerate().filter_map(|(slot, held)| {
            held.value.as_ref().map(|value| (self.compose(slot as u32, held.generation), value))
        })
    }

    /// All objects with their handles, for change.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Handle, &mut T)> {
        let kind = self.kind;
        let shape = Table::<()>::new(kind, self.wrong);
        self.slots.iter_mut().enumerate().filter_map(move |(slot, held)| {
            let handle = shape.compose(slot as u32, held.generation);
            held.value.as_mut().map(|value| (handle, value))
        })
    }

    /// Handles of the objects that `which` picks.
    pub fn handles_where(&self, which: impl Fn(&T) -> bool) -> Vec<Handle> {
        self.iter().filter(|(_, value)| which(value)).map(|(handle, _)| handle).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removed_handle_stays_wrong() {
        let mut table = Table::new(3, Code::INVALID_HANDLE);
        let first = table.insert("a").unwrap();
        assert_eq!(table.get(first), Ok(&"a"));
        table.remove(first).unwrap();
        let second = table.insert("b").unwrap();
        assert_ne!(first, second);
        assert_eq!(table.get(first), Err(Code::INVALID_HANDLE));
        assert_eq!(table.get(second), Ok(&"b"));
        assert_eq!(table.remove(first), Err(Code::INVALID_HANDLE));
    }

    #[test]
    fn foreign_and_made_up_values_are_wrong() {
        let mut one = Table::new(1, Code::INVALID_HANDLE);
        let mut two = Table::new(2, Code::INVALID_CONTEXT);
        let (a, b) = (one.insert(1).unwrap(), two.insert(2).unwrap());
        assert!(one.get(b).is_err() && two.get(a).is_err());
        for value in [0, 1, 2, a + 1, a ^ (1 << 60), u64::MAX] {
            assert!(one.get(value).is_err(), "{value:#x}");
        }
    }
}
