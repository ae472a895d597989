//! Functions and kernels: attributes, names, parameters, occupancy.

use crate::abi::{In, Out};
use crate::entry::{Call, api};
use crate::launch::Configuration;
use gputrace_sim::device;
use gputrace_sim::error::{Code, Result};
use gputrace_sim::module::{Function, Owner};
use gputrace_sim::world::with;
use std::ffi::c_char;

type SharedForBlock = Option<extern "C" fn(i32) -> u64>;

fn attribute(value: Out<i32>, number: u32, function: u64) -> Result {
    value.required()?;
    value.set(with(|w| w.functions.get(function)?.attribute(number))?)
}

fn set_attribute(number: u32, value: i32, function: u64) -> Result {
    with(|w| w.functions.get_mut(function)?.set_attribute(number, value))
}

fn name(name: Out<*const c_char>, function: u64) -> Result {
    name.required()?;
    name.set(with(|w| w.functions.get(function).map(|held| held.name))?.as_ptr())
}

fn parameter(function: u64, index: u64, offset: Out<u64>, size: Out<u64>) -> Result {
    let parameter = with(|w| {
        let parameters = &w.functions.get(function)?.entry.parameters;
        parameters.get(index as usize).copied().ok_or(Code::INVALID_VALUE)
    })?;
    offset.set(parameter.offset as u64)?;
    size.set_if_wanted(parameter.size as u64);
    Ok(())
}

fn looked_at<R>(function: u64, f: impl FnOnce(&Function) -> Result<R>) -> Result<R> {
    let held = with(|w| w.functions.get(function).cloned())?;
    f(&held)
}

fn blocks(number: Out<i32>, func: u64, block: i32, shared: u64) -> Result {
    let threads = u32::try_from(block).ok().filter(|&threads| threads > 0).ok_or(Code::INVALID_VALUE)?;
    let shared = u32::try_from(shared).unwrap_or(u32::MAX);
    number.set(looked_at(func, |held| Ok(held.blocks_per_multiprocessor(threads, shared)))? as i32)
}

fn best(
    least_grid: Out<i32>,
    best_block: Out<i32>,
    func: u64,
    shared: SharedForBlock,
    fixed: u64,
    limit: i32,
) -> Result {
    let limit = u32::try_from(limit).map_err(|_| Code::INVALID_VALUE)?;
    let of_block = |threads: u32| {
        let bytes = shared.map_or(fixed, |shared| shared(threads as i32));
        u32::try_from(bytes).unwrap_or(u32::MAX)
    };
    let (grid, block) = looked_at(func, |held| Ok(held.best_block(of_block, limit)))?;
    least_grid.set(grid as i32)?;
    best_block.set(block as i32)
}

api! {
    "cuFuncGetAttribute" 2020 fn cuFuncGetAttribute(pi: Out<i32>, attrib: u32, hfunc: u64) |_| {
        attribute(pi, attrib, hfunc)
    }
    "cuFuncSetAttribute" 9000 fn cuFuncSetAttribute(hfunc: u64, attrib: u32, value: i32) |_| {
        set_attribute(attrib, value, hfunc)
    }
    "cuFuncSetCacheConfig" 3000 fn cuFuncSetCacheConfig(hfunc: u64, config: u32) |_| {
        with(|w| w.functions.get(hfunc).map(|_| ()))?;
        if config > 3 { Err(Code::INVALID_VALUE) } else { Ok(()) }
    }
    "cuFuncSetSharedMemConfig" 4020 fn cuFuncSetSharedMemConfig(hfunc: u64, config: u32) |_| {
        with(|w| w.functions.get(hfunc).map(|_| ()))?;
        if config > 2 { Err(Code::INVALID_VALUE) } else { Ok(()) }
    }
    "cuFuncGetModule" 11000 fn cuFuncGetModule(hmod: Out<u64>, hfunc: u64) |_| {
        hmod.set(with(|w| match w.functions.get(hfunc)?.owner {
            Owner::Module(module) => Ok(module),
            Owner::Library(library) => w.library_module(library),
        })?)
    }
    "cuFuncGetName" 12030 fn cuFuncGetName(name_: Out<*const c_char>, hfunc: u64) |_| { name(name_, hfunc) }
    "cuFuncGetParamInfo" 12040 fn cuFuncGetParamInfo(func: u64, paramIndex: u64, paramOffset: Out<u64>, paramSize: Out<u64>) |_| {
        parameter(func, paramIndex, paramOffset, paramSize)
    }
    "cuFuncIsLoaded" 12040 fn cuFuncIsLoaded(state: Out<u32>, function: u64) |_| {
        with(|w| w.functions.get(function).map(|_| ()))?;
        state.set(1)
    }
    "cuFuncLoad" 12040 fn cuFuncLoad(function: u64) |_| {
        with(|w| w.functions.get(function).map(|_| ()))
    }
    "cuKernelGetAttribute" 12000 fn cuKernelGetAttribute(pi: Out<i32>, attrib: u32, kernel: u64, dev: i32) |_| {
        device::check(dev)?;
        attribute(pi, attrib, kernel)
    }
    "cuKernelSetAttribute" 12000 fn cuKernelSetAttribute(attrib: u32, val: i32, kernel: u64, dev: i32) |_| {
        device::check(dev)?;
        set_attribute(attrib, val, kernel)
    }
    "cuKernelSetCacheConfig" 12000 fn cuKernelSetCacheConfig(kernel: u64, config: u32, dev: i32) |_| {
        device::check(dev)?;
        with(|w| w.functions.get(kernel).map(|_| ()))?;
        if config > 3 { Err(Code::INVALID_VALUE) } else { Ok(()) }
    }
    "cuKernelGetName" 12030 fn cuKernelGetName(name_: Out<*const c_char>, hfunc: u64) |_| { name(name_, hfunc) }
    "cuKernelGetParamInfo" 12040 fn cuKernelGetParamInfo(kernel: u64, paramIndex: u64, paramOffset: Out<u64>, paramSize: Out<u64>) |_| {
        parameter(kernel, paramIndex, paramOffset, paramSize)
    }
    "cuOccupancyMaxActiveBlocksPerMultiprocessor" 6050 fn cuOccupancyMaxActiveBlocksPerMultiprocessor(numBlocks: Out<i32>, func: u64, blockSize: i32, dynamicSMemSize: u64) |_| {
        blocks(numBlocks, func, blockSize, dynamicSMemSize)
    }
    "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags" 7000 fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(numBlocks: Out<i32>, func: u64, blockSize: i32, dynamicSMemSize: u64, flags: u32) |_| {
        if flags > 1 { return Err(Code::INVALID_VALUE); }
        blocks(numBlocks, func, blockSize, dynamicSMemSize)
    }
    "cuOccupancyMaxPotentialBlockSize" 6050 fn cuOccupancyMaxPotentialBlockSize(minGridSize: Out<i32>, blockSize: Out<i32>, func: u64, shared: SharedForBlock, dynamicSMemSize: u64, blockSizeLimit: i32) |_| {
        best(minGridSize, blockSize, func, shared, dynamicSMemSize, blockSizeLimit)
    }
    "cuOccupancyMaxPotentialBlockSizeWithFlags" 7000 fn cuOccupancyMaxPotentialBlockSizeWithFlags(minGridSize: Out<i32>, blockSize: Out<i32>, func: u64, shared: SharedForBlock, dynamicSMemSize: u64, blockSizeLimit: i32, flags: u32) |_| {
        if flags > 1 { return Err(Code::INVALID_VALUE); }
        best(minGridSize, blockSize, func, shared, dynamicSMemSize, blockSizeLimit)
    }
    "cuOccupancyAvailableDynamicSMemPerBlock" 10020 fn cuOccupancyAvailableDynamicSMemPerBlock(dynamicSmemSize: Out<u64>, func: u64, numBlocks: i32, blockSize: i32) |_| {
        if numBlocks < 1 || blockSize < 1 { return Err(Code::INVALID_VALUE); }
        let each = device::SHARED_BYTES_PER_MULTIPROCESSOR / numBlocks as u32;
        let per_block = each.saturating_sub(device::RESERVED_SHARED_BYTES_PER_BLOCK) / 128 * 128;
        dynamicSmemSize.set(looked_at(func, |held| {
            let most = device::SHARED_BYTES_PER_BLOCK_OPT_IN.min(per_block);
            Ok(u64::from(most.saturating_sub(held.entry.shared_bytes)))
        })?)
    }
    "cuOccupancyMaxPotentialClusterSize" 11070 fn cuOccupancyMaxPotentialClusterSize(clusterSize: Out<i32>, func: u64, _config: In<u32>) |_| {
        clusterSize.set(looked_at(func, |held| Ok(if held.non_portable_cluster { 16 } else { 8 }))?)
    }
    "cuOccupancyMaxActiveClusters" 11070 fn cuOccupancyMaxActiveClusters(numClusters: Out<i32>, func: u64, config: In<Configuration>) |_| {
        let config = config.get()?;
        let blocks_of_cluster = config.cluster()?.iter().map(|side| (*side).max(1)).product::<u32>();
        numClusters.set(looked_at(func, |held| {
            let resident = held.blocks_per_multiprocessor(config.threads(), config.shared_bytes);
            Ok(resident * device::MULTIPROCESSORS / blocks_of_cluster)
        })? as i32)
    }
}
