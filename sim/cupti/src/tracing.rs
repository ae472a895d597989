//! The activity functions of the C ABI.

use crate::alone;
use crate::buffers::{self, CompleteBuffer, RequestBuffer};
use crate::delivery;
use crate::driver::driver;
use crate::identity;
use crate::pointer::OutPtr;
use crate::record::size_of_kind;
use crate::result::*;
use crate::state::{self, State};
use gputrace_sim::settings::settings;
use std::time::Duration;

/// Kinds run up to this one.
const LAST_KIND: u32 = 59;
/// `CUPTI_ACTIVITY_FLAG_FLUSH_FORCED`.
const FORCED: u32 = 1;

fn subscribe(state: &State) -> CuptiResult {
    let all = state.context_kinds.values().fold(state.kinds, |all, kinds| all | kinds);
    (driver()?.subscribe_activity)(Some(buffers::take), all);
    Ok(())
}

fn check_kind(kind: u32) -> CuptiResult {
    if kind == 0 || kind > LAST_KIND { Err(INVALID_KIND) } else { Ok(()) }
}

fn switch(kind: u32, on: bool) -> CuptiResult {
    check_kind(kind)?;
    driver()?;
    let mut state = state::lock();
    if (state.kinds & 1 << kind != 0) != on {
        let now_ns = (driver()?.now_ns)();
        let offset_ns = state.clock_offset_ns.unwrap_or_else(buffers::time_of_day_offset_ns);
        state.buffers.kind_changes(kind, on, now_ns, offset_ns);
    }
    if on {
        state.kinds |= 1 << kind;
    } else {
        state.kinds &= !(1 << kind);
    }
    subscribe(&state)
}

fn switch_in_context(context: u64, kind: u32, on: bool) -> CuptiResult {
    check_kind(kind)?;
    let uid = (driver()?.context_uid)(context);
    if uid == 0 {
        return Err(INVALID_CONTEXT);
    }
    let mut state = state::lock();
    let kinds = state.context_kinds.entry(uid).or_insert(0);
    if on {
        *kinds |= 1 << kind;
    } else {
        *kinds &= !(1 << kind);
    }
    subscribe(&state)
}

/// Enables a kind. Kinds that the simulation has no records of are accepted and stay silent.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityEnable(kind: u32) -> u32 {
    number(switch(kind, true))
}

/// As `cuptiActivityEnable`: what exists already has no records here.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityEnableAndDump(kind: u32) -> u32 {
    number(switch(kind, true))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityDisable(kind: u32) -> u32 {
    number(switch(kind, false))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityEnableContext(context: u64, kind: u32) -> u32 {
    number(switch_in_context(context, kind, true))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityDisableContext(context: u64, kind: u32) -> u32 {
    number(switch_in_context(context, kind, false))
}

/// Sets who gives and takes buffers; a later client takes over those of an earlier one.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityRegisterCallbacks(
    request: Option<RequestBuffer>,
    complete: Option<CompleteBuffer>,
) -> u32 {
    number((|| {
        let (request, complete) = (request.ok_or(INVALID_PARAMETER)?, complete.ok_or(INVALID_PARAMETER)?);
        // The environment is the program's: it is read on its thread, and not later on ours.
        settings();
        if let Ok(driver) = driver() {
            identity::take_driver(driver)?;
        }
        let mut state = state::lock();
        state.buffers.request = Some(request);
        state.buffers.complete = Some(complete);
        Ok(())
    })())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityFlushAll(flag: u32) -> u32 {
    number(alone::flushed(|| {
        std::thread::sleep(Duration::from_millis(settings().flush_ms));
        delivery::flush(flag & FORCED != 0)
    }))
}

/// The old form, for one context; buffers are not kept by context.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityFlush(_context: u64, _stream_id: u32, flag: u32) -> u32 {
    number(delivery::flush(flag & FORCED != 0))
}

/// Flushes of its own, every so many milliseconds; 0 ends that.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityFlushPeriod(milliseconds: u32) -> u32 {
    let mut state = state::lock();
    state.buffers.period_ms = milliseconds;
    if milliseconds > 0 {
        delivery::start(&mut state.buffers);
    }
    state::CHANGED.notify_all();
    0
}

/// Steps through a buffer: from no record to the first, from one to the next.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityGetNextRecord(
    buffer: *mut u8,
    valid_bytes: usize,
    record: OutPtr<*mut u8>,
) -> u32 {
    number((|| {
        if buffer.is_null() {
            return Err(INVALID_PARAMETER);
        }
        let current = record.get()?;
        let at = if current.is_null() {
            0
        } else {
            let at = (current as usize).checked_sub(buffer as usize).ok_or(INVALID_PARAMETER)?;
            at + size_of_kind(kind_at(buffer, at, valid_bytes)?).ok_or(INVALID_KIND)?
        };
        let bytes = size_of_kind(kind_at(buffer, at, valid_bytes)?).ok_or(INVALID_KIND)?;
        if at + bytes > valid_bytes {
            return Err(MAX_LIMIT_REACHED);
        }
        // SAFETY: `at` lies within the valid part of the client's buffer.
        record.set(unsafe { buffer.add(at) })
    })())
}

fn kind_at(buffer: *const u8, at: usize, valid_bytes: usize) -> CuptiResult<u32> {
    if at.checked_add(4).is_none_or(|end| end > valid_bytes) {
        return Err(MAX_LIMIT_REACHED);
    }
    // SAFETY: the client states that so many bytes of the buffer are valid, and the four lie within.
    Ok(unsafe { buffer.add(at).cast::<u32>().read_unaligned() })
}

/// How many records were lost since the last question.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityGetNumDroppedRecords(
    _context: u64,
    _stream_id: u32,
    dropped: OutPtr<usize>,
) -> u32 {
    let count = std::mem::take(&mut state::lock().buffers.dropped);
    number(dropped.set(count as usize))
}

/// Time in the clock of the records.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiGetTimestamp(timestamp: OutPtr<u64>) -> u32 {
    number((|| {
        let driver = driver()?;
        let offset_ns = state::lock().clock_offset_ns;
        let offset_ns = offset_ns.unwrap_or_else(|| (driver.time_of_day_offset_ns)());
        timestamp.set((driver.now_ns)().wrapping_add(offset_ns))
    })())
}

/// Puts records into the client's clock: its offset is measured now and kept.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityRegisterTimestampCallback(clock: Option<extern "C" fn() -> u64>) -> u32 {
    number((|| {
        let (driver, clock) = (driver()?, clock.ok_or(INVALID_PARAMETER)?);
        let mut best = (u64::MAX, 0);
        for _ in 0..16 {
            let before = (driver.now_ns)();
            let theirs = clock();
            let after = (driver.now_ns)();
            let middle = before + (after - before) / 2;
            best = best.min((after - before, theirs.wrapping_sub(middle)));
        }
        state::lock().clock_offset_ns = Some(best.1);
        Ok(())
    })())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityPushExternalCorrelationId(kind: u32, id: u64) -> u32 {
    state::lock().external_ids.entry(kind).or_default().push(id);
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityPopExternalCorrelationId(kind: u32, last: OutPtr<u64>) -> u32 {
    let popped = state::lock().external_ids.get_mut(&kind).and_then(Vec::pop);
    number(popped.ok_or(QUEUE_EMPTY).map(|id| {
        // Null is allowed: nobody wants the id.
        let _ = last.set(id);
    }))
}

/// Ends everything that was enabled. The library can be used again afterwards.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiFinalize() -> u32 {
    number((|| {
        let driver = driver()?;
        {
            let mut state = state::lock();
            state.kinds = 0;
            state.context_kinds.clear();
            subscribe(&state)?;
        }
        // In a forked child there is nothing to flush.
        let _ = delivery::flush(true);
        (driver.subscribe_calls)(None);
        (driver.subscribe_nodes)(None);
        (driver.enable_call)(u32::MAX, false);
        let mut state = state::lock();
        state.subscriber = None;
        state.enabled_callbacks.clear();
        state.buffers.request = None;
        state.buffers.complete = None;
        state.clock_offset_ns = None;
        drop(state);
        identity::leave_driver(driver);
        Ok(())
    })())
}
