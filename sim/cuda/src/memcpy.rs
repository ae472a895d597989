//! Copies of every shape.

use crate::abi::{In, Out};
use crate::entry::{Call, api};
use crate::transfer::{copy, copy_async};
use crate::volume::{Plane, Volume, VolumeOperation};
use gputrace_sim::copy::{Shape, Side};
use gputrace_sim::error::{Code, Result};
use gputrace_sim::world::with;

fn volume(call: &Call, wanted: Volume) -> Result {
    let (shape, source, target) = wanted.resolve()?;
    copy(call, shape, source, target)
}

fn volume_async(call: &Call, wanted: Volume, stream: u64) -> Result {
    let (shape, source, target) = wanted.resolve()?;
    copy_async(call, shape, source, target, stream)
}

fn line(call: &Call, target: Side, source: Side, bytes: u64) -> Result {
    copy(call, Shape::line(0, 0, bytes), source, target)
}

fn line_async(call: &Call, target: Side, source: Side, bytes: u64, stream: u64) -> Result {
    copy_async(call, Shape::line(0, 0, bytes), source, target, stream)
}

fn contexts(one: u64, other: u64) -> Result {
    with(|w| w.contexts.get(one).and(w.contexts.get(other)).map(|_| ()))
}

/// A position in an array, as a device address.
fn in_array(array: u64, offset: u64) -> Result<Side> {
    let base = with(|w| w.arrays.get(array).map(|held| held.base))?;
    Ok(Side::Device(base.checked_add(offset).ok_or(Code::INVALID_VALUE)?))
}

fn batch(
    call: &Call,
    targets: In<u64>,
    sources: In<u64>,
    sizes: In<u64>,
    count: u64,
    stream: u64,
    failed: Option<Out<u64>>,
) -> Result {
    if stream <= 1 && call.stream(stream) != gputrace_sim::stream::PER_THREAD {
        return Err(Code::INVALID_VALUE);
    }
    let count = usize::try_from(count).map_err(|_| Code::INVALID_VALUE)?;
    let (targets, sources, sizes) = (targets.list(count)?, sources.list(count)?, sizes.list(count)?);
    for (at, ((target, source), bytes)) in targets.iter().zip(&sources).zip(&sizes).enumerate() {
        let done = line_async(call, Side::Unified(*target), Side::Unified(*source), *bytes, stream);
        if done.is_err() {
            if let Some(failed) = failed {
                failed.set_if_wanted(at as u64);
            }
            return done;
        }
    }
    Ok(())
}

fn batch_of_volumes(
    call: &Call,
    count: u64,
    operations: In<VolumeOperation>,
    stream: u64,
    failed: Option<Out<u64>>,
) -> Result {
    for (at, operation) in operations.list(count as usize)?.into_iter().enumerate() {
        let done = operation.as_volume().and_then(|wanted| volume_async(call, wanted, stream));
        if let Err(code) = done {
            if let Some(failed) = failed {
                failed.set_if_wanted(at as u64);
            }
            return Err(code);
        }
    }
    Ok(())
}

api! {
    "cuMemcpy" 4000 fn cuMemcpy / 7000 cuMemcpy_ptds(dst: u64, src: u64, ByteCount: u64) |c| {
        line(c, Side::Unified(dst), Side::Unified(src), ByteCount)
    }
    "cuMemcpyAsync" 4000 fn cuMemcpyAsync / 7000 cuMemcpyAsync_ptsz(dst: u64, src: u64, ByteCount: u64, hStream: u64) |c| {
        line_async(c, Side::Unified(dst), Side::Unified(src), ByteCount, hStream)
    }
    "cuMemcpyHtoD" 3020 fn cuMemcpyHtoD_v2 / 7000 cuMemcpyHtoD_v2_ptds(dstDevice: u64, srcHost: u64, ByteCount: u64) |c| {
        line(c, Side::Device(dstDevice), Side::Host(srcHost), ByteCount)
    }
    "cuMemcpyDtoH" 3020 fn cuMemcpyDtoH_v2 / 7000 cuMemcpyDtoH_v2_ptds(dstHost: u64, srcDevice: u64, ByteCount: u64) |c| {
        line(c, Side::Host(dstHost), Side::Device(srcDevice), ByteCount)
    }
    "cuMemcpyDtoD" 3020 fn cuMemcpyDtoD_v2 / 7000 cuMemcpyDtoD_v2_ptds(dstDevice: u64, srcDevice: u64, ByteCount: u64) |c| {
        line(c, Side::Device(dstDevice), Side::Device(srcDevice), ByteCount)
    }
    "cuMemcpyHtoDAsync" 3020 fn cuMemcpyHtoDAsync_v2 / 7000 cuMemcpyHtoDAsync_v2_ptsz(dstDevice: u64, srcHost: u64, ByteCount: u64, hStream: u64) |c| {
        line_async(c, Side::Device(dstDevice), Side::Host(srcHost), ByteCount, hStream)
    }
    "cuMemcpyDtoHAsync" 3020 fn cuMemcpyDtoHAsync_v2 / 7000 cuMemcpyDtoHAsync_v2_ptsz(dstHost: u64, srcDevice: u64, ByteCount: u64, hStream: u64) |c| {
        line_async(c, Side::Host(dstHost), Side::Device(srcDevice), ByteCount, hStream)
    }
    "cuMemcpyDtoDAsync" 3020 fn cuMemcpyDtoDAsync_v2 / 7000 cuMemcpyDtoDAsync_v2_ptsz(dstDevice: u64, srcDevice: u64, ByteCount: u64, hStream: u64) |c| {
        line_async(c, Side::Device(dstDevice), Side::Device(srcDevice), ByteCount, hStream)
    }
    "cuMemcpyPeer" 4000 fn cuMemcpyPeer / 7000 cuMemcpyPeer_ptds(dstDevice: u64, dstContext: u64, srcDevice: u64, srcContext: u64, ByteCount: u64) |c| {
        contexts(dstContext, srcContext)?;
        line(c, Side::Device(dstDevice), Side::Device(srcDevice), ByteCount)
    }
    "cuMemcpyPeerAsync" 4000 fn cuMemcpyPeerAsync / 7000 cuMemcpyPeerAsync_ptsz(dstDevice: u64, dstContext: u64, srcDevice: u64, srcContext: u64, ByteCount: u64, hStream: u64) |c| {
        contexts(dstContext, srcContext)?;
        line_async(c, Side::Device(dstDevice), Side::Device(srcDevice), ByteCount, hStream)
    }
    "cuMemcpyDtoA" 3020 fn cuMemcpyDtoA_v2 / 7000 cuMemcpyDtoA_v2_ptds(dstArray: u64, dstOffset: u64, srcDevice: u64, ByteCount: u64) |c| {
        line(c, in_array(dstArray, dstOffset)?, Side::Device(srcDevice), ByteCount)
    }
    "cuMemcpyAtoD" 3020 fn cuMemcpyAtoD_v2 / 7000 cuMemcpyAtoD_v2_ptds(dstDevice: u64, srcArray: u64, srcOffset: u64, ByteCount: u64) |c| {
        line(c, Side::Device(dstDevice), in_array(srcArray, srcOffset)?, ByteCount)
    }
    "cuMemcpyHtoA" 3020 fn cuMemcpyHtoA_v2 / 7000 cuMemcpyHtoA_v2_ptds(dstArray: u64, dstOffset: u64, srcHost: u64, ByteCount: u64) |c| {
        line(c, in_array(dstArray, dstOffset)?, Side::Host(srcHost), ByteCount)
    }
    "cuMemcpyAtoH" 3020 fn cuMemcpyAtoH_v2 / 7000 cuMemcpyAtoH_v2_ptds(dstHost: u64, srcArray: u64, srcOffset: u64, ByteCount: u64) |c| {
        line(c, Side::Host(dstHost), in_array(srcArray, srcOffset)?, ByteCount)
    }
    "cuMemcpyAtoA" 3020 fn cuMemcpyAtoA_v2 / 7000 cuMemcpyAtoA_v2_ptds(dstArray: u64, dstOffset: u64, srcArray: u64, srcOffset: u64, ByteCount: u64) |c| {
        line(c, in_array(dstArray, dstOffset)?, in_array(srcArray, srcOffset)?, ByteCount)
    }
    "cuMemcpyHtoAAsync" 3020 fn cuMemcpyHtoAAsync_v2 / 7000 cuMemcpyHtoAAsync_v2_ptsz(dstArray: u64, dstOffset: u64, srcHost: u64, ByteCount: u64, hStream: u64) |c| {
        line_async(c, in_array(dstArray, dstOffset)?, Side::Host(srcHost), ByteCount, hStream)
    }
    "cuMemcpyAtoHAsync" 3020 fn cuMemcpyAtoHAsync_v2 / 7000 cuMemcpyAtoHAsync_v2_ptsz(dstHost: u64, srcArray: u64, srcOffset: u64, ByteCount: u64, hStream: u64) |c| {
        line_async(c, Side::Host(dstHost), in_array(srcArray, srcOffset)?, ByteCount, hStream)
    }
    "cuMemcpy2D" 3020 fn cuMemcpy2D_v2 / 7000 cuMemcpy2D_v2_ptds(pCopy: In<Plane>) |c| {
        volume(c, pCopy.get()?.as_volume())
    }
    "cuMemcpy2DUnaligned" 3020 fn cuMemcpy2DUnaligned_v2 / 7000 cuMemcpy2DUnaligned_v2_ptds(pCopy: In<Plane>) |c| {
        volume(c, pCopy.get()?.as_volume())
    }
    "cuMemcpy2DAsync" 3020 fn cuMemcpy2DAsync_v2 / 7000 cuMemcpy2DAsync_v2_ptsz(pCopy: In<Plane>, hStream: u64) |c| {
        volume_async(c, pCopy.get()?.as_volume(), hStream)
    }
    "cuMemcpy3D" 3020 fn cuMemcpy3D_v2 / 7000 cuMemcpy3D_v2_ptds(pCopy: In<Volume>) |c| {
        volume(c, pCopy.get()?)
    }
    "cuMemcpy3DAsync" 3020 fn cuMemcpy3DAsync_v2 / 7000 cuMemcpy3DAsync_v2_ptsz(pCopy: In<Volume>, hStream: u64) |c| {
        volume_async(c, pCopy.get()?, hStream)
    }
    "cuMemcpy3DPeer" 4000 fn cuMemcpy3DPeer / 7000 cuMemcpy3DPeer_ptds(pCopy: In<Volume>) |c| {
        let wanted = pCopy.get()?;
        contexts(wanted.source.context, wanted.target.context)?;
        volume(c, wanted)
    }
    "cuMemcpy3DPeerAsync" 4000 fn cuMemcpy3DPeerAsync / 7000 cuMemcpy3DPeerAsync_ptsz(pCopy: In<Volume>, hStream: u64) |c| {
        let wanted = pCopy.get()?;
        contexts(wanted.source.context, wanted.target.context)?;
        volume_async(c, wanted, hStream)
    }
    "cuMemcpyBatchAsync" 12080 fn cuMemcpyBatchAsync / 12080 cuMemcpyBatchAsync_ptsz(
        dsts: In<u64>, srcs: In<u64>, sizes: In<u64>, count: u64, _attrs: u64, _attrsIdxs: u64, _numAttrs: u64,
        failIdx: Out<u64>, hStream: u64,
    ) |c| {
        batch(c, dsts, srcs, sizes, count, hStream, Some(failIdx))
    }
    "cuMemcpyBatchAsync" 13000 fn cuMemcpyBatchAsync_v2 / 13000 cuMemcpyBatchAsync_v2_ptsz(
        dsts: In<u64>, srcs: In<u64>, sizes: In<u64>, count: u64, _attrs: u64, _attrsIdxs: u64, _numAttrs: u64,
        hStream: u64,
    ) |c| {
        batch(c, dsts, srcs, sizes, count, hStream, None)
    }
    "cuMemcpy3DBatchAsync" 12080 fn cuMemcpy3DBatchAsync / 12080 cuMemcpy3DBatchAsync_ptsz(
        numOps: u64, opList: In<VolumeOperation>, failIdx: Out<u64>, _flags: u64, hStream: u64,
    ) |c| {
        batch_of_volumes(c, numOps, opList, hStream, Some(failIdx))
    }
    "cuMemcpy3DBatchAsync" 13000 fn cuMemcpy3DBatchAsync_v2 / 13000 cuMemcpy3DBatchAsync_v2_ptsz(
        numOps: u64, opList: In<VolumeOperation>, _flags: u64, hStream: u64,
    ) |c| {
        batch_of_volumes(c, numOps, opList, hStream, None)
    }
}
