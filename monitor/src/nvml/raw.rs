//! What nvml-wrapper lacks, or reads in a way that trusts the driver's counts.

use nvml_wrapper::Device;
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlMemory_t, nvmlProcessInfo_t, nvmlProcessUtilizationSample_t, nvmlReturn_t,
};

/// More processes on one device than this are not listed.
const PROCESSES_MAX: usize = 1024;
/// NVML keeps some hundred samples of utilisation.
const SAMPLES_MAX: usize = 4096;

/// Which of a device's processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Running {
    Compute,
    Graphics,
}

type List = unsafe extern "C" fn(nvmlDevice_t, *mut u32, *mut nvmlProcessInfo_t) -> nvmlReturn_t;

/// Buffers for NVML's lists, which is kept from one reading to the next.
#[derive(Debug, Default)]
pub struct Buffers {
    processes: Vec<nvmlProcessInfo_t>,
    samples: Vec<nvmlProcessUtilizationSample_t>,
}

impl Buffers {
    /// Processes with a context, in one call with a buffer of our own size.
    pub fn processes(
        &mut self,
        device: &Device<'_>,
        running: Running,
    ) -> Result<&[nvmlProcessInfo_t], NvmlError> {
        let lib = device.nvml().lib();
        // Versions 2 and 3 have the same layout.
        let newest = match running {
            Running::Compute => &lib.nvmlDeviceGetComputeRunningProcesses_v3,
            Running::Graphics => &lib.nvmlDeviceGetGraphicsRunningProcesses_v3,
        };
        let older = match running {
            Running::Compute => &lib.nvmlDeviceGetComputeRunningProcesses_v2,
            Running::Graphics => &lib.nvmlDeviceGetGraphicsRunningProcesses_v2,
        };
        let list: &List = nvml_sym(newest.as_ref()).or_else(|_| nvml_sym(older.as_ref()))?;
        let empty = nvmlProcessInfo_t { pid: 0, usedGpuMemory: 0, gpuInstanceId: 0, computeInstanceId: 0 };
        self.processes.resize(PROCESSES_MAX, empty);
        let mut count = PROCESSES_MAX as u32;
        // SAFETY: the handle is the wrapper's, from this library; NVML writes `count` entries at most.
        nvml_try(unsafe { list(device.handle(), &raw mut count, self.processes.as_mut_ptr()) })?;
        Ok(&self.processes[..PROCESSES_MAX.min(count as usize)])
    }

    /// Each process's use of the device since that time of the driver's clock, in µs.
    pub fn samples(
        &mut self,
        device: &Device<'_>,
        since: u64,
    ) -> Result<&[nvmlProcessUtilizationSample_t], NvmlError> {
        let read = nvml_sym(device.nvml().lib().nvmlDeviceGetProcessUtilization.as_ref())?;
        let empty = nvmlProcessUtilizationSample_t {
            pid: 0,
            timeStamp: 0,
            smUtil: 0,
            memUtil: 0,
            encUtil: 0,
            decUtil: 0,
        };
        self.samples.resize(SAMPLES_MAX, empty);
        let mut count = SAMPLES_MAX as u32;
        // SAFETY: as above.
        nvml_try(unsafe { read(device.handle(), self.samples.as_mut_ptr(), &raw mut count, since) })?;
        Ok(&self.samples[..SAMPLES_MAX.min(count as usize)])
    }
}

/// Total, used and free bytes, as drivers before 510 give them: reserved ones count as used.
pub fn memory(device: &Device<'_>) -> Result<nvmlMemory_t, NvmlError> {
    let read = nvml_sym(device.nvml().lib().nvmlDeviceGetMemoryInfo.as_ref())?;
    let mut memory = nvmlMemory_t { total: 0, free: 0, used: 0 };
    // SAFETY: the handle is the wrapper's; `memory` outlives the call.
    nvml_try(unsafe { read(device.handle(), &raw mut memory) })?;
    Ok(memory)
}

/// Why clocks are lowered, all bits, by the function's newer name where the driver has it.
pub fn clock_reasons(device: &Device<'_>) -> Result<u64, NvmlError> {
    let Ok(read) = nvml_sym(device.nvml().lib().nvmlDeviceGetCurrentClocksEventReasons.as_ref()) else {
        return device.current_throttle_reasons().map(|reasons| reasons.bits());
    };
    let mut reasons = 0;
    // SAFETY: the handle is the wrapper's; `reasons` outlives the call.
    nvml_try(unsafe { read(device.handle(), &raw mut reasons) })?;
    Ok(reasons)
}

/// Replaced rows of memory.
#[derive(Clone, Copy, Debug)]
pub struct RemappedRows {
    pub corrected: u32,
    pub uncorrected: u32,
    pub has_failed: bool,
}

pub fn remapped_rows(device: &Device<'_>) -> Result<RemappedRows, NvmlError> {
    let read = nvml_sym(device.nvml().lib().nvmlDeviceGetRemappedRows.as_ref())?;
    let (mut corrected, mut uncorrected, mut pending, mut failed) = (0, 0, 0, 0);
    // SAFETY: the handle is the wrapper's; the four numbers outlive the call.
    nvml_try(unsafe {
        read(device.handle(), &raw mut corrected, &raw mut uncorrected, &raw mut pending, &raw mut failed)
    })?;
    Ok(RemappedRows { corrected, uncorrected, has_failed: failed != 0 })
}
