//! Events: points of a stream that others can wait for and measure between.

use crate::capture::CapturedPoint;
use crate::error::{Code, Result};
use crate::handle::Handle;
use crate::timeline::Moment;
use crate::work::Work;
use crate::world::World;

const DISABLE_TIMING: u32 = 2;
const INTERPROCESS: u32 = 4;

/// One event.
pub struct Event {
    pub context: Handle,
    pub flags: u32,
    /// When the last recorded point happens; none before the first record.
    pub moment: Option<Moment>,
    /// Where in a capture it was recorded last, if it was.
    pub captured: Option<CapturedPoint>,
}

impl World {
    /// `cuEventCreate`.
    pub fn create_event(&mut self, flags: u32) -> Result<Handle> {
        if flags & !7 != 0 || (flags & INTERPROCESS != 0 && flags & DISABLE_TIMING == 0) {
            return Err(Code::INVALID_VALUE);
        }
        let context = self.current()?;
        self.events.insert(Event { context, flags, moment: None, captured: None })
    }

    /// `cuEventRecord`.
    pub fn record_event(&mut self, event: Handle, stream: Handle) -> Result {
        let of_event = self.events.get(event)?.context;
        let held = self.streams.get(stream)?;
        if held.context != of_event {
            return Err(Code::INVALID_HANDLE);
        }
        if self.captures > 0 && self.capture_applies(stream)? {
            let point = self.capture_point(stream)?;
            self.events.get_mut(event)?.captured = Some(point);
            return Ok(());
        }
        let moment = self.schedule(stream, Work::Mark)?;
        let held = self.events.get_mut(event)?;
        held.moment = Some(moment);
        held.captured = None;
        Ok(())
    }

    /// `cuStreamWaitEvent`.
    pub fn wait_event(&mut self, stream: Handle, event: Handle) -> Result {
        let held = self.events.get(event)?;
        if let Some(point) = held.captured.clone() {
            return self.join_capture(stream, point);
        }
        let moment = held.moment.clone();
        if self.captures > 0 && self.capture_applies(stream)? {
            // Work outside a capture cannot be waited for inside.
            return self.fail_capture(stream, Code::STREAM_CAPTURE_ISOLATION);
        }
        match moment {
            Some(moment) => self.schedule(stream, Work::WaitFor(moment)).map(|_| ()),
            None => Ok(()),
        }
    }

    /// When the event has happened; none while that is unknown. Never recorded means always.
    pub fn event_end(&self, event: Handle) -> Result<Option<u64>> {
        let held = self.events.get(event)?;
        if held.captured.is_some() {
            return Err(Code::CAPTURED_EVENT);
        }
        Ok(match &held.moment {
            Some(moment) => moment.known(),
            None => Some(0),
        })
    }

    /// `cuEventElapsedTime`, in milliseconds.
    pub fn elapsed_ms(&self, start: Handle, end: Handle) -> Result<f32> {
        let mut times = [0u64; 2];
        for (time, event) in times.iter_mut().zip([start, end]) {
            let held = self.events.get(event)?;
            if held.flags & DISABLE_TIMING != 0 || held.moment.is_none() {
                return Err(Code::INVALID_HANDLE);
            }
            let known = self.event_end(event)?;
            if !crate::timeline::has_come(known) {
                return Err(Code::NOT_READY);
            }
            *time = known.unwrap_or(0);
        }
        Ok((times[1] as f64 / 1e6 - times[0] as f64 / 1e6) as f32)
    }
}
