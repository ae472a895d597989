//! Sharing between processes, and the profiler's switch. Memory that is opened is new, of the same size:
//! what another process writes is not seen in it.

use crate::abi::Out;
use crate::entry::{Call, api};
use gputrace_sim::error::{Code, Result};
use gputrace_sim::memory::Kind;
use gputrace_sim::world::with;

/// `CUipcEventHandle`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SharedEvent {
    _bytes: [u8; 64],
}

/// `CUipcMemHandle`: who shares how much.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SharedMemory {
    mark: u64,
    process: u64,
    bytes: u64,
    address: u64,
    rest: [u64; 4],
}

const MARK: u64 = 0x6970_635f_7368_6172;

fn refuse() -> Result {
    with(|w| w.current())?;
    Err(Code::NOT_SUPPORTED)
}

fn share(handle: Out<SharedMemory>, address: u64) -> Result {
    let bytes = with(|w| w.memory.find(address).map(|held| held.bytes)).ok_or(Code::INVALID_VALUE)?;
    handle.set(SharedMemory { mark: MARK, process: std::process::id().into(), bytes, address, rest: [0; 4] })
}

/// The process that shares memory cannot open it. Another one gets the same address each time, and closes it
/// as often as it opened it.
fn open(address: Out<u64>, handle: SharedMemory, flags: u32) -> Result {
    address.required()?;
    if handle.mark != MARK || handle.process == u64::from(std::process::id()) || flags > 1 {
        return Err(Code::INVALID_VALUE);
    }
    address.set(with(|w| {
        let shared = (handle.process, handle.address);
        if let Some((base, count)) = w.opened.get_mut(&shared) {
            *count += 1;
            return Ok(*base);
        }
        let base = w.allocate(handle.bytes, Kind::Opened, 0)?;
        w.opened.insert(shared, (base, 1));
        Ok(base)
    })?)
}

fn close(address: u64) -> Result {
    with(|w| {
        let found = w.opened.iter_mut().find(|(_, (base, _))| *base == address);
        let (shared, count) =
            found.map(|(shared, (_, count))| (*shared, count)).ok_or(Code::INVALID_VALUE)?;
        *count -= 1;
        if *count > 0 {
            return Ok(());
        }
        w.opened.remove(&shared);
        w.free(address, |kind| kind == Kind::Opened)
    })
}

api! {
    "cuIpcGetEventHandle" 4010 fn cuIpcGetEventHandle(_pHandle: u64, _event: u64) |_| { refuse() }
    "cuIpcOpenEventHandle" 4010 fn cuIpcOpenEventHandle(_phEvent: Out<u64>, _handle: SharedEvent) |_| { refuse() }
    "cuIpcGetMemHandle" 4010 fn cuIpcGetMemHandle(pHandle: Out<SharedMemory>, dptr: u64) |_| { share(pHandle, dptr) }
    "cuIpcOpenMemHandle" 4010 fn cuIpcOpenMemHandle(pdptr: Out<u64>, handle: SharedMemory, Flags: u32) |_| { open(pdptr, handle, Flags) }
    "cuIpcOpenMemHandle" 11000 fn cuIpcOpenMemHandle_v2(pdptr: Out<u64>, handle: SharedMemory, Flags: u32) |_| { open(pdptr, handle, Flags) }
    "cuIpcCloseMemHandle" 4010 fn cuIpcCloseMemHandle(dptr: u64) |_| {
        close(dptr)
    }
    "cuMemExportToShareableHandle" 10020 fn cuMemExportToShareableHandle(_shareableHandle: Out<u8>, _handle: u64, _handleType: u32, _flags: u64) |_| { refuse() }
    "cuMemImportFromShareableHandle" 10020 fn cuMemImportFromShareableHandle(_handle: Out<u64>, _osHandle: u64, _shHandleType: u32) |_| { refuse() }
    "cuFlushGPUDirectRDMAWrites" 11030 fn cuFlushGPUDirectRDMAWrites(_target: u32, _scope: u32) |_| { refuse() }
    "cuProfilerStart" 4000 fn cuProfilerStart() |_| {
        with(|w| w.current()).map(|_| ())
    }
    "cuProfilerStop" 4000 fn cuProfilerStop() |_| {
        with(|w| w.current()).map(|_| ())
    }
}
