//! Advice for errors: what an error means in practice, and where to look first.

use std::borrow::Cow;

use gputrace_wire::call::{Detail, Launch};

use crate::failed_calls::Category;
use crate::model::definitions::Definitions;
use crate::model::operation::HostCall;

/// The limits of every device since compute capability 2.0.
const THREADS_MAX: u64 = 1024;
const BLOCK_Z_MAX: u16 = 64;

/// Advice for a failed call, if there is any.
pub fn advice(call: &HostCall, definitions: &Definitions) -> Option<Cow<'static, str>> {
    if let (1 | 701, Detail::Launch(launch)) = (call.status, &call.detail)
        && let Some(advice) = of_shape(launch)
    {
        return Some(advice);
    }
    let by_category = || of_category(call.status, Category::of(call, definitions));
    of_status(call.status).or_else(by_category).map(Cow::Borrowed)
}

/// Advice for a launch shape that is invalid for every kernel.
fn of_shape(launch: &Launch) -> Option<Cow<'static, str>> {
    let threads: u64 = launch.block.iter().map(|side| u64::from(*side)).product();
    let [_, y, z] = launch.grid;
    Some(if launch.grid.contains(&0) || launch.block.contains(&0) {
        "A side of the grid or of the block is 0: there was nothing to compute. Skip the launch for empty inputs.".into()
    } else if threads > THREADS_MAX {
        format!("A block of {threads} threads is too large: devices take {THREADS_MAX}. Use smaller blocks, and more of them.").into()
    } else if launch.block[2] > BLOCK_Z_MAX {
        format!("The third side of a block can be {BLOCK_Z_MAX} at most.").into()
    } else if y.max(z) >= 0xffff {
        "Only the first side of a grid can be longer than 65535 blocks: put the longest one there.".into()
    } else {
        return None;
    })
}

/// Advice for errors that mean the same in every call.
pub const fn of_status(status: u16) -> Option<&'static str> {
    Some(match status {
        2 => {
            "The device has no such piece of memory left. See what else runs on it (nvidia-smi), make batches smaller, or give back what is cached; where much is free in all, it is in pieces that are too small."
        }
        3 => {
            "The driver was used before cuInit. Often a forked child that goes on with its parent's CUDA: start workers by spawn instead."
        }
        34 => {
            "The library that was loaded is the toolkit's stub and no driver: take the stubs folder out of the search path for libraries."
        }
        36 | 803 => {
            "The kernel module and the driver's library are not of one version: after an update of the driver, restart the machine, or the container with the host's driver."
        }
        46 => {
            "Another process has the device for itself (exclusive mode, see nvidia-smi -q -d COMPUTE), or it is being reset."
        }
        100 => {
            "No device can be seen: look at CUDA_VISIBLE_DEVICES, at nvidia-smi, and whether the container was given a GPU."
        }
        101 => {
            "There is no device of that number: CUDA_VISIBLE_DEVICES makes fewer visible and numbers them anew."
        }
        102 => "The device's licence does not cover this use (virtual GPUs).",
        200 => {
            "What was loaded is no device code that this driver reads: a damaged file, or one of another format."
        }
        201 => {
            "No context is current on this thread, or one that was destroyed: each thread has to choose its device first, and nothing may be used past its context's end."
        }
        209 => {
            "The program has no code for this device's architecture and no PTX that could be compiled for it: build for its compute capability, or install a build that has it."
        }
        214 => {
            "The memory of the device has an error that could not be corrected: look at nvidia-smi -q -d ECC, and take the device out of use if it comes again."
        }
        217 => {
            "These two devices cannot reach each other's memory: copy by way of the host, or choose devices that can (nvidia-smi topo -p2p r)."
        }
        218 => {
            "The PTX could not be compiled: it is for a newer compute capability than the device's, or was written wrongly."
        }
        220 => "The link between devices failed (NVLink): look at nvidia-smi nvlink -e.",
        221 => {
            "The driver's compiler for PTX (libnvidia-ptxjitcompiler) is not installed: in containers, the capability \"compute\" brings it."
        }
        222 => {
            "The PTX is of a newer toolkit than this driver reads: update the driver, or build with an older toolkit, or for this architecture."
        }
        300 | 301 => "The file of device code is not where it was looked for.",
        302 | 303 => "A library that was needed could not be loaded.",
        304 => {
            "The operating system refused something: look at limits (ulimit -a), at /dev/shm, and at what dmesg says."
        }
        700 => {
            "A kernel read or wrote where it must not: an index past the end, or memory that was given back. The error is told by a later call than the one at fault: compute-sanitizer finds the place, or CUDA_LAUNCH_BLOCKING=1 the launch."
        }
        701 => {
            "A block needs more registers or shared memory than a multiprocessor has left for it: use smaller blocks, less dynamic shared memory, or __launch_bounds__."
        }
        702 => {
            "A kernel ran longer than the display's watchdog allows: use a device without a display, or split the work."
        }
        704 => "Access to that device is on already.",
        705 => "Access to the other device's memory was not switched on (cuCtxEnablePeerAccess).",
        708 => "The device's primary context is in use already: its flags can be set before that only.",
        709 => {
            "The context was destroyed while this was under way: look whether a library resets the device."
        }
        710 => {
            "An assertion in a kernel failed: what it says is on the program's output. In PyTorch mostly an index out of range."
        }
        712 => "That memory is pinned already, in whole or in part.",
        713 => "That memory was never pinned, or is no longer.",
        714 | 718 | 719 => {
            "A kernel crashed while it ran: compute-sanitizer finds where. What was asked for after it was not done."
        }
        715 => {
            "A kernel came to an instruction that the device has not: code for another architecture, or a damaged program."
        }
        716 => {
            "A kernel read or wrote at an address that is no multiple of the size: look at casts to vector types, and at offsets into packed data."
        }
        717 => "An instruction for one kind of memory was given an address of another kind.",
        720 => {
            "A cooperative launch has more blocks than fit the device at once: ask cuOccupancyMaxActiveBlocksPerMultiprocessor how many do."
        }
        800 => "The program is not allowed to do that: profiling counters, or another user's memory.",
        801 => "This device or driver cannot do that.",
        802 => {
            "The machine is not ready: on NVSwitch machines the fabric manager has to run (systemctl status nvidia-fabricmanager) and be of the driver's version."
        }
        804 => {
            "The compatibility package for a newer CUDA does not serve this device: update the driver itself."
        }
        805..=810 => {
            "The server that shares the device among processes (MPS) refused or is gone: look at its log (nvidia-cuda-mps-control)."
        }
        900..=903 | 905..=908 => {
            "While a stream is being captured, only what can become a part of a graph may be asked for: no waits, no allocations, no default stream. Do it before the capture."
        }
        904 => {
            "A stream that joined the capture was not joined back before its end: have the first stream wait for an event of it."
        }
        912 => "The cluster does not fit the device: make it smaller, or allow sizes that are not portable.",
        _ => return None,
    })
}

/// Advice by category, for errors that mean little by themselves.
const fn of_category(status: u16, category: Category) -> Option<&'static str> {
    Some(match (status, category) {
        (1, Category::Launch) => {
            "The driver does not take such a launch: look at the kernel's arguments, at the shape, and whether so much dynamic shared memory was allowed (cuFuncSetAttribute)."
        }
        (1, Category::Copy) => {
            "An address or size of the copy is wrong: past the end of what was allocated, given back already, or of another device."
        }
        (1, Category::Memory) => {
            "The pointer was not allocated by this call's counterpart, or was given back already; or the size is 0."
        }
        (400, Category::Stream) => "The stream or event was destroyed already, or is of another context.",
        (400, Category::Launch) => {
            "The function or stream is not of the current context, or its module was unloaded."
        }
        (400, _) => "What was given was destroyed already, or is of another context or device.",
        (500, _) => {
            "There is no such name in that module: look at its spelling, and whether it is mangled (extern \"C\")."
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failed_calls::name;

    #[test]
    fn common_errors_have_advice() {
        for status in
            [2, 3, 100, 101, 201, 209, 217, 222, 700, 701, 702, 704, 705, 710, 716, 719, 802, 803, 901]
        {
            let advice = of_status(status).unwrap_or_else(|| panic!("{}", name(status)));
            assert!(advice.ends_with('.') || advice.ends_with(')'), "{advice}");
        }
        assert_eq!(of_status(0), None);
        assert!(of_category(1, Category::Launch).is_some() && of_category(1, Category::Other).is_none());
    }

    #[test]
    fn invalid_launch_shapes_have_advice() {
        let shape = |grid, block| of_shape(&Launch { grid, block, ..Launch::default() });
        assert!(shape([0, 1, 1], [32, 1, 1]).unwrap().contains("is 0"));
        assert!(shape([1, 1, 1], [4096, 1, 1]).unwrap().contains("4096 threads"));
        assert!(shape([1, 1, 1], [1, 1, 65]).unwrap().contains("64"));
        assert!(shape([1, 65_535, 1], [1, 1, 1]).unwrap().contains("65535"));
        assert_eq!(shape([1, 1, 1], [1024, 1, 1]), None);
    }
}
