//! A process that uses a device.

use serde::Serialize;

/// What a process uses of one device. Its name and user come from `/proc`, where they can be read.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GpuProcess {
    /// As the driver gives it.
    pub pid: u32,
    /// Whether `pid` is the host's, while this program runs in a container: then it names nothing here, and
    /// name, user and command stay `None`.
    pub is_host_pid: bool,
    /// The process's ids in the namespaces inside of ours, the innermost last; empty for one of ours.
    pub container_pids: Vec<u32>,
    pub kind: ProcessKind,
    pub name: Option<String>,
    /// The user's name, or the number if it has none.
    pub user: Option<String>,
    /// The command line, with blanks between its arguments.
    pub command: Option<String>,
    /// Bytes of device memory.
    pub memory: Option<u64>,
    pub gpu_percent: Option<u32>,
    pub memory_percent: Option<u32>,
    pub encoder_percent: Option<u32>,
    pub decoder_percent: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProcessKind {
    Compute,
    Graphics,
    Both,
    Unknown,
}
