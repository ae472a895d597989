//! What /proc says of processes and threads.
//!
//! Whatever stands there may be gone or forbidden at any moment, and names are the program's own
//! bytes: all of it is read with bounds and believed as far as it goes.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use rustix::time::{ClockId, clock_gettime};

/// The most of a command line that is read, as much as a process says of its own.
pub const COMMAND_MAX: usize = 4096;
/// Longer than any line of `stat` and any `status`.
const FILE_MAX: usize = 8192;
/// Entries of a folder of threads that are looked at in one go.
pub const ENTRIES_MAX: usize = 1024;

/// A thread as it was when somebody looked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ThreadStat {
    pub name: Vec<u8>,
    /// When it began, in the kernel's ticks since the machine did.
    pub began: u64,
}

#[derive(Debug)]
pub struct System {
    folder: PathBuf,
    tick_ns: u64,
}

/// Now, on the clock by which the kernel says when threads began.
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

    /// A moment in the kernel's ticks as nanoseconds; the thread began up to a tick later.
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

    /// The command line as it stands in the process's memory: arguments separated by NUL, or a title.
    pub fn command(&self, pid: u32) -> Option<Vec<u8>> {
        command_in(&self.process(pid), COMMAND_MAX)
    }

    /// How the process calls itself, where it is in a namespace of its own.
    pub fn inner_pid(&self, pid: u32) -> Option<u32> {
        inner(&self.process(pid).join("status"))
    }

    /// The threads of a process by their own numbers, as far as they are looked at in one go: pairs of how
    /// they call themselves, and how they are called here.
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

/// A process's command line, up to that many bytes: arguments separated by NUL, or a title. `None` of a
/// process that has none (a kernel's thread, a zombie) or is gone.
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

/// The name stands in parentheses and may hold any others; the start is the twentieth field after it.
fn stat(path: &Path) -> Option<ThreadStat> {
    let text = read(path, FILE_MAX)?;
    let open = text.iter().position(|byte| *byte == b'(')?;
    let close = text.iter().rposition(|byte| *byte == b')')?;
    let fields = std::str::from_utf8(text.get(close + 1..)?).ok()?;
    let began = fields.split_ascii_whitespace().nth(19)?.parse().ok()?;
    Some(ThreadStat { name: text.get(open + 1..close)?.to_vec(), began })
}

/// The last number of several in `NSpid`; `None` where there is one only.
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

    /// What of a process can be read until somebody has begun to: then it ends.
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
