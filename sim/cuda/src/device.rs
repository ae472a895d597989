//! Devices: number, names, attributes, peers, pools.

use crate::abi::{In, Out, Text};
use crate::entry::{Call, api};
use gputrace_sim::attributes::device_attribute;
use gputrace_sim::device as d;
use gputrace_sim::error::{Code, Result};
use gputrace_sim::world::with;
use std::ffi::c_char;

fn bus_id(device: u32) -> String {
    format!("0000:{:02X}:00.0", d::pci_bus(device))
}

api! {
    "cuDeviceGet" 2000 fn cuDeviceGet(device: Out<i32>, ordinal: i32) |_| {
        device.required()?;
        device.set(d::check(ordinal)? as i32)
    }
    "cuDeviceGetCount" 2000 fn cuDeviceGetCount(count: Out<i32>) |_| {
        count.set(d::count() as i32)
    }
    "cuDeviceGetName" 2000 fn cuDeviceGetName(name: Out<c_char>, len: i32, dev: i32) |_| {
        d::check(dev)?;
        name.set_text(d::NAME, len)
    }
    "cuDeviceGetUuid" 9020 fn cuDeviceGetUuid(uuid: Out<[u8; 16]>, dev: i32) |_| {
        uuid.set(d::uuid(d::check(dev)?))
    }
    "cuDeviceGetUuid" 11040 fn cuDeviceGetUuid_v2(uuid: Out<[u8; 16]>, dev: i32) |_| {
        uuid.set(d::uuid(d::check(dev)?))
    }
    "cuDeviceTotalMem" 3020 fn cuDeviceTotalMem_v2(bytes: Out<u64>, dev: i32) |_| {
        d::check(dev)?;
        bytes.set(d::memory_bytes())
    }
    "cuDeviceGetAttribute" 2000 fn cuDeviceGetAttribute(pi: Out<i32>, attrib: u32, dev: i32) |_| {
        pi.set(device_attribute(attrib, d::check(dev)?)?)
    }
    "cuDeviceComputeCapability" 2000 fn cuDeviceComputeCapability(major: Out<i32>, minor: Out<i32>, dev: i32) |_| {
        let dev = d::check(dev)?;
        major.set(device_attribute(75, dev)?)?;
        minor.set(device_attribute(76, dev)?)
    }
    "cuDeviceGetProperties" 2000 fn cuDeviceGetProperties(prop: Out<[i32; 14]>, dev: i32) |_| {
        let dev = d::check(dev)?;
        let mut values = [0; 14];
        for (value, number) in values.iter_mut().zip([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]) {
            *value = device_attribute(number, dev)?;
        }
        prop.set(values)
    }
    "cuDeviceGetPCIBusId" 4010 fn cuDeviceGetPCIBusId(pciBusId: Out<c_char>, len: i32, dev: i32) |_| {
        pciBusId.set_text(&bus_id(d::check(dev)?), len)
    }
    "cuDeviceGetByPCIBusId" 4010 fn cuDeviceGetByPCIBusId(dev: Out<i32>, pciBusId: Text) |_| {
        let wanted = pciBusId.get()?;
        let short = |device: &u32| bus_id(*device)[5..].eq_ignore_ascii_case(wanted);
        let found = (0..d::count()).find(|device| bus_id(*device).eq_ignore_ascii_case(wanted) || short(device));
        dev.set(found.ok_or(Code::INVALID_DEVICE)? as i32)
    }
    "cuDeviceGetLuid" 10000 fn cuDeviceGetLuid(_luid: Out<c_char>, _deviceNodeMask: Out<u32>, dev: i32) |_| {
        d::check(dev)?;
        Err(Code::NOT_SUPPORTED)
    }
    "cuDeviceGetTexture1DLinearMaxWidth" 11010 fn cuDeviceGetTexture1DLinearMaxWidth(maxWidth: Out<u64>, _format: u32, _numChannels: u32, dev: i32) |_| {
        maxWidth.set(device_attribute(69, d::check(dev)?)? as u64)
    }
    "cuDeviceCanAccessPeer" 4000 fn cuDeviceCanAccessPeer(canAccessPeer: Out<i32>, dev: i32, peerDev: i32) |_| {
        canAccessPeer.set(i32::from(d::check(dev)? != d::check(peerDev)?))
    }
    "cuDeviceGetP2PAttribute" 8000 fn cuDeviceGetP2PAttribute(value: Out<i32>, attrib: u32, srcDevice: i32, dstDevice: i32) |_| {
        if d::check(srcDevice)? == d::check(dstDevice)? {
            return Err(Code::INVALID_DEVICE);
        }
        match attrib {
            1 => value.set(0),
            2..=4 => value.set(1),
            5 => value.set(0),
            _ => Err(Code::INVALID_VALUE),
        }
    }
    "cuDeviceGetExecAffinitySupport" 11040 fn cuDeviceGetExecAffinitySupport(pi: Out<i32>, _kind: u32, dev: i32) |_| {
        d::check(dev)?;
        pi.set(0)
    }
    "cuDeviceGetDefaultMemPool" 11020 fn cuDeviceGetDefaultMemPool(pool_out: Out<u64>, dev: i32) |_| {
        let dev = d::check(dev)?;
        pool_out.set(with(|w| Ok(w.pools_of(dev)?.default))?)
    }
    "cuDeviceGetMemPool" 11020 fn cuDeviceGetMemPool(pool: Out<u64>, dev: i32) |_| {
        let dev = d::check(dev)?;
        pool.set(with(|w| Ok(w.pools_of(dev)?.current))?)
    }
    "cuDeviceSetMemPool" 11020 fn cuDeviceSetMemPool(dev: i32, pool: u64) |_| {
        let dev = d::check(dev)?;
        with(|w| {
            if w.pools.get(pool)?.device != dev {
                return Err(Code::INVALID_VALUE);
            }
            w.pools_of(dev)?.current = pool;
            Ok(())
        })
    }
    "cuDeviceGetGraphMemAttribute" 11040 fn cuDeviceGetGraphMemAttribute(device: i32, attr: u32, value: Out<u64>) |_| {
        d::check(device)?;
        if attr > 3 { Err(Code::INVALID_VALUE) } else { value.set(0) }
    }
    "cuDeviceSetGraphMemAttribute" 11040 fn cuDeviceSetGraphMemAttribute(device: i32, attr: u32, value: In<u64>) |_| {
        d::check(device)?;
        if !matches!(attr, 1 | 3) || value.get()? != 0 { Err(Code::INVALID_VALUE) } else { Ok(()) }
    }
    "cuDeviceGraphMemTrim" 11040 fn cuDeviceGraphMemTrim(device: i32) |_| {
        d::check(device).map(|_| ())
    }
}
