//! Contexts and primary contexts.

use crate::abi::{In, Out};
use crate::entry::{Call, api};
use gputrace_sim::context as c;
use gputrace_sim::device;
use gputrace_sim::error::{Code, Result};
use gputrace_sim::stream::{GREATEST_PRIORITY, LEAST_PRIORITY};
use gputrace_sim::timeline::{Moment, wait};
use gputrace_sim::world::with;

fn create(pctx: Out<u64>, flags: u32, dev: i32) -> Result {
    pctx.required()?;
    let dev = device::check(dev)?;
    pctx.set(with(|w| w.create_context(dev, flags))?)
}

fn destroy(ctx: u64) -> Result {
    wait(|w| w.context_end(ctx))?;
    with(|w| w.destroy_context(ctx))
}

fn primary_done(dev: u32) -> Result {
    match with(|w| w.primary_of(dev).context) {
        Some(context) => wait(|w| w.context_end(context)),
        None => Ok(()),
    }
}

fn release(dev: i32) -> Result {
    let dev = device::check(dev)?;
    if with(|w| w.primary_of(dev).retains) == 1 {
        primary_done(dev)?;
    }
    with(|w| w.release_primary(dev))
}

fn reset(dev: i32) -> Result {
    let dev = device::check(dev)?;
    primary_done(dev)?;
    with(|w| w.reset_primary(dev))
}

fn set_primary_flags(dev: i32, flags: u32) -> Result {
    let dev = device::check(dev)?;
    with(|w| w.primary_of(dev).flags = flags);
    Ok(())
}

fn pop(pctx: Out<u64>) -> Result {
    let context = c::pop()?;
    pctx.set_if_wanted(context);
    Ok(())
}

fn push(ctx: u64) -> Result {
    with(|w| w.contexts.get(ctx).map(|_| ()))?;
    c::push(ctx);
    Ok(())
}

fn synchronise(ctx: Option<u64>) -> Result {
    let context = with(|w| {
        let context = match ctx {
            Some(context) => context,
            None => w.current()?,
        };
        w.contexts.get(context)?;
        w.refuse_if_context_captures(context)?;
        Ok(context)
    })?;
    wait(|w| w.context_end(context))
}

api! {
    "cuCtxCreate" 3020 fn cuCtxCreate_v2(pctx: Out<u64>, flags: u32, dev: i32) |_| {
        create(pctx, flags, dev)
    }
    "cuCtxCreate" 11040 fn cuCtxCreate_v3(pctx: Out<u64>, _paramsArray: u64, _numParams: i32, flags: u32, dev: i32) |_| {
        create(pctx, flags, dev)
    }
    "cuCtxCreate" 12050 fn cuCtxCreate_v4(pctx: Out<u64>, _ctxCreateParams: u64, flags: u32, dev: i32) |_| {
        create(pctx, flags, dev)
    }
    "cuCtxCreate" 2000 fn cuCtxCreate(pctx: Out<u64>, flags: u32, dev: i32) |_| {
        create(pctx, flags, dev)
    }
    "cuCtxDestroy" 2000 fn cuCtxDestroy(ctx: u64) |_| { destroy(ctx) }
    "cuCtxDestroy" 4000 fn cuCtxDestroy_v2(ctx: u64) |_| { destroy(ctx) }
    "cuCtxPushCurrent" 2000 fn cuCtxPushCurrent(ctx: u64) |_| { push(ctx) }
    "cuCtxPushCurrent" 4000 fn cuCtxPushCurrent_v2(ctx: u64) |_| { push(ctx) }
    "cuCtxPopCurrent" 2000 fn cuCtxPopCurrent(pctx: Out<u64>) |_| { pop(pctx) }
    "cuCtxPopCurrent" 4000 fn cuCtxPopCurrent_v2(pctx: Out<u64>) |_| { pop(pctx) }
    "cuCtxSetCurrent" 4000 fn cuCtxSetCurrent(ctx: u64) |_| {
        if ctx != 0 {
            with(|w| w.contexts.get(ctx).map(|_| ()))?;
        }
        c::set_current(ctx);
        Ok(())
    }
    "cuCtxGetCurrent" 4000 fn cuCtxGetCurrent(pctx: Out<u64>) |_| {
        pctx.set(c::current().unwrap_or(0))
    }
    "cuCtxGetDevice" 2000 fn cuCtxGetDevice(device: Out<i32>) |_| {
        device.set(with(|w| Ok(w.contexts.get(w.current()?)?.device))? as i32)
    }
    "cuCtxGetDevice" 13000 fn cuCtxGetDevice_v2(device: Out<i32>, ctx: u64) |_| {
        device.set(with(|w| Ok(w.contexts.get(ctx)?.device))? as i32)
    }
    "cuCtxGetFlags" 7000 fn cuCtxGetFlags(flags: Out<u32>) |_| {
        flags.set(with(|w| Ok(w.contexts.get(w.current()?)?.flags))?)
    }
    "cuCtxSetFlags" 12010 fn cuCtxSetFlags(flags: u32) |_| {
        with(|w| {
            let context = w.current()?;
            w.contexts.get_mut(context)?.flags = flags;
            Ok(())
        })
    }
    "cuCtxGetId" 12000 fn cuCtxGetId(ctx: u64, ctxId: Out<u64>) |_| {
        ctxId.set(with(|w| {
            let context = if ctx == 0 { w.current()? } else { ctx };
            Ok(u64::from(w.contexts.get(context)?.uid))
        })?)
    }
    "cuCtxGetApiVersion" 3020 fn cuCtxGetApiVersion(ctx: u64, version: Out<u32>) |_| {
        with(|w| {
            let context = if ctx == 0 { w.current()? } else { ctx };
            w.contexts.get(context).map(|_| ())
        })?;
        version.set(3020)
    }
    "cuCtxSynchronize" 2000 fn cuCtxSynchronize() |_| { synchronise(None) }
    "cuCtxSynchronize" 13000 fn cuCtxSynchronize_v2(ctx: u64) |_| { synchronise(Some(ctx)) }
    "cuCtxGetLimit" 3010 fn cuCtxGetLimit(pvalue: Out<u64>, limit: u32) |_| {
        pvalue.set(with(|w| w.context_limit(limit))?)
    }
    "cuCtxSetLimit" 3010 fn cuCtxSetLimit(limit: u32, value: u64) |_| {
        with(|w| w.set_context_limit(limit, value))
    }
    "cuCtxGetCacheConfig" 3020 fn cuCtxGetCacheConfig(pconfig: Out<u32>) |_| {
        pconfig.set(with(|w| Ok(w.contexts.get(w.current()?)?.cache_config))?)
    }
    "cuCtxSetCacheConfig" 3020 fn cuCtxSetCacheConfig(config: u32) |_| {
        if config > 3 {
            return Err(Code::INVALID_VALUE);
        }
        with(|w| {
            let context = w.current()?;
            w.contexts.get_mut(context)?.cache_config = config;
            Ok(())
        })
    }
    "cuCtxGetSharedMemConfig" 4020 fn cuCtxGetSharedMemConfig(pConfig: Out<u32>) |_| {
        pConfig.set(with(|w| Ok(w.contexts.get(w.current()?)?.shared_config))?)
    }
    "cuCtxSetSharedMemConfig" 4020 fn cuCtxSetSharedMemConfig(config: u32) |_| {
        if config > 2 {
            return Err(Code::INVALID_VALUE);
        }
        with(|w| {
            let context = w.current()?;
            w.contexts.get_mut(context)?.shared_config = config;
            Ok(())
        })
    }
    "cuCtxGetStreamPriorityRange" 5050 fn cuCtxGetStreamPriorityRange(leastPriority: Out<i32>, greatestPriority: Out<i32>) |_| {
        with(|w| w.current())?;
        leastPriority.set_if_wanted(LEAST_PRIORITY);
        greatestPriority.set_if_wanted(GREATEST_PRIORITY);
        Ok(())
    }
    "cuCtxResetPersistingL2Cache" 11000 fn cuCtxResetPersistingL2Cache() |_| {
        with(|w| w.current()).map(|_| ())
    }
    "cuCtxEnablePeerAccess" 4000 fn cuCtxEnablePeerAccess(peerContext: u64, Flags: u32) |_| {
        with(|w| w.enable_peer(peerContext, Flags))
    }
    "cuCtxDisablePeerAccess" 4000 fn cuCtxDisablePeerAccess(peerContext: u64) |_| {
        with(|w| w.disable_peer(peerContext))
    }
    "cuDevicePrimaryCtxRetain" 7000 fn cuDevicePrimaryCtxRetain(pctx: Out<u64>, dev: i32) |_| {
        pctx.required()?;
        let dev = device::check(dev)?;
        pctx.set(with(|w| w.retain_primary(dev))?)
    }
    "cuDevicePrimaryCtxRelease" 7000 fn cuDevicePrimaryCtxRelease(dev: i32) |_| { release(dev) }
    "cuDevicePrimaryCtxRelease" 11000 fn cuDevicePrimaryCtxRelease_v2(dev: i32) |_| { release(dev) }
    "cuDevicePrimaryCtxReset" 7000 fn cuDevicePrimaryCtxReset(dev: i32) |_| { reset(dev) }
    "cuDevicePrimaryCtxReset" 11000 fn cuDevicePrimaryCtxReset_v2(dev: i32) |_| { reset(dev) }
    "cuDevicePrimaryCtxSetFlags" 7000 fn cuDevicePrimaryCtxSetFlags(dev: i32, flags: u32) |_| { set_primary_flags(dev, flags) }
    "cuDevicePrimaryCtxSetFlags" 11000 fn cuDevicePrimaryCtxSetFlags_v2(dev: i32, flags: u32) |_| { set_primary_flags(dev, flags) }
    "cuDevicePrimaryCtxGetState" 7000 fn cuDevicePrimaryCtxGetState(dev: i32, flags: Out<u32>, active: Out<i32>) |_| {
        let dev = device::check(dev)?;
        let held = with(|w| w.primary_of(dev).clone());
        flags.set(held.flags)?;
        active.set(i32::from(held.context.is_some()))
    }
    "cuCtxGetExecAffinity" 11040 fn cuCtxGetExecAffinity(_pExecAffinity: In<u32>, _kind: u32) |_| {
        Err(Code::UNSUPPORTED_EXEC_AFFINITY)
    }
    "cuCtxRecordEvent" 12050 fn cuCtxRecordEvent(hCtx: u64, hEvent: u64) |_| {
        let end_ns = gputrace_sim::world::wait_for(&mut |w| {
            w.refuse_if_context_captures(hCtx)?;
            w.context_end(hCtx)
        })?;
        with(|w| {
            w.events.get_mut(hEvent)?.moment = Some(Moment::At(end_ns));
            Ok(())
        })
    }
    "cuCtxWaitEvent" 12050 fn cuCtxWaitEvent(hCtx: u64, hEvent: u64) |_| {
        with(|w| {
            w.contexts.get(hCtx)?;
            for stream in w.streams.handles_where(|held| held.context == hCtx && !held.destroyed) {
                w.wait_event(stream, hEvent)?;
            }
            Ok(())
        })
    }
}
