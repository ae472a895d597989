//! What all copies share: enqueueing, and waiting where the call does.

use crate::entry::Call;
use gputrace_sim::copy::{Shape, Side};
use gputrace_sim::error::Result;
use gputrace_sim::timeline::wait;
use gputrace_sim::work::Work;
use gputrace_sim::world::with;

/// Copies in the variant's default stream and waits for the end.
pub fn copy(call: &Call, shape: Shape, source: Side, target: Side) -> Result {
    let stream = call.default_stream();
    let moment = with(|w| {
        let stream = w.stream(stream)?;
        let copy = w.plan_copy(shape, source, target, false)?;
        w.submit(stream, Work::Copy(copy))
    })?;
    match moment {
        Some(moment) => wait(|_| Ok(moment.known())),
        None => Ok(()),
    }
}

/// Copies in a stream. Only a copy into pageable memory is waited for, as the real driver does.
pub fn copy_async(call: &Call, shape: Shape, source: Side, target: Side, stream: u64) -> Result {
    let stream = call.stream(stream);
    let (moment, waits) = with(|w| {
        let stream = w.stream(stream)?;
        let copy = w.plan_copy(shape, source, target, true)?;
        let waits = copy.writes_pageable();
        Ok((w.submit(stream, Work::Copy(copy))?, waits))
    })?;
    match moment {
        Some(moment) if waits => wait(|_| Ok(moment.known())),
        _ => Ok(()),
    }
}
