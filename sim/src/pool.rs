//! Memory pools: stream-ordered allocation and its accounts.

use crate::device;
use crate::error::{Code, Result};
use crate::handle::Handle;
use crate::memory::Kind;
use crate::work::Work;
use crate::world::World;

/// One pool.
pub struct Pool {
    pub device: u32,
    /// The device's own pool, which cannot be destroyed.
    pub default: bool,
    /// Switches 1 to 3 of `CUmemPool_attribute`.
    reuse: [u64; 3],
    release_threshold: u64,
    reserved: u64,
    reserved_high: u64,
    used: u64,
    used_high: u64,
}

/// A device's pools.
#[derive(Clone, Copy)]
pub struct DevicePools {
    pub default: Handle,
    pub current: Handle,
}

/// Reserved memory grows by this.
const RESERVE_UNIT: u64 = 32 << 20;

impl World {
    /// `cuMemPoolCreate`.
    pub fn create_pool(&mut self, device: u32, default: bool) -> Result<Handle> {
        self.pools.insert(Pool {
            device,
            default,
            reuse: [1; 3],
            release_threshold: 0,
            reserved: 0,
            reserved_high: 0,
            used: 0,
            used_high: 0,
        })
    }

    /// `cuMemPoolDestroy`. What was allocated from it lives on.
    pub fn destroy_pool(&mut self, pool: Handle) -> Result {
        if self.pools.get(pool)?.default {
            return Err(Code::INVALID_VALUE);
        }
        self.pools.remove(pool)?;
        for device in &mut self.device_pools {
            if device.current == pool {
                device.current = device.default;
            }
        }
        Ok(())
    }

    /// A device's pools, made when first asked for.
    pub fn pools_of(&mut self, device: u32) -> Result<&mut DevicePools> {
        while self.device_pools.len() <= device as usize {
            let default = self.create_pool(self.device_pools.len() as u32, true)?;
            self.device_pools.push(DevicePools { default, current: default });
        }
        Ok(&mut self.device_pools[device as usize])
    }

    /// `cuMemAllocFromPoolAsync`; without a pool, the current one of the stream's device.
    pub fn allocate_in_stream(&mut self, bytes: u64, pool: Option<Handle>, stream: Handle) -> Result<u64> {
        if bytes == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let device = self.streams.get(stream)?.device;
        let pool = match pool {
            Some(pool) => pool,
            None => self.pools_of(device)?.current,
        };
        let of_pool = self.pools.get(pool)?.device;
        if self.captures > 0 && self.capture_applies(stream)? {
            let info = self.capture_info(stream)?;
            let (node, address) = self.add_allocation(info.graph, &info.leaves, of_pool, bytes)?;
            self.update_capture(stream, &[node], true)?;
            return Ok(address);
        }
        let base = self.memory.allocate(bytes, Kind::Pool(pool), of_pool, 0, 0)?;
        let held = self.pools.get_mut(pool)?;
        held.used += bytes;
        held.used_high = held.used_high.max(held.used);
        if held.used > held.reserved {
            held.reserved = held.used.next_multiple_of(RESERVE_UNIT);
            held.reserved_high = held.reserved_high.max(held.reserved);
        }
        self.schedule(stream, Work::Mark)?;
        Ok(base)
    }

    /// `cuMemFreeAsync`.
    pub fn free_from_stream(&mut self, address: u64, stream: Handle) -> Result {
        let held = self.memory.find(address).ok_or(Code::INVALID_VALUE)?;
        if held.base != address || held.kind.is_host() || matches!(held.kind, Kind::Variable(_) | Kind::Array)
        {
            return Err(Code::INVALID_VALUE);
        }
        self.submit(stream, Work::Free(address)).map(|_| ())
    }

    /// Memory of a pool was freed.
    pub fn pool_gave_back(&mut self, pool: Handle, bytes: u64) {
        if let Ok(held) = self.pools.get_mut(pool) {
            held.used = held.used.saturating_sub(bytes);
            held.trim(held.release_threshold);
        }
    }

    /// `cuMemPoolTrimTo`.
    pub fn trim_pool(&mut self, pool: Handle, keep: u64) -> Result {
        self.pools.get_mut(pool)?.trim(keep);
        Ok(())
    }

    /// Free memory of a device as pools see it.
    pub fn device_free_bytes(&self, device: u32) -> u64 {
        device::memory_bytes().saturating_sub(self.memory.used(device))
    }
}

impl Pool {
    fn trim(&mut self, keep: u64) {
        self.reserved = self.reserved.min(self.used.max(keep).next_multiple_of(RESERVE_UNIT));
    }

    /// An attribute by the driver's number.
    pub fn attribute(&self, number: u32) -> Result<u64> {
        Ok(match number {
            1..=3 => self.reuse[number as usize - 1],
            4 => self.release_threshold,
            5 => self.reserved,
            6 => self.reserved_high,
            7 => self.used,
            8 => self.used_high,
            _ => return Err(Code::INVALID_VALUE),
        })
    }

    /// Sets an attribute; the two high-water marks can only be set back to 0.
    pub fn set_attribute(&mut self, number: u32, value: u64) -> Result {
        match number {
            1..=3 => self.reuse[number as usize - 1] = value,
            4 => self.release_threshold = value,
            6 if value == 0 => self.reserved_high = self.reserved,
            8 if value == 0 => self.used_high = self.used,
            _ => return Err(Code::INVALID_VALUE),
        }
        Ok(())
    }

    /// Whether the attribute's value is an `int` rather than 64 bits.
    pub fn is_switch(number: u32) -> bool {
        (1..=3).contains(&number)
    }
}
