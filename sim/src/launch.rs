//! Kernel launches: what is checked, how long they run, and their record.

use crate::activity::{self, Activity};
use crate::device as d;
use crate::error::{Code, Result};
use crate::handle::Handle;
use crate::module::{Function, Owner};
use crate::occupancy;
use crate::ptx::Entry;
use crate::work::{StreamIds, Work};
use crate::world::World;
use std::ffi::{CStr, c_void};
use std::sync::Arc;

/// Where a program's kernel arguments are.
#[derive(Clone, Copy, Debug)]
pub struct Arguments {
    /// One pointer for each parameter.
    pub list: *const *const c_void,
    /// The packed form: pairs of key and value.
    pub extra: *const *const c_void,
}

/// What a program asks for.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub function: Handle,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub dynamic_shared: u32,
    /// Zeroes: none asked for.
    pub cluster: [u32; 3],
    pub cooperative: bool,
    pub arguments: Arguments,
}

/// A launch that was checked and can be performed any number of times.
#[derive(Clone, Debug)]
pub struct Kernel {
    pub function: Handle,
    pub name: &'static CStr,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub cluster: [u32; 3],
    pub dynamic_shared: u32,
    pub cooperative: bool,
    registers: u32,
    static_shared: u32,
    local_bytes: u32,
    duration_ns: u64,
    fault: Option<Code>,
    /// Kept only for graphs.
    pub arguments: Option<Arc<ArgumentBlock>>,
}

/// A launch's arguments, copied.
#[derive(Debug)]
pub struct ArgumentBlock {
    /// Only reached through `pointers`.
    _bytes: Box<[u8]>,
    /// One pointer into the bytes for each parameter, as `kernelParams` wants them.
    pub pointers: Box<[u64]>,
}

fn product(dims: [u32; 3]) -> u64 {
    dims.iter().map(|&side| u64::from(side)).product()
}

/// Copies a launch's arguments into a block of their own.
fn gather(entry: &Entry, arguments: Arguments) -> Result<Arc<ArgumentBlock>> {
    let bytes = entry.parameters.last().map_or(0, |last| last.offset + last.size);
    let mut block = vec![0u8; bytes].into_boxed_slice();
    if !arguments.list.is_null() {
        for (at, parameter) in entry.parameters.iter().enumerate() {
            // SAFETY: by the driver's contract the list has one pointer for each parameter, each to as many
            // bytes as the parameter is declared with.
            unsafe {
                let value = *arguments.list.add(at);
                if value.is_null() {
                    return Err(Code::INVALID_VALUE);
                }
                let target = block.as_mut_ptr().add(parameter.offset);
                std::ptr::copy_nonoverlapping(value.cast::<u8>(), target, parameter.size);
            }
        }
    } else if let Some((source, length)) = packed(arguments.extra) {
        // SAFETY: by the driver's contract the buffer has the length that was stated with it.
        unsafe { std::ptr::copy_nonoverlapping(source, block.as_mut_ptr(), length.min(bytes)) };
    }
    let base = block.as_ptr() as u64;
    let pointers = entry.parameters.iter().map(|parameter| base + parameter.offset as u64).collect();
    Ok(Arc::new(ArgumentBlock { _bytes: block, pointers }))
}

/// Buffer and length of the packed form.
fn packed(extra: *const *const c_void) -> Option<(*const u8, usize)> {
    if extra.is_null() {
        return None;
    }
    let (mut buffer, mut length) = (std::ptr::null::<u8>(), 0usize);
    for pair in 0..2 {
        // SAFETY: by the driver's contract the list consists of pairs and ends with the key 0; a pair is read
        // only while no end was seen.
        unsafe {
            let (key, value) = (*extra.add(pair * 2) as usize, extra.add(pair * 2 + 1));
            match key {
                1 => buffer = (*value).cast(),
                2 => length = *(*value).cast::<usize>(),
                _ => break,
            }
        }
    }
    (!buffer.is_null()).then_some((buffer, length))
}

impl World {
    /// Checks a launch in the current context.
    pub fn plan_kernel(&self, request: &Request, keep_arguments: bool) -> Result<Kernel> {
        let context = self.current()?;
        let function: &Function = self.functions.get(request.function)?;
        if let Owner::Module(_) = function.owner
            && function.context != context
        {
            return Err(Code::INVALID_HANDLE);
        }
        let within = |dims: [u32; 3], most: [u32; 3]| {
            dims.iter().zip(most).all(|(&dim, most)| dim >= 1 && dim <= most)
        };
        let threads = product(request.block);
        if !within(request.grid, d::MAX_GRID) || !within(request.block, d::MAX_BLOCK) || threads > 1024 {
            return Err(Code::INVALID_VALUE);
        }
        if request.dynamic_shared > function.max_dynamic_shared {
            return Err(Code::INVALID_VALUE);
        }
        let entry = &function.entry;
        let threads = threads as u32;
        let resident =
            occupancy::blocks(entry.registers, entry.shared_bytes, request.dynamic_shared, threads);
        if resident == 0 || entry.max_threads.is_some_and(|most| threads > most) {
            return Err(Code::LAUNCH_OUT_OF_RESOURCES);
        }
        if request.cooperative && product(request.grid) > u64::from(resident * d::MULTIPROCESSORS) {
            return Err(Code::COOPERATIVE_LAUNCH_TOO_LARGE);
        }
        let cluster = self.check_cluster(function, request)?;
        let has_arguments = !request.arguments.list.is_null() || !request.arguments.extra.is_null();
        if !entry.parameters.is_empty() && !has_arguments {
            return Err(Code::INVALID_VALUE);
        }
        let arguments = if keep_arguments { Some(gather(entry, request.arguments)?) } else { None };
        Ok(Kernel {
            function: request.function,
            name: function.name,
            grid: request.grid,
            block: request.block,
            cluster,
            dynamic_shared: request.dynamic_shared,
            cooperative: request.cooperative,
            registers: entry.registers,
            static_shared: entry.shared_bytes,
            local_bytes: entry.local_bytes,
            duration_ns: entry
                .duration_ns
                .unwrap_or_else(|| d::kernel_duration_ns(request.grid, request.block)),
            fault: entry.fault.map(Code),
            arguments,
        })
    }

    fn check_cluster(&self, function: &Function, request: &Request) -> Result<[u32; 3]> {
        let asked = if request.cluster == [0; 3] { function.cluster } else { request.cluster };
        if asked == [0; 3] {
            return Ok([0; 3]);
        }
        let cluster = asked.map(|side| side.max(1));
        let most = if function.non_portable_cluster { 16 } else { 8 };
        let divides = cluster.iter().zip(request.grid).all(|(&side, grid)| grid % side == 0);
        if product(cluster) > most || !divides {
            return Err(Code::INVALID_CLUSTER_SIZE);
        }
        if function.entry.required_cluster.is_some_and(|required| required != cluster) {
            return Err(Code::INVALID_CLUSTER_SIZE);
        }
        Ok(cluster)
    }

    /// Launches into a stream.
    pub fn launch(&mut self, request: &Request, stream: Handle) -> Result {
        if self.streams.get(stream)?.context != self.current()? {
            return Err(Code::INVALID_HANDLE);
        }
        let kernel = self.plan_kernel(request, self.captures > 0)?;
        self.submit(stream, Work::Kernel(kernel)).map(|_| ())
    }

    /// Performs a kernel that starts at `start_ns`; returns its end.
    pub fn perform_kernel(
        &mut self,
        kernel: &Kernel,
        ids: &StreamIds,
        start_ns: u64,
        correlation: u32,
        node: Option<(u32, u64)>,
    ) -> u64 {
        let end_ns = start_ns + kernel.duration_ns;
        if let Some(code) = kernel.fault {
            self.fault(ids.context, end_ns, code);
        }
        let grid_id = self.next_grid_id;
        self.next_grid_id += 1;
        if activity::kernels_wanted() && self.node_records_wanted(node) {
            let record = Activity {
                name: kernel.name.as_ptr(),
                grid: kernel.grid,
                block: kernel.block,
                cluster: kernel.cluster,
                registers: kernel.registers,
                static_shared_bytes: kernel.static_shared,
                dynamic_shared_bytes: kernel.dynamic_shared,
                local_bytes_per_thread: kernel.local_bytes,
                launch_type: u32::from(kernel.cooperative),
                grid_id,
                ..self.record(activity::CONCURRENT_KERNEL, ids, start_ns, end_ns, correlation, node)
            };
            self.deliver(ids.context, record);
        }
        end_ns
    }
}
