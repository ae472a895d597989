//! Memory: every allocation of every kind, by address.
//!
//! Device memory is host memory from mmap, so a device pointer is an address and
//! copies are copies. What is not in this map is the program's own pageable memory.

use crate::device;
use crate::error::{Code, Result};
use crate::handle::Handle;
use crate::world::World;
use std::collections::BTreeMap;

const PAGE: u64 = 4096;

/// An anonymous mapping that is unmapped when dropped.
#[derive(Debug)]
pub struct Mapping {
    pub base: u64,
    length: u64,
}

impl Mapping {
    /// Maps at least `bytes` of zeroed memory.
    pub fn new(bytes: u64) -> Result<Mapping> {
        let length = bytes.max(1).checked_next_multiple_of(PAGE).ok_or(Code::OUT_OF_MEMORY)?;
        let length_word = usize::try_from(length).map_err(|_| Code::OUT_OF_MEMORY)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no existing memory.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), length_word, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        if base == libc::MAP_FAILED {
            Err(Code::OUT_OF_MEMORY)
        } else {
            Ok(Mapping { base: base as u64, length })
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly this range was mapped by `new`, and the map of allocations no longer gives it out.
        unsafe { libc::munmap(self.base as *mut libc::c_void, self.length as usize) };
    }
}

/// What an allocation is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Device,
    Managed,
    Pinned,
    Registered,
    /// From that pool.
    Pool(Handle),
    /// A variable of that module.
    Variable(Handle),
    /// Memory of `cuMemMap` or of a graph's allocation node.
    Mapped,
    Array,
    /// Another process's, which takes no memory here.
    Opened,
}

impl Kind {
    /// As CUPTI counts memory kinds.
    pub fn activity_kind(self) -> u8 {
        match self {
            Kind::Pinned | Kind::Registered => 2,
            Kind::Device | Kind::Pool(_) | Kind::Mapped | Kind::Opened => 3,
            Kind::Array => 4,
            Kind::Managed => 5,
            Kind::Variable(_) => 6,
        }
    }

    /// Whether it lies on the host's side of the bus.
    pub fn is_host(self) -> bool {
        matches!(self, Kind::Pinned | Kind::Registered)
    }

    fn takes_memory(self) -> bool {
        !self.is_host() && self != Kind::Opened
    }
}

/// One allocation.
#[derive(Debug)]
pub struct Allocation {
    pub base: u64,
    pub bytes: u64,
    pub kind: Kind,
    pub device: u32,
    /// 0 where it belongs to no context.
    pub context: Handle,
    pub flags: u32,
    /// Counts up, never used again: `CU_POINTER_ATTRIBUTE_BUFFER_ID`.
    pub id: u64,
    pub synchronous: bool,
    mapping: Option<Mapping>,
}

/// The map of all allocations, with each device's use.
#[derive(Default)]
pub struct Memory {
    by_base: BTreeMap<u64, Allocation>,
    used: Vec<u64>,
    next_id: u64,
}

impl Memory {
    /// The allocation that `address` lies in.
    pub fn find(&self, address: u64) -> Option<&Allocation> {
        let (_, held) = self.by_base.range(..=address).next_back()?;
        (address - held.base < held.bytes.max(1)).then_some(held)
    }

    /// As `find`, for change.
    pub fn find_mut(&mut self, address: u64) -> Option<&mut Allocation> {
        let (_, held) = self.by_base.range_mut(..=address).next_back()?;
        (address - held.base < held.bytes.max(1)).then_some(held)
    }

    /// The allocation that holds all of `bytes` from `address` on.
    pub fn find_range(&self, address: u64, bytes: u64) -> Result<&Allocation> {
        let held = self.find(address).ok_or(Code::INVALID_VALUE)?;
        let last = address.checked_add(bytes).ok_or(Code::INVALID_VALUE)?;
        if last <= held.base + held.bytes { Ok(held) } else { Err(Code::INVALID_VALUE) }
    }

    /// Bytes in use on a device.
    pub fn used(&self, device: u32) -> u64 {
        self.used.get(device as usize).copied().unwrap_or(0)
    }

    /// Takes bytes of a device's memory, or says that there are not as many.
    pub fn charge(&mut self, device: u32, bytes: u64) -> Result {
        let slot = device as usize;
        if self.used.len() <= slot {
            self.used.resize(slot + 1, 0);
        }
        let wanted = self.used[slot].checked_add(bytes).filter(|&sum| sum <= device::memory_bytes());
        self.used[slot] = wanted.ok_or(Code::OUT_OF_MEMORY)?;
        Ok(())
    }

    /// Gives bytes of a device's memory back.
    pub fn discharge(&mut self, device: u32, bytes: u64) {
        if let Some(used) = self.used.get_mut(device as usize) {
            *used = used.saturating_sub(bytes);
        }
    }

    /// Enters memory that is mapped elsewhere.
    pub fn enter(
        &mut self,
        base: u64,
        bytes: u64,
        kind: Kind,
        device: u32,
        context: Handle,
        flags: u32,
    ) -> Result {
        let overlaps = self.by_base.range(..base.saturating_add(bytes)).next_back();
        if overlaps.is_some_and(|(_, held)| held.base + held.bytes > base) {
            return Err(Code::HOST_MEMORY_ALREADY_REGISTERED);
        }
        self.next_id += 1;
        let id = self.next_id;
        let held =
            Allocation { base, bytes, kind, device, context, flags, id, synchronous: false, mapping: None };
        self.by_base.insert(base, held);
        Ok(())
    }

    /// Maps and enters new memory.
    pub fn allocate(
        &mut self,
        bytes: u64,
        kind: Kind,
        device: u32,
        context: Handle,
        flags: u32,
    ) -> Result<u64> {
        if bytes == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let counts = kind.takes_memory();
        if counts {
            self.charge(device, bytes)?;
        }
        let entered = Mapping::new(bytes).and_then(|mapping| {
            let base = mapping.base;
            self.enter(base, bytes, kind, device, context, flags)?;
            if let Some(held) = self.by_base.get_mut(&base) {
                held.mapping = Some(mapping);
            }
            Ok(base)
        });
        if entered.is_err() && counts {
            self.discharge(device, bytes);
        }
        entered
    }

    /// Takes an allocation out that starts at `base` and is of a kind that `which` accepts.
    pub fn remove(
        &mut self,
        base: u64,
        which: impl Fn(Kind) -> bool,
    ) -> Result<(Allocation, Option<Mapping>)> {
        let held = self.by_base.get(&base).ok_or(Code::INVALID_VALUE)?;
        if !which(held.kind) {
            return Err(Code::INVALID_VALUE);
        }
        let mut held = self.by_base.remove(&base).ok_or(Code::INVALID_VALUE)?;
        if held.kind.takes_memory() && held.mapping.is_some() {
            self.discharge(held.device, held.bytes);
        }
        let mapping = held.mapping.take();
        Ok((held, mapping))
    }

    /// Bases of the allocations that `which` picks.
    pub fn bases_where(&self, which: impl Fn(&Allocation) -> bool) -> Vec<u64> {
        self.by_base.values().filter(|held| which(held)).map(|held| held.base).collect()
    }
}

impl World {
    /// Allocates in the current context.
    pub fn allocate(&mut self, bytes: u64, kind: Kind, flags: u32) -> Result<u64> {
        let context = self.current()?;
        self.refuse_while_capturing()?;
        let device = self.contexts.get(context)?.device;
        self.memory.allocate(bytes, kind, device, context, flags)
    }

    /// Frees memory that starts at `base`. The caller has waited for the context's work.
    pub fn free(&mut self, base: u64, which: impl Fn(Kind) -> bool) -> Result {
        if base == 0 {
            return Ok(());
        }
        self.free_noting_pool(base, which)
    }

    fn free_noting_pool(&mut self, base: u64, which: impl Fn(Kind) -> bool) -> Result {
        let (held, mapping) = self.memory.remove(base, which)?;
        if let Kind::Pool(pool) = held.kind {
            self.pool_gave_back(pool, held.bytes);
        }
        if let Some(mapping) = mapping {
            self.after.unmap(mapping);
        }
        Ok(())
    }

    /// A stream has reached the point at which memory is freed. Freed by other means before: nothing to do.
    pub fn free_in_stream(&mut self, base: u64) {
        let _ = self.free_noting_pool(base, |_| true);
    }

    /// Frees all that belongs to a context.
    pub fn release_memory_of(&mut self, context: Handle) {
        for base in self.memory.bases_where(|held| held.context == context) {
            self.free_in_stream(base);
        }
    }

    /// `cuMemGetInfo`: free and total.
    pub fn memory_info(&self) -> Result<(u64, u64)> {
        let device = self.contexts.get(self.current()?)?.device;
        let total = device::memory_bytes();
        Ok((total - self.memory.used(device).min(total), total))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_exact() {
        let mut memory = Memory::default();
        let base = memory.allocate(100, Kind::Device, 0, 0, 0).unwrap();
        assert!(memory.find_range(base, 100).is_ok());
        assert!(memory.find_range(base + 99, 1).is_ok());
        assert_eq!(memory.find_range(base, 101).unwrap_err(), Code::INVALID_VALUE);
        assert!(memory.find(base + 100).is_none());
        assert_eq!(memory.find_range(base + 1, u64::MAX).unwrap_err(), Code::INVALID_VALUE);
        assert_eq!(memory.used(0), 100);
        memory.remove(base, |_| true).unwrap();
        assert_eq!(memory.used(0), 0);
        assert!(memory.remove(base, |_| true).is_err());
    }

    #[test]
    fn memory_can_run_out() {
        let mut memory = Memory::default();
        assert_eq!(memory.allocate(u64::MAX, Kind::Device, 0, 0, 0), Err(Code::OUT_OF_MEMORY));
        assert_eq!(memory.allocate(0, Kind::Device, 0, 0, 0), Err(Code::INVALID_VALUE));
        assert_eq!(memory.used(0), 0);
    }

    #[test]
    fn overlapping_registration_is_refused() {
        let mut memory = Memory::default();
        memory.enter(0x1000, 0x100, Kind::Registered, 0, 0, 0).unwrap();
        assert!(memory.enter(0x10ff, 1, Kind::Registered, 0, 0, 0).is_err());
        assert!(memory.enter(0xf00, 0x101, Kind::Registered, 0, 0, 0).is_err());
        assert!(memory.enter(0x1100, 1, Kind::Registered, 0, 0, 0).is_ok());
    }
}
