//! One line on a terminal that shows the progress of a long reading. Silent elsewhere, and at first:
//! most traces are read before anybody wonders.

use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

const SILENT: Duration = Duration::from_millis(700);
const BETWEEN: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub struct Progress {
    /// What is being done, to what.
    what: String,
    next: Option<Instant>,
    shown: bool,
}

impl Progress {
    pub fn new(what: String) -> Progress {
        let next = stderr().is_terminal().then(|| Instant::now() + SILENT);
        Progress { what, next, shown: false }
    }

    /// Cheap where nothing is to be shown.
    pub fn at(&mut self, (done, total): (u64, u64)) {
        let Some(next) = self.next else { return };
        let now = Instant::now();
        if now >= next {
            self.next = Some(now + BETWEEN);
            self.shown = true;
            let percent = u128::from(done) * 100 / u128::from(total.max(1));
            let _ = write!(stderr(), "\r{} … {percent} %\x1b[K", self.what);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}
