//! Virtual memory management, and advice on managed memory.

use crate::abi::{In, Out};
use crate::entry::{Call, api};
use crate::pool::Location;
use gputrace_sim::error::{Code, Result};
use gputrace_sim::virtual_memory::GRANULARITY;
use gputrace_sim::work::Work;
use gputrace_sim::world::with;

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AllocationProperties {
    kind: u32,
    handle_types: u32,
    location: Location,
    security: u64,
    flags: u64,
}

/// `CU_MEM_LOCATION_TYPE_HOST` and its two kinds for one node of the host's.
const ON_HOST: std::ops::RangeInclusive<u32> = 2..=4;

/// The device that is meant; `None` for the host.
fn check(properties: In<AllocationProperties>) -> Result<Option<u32>> {
    let properties = properties.get()?;
    if properties.kind != 1 {
        return Err(Code::INVALID_VALUE);
    }
    if properties.handle_types != 0 {
        return Err(Code::NOT_SUPPORTED);
    }
    if ON_HOST.contains(&properties.location.kind) {
        return Ok(None);
    }
    properties.location.device().map(Some)
}

fn prefetch(call: &Call, address: u64, bytes: u64, stream: u64) -> Result {
    let given = call.stream(stream);
    with(|w| {
        let stream = w.stream(given)?;
        w.memory.find_range(address, bytes)?;
        w.submit(stream, Work::Mark).map(|_| ())
    })
}

fn advise(address: u64, bytes: u64, advice: u32) -> Result {
    if !(1..=6).contains(&advice) {
        return Err(Code::INVALID_VALUE);
    }
    with(|w| w.memory.find_range(address, bytes).map(|_| ()))
}

api! {
    "cuMemAddressReserve" 10020 fn cuMemAddressReserve(ptr: Out<u64>, size: u64, alignment: u64, _addr: u64, flags: u64) |_| {
        ptr.required()?;
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        ptr.set(with(|w| w.reserve_addresses(size, alignment))?)
    }
    "cuMemAddressFree" 10020 fn cuMemAddressFree(ptr: u64, size: u64) |_| {
        with(|w| w.free_addresses(ptr, size))
    }
    "cuMemCreate" 10020 fn cuMemCreate(handle: Out<u64>, size: u64, prop: In<AllocationProperties>, flags: u64) |_| {
        handle.required()?;
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let device = check(prop)?;
        handle.set(with(|w| w.create_physical(size, device))?)
    }
    "cuMemRelease" 10020 fn cuMemRelease(handle: u64) |_| {
        with(|w| w.release_physical(handle))
    }
    "cuMemMap" 10020 fn cuMemMap(ptr: u64, size: u64, offset: u64, handle: u64, flags: u64) |_| {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        with(|w| w.map_physical(ptr, size, offset, handle))
    }
    "cuMemUnmap" 10020 fn cuMemUnmap(ptr: u64, size: u64) |_| {
        with(|w| w.unmap_physical(ptr, size))
    }
    "cuMemSetAccess" 10020 fn cuMemSetAccess(ptr: u64, size: u64, desc: In<[u32; 3]>, count: u64) |_| {
        let wanted = desc.list(count as usize)?;
        let most = wanted.iter().map(|[kind, id, access]| {
            Location { kind: *kind, id: *id as i32 }.device().map(|_| *access)
        });
        let access = most.collect::<Result<Vec<u32>>>()?.into_iter().max().ok_or(Code::INVALID_VALUE)?;
        with(|w| w.set_access(ptr, size, access))
    }
    "cuMemGetAccess" 10020 fn cuMemGetAccess(flags: Out<u64>, location: In<Location>, ptr: u64) |_| {
        location.get()?.device()?;
        with(|w| w.memory.find(ptr).map(|_| ())).ok_or(Code::INVALID_VALUE)?;
        flags.set(3)
    }
    "cuMemGetAllocationGranularity" 10020 fn cuMemGetAllocationGranularity(granularity: Out<u64>, prop: In<AllocationProperties>, option: u32) |_| {
        check(prop)?;
        if option > 1 { Err(Code::INVALID_VALUE) } else { granularity.set(GRANULARITY) }
    }
    "cuMemGetAllocationPropertiesFromHandle" 10020 fn cuMemGetAllocationPropertiesFromHandle(prop: Out<AllocationProperties>, handle: u64) |_| {
        let device = with(|w| w.virtual_memory.physical.get(handle).map(|held| held.device))?;
        let location = device.map_or(Location { kind: 2, id: 0 }, |device| Location { kind: 1, id: device as i32 });
        prop.set(AllocationProperties { kind: 1, handle_types: 0, location, security: 0, flags: 0 })
    }
    "cuMemRetainAllocationHandle" 11000 fn cuMemRetainAllocationHandle(handle: Out<u64>, addr: u64) |_| {
        handle.required()?;
        handle.set(with(|w| w.retain_physical(addr))?)
    }
    "cuMemAdvise" 8000 fn cuMemAdvise(devPtr: u64, count: u64, advice: u32, _device: i32) |_| {
        advise(devPtr, count, advice)
    }
    "cuMemAdvise" 12020 fn cuMemAdvise_v2(devPtr: u64, count: u64, advice: u32, _location: Location) |_| {
        advise(devPtr, count, advice)
    }
    "cuMemPrefetchAsync" 8000 fn cuMemPrefetchAsync / 8000 cuMemPrefetchAsync_ptsz(devPtr: u64, count: u64, _dstDevice: i32, hStream: u64) |c| {
        prefetch(c, devPtr, count, hStream)
    }
    "cuMemPrefetchAsync" 12020 fn cuMemPrefetchAsync_v2 / 12020 cuMemPrefetchAsync_v2_ptsz(devPtr: u64, count: u64, _location: Location, _flags: u32, hStream: u64) |c| {
        prefetch(c, devPtr, count, hStream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structure_has_its_c_size() {
        assert_eq!(size_of::<AllocationProperties>(), 32);
    }
}
