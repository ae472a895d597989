//! Allocation of device, managed and pinned memory, and questions about pointers.

use crate::abi::{In, Out};
use crate::entry::{Call, api};
use gputrace_sim::error::{Code, Result};
use gputrace_sim::memory::Kind;
use gputrace_sim::pointer::Value;
use gputrace_sim::timeline::wait;
use gputrace_sim::world::with;

/// Rows of pitched memory begin at multiples of this.
const PITCH: u64 = 512;

fn allocate(target: Out<u64>, bytes: u64, kind: Kind, flags: u32) -> Result {
    target.required()?;
    target.set(with(|w| w.allocate(bytes, kind, flags))?)
}

/// Freeing waits for the context's work, as the real driver does.
fn free(address: u64, which: fn(Kind) -> bool) -> Result {
    let context = with(|w| {
        w.refuse_while_capturing()?;
        w.current()
    })?;
    wait(|w| w.context_end(context))?;
    with(|w| w.free(address, which))
}

fn register(address: u64, bytes: u64, flags: u32) -> Result {
    if address == 0 || bytes == 0 || flags & !15 != 0 || address.checked_add(bytes).is_none() {
        return Err(Code::INVALID_VALUE);
    }
    with(|w| {
        let context = w.current()?;
        let device = w.contexts.get(context)?.device;
        w.memory.enter(address, bytes, Kind::Registered, device, context, flags)
    })
}

fn store(data: Out<u8>, value: Value) -> Result {
    match value {
        Value::Byte(byte) => data.set(byte),
        Value::Word(word) => data.set_list(&word.to_ne_bytes(), 4),
        Value::Long(long) => data.set_list(&long.to_ne_bytes(), 8),
    }
}

api! {
    "cuMemGetInfo" 3020 fn cuMemGetInfo_v2(free: Out<u64>, total: Out<u64>) |_| {
        let (available, all) = with(|w| w.memory_info())?;
        free.set_if_wanted(available);
        total.set_if_wanted(all);
        Ok(())
    }
    "cuMemAlloc" 3020 fn cuMemAlloc_v2(dptr: Out<u64>, bytesize: u64) |_| {
        allocate(dptr, bytesize, Kind::Device, 0)
    }
    "cuMemAllocPitch" 3020 fn cuMemAllocPitch_v2(dptr: Out<u64>, pPitch: Out<u64>, WidthInBytes: u64, Height: u64, ElementSizeBytes: u32) |_| {
        pPitch.required()?;
        if !matches!(ElementSizeBytes, 4 | 8 | 16) || WidthInBytes == 0 || Height == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let pitch = WidthInBytes.checked_next_multiple_of(PITCH).ok_or(Code::INVALID_VALUE)?;
        allocate(dptr, pitch.checked_mul(Height).ok_or(Code::OUT_OF_MEMORY)?, Kind::Device, 0)?;
        pPitch.set(pitch)
    }
    "cuMemAllocManaged" 6000 fn cuMemAllocManaged(dptr: Out<u64>, bytesize: u64, flags: u32) |_| {
        if !matches!(flags, 1 | 2) {
            return Err(Code::INVALID_VALUE);
        }
        allocate(dptr, bytesize, Kind::Managed, flags)
    }
    "cuMemFree" 3020 fn cuMemFree_v2(dptr: u64) |_| {
        free(dptr, |kind| matches!(kind, Kind::Device | Kind::Managed | Kind::Pool(_) | Kind::Mapped))
    }
    "cuMemAllocHost" 3020 fn cuMemAllocHost_v2(pp: Out<u64>, bytesize: u64) |_| {
        allocate(pp, bytesize, Kind::Pinned, 3)
    }
    "cuMemHostAlloc" 2020 fn cuMemHostAlloc(pp: Out<u64>, bytesize: u64, Flags: u32) |_| {
        if Flags & !7 != 0 {
            return Err(Code::INVALID_VALUE);
        }
        allocate(pp, bytesize, Kind::Pinned, Flags | 2)
    }
    "cuMemFreeHost" 2000 fn cuMemFreeHost(p: u64) |_| {
        free(p, |kind| kind == Kind::Pinned)
    }
    "cuMemHostRegister" 6050 fn cuMemHostRegister_v2(p: u64, bytesize: u64, Flags: u32) |_| {
        register(p, bytesize, Flags)
    }
    "cuMemHostRegister" 4000 fn cuMemHostRegister(p: u64, bytesize: u64, Flags: u32) |_| {
        register(p, bytesize, Flags)
    }
    "cuMemHostUnregister" 4000 fn cuMemHostUnregister(p: u64) |_| {
        with(|w| match w.memory.remove(p, |kind| kind == Kind::Registered) {
            Ok(_) => Ok(()),
            Err(_) => Err(Code::HOST_MEMORY_NOT_REGISTERED),
        })
    }
    "cuMemHostGetDevicePointer" 3020 fn cuMemHostGetDevicePointer_v2(pdptr: Out<u64>, p: u64, Flags: u32) |_| {
        if Flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let known = with(|w| w.memory.find(p).is_some_and(|held| held.kind.is_host()));
        if known { pdptr.set(p) } else { Err(Code::INVALID_VALUE) }
    }
    "cuMemHostGetFlags" 2030 fn cuMemHostGetFlags(pFlags: Out<u32>, p: u64) |_| {
        pFlags.set(with(|w| {
            let held = w.memory.find(p).filter(|held| held.kind.is_host());
            held.map(|held| held.flags).ok_or(Code::INVALID_VALUE)
        })?)
    }
    "cuMemGetAddressRange" 3020 fn cuMemGetAddressRange_v2(pbase: Out<u64>, psize: Out<u64>, dptr: u64) |_| {
        let (base, bytes) = with(|w| w.memory.find(dptr).map(|held| (held.base, held.bytes))).ok_or(Code::NOT_FOUND)?;
        pbase.set_if_wanted(base);
        psize.set_if_wanted(bytes);
        Ok(())
    }
    "cuPointerGetAttribute" 4000 fn cuPointerGetAttribute(data: Out<u8>, attribute: u32, ptr: u64) |_| {
        store(data, with(|w| w.pointer_attribute(ptr, attribute))?)
    }
    "cuPointerGetAttributes" 7000 fn cuPointerGetAttributes(numAttributes: u32, attributes: In<u32>, data: In<Out<u8>>, ptr: u64) |_| {
        let count = numAttributes as usize;
        for (number, place) in attributes.list(count)?.into_iter().zip(data.list(count)?) {
            store(place, with(|w| w.pointer_attribute_or_zero(ptr, number))?)?;
        }
        Ok(())
    }
    "cuPointerSetAttribute" 6000 fn cuPointerSetAttribute(value: In<u32>, attribute: u32, ptr: u64) |_| {
        let value = value.get()?;
        with(|w| w.set_pointer_attribute(ptr, attribute, value))
    }
}
