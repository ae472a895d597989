//! Memory pools and stream-ordered allocation.

use crate::abi::{In, Out};
use crate::entry::{Call, api};
use gputrace_sim::device;
use gputrace_sim::error::{Code, Result};
use gputrace_sim::pool::Pool;
use gputrace_sim::world::with;

/// `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Location {
    pub kind: u32,
    pub id: i32,
}

/// `CUmemPoolProps`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Properties {
    pub allocation_type: u32,
    handle_types: u32,
    pub location: Location,
    security: u64,
    most_bytes: u64,
    usage: u16,
    reserved: [u8; 54],
}

/// `CU_MEM_LOCATION_TYPE_DEVICE`.
const ON_DEVICE: u32 = 1;

impl Location {
    /// The device that is meant.
    pub fn device(&self) -> Result<u32> {
        if self.kind == ON_DEVICE { device::check(self.id) } else { Err(Code::NOT_SUPPORTED) }
    }
}

impl Properties {
    /// The device that is meant, for memory that is pinned, the only kind there is.
    pub fn device(&self) -> Result<u32> {
        if self.allocation_type != 1 || self.handle_types > 1 {
            return Err(Code::INVALID_VALUE);
        }
        self.location.device()
    }
}

fn allocate(call: &Call, dptr: Out<u64>, bytes: u64, pool: Option<u64>, stream: u64) -> Result {
    dptr.required()?;
    let given = call.stream(stream);
    dptr.set(with(|w| {
        let stream = w.stream(given)?;
        w.allocate_in_stream(bytes, pool, stream)
    })?)
}

api! {
    "cuMemAllocAsync" 11020 fn cuMemAllocAsync / 11020 cuMemAllocAsync_ptsz(dptr: Out<u64>, bytesize: u64, hStream: u64) |c| {
        allocate(c, dptr, bytesize, None, hStream)
    }
    "cuMemAllocFromPoolAsync" 11020 fn cuMemAllocFromPoolAsync / 11020 cuMemAllocFromPoolAsync_ptsz(dptr: Out<u64>, bytesize: u64, pool: u64, hStream: u64) |c| {
        allocate(c, dptr, bytesize, Some(pool), hStream)
    }
    "cuMemFreeAsync" 11020 fn cuMemFreeAsync / 11020 cuMemFreeAsync_ptsz(dptr: u64, hStream: u64) |c| {
        let given = c.stream(hStream);
        with(|w| {
            let stream = w.stream(given)?;
            w.free_from_stream(dptr, stream)
        })
    }
    "cuMemPoolCreate" 11020 fn cuMemPoolCreate(pool: Out<u64>, poolProps: In<Properties>) |_| {
        pool.required()?;
        let device = poolProps.get()?.device()?;
        pool.set(with(|w| w.create_pool(device, false))?)
    }
    "cuMemPoolDestroy" 11020 fn cuMemPoolDestroy(pool: u64) |_| {
        with(|w| w.destroy_pool(pool))
    }
    "cuMemPoolTrimTo" 11020 fn cuMemPoolTrimTo(pool: u64, minBytesToKeep: u64) |_| {
        with(|w| w.trim_pool(pool, minBytesToKeep))
    }
    "cuMemPoolGetAttribute" 11020 fn cuMemPoolGetAttribute(pool: u64, attr: u32, value: Out<u8>) |_| {
        let held = with(|w| w.pools.get(pool)?.attribute(attr))?;
        if Pool::is_switch(attr) {
            value.set_list(&(held as u32).to_ne_bytes(), 4)
        } else {
            value.set_list(&held.to_ne_bytes(), 8)
        }
    }
    "cuMemPoolSetAttribute" 11020 fn cuMemPoolSetAttribute(pool: u64, attr: u32, value: In<u8>) |_| {
        let bytes = value.list(if Pool::is_switch(attr) { 4 } else { 8 })?;
        let value = bytes.iter().rev().fold(0u64, |all, byte| all << 8 | u64::from(*byte));
        with(|w| w.pools.get_mut(pool)?.set_attribute(attr, value))
    }
    "cuMemPoolSetAccess" 11020 fn cuMemPoolSetAccess(pool: u64, map: In<[u32; 3]>, count: u64) |_| {
        for [kind, id, access] in map.list(count as usize)? {
            Location { kind, id: id as i32 }.device()?;
            if !matches!(access, 0 | 1 | 3) {
                return Err(Code::INVALID_VALUE);
            }
        }
        with(|w| w.pools.get(pool).map(|_| ()))
    }
    "cuMemPoolGetAccess" 11020 fn cuMemPoolGetAccess(flags: Out<u32>, memPool: u64, location: In<Location>) |_| {
        location.get()?.device()?;
        with(|w| w.pools.get(memPool).map(|_| ()))?;
        flags.set(3)
    }
    "cuMemGetDefaultMemPool" 13000 fn cuMemGetDefaultMemPool(pool_out: Out<u64>, location: In<Location>, _kind: u32) |_| {
        let device = location.get()?.device()?;
        pool_out.set(with(|w| Ok(w.pools_of(device)?.default))?)
    }
    "cuMemGetMemPool" 13000 fn cuMemGetMemPool(pool: Out<u64>, location: In<Location>, _kind: u32) |_| {
        let device = location.get()?.device()?;
        pool.set(with(|w| Ok(w.pools_of(device)?.current))?)
    }
    "cuMemSetMemPool" 13000 fn cuMemSetMemPool(location: In<Location>, _kind: u32, pool: u64) |_| {
        let device = location.get()?.device()?;
        with(|w| {
            if w.pools.get(pool)?.device != device {
                return Err(Code::INVALID_VALUE);
            }
            w.pools_of(device)?.current = pool;
            Ok(())
        })
    }
    "cuMemPoolExportToShareableHandle" 11020 fn cuMemPoolExportToShareableHandle(_handle_out: Out<u8>, pool: u64, _handleType: u32, _flags: u64) |_| {
        with(|w| w.pools.get(pool).map(|_| ()))?;
        Err(Code::NOT_SUPPORTED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structure_has_its_c_size() {
        assert_eq!(size_of::<Properties>(), 88);
    }
}
