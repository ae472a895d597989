//! Virtual memory management: reserved addresses, physical allocations, and mappings between them.
//!
//! A physical allocation is a memfd, so that mapping it twice shows the same bytes.

use crate::error::{Code, Result};
use crate::handle::{Handle, Table};
use crate::memory::Kind;
use crate::world::World;
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Sizes and addresses are multiples of this.
pub const GRANULARITY: u64 = 2 << 20;

/// A physical allocation.
pub struct Physical {
    file: OwnedFd,
    pub bytes: u64,
    /// `None` of the host's memory.
    pub device: Option<u32>,
    /// The handle and each mapping hold one.
    references: u32,
}

struct MappedRange {
    bytes: u64,
    physical: Handle,
}

/// All reservations, allocations and mappings.
pub struct VirtualMemory {
    reserved: BTreeMap<u64, u64>,
    pub physical: Table<Physical>,
    mapped: BTreeMap<u64, MappedRange>,
}

impl Default for VirtualMemory {
    fn default() -> Self {
        VirtualMemory {
            reserved: BTreeMap::new(),
            physical: Table::new(12, Code::INVALID_VALUE),
            mapped: BTreeMap::new(),
        }
    }
}

fn map_nothing(at: u64, bytes: u64, fixed: bool) -> Result<u64> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let flags = if fixed { flags | libc::MAP_FIXED } else { flags };
    // SAFETY: a fixed address is only given for ranges that this module reserved and holds.
    let base = unsafe { libc::mmap(at as *mut libc::c_void, bytes as usize, libc::PROT_NONE, flags, -1, 0) };
    if base == libc::MAP_FAILED { Err(Code::OUT_OF_MEMORY) } else { Ok(base as u64) }
}

fn whole(bytes: u64) -> bool {
    bytes > 0 && bytes.is_multiple_of(GRANULARITY)
}

impl World {
    /// `cuMemAddressReserve`.
    pub fn reserve_addresses(&mut self, bytes: u64, alignment: u64) -> Result<u64> {
        if !whole(bytes) || (alignment != 0 && !alignment.is_power_of_two()) {
            return Err(Code::INVALID_VALUE);
        }
        let alignment = alignment.max(GRANULARITY);
        let padded = bytes.checked_add(alignment).ok_or(Code::OUT_OF_MEMORY)?;
        let start = map_nothing(0, padded, false)?;
        let base = start.next_multiple_of(alignment);
        for (at, length) in [(start, base - start), (base + bytes, start + padded - base - bytes)] {
            if length > 0 {
                // SAFETY: the range is the unused edge of the mapping made just above.
                unsafe { libc::munmap(at as *mut libc::c_void, length as usize) };
            }
        }
        self.virtual_memory.reserved.insert(base, bytes);
        Ok(base)
    }

    /// `cuMemAddressFree`.
    pub fn free_addresses(&mut self, base: u64, bytes: u64) -> Result {
        if self.virtual_memory.reserved.get(&base) != Some(&bytes) {
            return Err(Code::INVALID_VALUE);
        }
        if self.virtual_memory.mapped.range(base..base + bytes).next().is_some() {
            return Err(Code::INVALID_VALUE);
        }
        self.virtual_memory.reserved.remove(&base);
        // SAFETY: the range was reserved by `reserve_addresses` and nothing is mapped in it.
        unsafe { libc::munmap(base as *mut libc::c_void, bytes as usize) };
        Ok(())
    }

    /// `cuMemCreate`.
    pub fn create_physical(&mut self, bytes: u64, device: Option<u32>) -> Result<Handle> {
        if !whole(bytes) {
            return Err(Code::INVALID_VALUE);
        }
        device.map_or(Ok(()), |device| self.memory.charge(device, bytes))?;
        // SAFETY: the name is a C string; the call returns a new descriptor or -1.
        let raw = unsafe { libc::memfd_create(c"gputrace-sim".as_ptr(), libc::MFD_CLOEXEC) };
        if raw < 0 {
            self.give_back(device, bytes);
            return Err(Code::OUT_OF_MEMORY);
        }
        // SAFETY: the descriptor was made just now and belongs to nobody else.
        let file = unsafe { OwnedFd::from_raw_fd(raw) };
        // SAFETY: the descriptor is open.
        if unsafe { libc::ftruncate(file.as_raw_fd(), bytes as libc::off_t) } != 0 {
            self.give_back(device, bytes);
            return Err(Code::OUT_OF_MEMORY);
        }
        let made = self.virtual_memory.physical.insert(Physical { file, bytes, device, references: 1 });
        if made.is_err() {
            self.give_back(device, bytes);
        }
        made
    }

    fn give_back(&mut self, device: Option<u32>, bytes: u64) {
        if let Some(device) = device {
            self.memory.discharge(device, bytes);
        }
    }

    /// `cuMemRelease`: the memory goes when the last mapping does.
    pub fn release_physical(&mut self, physical: Handle) -> Result {
        let held = self.virtual_memory.physical.get_mut(physical)?;
        held.references -= 1;
        if held.references == 0 {
            let held = self.virtual_memory.physical.remove(physical)?;
            self.give_back(held.device, held.bytes);
        }
        Ok(())
    }

    /// `cuMemMap`. The memory cannot be used before access is set.
    pub fn map_physical(&mut self, base: u64, bytes: u64, offset: u64, physical: Handle) -> Result {
        let held = self.virtual_memory.physical.get_mut(physical)?;
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= held.bytes);
        let aligned = base.is_multiple_of(GRANULARITY) && offset.is_multiple_of(GRANULARITY);
        if !whole(bytes) || !aligned || !inside {
            return Err(Code::INVALID_VALUE);
        }
        let end = base.checked_add(bytes).ok_or(Code::INVALID_VALUE)?;
        let reserved = self.virtual_memory.reserved.range(..=base).next_back();
        if reserved.is_none_or(|(&start, &length)| end > start + length) {
            return Err(Code::INVALID_VALUE);
        }
        let device = held.device.unwrap_or(0);
        self.memory.enter(base, bytes, Kind::Mapped, device, 0, 0).map_err(|_| Code::INVALID_VALUE)?;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        let (at, length) = (base as *mut libc::c_void, bytes as usize);
        // SAFETY: the range is reserved by this module and, as `enter` checked, not mapped yet.
        let mapped = unsafe {
            libc::mmap(at, length, libc::PROT_NONE, flags, held.file.as_raw_fd(), offset as libc::off_t)
        };
        if mapped == libc::MAP_FAILED {
            self.memory.remove(base, |_| true)?;
            return Err(Code::MAP_FAILED);
        }
        held.references += 1;
        self.virtual_memory.mapped.insert(base, MappedRange { bytes, physical });
        Ok(())
    }

    /// `cuMemUnmap`.
    pub fn unmap_physical(&mut self, base: u64, bytes: u64) -> Result {
        let held = self.virtual_memory.mapped.get(&base).filter(|held| held.bytes == bytes);
        let physical = held.ok_or(Code::INVALID_VALUE)?.physical;
        map_nothing(base, bytes, true)?;
        self.virtual_memory.mapped.remove(&base);
        self.memory.remove(base, |_| true)?;
        self.release_physical(physical)
    }

    /// `cuMemSetAccess`: 0 none, 1 read, 3 read and write.
    pub fn set_access(&mut self, base: u64, bytes: u64, access: u32) -> Result {
        let end = base.checked_add(bytes).ok_or(Code::INVALID_VALUE)?;
        let mut at = base;
        while at < end {
            at += self.virtual_memory.mapped.get(&at).ok_or(Code::INVALID_VALUE)?.bytes;
        }
        let protection = match access {
            0 => libc::PROT_NONE,
            1 => libc::PROT_READ,
            3 => libc::PROT_READ | libc::PROT_WRITE,
            _ => return Err(Code::INVALID_VALUE),
        };
        if at != end {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the whole range is mapped by `map_physical`, as the loop above found.
        let set = unsafe { libc::mprotect(base as *mut libc::c_void, bytes as usize, protection) };
        if set != 0 { Err(Code::INVALID_VALUE) } else { Ok(()) }
    }

    /// `cuMemRetainAllocationHandle`: what is mapped at `address`.
    pub fn retain_physical(&mut self, address: u64) -> Result<Handle> {
        let held = self.virtual_memory.mapped.range(..=address).next_back();
        let (_, held) =
            held.filter(|(base, held)| address - *base < held.bytes).ok_or(Code::INVALID_VALUE)?;
        let physical = held.physical;
        self.virtual_memory.physical.get_mut(physical)?.references += 1;
        Ok(physical)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_with_its_last_mapping() {
        let mut world = World::new();
        let base = world.reserve_addresses(2 * GRANULARITY, 0).unwrap();
        let physical = world.create_physical(GRANULARITY, Some(0)).unwrap();
        assert_eq!(world.map_physical(base + 1, GRANULARITY, 0, physical), Err(Code::INVALID_VALUE));
        world.map_physical(base, GRANULARITY, 0, physical).unwrap();
        assert_eq!(world.map_physical(base, GRANULARITY, 0, physical), Err(Code::INVALID_VALUE));
        assert_eq!(world.free_addresses(base, 2 * GRANULARITY), Err(Code::INVALID_VALUE));
        world.release_physical(physical).unwrap();
        assert_eq!(world.memory.used(0), GRANULARITY);
        assert_eq!(world.set_access(base, 2 * GRANULARITY, 3), Err(Code::INVALID_VALUE));
        world.set_access(base, GRANULARITY, 3).unwrap();
        world.unmap_physical(base, GRANULARITY).unwrap();
        assert_eq!(world.memory.used(0), 0);
        world.free_addresses(base, 2 * GRANULARITY).unwrap();
        assert_eq!(world.release_physical(physical), Err(Code::INVALID_VALUE));
    }
}
