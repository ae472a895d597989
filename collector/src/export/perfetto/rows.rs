//! The rows of a timeline: tracks whose slices follow each other and never overlap.
//!
//! Perfetto closes the innermost open slice of a track, whichever it was meant to be, so slices that overlap
//! need tracks of their own. Rows with one name are shown as one timeline, with the rows below each other.

/// A slice that begins this little before the end of the one before it begins at that end instead. A device's
/// start is a fitted time and its duration the device clock's own, so slices that follow each other at once
/// can seem to overlap by the error of the fit.
pub const FIT_ERROR_NS: u64 = 200;
/// The most rows of a timeline.
const ROWS_MAX: usize = 256;

#[derive(Debug)]
struct TrackRow {
    track: u64,
    ends_ns: u64,
    /// Whether the end of its last slice is still to be written.
    is_open: bool,
}

#[derive(Debug, Default)]
pub struct TrackRows(Vec<TrackRow>);

/// Where a slice goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RowSlot {
    Row {
        track: u64,
        begin_ns: u64,
        /// The end of the slice before it, if that is still to be written.
        ends_ns: Option<u64>,
    },
    /// A further row is needed: [`TrackRows::add`].
    New,
    /// There are as many rows as there may be.
    Full,
}

impl TrackRows {
    /// The first of the slices that end by `until_ns` and whose end is still to be written: track and end.
    #[inline]
    pub fn take_end(&mut self, until_ns: u64) -> Option<(u64, u64)> {
        let open = self.0.iter_mut().filter(|row| row.is_open && row.ends_ns <= until_ns);
        let row = open.min_by_key(|row| row.ends_ns)?;
        row.is_open = false;
        Some((row.track, row.ends_ns))
    }

    /// Finds a row for a slice and keeps it until the slice's end.
    #[inline]
    pub fn put(&mut self, start_ns: u64, duration_ns: u64) -> RowSlot {
        let fits = |row: &&mut TrackRow| row.ends_ns <= start_ns.saturating_add(FIT_ERROR_NS);
        let Some(row) = self.0.iter_mut().find(fits) else {
            return if self.0.len() < ROWS_MAX { RowSlot::New } else { RowSlot::Full };
        };
        let begin_ns = start_ns.max(row.ends_ns);
        let ends_ns = row.is_open.then_some(row.ends_ns);
        (row.ends_ns, row.is_open) = (begin_ns.saturating_add(duration_ns), true);
        RowSlot::Row { track: row.track, begin_ns, ends_ns }
    }

    /// Adds a row.
    pub fn add(&mut self, track: u64) {
        self.0.push(TrackRow { track, ends_ns: 0, is_open: false });
    }
}
