//! The timers of `--delay` and `--duration`: when a session starts to record, and when it stops.
//!
//! They run beside the collector. The program has no timer; its session changes as by `gputrace ctl`.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use gputrace_collector::session::{Handle, OrderedBy};

/// Between two looks whether what is waited for has happened.
const LOOK: Duration = Duration::from_millis(10);

/// Which part of a session is recorded, by time.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Schedule {
    /// From the first program's CUDA initialisation to the start.
    pub delay: Option<Duration>,
    /// From the start to the stop.
    pub duration: Option<Duration>,
    /// Whether the session is paused until somebody starts it.
    pub starts_paused: bool,
}

/// A thread that changes a session when it is time. Dropping this value ends it.
#[derive(Debug)]
pub struct Timers {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Timers {
    /// `None` for a schedule without times.
    pub fn start(schedule: Schedule, handle: Handle) -> io::Result<Option<Timers>> {
        if schedule.delay.is_none() && schedule.duration.is_none() {
            return Ok(None);
        }
        Timers::spawn(move |sleep| {
            let _ = keep(schedule, &handle, sleep);
        })
        .map(Some)
    }

    /// Sends SIGTERM to the process once the capture ranges of one of the session's programs are over, and
    /// announces it before. To be dropped before the process is reaped.
    pub fn shut_down(handle: Handle, pid: u32, announce: fn(u32)) -> io::Result<Timers> {
        Timers::spawn(move |sleep| {
            while sleep(LOOK) {
                if handle.capture_is_over() {
                    announce(pid);
                    // SAFETY: plain numbers. The process is a child that is not reaped while this runs.
                    unsafe { libc::kill(pid.cast_signed(), libc::SIGTERM) };
                    return;
                }
            }
        })
    }

    /// `work` gets what sleeps for it, and returns false if `work` is to end.
    fn spawn(work: impl FnOnce(&dyn Fn(Duration) -> bool) + Send + 'static) -> io::Result<Timers> {
        let (stop, stopped) = mpsc::channel();
        let builder = Builder::new().name("gputrace-timers".into());
        let thread = builder.spawn(move || {
            work(&|time: Duration| stopped.recv_timeout(time) == Err(RecvTimeoutError::Timeout));
        })?;
        Ok(Timers { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Timers {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Starts and stops the session in time. `None` if it ended before. `sleep` returns false if it is to end.
fn keep(schedule: Schedule, handle: &Handle, sleep: &dyn Fn(Duration) -> bool) -> Option<()> {
    // Waits until a moment is so long ago that is not known yet. A later one may take its place meanwhile.
    let wait = |limit: Duration, since: fn(&Handle) -> Option<Duration>| -> Option<()> {
        loop {
            let rest = match since(handle) {
                Some(passed) if passed >= limit => return Some(()),
                Some(passed) => limit - passed,
                None => LOOK,
            };
            sleep(rest).then_some(())?;
        }
    };
    if let Some(delay) = schedule.delay {
        // Programs that were started by others may begin to record; they are paused as soon as they join.
        handle.set_recording(false, OrderedBy::Delay, Duration::ZERO);
        wait(delay, Handle::since_first_program)?;
        handle.set_recording(true, OrderedBy::DelayOver, Duration::ZERO);
    }
    if let Some(duration) = schedule.duration {
        let is_ordered = schedule.delay.is_some() || schedule.starts_paused;
        let since = if is_ordered { Handle::since_start_order } else { Handle::since_first_program };
        wait(duration, since)?;
        handle.set_recording(false, OrderedBy::Duration, Duration::ZERO);
    }
    Some(())
}
