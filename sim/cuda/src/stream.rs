//! Streams, their callbacks and host functions, and operations on memory words.

use crate::abi::{In, Out};
use crate::entry::{Call, api};
use gputrace_sim::error::{Code, Result};
use gputrace_sim::graph::NodeWork;
use gputrace_sim::timeline::{query, wait};
use gputrace_sim::work::{Comparison, HostCall, StreamCallback, ValueWait, ValueWrite, Work};
use gputrace_sim::world::{World, with};
use std::ffi::c_void;

type HostFunction = Option<extern "C" fn(*mut c_void)>;
type CallbackFunction = Option<extern "C" fn(u64, u32, *mut c_void)>;

fn create(stream: Out<u64>, flags: u32, priority: i32) -> Result {
    stream.required()?;
    stream.set(with(|w| {
        w.refuse_while_capturing()?;
        w.create_stream(flags, priority)
    })?)
}

fn destroy(stream: u64) -> Result {
    with(|w| w.destroy_stream(stream))
}

fn idle(call: &Call, given: u64) -> Result<u64> {
    let given = call.stream(given);
    with(|w| {
        let stream = w.stream(given)?;
        w.refuse_if_capturing(stream)?;
        Ok(stream)
    })
}

fn word(w: &World, address: u64, wide: bool) -> Result {
    let bytes = if wide { 8 } else { 4 };
    if !address.is_multiple_of(bytes) {
        return Err(Code::INVALID_VALUE);
    }
    w.memory.find_range(address, bytes).map(|_| ())
}

fn wait_value(w: &mut World, stream: u64, address: u64, value: u64, wide: bool, flags: u32) -> Result {
    word(w, address, wide)?;
    let comparison = match flags & 0xff {
        0 => Comparison::AtLeast,
        1 => Comparison::Equal,
        2 => Comparison::AnyBit,
        3 => Comparison::NotOr,
        _ => return Err(Code::INVALID_VALUE),
    };
    w.submit(stream, Work::WaitValue(ValueWait { address, value, wide, comparison })).map(|_| ())
}

fn write_value(w: &mut World, stream: u64, address: u64, value: u64, wide: bool) -> Result {
    word(w, address, wide)?;
    w.submit(stream, Work::WriteValue(ValueWrite { address, value, wide })).map(|_| ())
}

fn on_stream(call: &Call, given: u64, f: impl FnOnce(&mut World, u64) -> Result) -> Result {
    let given = call.stream(given);
    with(|w| {
        let stream = w.stream(given)?;
        f(w, stream)
    })
}

/// `CUstreamBatchMemOpParams`: operation, address, value, flags, alias, and room for later ones.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MemoryOperation {
    operation: u32,
    address: u64,
    value: u64,
    flags: u32,
    alias: u64,
    rest: u64,
}

fn batch(call: &Call, given: u64, count: u32, operations: In<MemoryOperation>) -> Result {
    if count > 256 {
        return Err(Code::INVALID_VALUE);
    }
    let operations = operations.list(count as usize)?;
    on_stream(call, given, |w, stream| {
        for op in &operations {
            match op.operation {
                1 => wait_value(w, stream, op.address, op.value & 0xffff_ffff, false, op.flags)?,
                4 => wait_value(w, stream, op.address, op.value, true, op.flags)?,
                2 => write_value(w, stream, op.address, op.value & 0xffff_ffff, false)?,
                5 => write_value(w, stream, op.address, op.value, true)?,
                3 | 6 => {}
                _ => return Err(Code::INVALID_VALUE),
            }
        }
        Ok(())
    })
}

api! {
    "cuStreamCreate" 2000 fn cuStreamCreate(phStream: Out<u64>, Flags: u32) |_| { create(phStream, Flags, 0) }
    "cuStreamCreateWithPriority" 5050 fn cuStreamCreateWithPriority(phStream: Out<u64>, flags: u32, priority: i32) |_| {
        create(phStream, flags, priority)
    }
    "cuStreamDestroy" 2000 fn cuStreamDestroy(hStream: u64) |_| { destroy(hStream) }
    "cuStreamDestroy" 4000 fn cuStreamDestroy_v2(hStream: u64) |_| { destroy(hStream) }
    "cuStreamSynchronize" 2000 fn cuStreamSynchronize / 7000 cuStreamSynchronize_ptsz(hStream: u64) |c| {
        let stream = idle(c, hStream)?;
        wait(|w| w.stream_end(stream))
    }
    "cuStreamQuery" 2000 fn cuStreamQuery / 7000 cuStreamQuery_ptsz(hStream: u64) |c| {
        let stream = idle(c, hStream)?;
        query(|w| w.stream_end(stream))
    }
    "cuStreamWaitEvent" 3020 fn cuStreamWaitEvent / 7000 cuStreamWaitEvent_ptsz(hStream: u64, hEvent: u64, Flags: u32) |c| {
        if Flags & !1 != 0 {
            return Err(Code::INVALID_VALUE);
        }
        on_stream(c, hStream, |w, stream| {
            if Flags == 1 && w.captures > 0 && w.capture_applies(stream)? {
                w.events.get(hEvent)?;
                return w.capture_node(stream, NodeWork::WaitEvent(hEvent)).map(|_| ());
            }
            w.wait_event(stream, hEvent)
        })
    }
    "cuStreamGetPriority" 5050 fn cuStreamGetPriority / 7000 cuStreamGetPriority_ptsz(hStream: u64, priority: Out<i32>) |c| {
        on_stream(c, hStream, |w, stream| priority.set(w.streams.get(stream)?.priority))
    }
    "cuStreamGetFlags" 5050 fn cuStreamGetFlags / 7000 cuStreamGetFlags_ptsz(hStream: u64, flags: Out<u32>) |c| {
        on_stream(c, hStream, |w, stream| flags.set(w.streams.get(stream)?.flags))
    }
    "cuStreamGetId" 12000 fn cuStreamGetId / 12000 cuStreamGetId_ptsz(hStream: u64, streamId: Out<u64>) |c| {
        on_stream(c, hStream, |w, stream| {
            let held = w.streams.get(stream)?;
            streamId.set(u64::from(held.context_uid) << 32 | u64::from(held.id))
        })
    }
    "cuStreamGetCtx" 9020 fn cuStreamGetCtx / 9020 cuStreamGetCtx_ptsz(hStream: u64, pctx: Out<u64>) |c| {
        on_stream(c, hStream, |w, stream| pctx.set(w.streams.get(stream)?.context))
    }
    "cuStreamGetCtx" 12050 fn cuStreamGetCtx_v2 / 12050 cuStreamGetCtx_v2_ptsz(hStream: u64, pCtx: Out<u64>, pGreenCtx: Out<u64>) |c| {
        on_stream(c, hStream, |w, stream| {
            pGreenCtx.set_if_wanted(0);
            pCtx.set(w.streams.get(stream)?.context)
        })
    }
    "cuStreamGetDevice" 12080 fn cuStreamGetDevice / 12080 cuStreamGetDevice_ptsz(hStream: u64, device: Out<i32>) |c| {
        on_stream(c, hStream, |w, stream| device.set(w.streams.get(stream)?.device as i32))
    }
    "cuStreamCopyAttributes" 11000 fn cuStreamCopyAttributes / 11000 cuStreamCopyAttributes_ptsz(dst: u64, src: u64) |c| {
        let (dst, src) = (c.stream(dst), c.stream(src));
        with(|w| {
            let (dst, src) = (w.stream(dst)?, w.stream(src)?);
            let policy = w.streams.get(src)?.synchronisation_policy;
            w.streams.get_mut(dst)?.synchronisation_policy = policy;
            Ok(())
        })
    }
    "cuStreamGetAttribute" 11000 fn cuStreamGetAttribute / 11000 cuStreamGetAttribute_ptsz(hStream: u64, attr: u32, value_out: Out<[u32; 16]>) |c| {
        on_stream(c, hStream, |w, stream| {
            let held = w.streams.get(stream)?;
            let mut value = [0u32; 16];
            match attr {
                1 | 9 | 10 => {}
                3 => value[0] = held.synchronisation_policy,
                8 => value[0] = held.priority as u32,
                _ => return Err(Code::INVALID_VALUE),
            }
            value_out.set(value)
        })
    }
    "cuStreamSetAttribute" 11000 fn cuStreamSetAttribute / 11000 cuStreamSetAttribute_ptsz(hStream: u64, attr: u32, value: In<[u32; 16]>) |c| {
        let value = value.get()?;
        on_stream(c, hStream, |w, stream| {
            let held = w.streams.get_mut(stream)?;
            match attr {
                1 | 9 | 10 => {}
                3 => held.synchronisation_policy = value[0],
                8 => held.priority = value[0] as i32,
                _ => return Err(Code::INVALID_VALUE),
            }
            Ok(())
        })
    }
    "cuStreamAddCallback" 5000 fn cuStreamAddCallback / 7000 cuStreamAddCallback_ptsz(hStream: u64, callback: CallbackFunction, userData: *mut c_void, flags: u32) |c| {
        let function = callback.filter(|_| flags == 0).ok_or(Code::INVALID_VALUE)?;
        let callback = StreamCallback { function, stream: hStream, argument: userData };
        on_stream(c, hStream, |w, stream| w.submit(stream, Work::Callback(callback)).map(|_| ()))
    }
    "cuLaunchHostFunc" 10000 fn cuLaunchHostFunc / 10000 cuLaunchHostFunc_ptsz(hStream: u64, fn_: HostFunction, userData: *mut c_void) |c| {
        let function = fn_.ok_or(Code::INVALID_VALUE)?;
        let call = HostCall { function, argument: userData };
        on_stream(c, hStream, |w, stream| w.submit(stream, Work::Host(call)).map(|_| ()))
    }
    "cuStreamAttachMemAsync" 6000 fn cuStreamAttachMemAsync / 7000 cuStreamAttachMemAsync_ptsz(hStream: u64, dptr: u64, _length: u64, _flags: u32) |c| {
        on_stream(c, hStream, |w, stream| {
            w.memory.find(dptr).ok_or(Code::INVALID_VALUE)?;
            w.submit(stream, Work::Mark).map(|_| ())
        })
    }
    "cuStreamWaitValue32" 8000 fn cuStreamWaitValue32 / 8000 cuStreamWaitValue32_ptsz(stream: u64, addr: u64, value: u32, flags: u32) |c| {
        on_stream(c, stream, |w, s| wait_value(w, s, addr, value.into(), false, flags))
    }
    "cuStreamWaitValue32" 11070 fn cuStreamWaitValue32_v2 / 11070 cuStreamWaitValue32_v2_ptsz(stream: u64, addr: u64, value: u32, flags: u32) |c| {
        on_stream(c, stream, |w, s| wait_value(w, s, addr, value.into(), false, flags))
    }
    "cuStreamWaitValue64" 9000 fn cuStreamWaitValue64 / 9000 cuStreamWaitValue64_ptsz(stream: u64, addr: u64, value: u64, flags: u32) |c| {
        on_stream(c, stream, |w, s| wait_value(w, s, addr, value, true, flags))
    }
    "cuStreamWaitValue64" 11070 fn cuStreamWaitValue64_v2 / 11070 cuStreamWaitValue64_v2_ptsz(stream: u64, addr: u64, value: u64, flags: u32) |c| {
        on_stream(c, stream, |w, s| wait_value(w, s, addr, value, true, flags))
    }
    "cuStreamWriteValue32" 8000 fn cuStreamWriteValue32 / 8000 cuStreamWriteValue32_ptsz(stream: u64, addr: u64, value: u32, _flags: u32) |c| {
        on_stream(c, stream, |w, s| write_value(w, s, addr, value.into(), false))
    }
    "cuStreamWriteValue32" 11070 fn cuStreamWriteValue32_v2 / 11070 cuStreamWriteValue32_v2_ptsz(stream: u64, addr: u64, value: u32, _flags: u32) |c| {
        on_stream(c, stream, |w, s| write_value(w, s, addr, value.into(), false))
    }
    "cuStreamWriteValue64" 9000 fn cuStreamWriteValue64 / 9000 cuStreamWriteValue64_ptsz(stream: u64, addr: u64, value: u64, _flags: u32) |c| {
        on_stream(c, stream, |w, s| write_value(w, s, addr, value, true))
    }
    "cuStreamWriteValue64" 11070 fn cuStreamWriteValue64_v2 / 11070 cuStreamWriteValue64_v2_ptsz(stream: u64, addr: u64, value: u64, _flags: u32) |c| {
        on_stream(c, stream, |w, s| write_value(w, s, addr, value, true))
    }
    "cuStreamBatchMemOp" 8000 fn cuStreamBatchMemOp / 8000 cuStreamBatchMemOp_ptsz(stream: u64, count: u32, paramArray: In<MemoryOperation>, _flags: u32) |c| {
        batch(c, stream, count, paramArray)
    }
    "cuStreamBatchMemOp" 11070 fn cuStreamBatchMemOp_v2 / 11070 cuStreamBatchMemOp_v2_ptsz(stream: u64, count: u32, paramArray: In<MemoryOperation>, _flags: u32) |c| {
        batch(c, stream, count, paramArray)
    }
}
