//! Traces in the formats of other tools: one file a format, behind the trait [`Format`].
//!
//! The trace is read twice. The first pass makes the names ([`Trace`]), so that they are those of the
//! report; the second passes every event on ([`Feed`]) and keeps none of them. A format owns its encoding
//! and whatever it needs to remember, in bounded memory. A [`Selection`] leaves out events before a format
//! sees them.

mod by_stack;
mod choices;
mod chrome;
mod device_counters;
mod early;
mod feed;
mod folded;
mod memory_counters;
mod missing;
mod otlp_json;
pub mod parquet;
mod perfetto;
mod pprof;
mod selected;
mod selection;
mod speedscope;
pub mod sqlite;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod torch_snapshot;
mod trace;
#[cfg(test)]
mod viewer_tests;
mod within;

use std::io::{self, Write};
use std::path::PathBuf;

pub use choices::Choices;
pub use feed::{Fed, Feed};
pub use selected::Selected;
pub use selection::{Interval, Selection};
pub use trace::{Event, Trace};

use crate::model::definitions::Definitions;
use crate::model::instances::RangeInstance;

/// Writes one format.
///
/// `begin` comes first and `finish` last. Events come in the order in which the model emits them: host calls
/// in the order of each thread, operations when they were joined with their calls; neither is sorted by
/// time. After an error nothing more is called.
pub trait Format {
    fn begin(&mut self, _trace: &mut Trace<'_>) -> io::Result<()> {
        Ok(())
    }
    fn event(&mut self, event: Event<'_>, trace: &mut Trace<'_>) -> io::Result<()>;
    /// A pushed range that the user's filter leaves out, at its begin and, if `has_ended`, at its end: for
    /// formats whose events name the ranges around them.
    fn left_out_range(&mut self, _range: &RangeInstance, _has_ended: bool, _definitions: &Definitions) {}
    /// Completes the output, and returns how many events it has. A format that buffers flushes here: an error
    /// while it is dropped is lost.
    fn finish(&mut self, trace: &mut Trace<'_>) -> io::Result<u64>;
}

/// Where a format writes to. The caller gives a temporary name and renames what was written, so that no half
/// output is left.
pub enum Destination {
    /// A file, stdout, or a compressor before one of them.
    Stream(Box<dyn Write>),
    /// A new file that a library opens itself.
    File(PathBuf),
    /// A new folder.
    Folder(PathBuf),
}

/// What [`Destination`] a format needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    Stream,
    File,
    Folder,
}

/// A format that can be asked for.
#[derive(Clone, Copy, Debug)]
pub struct FormatEntry {
    /// The name on the command line.
    pub name: &'static str,
    pub about: &'static str,
    pub target: Target,
    /// Makes the writer. An error is one of the destination.
    pub open: fn(Destination) -> io::Result<Box<dyn Format>>,
}

/// All formats, in the order in which help lists them.
pub const FORMATS: &[FormatEntry] = &[
    perfetto::FORMAT,
    chrome::FORMAT,
    sqlite::FORMAT,
    parquet::FORMAT,
    speedscope::FORMAT,
    pprof::FORMAT,
    torch_snapshot::FORMAT,
    folded::FORMAT,
    otlp_json::FORMAT,
];

impl Destination {
    /// The stream; an error for a destination of another kind, which no caller passes.
    pub fn stream(self) -> io::Result<Box<dyn Write>> {
        match self {
            Destination::Stream(stream) => Ok(stream),
            Destination::File(path) | Destination::Folder(path) => Err(wrong_kind(&path)),
        }
    }

    /// The path of the file or folder; an error for a stream.
    pub fn path(self) -> io::Result<PathBuf> {
        match self {
            Destination::File(path) | Destination::Folder(path) => Ok(path),
            Destination::Stream(_) => Err(wrong_kind(std::path::Path::new("-"))),
        }
    }
}

fn wrong_kind(path: &std::path::Path) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("{} is not what this format writes to", path.display()),
    )
}
