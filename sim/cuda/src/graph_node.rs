//! The parameters of graph nodes: from and to the structures of C.

use crate::abi::{In, Out};
use crate::pool::Properties;
use crate::volume::Volume;
use gputrace_sim::error::{Code, Result};
use gputrace_sim::fill::Pattern;
use gputrace_sim::graph::NodeWork;
use gputrace_sim::launch::{Arguments, Request};
use gputrace_sim::work::HostCall;
use gputrace_sim::world::{World, with};
use std::ffi::c_void;

/// `CUDA_KERNEL_NODE_PARAMS_v1`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct KernelParameters {
    function: u64,
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    arguments: u64,
    extra: u64,
}

/// `CUDA_KERNEL_NODE_PARAMS_v2`, and v3 which is laid out alike.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct KernelParametersV2 {
    first: KernelParameters,
    kernel: u64,
    context: u64,
}

/// `CUDA_MEMSET_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FillParameters {
    target: u64,
    pitch: u64,
    value: u32,
    element_bytes: u32,
    width: u64,
    height: u64,
}

/// `CUDA_HOST_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct HostParameters {
    function: Option<extern "C" fn(*mut c_void)>,
    argument: *mut c_void,
}

/// `CUDA_MEM_ALLOC_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AllocateParameters {
    pub properties: Properties,
    access: u64,
    access_count: u64,
    pub bytes: u64,
    pub address: u64,
}

/// `CUDA_MEMCPY_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CopyParameters {
    flags: u32,
    reserved: u32,
    context: u64,
    copy: Volume,
}

/// `CUgraphNodeParams`: a kind, and what that kind wants.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AnyParameters {
    kind: u32,
    reserved: [u32; 3],
    of_kind: OfKind,
    reserved_too: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
union OfKind {
    whole: [u64; 29],
    kernel: KernelParametersV2,
    copy: CopyParameters,
    fill: FillParameters,
    host: HostParameters,
    handle: u64,
    allocate: AllocateParameters,
}

impl KernelParametersV2 {
    fn work(&self, w: &World) -> Result<NodeWork> {
        let first = &self.first;
        let request = Request {
            function: if first.function != 0 { first.function } else { self.kernel },
            grid: first.grid,
            block: first.block,
            dynamic_shared: first.shared_bytes,
            cluster: [0; 3],
            cooperative: false,
            arguments: Arguments { list: first.arguments as *const _, extra: first.extra as *const _ },
        };
        Ok(NodeWork::Kernel(w.plan_kernel(&request, true)?))
    }

    /// The parameters of a kernel node.
    pub fn of(w: &World, work: &NodeWork) -> Result<KernelParametersV2> {
        let NodeWork::Kernel(kernel) = work else { return Err(Code::INVALID_VALUE) };
        let pointers = kernel.arguments.as_ref().map(|block| &block.pointers).filter(|list| !list.is_empty());
        let is_kernel = w.library_of(kernel.function).is_ok();
        let first = KernelParameters {
            function: if is_kernel { 0 } else { kernel.function },
            grid: kernel.grid,
            block: kernel.block,
            shared_bytes: kernel.dynamic_shared,
            arguments: pointers.map_or(0, |list| list.as_ptr() as u64),
            extra: 0,
        };
        let context = w.functions.get(kernel.function).map_or(0, |held| held.context);
        Ok(KernelParametersV2 { first, kernel: if is_kernel { kernel.function } else { 0 }, context })
    }

    /// The part that the first version has.
    pub fn first(&self) -> KernelParameters {
        self.first
    }
}

/// A kernel node.
pub fn kernel_v2(parameters: In<KernelParametersV2>) -> Result<NodeWork> {
    let parameters = parameters.get()?;
    with(|w| parameters.work(w))
}

/// A kernel node, from the first version of the structure.
pub fn kernel(parameters: In<KernelParameters>) -> Result<NodeWork> {
    let parameters = KernelParametersV2 { first: parameters.get()?, kernel: 0, context: 0 };
    with(|w| parameters.work(w))
}

/// A copy node.
pub fn copy(wanted: In<Volume>) -> Result<NodeWork> {
    let (shape, source, target) = wanted.get()?.resolve()?;
    with(|w| Ok(NodeWork::Copy(w.plan_copy(shape, source, target, true)?)))
}

/// A fill node.
pub fn fill(parameters: In<FillParameters>) -> Result<NodeWork> {
    let FillParameters { target, pitch, value, element_bytes, width, height } = parameters.get()?;
    let pattern = Pattern { target, pitch, value, element_bytes, width, height };
    with(|w| Ok(NodeWork::Fill(w.plan_fill(pattern, true)?)))
}

impl FillParameters {
    /// The parameters of a fill node.
    pub fn of(work: &NodeWork) -> Result<FillParameters> {
        let NodeWork::Fill(fill) = work else { return Err(Code::INVALID_VALUE) };
        let Pattern { target, pitch, value, element_bytes, width, height } = fill.pattern;
        Ok(FillParameters { target, pitch, value, element_bytes, width, height })
    }
}

/// A host node.
pub fn host(parameters: In<HostParameters>) -> Result<NodeWork> {
    let parameters = parameters.get()?;
    let function = parameters.function.ok_or(Code::INVALID_VALUE)?;
    Ok(NodeWork::Host(HostCall { function, argument: parameters.argument }))
}

impl HostParameters {
    /// The parameters of a host node.
    pub fn of(work: &NodeWork) -> Result<HostParameters> {
        let NodeWork::Host(call) = work else { return Err(Code::INVALID_VALUE) };
        Ok(HostParameters { function: Some(call.function), argument: call.argument })
    }
}

/// What `cuGraphAddNode` and its relatives are given.
pub enum Wanted {
    Work(NodeWork),
    Child(u64),
    Allocate(AllocateParameters),
}

/// Reads the structure that serves all kinds.
pub fn any(parameters: Out<AnyParameters>) -> Result<Wanted> {
    let given = parameters.get()?;
    // SAFETY: each read is of the member that the kind names, and every bit pattern is valid for all members
    // but the function pointer, which is a function or null by the driver's contract.
    unsafe {
        let of = &given.of_kind;
        Ok(Wanted::Work(match given.kind {
            0 => kernel_v2(In(&of.kernel))?,
            1 => copy(In(&raw const of.copy.copy))?,
            2 => fill(In(&of.fill))?,
            3 => host(In(&of.host))?,
            4 => return Ok(Wanted::Child(of.handle)),
            5 => NodeWork::Empty,
            6 => NodeWork::WaitEvent(checked_event(of.handle)?),
            7 => NodeWork::RecordEvent(checked_event(of.handle)?),
            10 => return Ok(Wanted::Allocate(of.allocate)),
            11 => NodeWork::Free { address: of.handle },
            _ => return Err(Code::NOT_SUPPORTED),
        }))
    }
}

/// Tells the program the address of the memory that its node will allocate.
pub fn set_any_address(parameters: Out<AnyParameters>, address: u64) -> Result {
    let mut given = parameters.get()?;
    given.of_kind.allocate.address = address;
    parameters.set(given)
}

/// An event that is alive.
pub fn checked_event(event: u64) -> Result<u64> {
    with(|w| w.events.get(event).map(|_| event))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_their_c_sizes() {
        assert_eq!((size_of::<KernelParameters>(), size_of::<KernelParametersV2>()), (56, 72));
        assert_eq!((size_of::<FillParameters>(), size_of::<AllocateParameters>()), (40, 120));
        assert_eq!((size_of::<CopyParameters>(), size_of::<AnyParameters>()), (216, 256));
    }
}
