//! Sharing between processes, which the simulated device does not support, and the profiler's switch.

use crate::abi::Out;
use crate::entry::{Call, api};
use gputrace_sim::error::{Code, Result};
use gputrace_sim::world::with;

/// `CUipcEventHandle` and `CUipcMemHandle`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SharedHandle {
    _bytes: [u8; 64],
}

fn refuse() -> Result {
    with(|w| w.current())?;
    Err(Code::NOT_SUPPORTED)
}

api! {
    "cuIpcGetEventHandle" 4010 fn cuIpcGetEventHandle(_pHandle: u64, _event: u64) |_| { refuse() }
    "cuIpcOpenEventHandle" 4010 fn cuIpcOpenEventHandle(_phEvent: Out<u64>, _handle: SharedHandle) |_| { refuse() }
    "cuIpcGetMemHandle" 4010 fn cuIpcGetMemHandle(_pHandle: u64, _dptr: u64) |_| { refuse() }
    "cuIpcOpenMemHandle" 4010 fn cuIpcOpenMemHandle(_pdptr: Out<u64>, _handle: SharedHandle, _flags: u32) |_| { refuse() }
    "cuIpcOpenMemHandle" 11000 fn cuIpcOpenMemHandle_v2(_pdptr: Out<u64>, _handle: SharedHandle, _flags: u32) |_| { refuse() }
    "cuIpcCloseMemHandle" 4010 fn cuIpcCloseMemHandle(_dptr: u64) |_| { refuse() }
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
