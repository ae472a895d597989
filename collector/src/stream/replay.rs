//! Feeds trace files to the model.

use std::path::{Path, PathBuf};

use crate::batch::{Batch, SeriesFile, SeriesMark, SessionBegin};
use crate::error::Error;
use crate::model::sink::Sink;
use crate::model::{Model, Totals};
use crate::trace_file::{Damage, TraceReader};

/// How much was read, over all files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadProgress {
    pub bytes_read: u64,
    pub bytes_total: u64,
}

/// The result of reading.
#[derive(Debug)]
pub struct Replay<S> {
    pub totals: Totals,
    pub sink: S,
    /// Files that were read only up to their first damage.
    pub damages: Vec<(PathBuf, Damage)>,
    /// Files that could not be read at all, with the reason.
    pub skipped: Vec<(PathBuf, Error)>,
}

/// Reads traces one after the other into one model. Process numbers continue from file to file.
///
/// Damage within a file is not an error: the part before it counts, and [`Replay::damages`] describes it. A
/// file that is not a trace, or cannot be opened, is skipped ([`Replay::skipped`]) if another can be read;
/// if none can, the first file's error is returned.
pub fn read_traces<S: Sink>(
    paths: &[impl AsRef<Path>],
    sink: S,
    progress: &mut dyn FnMut(ReadProgress),
) -> Result<Replay<S>, Error> {
    let mut readers = Vec::new();
    let mut skipped = Vec::new();
    for path in paths.iter().map(AsRef::as_ref) {
        match TraceReader::open(path) {
            Ok(reader) => readers.push((path.to_owned(), reader)),
            Err(error) => skipped.push((path.to_owned(), error)),
        }
    }
    if readers.is_empty() {
        return Err(skipped.into_iter().next().map_or(Error::NoTraces, |(_, error)| error));
    }
    sort_series(&mut readers);
    let bytes_total = readers.iter().map(|(_, reader)| reader.progress().1).sum();
    let mut model = Model::new(sink);
    let mut damages = Vec::new();
    let mut before = 0;
    for (path, mut reader) in readers {
        while let Some(batch) = reader.next() {
            model.consume(&batch);
            progress(ReadProgress { bytes_read: before + reader.progress().0, bytes_total });
        }
        before += reader.progress().1;
        if let Some(damage) = reader.damage() {
            damages.push((path, damage.clone()));
        }
        progress(ReadProgress { bytes_read: before, bytes_total });
    }
    let (mut totals, sink) = model.finish();
    totals.damages.clone_from(&damages);
    totals.damages.extend(skipped.iter().map(|(path, error)| (path.clone(), Damage::skipped(error))));
    Ok(Replay { totals, sink, damages, skipped })
}

/// Puts the files of each series into their order, all of them where the first one stands.
fn sort_series<R>(readers: &mut [(PathBuf, R)]) {
    let mut sessions: Vec<SessionBegin> = Vec::new();
    readers.sort_by_cached_key(|(path, _)| match series_file(path) {
        Some((begin, number)) => {
            let known = sessions.iter().position(|known| *known == begin);
            (
                known.unwrap_or_else(|| {
                    sessions.push(begin);
                    sessions.len() - 1
                }),
                number,
            )
        }
        None => {
            sessions.push(SessionBegin::default());
            (sessions.len() - 1, 0)
        }
    });
}

/// The session that a file is of, and its number in a series; 1 of a file that has none.
fn series_file(path: &Path) -> Option<(SessionBegin, u32)> {
    let mut reader = TraceReader::open(path).ok()?;
    let Some(Batch::SessionBegin(begin)) = reader.next() else { return None };
    let number = match reader.next() {
        Some(Batch::SeriesFile(SeriesFile { number, mark: SeriesMark::Begins, .. })) => number,
        _ => 1,
    };
    Some((begin, number))
}
