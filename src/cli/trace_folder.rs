//! What a folder that was named in place of a trace holds: one session's trace, or several traces.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::cli::output_folder::TRACE;

/// The traces in a folder.
#[derive(Debug)]
pub enum TraceFolder {
    /// The folder holds one session's trace: its files, in the order in which they are read.
    One(Vec<PathBuf>),
    /// The folder holds several traces, the newest first.
    Several(Vec<Found>),
}

/// One of several traces in a folder.
#[derive(Debug)]
pub struct Found {
    /// The folder of one session's trace, or a trace file that lies among others.
    pub path: PathBuf,
    /// The files to read, in order.
    pub files: Vec<PathBuf>,
    /// When the newest of the files was written.
    pub modified: SystemTime,
    pub bytes: u64,
}

impl TraceFolder {
    /// Looks into the folder and, if it holds no trace of its own, into each folder in it. A folder
    /// without any trace counts as one with `trace.gputrace`, which the reader then reports as missing.
    pub fn open(folder: &Path) -> TraceFolder {
        let own = session_files(folder);
        if !own.is_empty() {
            return TraceFolder::One(own);
        }
        let mut found = traces_in(folder);
        match found.as_mut_slice() {
            [] => TraceFolder::One(vec![folder.join(TRACE)]),
            // A single file, whatever its name. A single folder is listed, so that what a command does
            // with a folder of folders does not change with the second one.
            [only] if !only.path.is_dir() => TraceFolder::One(std::mem::take(&mut only.files)),
            _ => TraceFolder::Several(found),
        }
    }
}

/// The trace that was written last, of the folder's own and of those in the folders in it.
pub fn newest(folder: &Path) -> Option<Found> {
    let own = Found::new(folder.to_owned(), session_files(folder));
    traces_in(folder).into_iter().chain(own).max_by(Found::age)
}

impl Found {
    /// `None` without a file that is there.
    fn new(path: PathBuf, files: Vec<PathBuf>) -> Option<Found> {
        let about: Vec<_> = files.iter().filter_map(|file| fs::metadata(file).ok()).collect();
        let modified = about.iter().filter_map(|about| about.modified().ok()).max()?;
        Some(Found { path, files, modified, bytes: about.iter().map(fs::Metadata::len).sum() })
    }

    /// Older before newer; by name where both were written in the same moment.
    fn age(a: &Found, b: &Found) -> std::cmp::Ordering {
        a.modified.cmp(&b.modified).then_with(|| a.path.cmp(&b.path))
    }
}

/// Trace files that lie in the folder, and the folders in it that hold a session's trace; newest first.
fn traces_in(folder: &Path) -> Vec<Found> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<Found> = entries
        .filter_map(|entry| {
            let path = entry.path();
            let files = if path.is_dir() {
                session_files(&path)
            } else if path.extension() == Some(OsStr::new("gputrace")) {
                vec![path.clone()]
            } else {
                Vec::new()
            };
            Found::new(path, files)
        })
        .collect();
    found.sort_by(|a, b| Found::age(b, a));
    found
}

/// Whether a session's trace lies in the folder, whole or cut into files.
pub fn holds_trace(folder: &Path) -> bool {
    !session_files(folder).is_empty()
}

/// The files of one session's trace: `trace.gputrace`, and `trace.1.gputrace` and so on of a trace that
/// is kept in several files, by number, with the unnumbered one last.
fn session_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<(u64, PathBuf)> = entries
        .filter_map(|entry| Some((piece(entry.file_name().to_str()?)?, entry.path())))
        .filter(|(_, path)| !path.is_dir())
        .collect();
    files.sort();
    files.into_iter().map(|(_, path)| path).collect()
}

/// The number of a file of a session's trace; the unnumbered file has the highest.
fn piece(name: &str) -> Option<u64> {
    if name == TRACE {
        return Some(u64::MAX);
    }
    let (stem, ending) = TRACE.split_once('.')?;
    let number = name.strip_prefix(stem)?.strip_prefix('.')?.strip_suffix(ending)?.strip_suffix('.')?;
    number.bytes().all(|byte| byte.is_ascii_digit()).then(|| number.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_one_trace_are_known_by_their_numbers() {
        assert_eq!(piece("trace.gputrace"), Some(u64::MAX));
        assert_eq!(piece("trace.12.gputrace"), Some(12));
        for other in
            ["trace.gputrace.7.part", ".trace.gputrace.7.old", "trace.x.gputrace", "a.gputrace", "trace."]
        {
            assert_eq!(piece(other), None, "{other}");
        }
    }
}
