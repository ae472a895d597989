//! Reads processes and threads from /proc.
//!
//! Any file may be gone or forbidden at any moment, and names are the program's own bytes: every read is
//! bounded, and every field is checked.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use rustix::time::{ClockId, clock_gettime};

/// The most bytes of a command line that are read: as many as a process defines of its own.
pub const COMMAND_MAX: usize = 4096;
/// Longer than any line of `stat` and any `status`.
const FILE_MAX: usize = 8192;
/// The most threads of a process that are listed at once.
pub const ENTRIES_MAX: usize = 1024;

/// A thread's name and begin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ThreadStat {
    pub name: Vec<u8>,
    /// When the thread began, in the kernel's ticks since boot.
    pub began: u64,
}

#[derive(Debug)]
pub struct System {
    folder: PathBuf,
    tick_ns: u64,
}

/// The time on CLOCK_BOOTTIME, by which the kernel reports when threads began.
pub fn boot_time_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(now.tv_nsec).unwrap_or(0))
}

impl System {
    pub fn new(folder: PathBuf) -> System {
        // SAFETY: no preconditions.
        let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
        let ticks = u64::try_from(ticks).ok().filter(|ticks| *ticks > 0).unwrap_or(100);
        System { folder, tick_ns: 1_000_000_000 / ticks }
    }

    /// Converts ticks to nanoseconds. The thread began up to a tick later.
    pub fn began_ns(&self, began: u64) -> u64 {
        began.saturating_mul(self.tick_ns)
    }

    fn process(&self, pid: u32) -> PathBuf {
        self.folder.join(pid.to_string())
    }

    /// When the process began; `None` if it is gone.
    pub fn began(&self, pid: u32) -> Option<u64> {
        Some(stat(&self.process(pid).join("stat"))?.began)
    }

    pub fn thread(&self, pid: u32, tid: u32) -> Option<ThreadStat> {
        stat(&self.process(pid).join("task").join(tid.to_string()).join("stat"))
    }

    /// The command line in the process's memory: arguments separated by NUL, or a title.
    pub fn command(&self, pid: u32) -> Option<Vec<u8>> {
        command_in(&self.process(pid), COMMAND_MAX)
    }

    /// The process's id in its own namespace, if it has one.
    pub fn inner_pid(&self, pid: u32) -> Option<u32> {
        inner(&self.process(pid).join("status"))
    }

    /// At most [`ENTRIES_MAX`] threads of a process: pairs of the id in its own namespace and the id in this
    /// one.
    pub fn threads(&self, pid: u32) -> Vec<(u32, u32)> {
        let folder = self.process(pid).join("task");
        let Ok(entries) = fs::read_dir(&folder) else { return Vec::new() };
        let numbers = entries.flatten().take(ENTRIES_MAX).filter_map(|entry| {
            let outer = entry.file_name().to_str()?.parse().ok()?;
            Some((inner(&entry.path().join("status"))?, outer))
        });
        numbers.collect()
    }
}

/// At most `most` bytes of a process's command line: arguments separated by NUL, or a title. `None` for a
/// process without one (a kernel thread, a zombie), or that is gone.
pub fn command_line(pid: u32, most: usize) -> Option<Vec<u8>> {
    command_in(&Path::new("/proc").join(pid.to_string()), most)
}

fn command_in(process: &Path, most: usize) -> Option<Vec<u8>> {
    read(&process.join("cmdline"), most).filter(|text| !text.is_empty())
}

fn read(path: &Path, most: usize) -> Option<Vec<u8>> {
    read_at_once(File::open(path).ok()?, most)
}

/// Reads in one call. The kernel reads a command line from the process's memory; in several calls, a process
/// that ends in between would leave half a line, which looks like a whole one.
fn read_at_once(mut file: impl Read, most: usize) -> Option<Vec<u8>> {
    let mut text = vec![0; most];
    let length = file.read(&mut text).ok()?;
    text.truncate(length);
    Some(text)
}

/// Parses a `stat` file. The name is in parentheses and may contain parentheses; the start is the twentieth
/// field after it.
fn stat(path: &Path) -> Option<ThreadStat> {
    let text = read(path, FILE_MAX)?;
    let open = text.iter().position(|byte| *byte == b'(')?;
    let close = text.iter().rposition(|byte| *byte == b')')?;
    let fields = std::str::from_utf8(text.get(close + 1..)?).ok()?;
    let began = fields.split_ascii_whitespace().nth(19)?.parse().ok()?;
    Some(ThreadStat { name: text.get(open + 1..close)?.to_vec(), began })
}

/// The last of several ids in `NSpid`; `None` if there is only one.
fn inner(status: &Path) -> Option<u32> {
    let text = read(status, FILE_MAX)?;
    let text = String::from_utf8_lossy(&text);
    let numbers = text.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_ascii_whitespace().skip(1).last()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// A process that ends during the first read: later reads return nothing.
    struct Ending(&'static [u8]);

    impl Read for Ending {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let text = std::mem::take(&mut self.0);
            text.take(buffer.len() as u64).read(buffer)
        }
    }

    #[test]
    fn command_line_is_read_whole_or_not_at_all() {
        let line = b"/a/path/of/more/than/32/bytes/to/a/program\0argument\0";
        assert_eq!(read_at_once(Ending(line), COMMAND_MAX).unwrap(), line);
        assert_eq!(read_at_once(Ending(line), 5).unwrap(), b"/a/pa");
    }
}
