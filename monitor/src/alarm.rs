//! A time at which a thread wakes up, and which other threads can put off without waking it.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd};
use std::thread;
use std::time::Duration;

/// A timer of the kernel's.
#[derive(Debug)]
pub struct Alarm(File);

impl Alarm {
    /// One that goes off after that time, once.
    pub fn new(after: Duration) -> io::Result<Alarm> {
        // SAFETY: the call has no pointers; what it returns is checked.
        let descriptor = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was made just now, and nobody else has it.
        let alarm = Alarm(unsafe { File::from_raw_fd(descriptor) });
        alarm.set(after)?;
        Ok(alarm)
    }

    /// Replaces the time that was set before.
    pub fn set(&self, after: Duration) -> io::Result<()> {
        // Zero would switch it off.
        let after = after.max(Duration::from_nanos(1));
        let after = libc::timespec {
            tv_sec: after.as_secs().cast_signed(),
            tv_nsec: i64::from(after.subsec_nanos()),
        };
        let once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let setting = libc::itimerspec { it_interval: once, it_value: after };
        // SAFETY: the descriptor is open as long as this object is; the kernel reads the setting during the
        // call, and writes no old one to a null pointer.
        let result =
            unsafe { libc::timerfd_settime(self.0.as_raw_fd(), 0, &raw const setting, std::ptr::null_mut()) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Waits until it goes off; that long if it cannot be waited for.
    pub fn wait(&self, otherwise: Duration) {
        let mut times = [0; 8];
        if (&self.0).read_exact(&mut times).is_err() {
            thread::sleep(otherwise);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const SHORT: Duration = Duration::from_millis(50);
    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn alarm_goes_off_after_its_time_and_can_be_put_off_and_brought_forward() {
        let begin = Instant::now();
        let alarm = Alarm::new(SHORT).unwrap();
        alarm.wait(LONG);
        assert!(begin.elapsed() >= SHORT);

        let begin = Instant::now();
        alarm.set(SHORT).unwrap();
        alarm.set(SHORT * 4).unwrap();
        alarm.wait(LONG);
        assert!(begin.elapsed() >= SHORT * 4, "put off: {:?}", begin.elapsed());

        let begin = Instant::now();
        alarm.set(LONG).unwrap();
        alarm.set(Duration::ZERO).unwrap();
        alarm.wait(LONG);
        assert!(begin.elapsed() < LONG / 2);
    }
}
