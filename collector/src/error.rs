//! What can go wrong for whoever uses this crate, by what they can do about it.
//!
//! Texts are lower case and say what failed, on what, why, and what to try. Nothing here is
//! printed by this crate; a traced process that misbehaves is not an error but a count in
//! [`crate::model::Totals`].

use std::io;
use std::path::PathBuf;

/// The crate's one error.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot make the session folder {}: {source}; choose another with -o or TMPDIR", path.display())]
    SessionFolder { path: PathBuf, source: io::Error },

    #[error(
        "the session socket {} has a path of {bytes} bytes and the system allows {limit}; choose a shorter folder",
        path.display()
    )]
    SocketPathTooLong { path: PathBuf, bytes: usize, limit: usize },

    #[error("cannot listen on the session socket {}: {source}", path.display())]
    Listen { path: PathBuf, source: io::Error },

    #[error("cannot create the trace file {}: {source}; choose another folder with -o", path.display())]
    TraceCreate { path: PathBuf, source: io::Error },

    #[error(
        "cannot write the trace file {}: {source}; it holds the first {whole_bytes} bytes, and what came after is in \
         this run's summary only", path.display()
    )]
    TraceWrite { path: PathBuf, whole_bytes: u64, source: io::Error },

    #[error("there is no trace file {}", path.display())]
    TraceMissing { path: PathBuf },

    #[error("cannot read the trace file {}: {source}", path.display())]
    TraceRead { path: PathBuf, source: io::Error },

    #[error("{} is not a gputrace trace: it does not begin as one", path.display())]
    NotATrace { path: PathBuf },

    #[error("the trace file {} ends after {bytes} bytes, before its first block: nothing can be read", path.display())]
    TraceEmpty { path: PathBuf, bytes: u64 },

    #[error(
        "the trace file {} needs {needed}: it has format version {major}.{minor}, and this is gputrace {}, which reads \
         version {}", path.display(), env!("CARGO_PKG_VERSION"), crate::trace_file::VERSION_MAJOR
    )]
    TraceVersion { path: PathBuf, major: u16, minor: u16, needed: String },

    #[error("no trace file was named")]
    NoTraces,

    #[error("cannot start the {name} thread: {source}")]
    Thread { name: &'static str, source: io::Error },

    #[error("{operation} failed: {source}")]
    System { operation: &'static str, source: io::Error },

    #[error("the {name} thread ended early: this is a defect of gputrace, please report it")]
    ThreadLost { name: &'static str },
}

/// Exit codes for these errors, after sysexits(3). Under `run` the program's own code comes first.
pub mod exit_code {
    /// The input is no trace, or of a format this version cannot read.
    pub const BAD_INPUT: u8 = 65;
    /// The input is not there or may not be read.
    pub const NO_INPUT: u8 = 66;
    /// A back end did not take what it was sent.
    pub const UNDELIVERED: u8 = 69;
    /// A defect of gputrace.
    pub const DEFECT: u8 = 70;
    /// The system refused something that gputrace needs.
    pub const SYSTEM: u8 = 71;
    /// An output could not be created.
    pub const CANNOT_CREATE: u8 = 73;
    /// An output could not be written to its end.
    pub const WRITE_FAILED: u8 = 74;
}

impl Error {
    /// The documented exit code, one of [`exit_code`].
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::NotATrace { .. } | Error::TraceEmpty { .. } | Error::TraceVersion { .. } => {
                exit_code::BAD_INPUT
            }
            Error::TraceMissing { .. } | Error::TraceRead { .. } | Error::NoTraces => exit_code::NO_INPUT,
            Error::ThreadLost { .. } => exit_code::DEFECT,
            Error::Thread { .. } | Error::System { .. } | Error::Listen { .. } => exit_code::SYSTEM,
            Error::SessionFolder { .. } | Error::SocketPathTooLong { .. } | Error::TraceCreate { .. } => {
                exit_code::CANNOT_CREATE
            }
            Error::TraceWrite { .. } => exit_code::WRITE_FAILED,
        }
    }
}
