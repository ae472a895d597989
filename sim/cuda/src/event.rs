//! Events.

use crate::abi::Out;
use crate::entry::{Call, api};
use gputrace_sim::error::{Code, Result};
use gputrace_sim::graph::NodeWork;
use gputrace_sim::timeline::{query, wait};
use gputrace_sim::world::with;

/// `CU_EVENT_RECORD_EXTERNAL`: in a capture, a node of its own.
const EXTERNAL: u32 = 1;

fn record(call: &Call, event: u64, stream: u64, flags: u32) -> Result {
    if flags & !EXTERNAL != 0 {
        return Err(Code::INVALID_VALUE);
    }
    let stream = call.stream(stream);
    with(|w| {
        let stream = w.stream(stream)?;
        if flags == EXTERNAL && w.captures > 0 && w.capture_applies(stream)? {
            w.events.get(event)?;
            return w.capture_node(stream, NodeWork::RecordEvent(event)).map(|_| ());
        }
        w.record_event(event, stream)
    })
}

fn elapsed(milliseconds: Out<f32>, start: u64, end: u64) -> Result {
    milliseconds.required()?;
    milliseconds.set(with(|w| w.elapsed_ms(start, end))?)
}

fn destroy(event: u64) -> Result {
    with(|w| w.events.remove(event).map(|_| ()))
}

api! {
    "cuEventCreate" 2000 fn cuEventCreate(phEvent: Out<u64>, Flags: u32) |_| {
        phEvent.required()?;
        phEvent.set(with(|w| w.create_event(Flags))?)
    }
    "cuEventRecord" 2000 fn cuEventRecord / 7000 cuEventRecord_ptsz(hEvent: u64, hStream: u64) |c| {
        record(c, hEvent, hStream, 0)
    }
    "cuEventRecordWithFlags" 11010 fn cuEventRecordWithFlags / 11010 cuEventRecordWithFlags_ptsz(hEvent: u64, hStream: u64, flags: u32) |c| {
        record(c, hEvent, hStream, flags)
    }
    "cuEventQuery" 2000 fn cuEventQuery(hEvent: u64) |_| {
        query(|w| w.event_end(hEvent))
    }
    "cuEventSynchronize" 2000 fn cuEventSynchronize(hEvent: u64) |_| {
        wait(|w| w.event_end(hEvent))
    }
    "cuEventDestroy" 2000 fn cuEventDestroy(hEvent: u64) |_| { destroy(hEvent) }
    "cuEventDestroy" 4000 fn cuEventDestroy_v2(hEvent: u64) |_| { destroy(hEvent) }
    "cuEventElapsedTime" 2000 fn cuEventElapsedTime(pMilliseconds: Out<f32>, hStart: u64, hEnd: u64) |_| {
        elapsed(pMilliseconds, hStart, hEnd)
    }
    "cuEventElapsedTime" 12080 fn cuEventElapsedTime_v2(pMilliseconds: Out<f32>, hStart: u64, hEnd: u64) |_| {
        elapsed(pMilliseconds, hStart, hEnd)
    }
}
