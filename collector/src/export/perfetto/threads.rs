//! A thread's track: its calls, and its pushed ranges around them.
//!
//! A thread's events come in the order of its ring, so they nest as they come. What does not nest, in a
//! damaged trace, goes to rows of its own.

use std::io;

use crate::export::perfetto::rows::{FIT_ERROR_NS, RowSlot, TrackRows};
use crate::export::perfetto::sequence::{AnnotationKey, EventCategory, EventFields, EventType, Name};
use crate::export::perfetto::tracks::Tracks;

/// Slices that end in any order, each written as a whole.
#[derive(Debug)]
pub struct Apart {
    sequence: usize,
    parent: u64,
    name: String,
    rank: u64,
    rows: TrackRows,
}

impl Apart {
    pub fn new(sequence: usize, parent: u64, name: &str, rank: u64) -> Apart {
        Apart { sequence, parent, name: name.to_owned(), rank, rows: TrackRows::default() }
    }

    /// Writes a slice. Returns false if there are too many at the same time.
    pub fn slice(
        &mut self,
        tracks: &mut Tracks,
        (start_ns, duration_ns): (u64, u64),
        build: impl FnOnce(&mut EventFields<'_>),
    ) -> io::Result<bool> {
        loop {
            match self.rows.put(start_ns, duration_ns) {
                RowSlot::New => self.rows.add(tracks.child(self.parent, &self.name, self.rank)?),
                RowSlot::Full => return Ok(false),
                RowSlot::Row { track, begin_ns, .. } => {
                    tracks.event(self.sequence, (EventType::Begin, track, begin_ns), build)?;
                    tracks.end(self.sequence, track, begin_ns.saturating_add(duration_ns))?;
                    while self.rows.take_end(u64::MAX).is_some() {}
                    return Ok(true);
                }
            }
        }
    }
}

/// A pushed range that is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct OpenRange {
    number: u32,
    name: Name,
}

#[derive(Debug)]
pub struct ThreadTrack {
    sequence: usize,
    track: u64,
    last_ns: u64,
    open: Vec<OpenRange>,
    apart: Apart,
}

impl ThreadTrack {
    pub fn new(sequence: usize, track: u64, name: &str) -> ThreadTrack {
        let apart = Apart::new(sequence, track, &format!("{name}, overlapping"), 0);
        ThreadTrack { sequence, track, last_ns: 0, open: Vec::new(), apart }
    }

    /// When a slice that starts then begins; `None` if it lies before what was written.
    fn begin_ns(&self, start_ns: u64) -> Option<u64> {
        (start_ns.saturating_add(FIT_ERROR_NS) >= self.last_ns).then_some(start_ns.max(self.last_ns))
    }

    /// Writes a call. Returns false if there are too many that overlap.
    #[inline]
    pub fn call(
        &mut self,
        tracks: &mut Tracks,
        (start_ns, duration_ns): (u64, u64),
        build: impl FnOnce(&mut EventFields<'_>),
    ) -> io::Result<bool> {
        let Some(begin_ns) = self.begin_ns(start_ns) else {
            return self.apart.slice(tracks, (start_ns, duration_ns), build);
        };
        self.last_ns = begin_ns.saturating_add(duration_ns);
        tracks.event(self.sequence, (EventType::Begin, self.track, begin_ns), build)?;
        tracks.end(self.sequence, self.track, self.last_ns)?;
        Ok(true)
    }

    /// Begins a pushed range, unless it lies before what was written.
    pub fn push(
        &mut self,
        tracks: &mut Tracks,
        (number, name): (u32, Name),
        start_ns: u64,
        build: impl FnOnce(&mut EventFields<'_>),
    ) -> io::Result<()> {
        let Some(begin_ns) = self.begin_ns(start_ns) else { return Ok(()) };
        self.last_ns = begin_ns;
        self.open.push(OpenRange { number, name });
        tracks.event(self.sequence, (EventType::Begin, self.track, begin_ns), build)
    }

    /// Ends a pushed range. Returns false if it was not begun here. Ranges inside it that go on are cut in
    /// two, since slices of a track nest.
    pub fn pop(
        &mut self,
        tracks: &mut Tracks,
        (number, end_ns, is_whole): (u32, u64, bool),
        text: impl Fn(Name) -> String,
    ) -> io::Result<bool> {
        let Some(at) = self.open.iter().rposition(|open| open.number == number) else { return Ok(false) };
        self.last_ns = self.last_ns.max(end_ns);
        let event = |kind| (kind, self.track, self.last_ns);
        let inside = self.open.split_off(at + 1);
        self.open.truncate(at);
        for _ in &inside {
            tracks.end(self.sequence, self.track, self.last_ns)?;
        }
        tracks.event(self.sequence, event(EventType::End), |end| {
            if !is_whole {
                end.number(AnnotationKey::Unfinished, 1);
            }
        })?;
        for range in inside {
            tracks.event(self.sequence, event(EventType::Begin), |begin| {
                begin.category(EventCategory::Range);
                begin.name(range.name, || text(range.name));
                begin.number(AnnotationKey::Continued, 1);
            })?;
            self.open.push(range);
        }
        Ok(true)
    }
}
