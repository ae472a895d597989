//! Labels: the names of ranges and of domains, each defined once per session.
//!
//! There is one table per process, made at first use and never freed. It maps text to a number, which is
//! valid for the life of the process, and in a forked child too. The number's definition in a session is
//! stored with the session's generation.
//!
//! The table is bounded, because programs count in their names (`step 17`). Once it is full, new names are
//! label 0.

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use gputrace_producer::handles::{Handles, key_of};
use gputrace_producer::memory;
use gputrace_producer::session::Session;
use gputrace_producer::stderr::KeepErrno;
use gputrace_wire::counter::Counter;
use gputrace_wire::definition::kind;

/// The most labels of a process, and the slots of their hash table.
const LABELS_MAX: usize = 1 << 15;
const SLOTS: usize = 2 * LABELS_MAX;
/// The most bytes of all texts.
const TEXT_BYTES: usize = 4 << 20;
/// A text with a traceparent is at least as long as the traceparent.
const LONG_BYTES: u64 = 55;
/// A longer name is cut.
pub const NAME_MAX: usize = 1024;

/// The name of a range, or of a domain; also the handle that a program holds for one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Label(u32);

struct Table {
    /// Hash of domain and text → label.
    labels: Handles,
    /// By label: where its text begins in `texts` (lower half) and the text's length.
    locations: &'static [AtomicU64],
    /// By label: the domain's label; [`IS_DOMAIN`] for a domain.
    domains: &'static [AtomicU32],
    /// By label: its definition (lower half) and the generation that the definition belongs to.
    ids: &'static [AtomicU64],
    texts: &'static [core::sync::atomic::AtomicU8],
    used_bytes: AtomicU32,
    next: AtomicU32,
}

const IS_DOMAIN: u32 = u32::MAX;

static TABLE: AtomicPtr<Table> = AtomicPtr::new(core::ptr::null_mut());

fn table() -> Option<&'static Table> {
    // SAFETY: the pointer is null or points to a table that `make` wrote completely before it published the
    // pointer. Tables are never freed.
    unsafe { TABLE.load(Ordering::Acquire).as_ref() }
}

/// Makes the table; false if there is no memory for it.
pub fn prepare() -> bool {
    table().is_some() || make().is_some()
}

#[cold]
fn make() -> Option<()> {
    let _errno = KeepErrno::new();
    let table = Table {
        labels: Handles::new(SLOTS)?,
        locations: memory::map(LABELS_MAX)?,
        domains: memory::map(LABELS_MAX)?,
        ids: memory::map(LABELS_MAX)?,
        texts: memory::map(TEXT_BYTES)?,
        used_bytes: AtomicU32::new(0),
        next: AtomicU32::new(1),
    };
    let buffer = memory::map_bytes(size_of::<Table>())?.cast::<Table>();
    // SAFETY: the mapping is large enough, page-aligned, ours alone, and never unmapped.
    unsafe { buffer.write(table) };
    // Two threads at once: the later one's table stays unused.
    let _ = TABLE.compare_exchange(core::ptr::null_mut(), buffer, Ordering::AcqRel, Ordering::Acquire);
    Some(())
}

impl Label {
    /// No name, or one that did not fit. As a domain: the default domain, which has no name.
    pub const NONE: Label = Label(0);

    /// The label of a range's name in a domain.
    #[inline]
    pub fn range(domain: Label, name: &[u8]) -> Label {
        Label::of(domain.0, name)
    }

    pub fn domain(name: &[u8]) -> Label {
        Label::of(IS_DOMAIN, name)
    }

    /// The handle that a program holds for the label; never null.
    pub fn to_handle(self) -> usize {
        self.0 as usize + 1
    }

    /// The label of a handle that a program passed, which may be any value.
    #[inline]
    pub fn from_handle(handle: usize) -> Label {
        let number = u32::try_from(handle.wrapping_sub(1)).unwrap_or(0);
        let is_known = table().is_some_and(|table| number < table.next.load(Ordering::Relaxed));
        Label(if is_known { number } else { 0 })
    }

    /// Whether the label is a range's name in that domain.
    #[inline]
    pub fn is_of(self, domain: Label) -> bool {
        table().and_then(|table| table.domains.get(self.0 as usize)).map(|of| of.load(Ordering::Relaxed))
            == Some(domain.0)
    }

    /// Whether the label is a domain.
    #[inline]
    pub fn is_domain(self) -> bool {
        self.is_of(Label(IS_DOMAIN))
    }

    /// Calls `act` with the label's text, if the text is long enough to contain a traceparent.
    #[inline(always)]
    pub fn with_long_text<R>(self, act: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let table = table()?;
        let location = table.locations.get(self.0 as usize)?.load(Ordering::Relaxed);
        (location >> 32 >= LONG_BYTES).then(|| act(table.text(self.0, &mut [0; NAME_MAX])))
    }

    /// Calls `act` with the label's text.
    pub(super) fn with_text(self, act: impl FnOnce(&[u8])) {
        if let Some(table) = table() {
            act(table.text(self.0, &mut [0; NAME_MAX]));
        }
    }

    #[cfg(test)]
    pub(super) fn of_test(number: u32) -> Label {
        Label(number)
    }

    #[inline]
    fn of(domain: u32, name: &[u8]) -> Label {
        let Some(table) = table() else { return Label::NONE };
        let name = name.get(..NAME_MAX).unwrap_or(name);
        let key = key_of(name).wrapping_add(u64::from(domain).wrapping_mul(0x9e37_79b9_7f4a_7c15)).max(1);
        match table.labels.get(key) {
            Some(label) => Label(label),
            None => Label(table.add(key, domain, name)),
        }
    }

    /// The label's definition in the session; 0 for none, which is counted.
    #[inline(always)]
    pub(crate) fn definition(self, session: &Session) -> u32 {
        let known =
            table().and_then(|table| table.ids.get(self.0 as usize)).map(|id| id.load(Ordering::Acquire));
        match known {
            Some(known) if (known >> 32) as u32 == session.generation && known as u32 != 0 => known as u32,
            _ => self.define(session),
        }
    }

    #[cold]
    #[inline(never)]
    fn define(self, session: &Session) -> u32 {
        let found = table().filter(|_| self.0 != 0).and_then(|table| {
            let index = self.0 as usize;
            Some((table, table.ids.get(index)?, table.domains.get(index)?.load(Ordering::Relaxed)))
        });
        // Names may fill the definitions area up to its half; the rest is for other kinds.
        let Some((table, id, domain)) = found.filter(|_| !session.definitions_are_half_full()) else {
            session.count(Counter::RangesUnnamed, 1);
            return 0;
        };
        let before = id.load(Ordering::Acquire);
        let mut buffer = [0; NAME_MAX];
        let text = table.text(self.0, &mut buffer);
        let new = match domain {
            IS_DOMAIN => session.define(kind::DOMAIN, &[], text),
            0 => session.define(kind::RANGE, &[], text),
            domain => {
                let domain = Label(domain).definition(session);
                session.define(kind::RANGE, &[domain.into()], text)
            }
        };
        let word = u64::from(session.generation) << 32 | u64::from(new);
        match id.compare_exchange(before, word, Ordering::AcqRel, Ordering::Acquire) {
            Err(other) if (other >> 32) as u32 == session.generation => other as u32,
            _ => new,
        }
    }
}

impl Table {
    /// Makes a new label; 0 if the table is full.
    #[cold]
    #[inline(never)]
    fn add(&self, key: u64, domain: u32, name: &[u8]) -> u32 {
        if self.next.load(Ordering::Relaxed) as usize >= LABELS_MAX {
            return 0;
        }
        self.labels.get_or_define(key, || self.write(domain, name).unwrap_or(0))
    }

    fn write(&self, domain: u32, name: &[u8]) -> Option<u32> {
        let take = |counter: &AtomicU32, amount: u32, limit: usize| {
            let next = |at: u32| at.checked_add(amount).filter(|end| *end as usize <= limit);
            counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()
        };
        let bytes = u32::try_from(name.len()).ok()?;
        let at = take(&self.used_bytes, bytes, TEXT_BYTES)?;
        let label = take(&self.next, 1, LABELS_MAX)?;
        let text = self.texts.get(at as usize..(at + bytes) as usize)?;
        for (to, from) in text.iter().zip(name) {
            to.store(*from, Ordering::Relaxed);
        }
        // Other threads read the label only after the Release store of `Handles`.
        self.domains.get(label as usize)?.store(domain, Ordering::Relaxed);
        self.locations.get(label as usize)?.store(u64::from(at) | u64::from(bytes) << 32, Ordering::Relaxed);
        Some(label)
    }

    /// The label's text, copied.
    fn text<'r>(&self, label: u32, buffer: &'r mut [u8; NAME_MAX]) -> &'r [u8] {
        let location =
            self.locations.get(label as usize).map_or(0, |location| location.load(Ordering::Relaxed));
        let (at, bytes) = (location as u32 as usize, (location >> 32) as usize);
        let text = self.texts.get(at..at.saturating_add(bytes)).unwrap_or_default();
        for (to, from) in buffer.iter_mut().zip(text) {
            *to = from.load(Ordering::Relaxed);
        }
        buffer.get(..text.len()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_one_label_and_any_handle_is_taken() {
        assert!(prepare());
        let domain = Label::domain(b"d");
        let label = Label::range(domain, b"forward");
        assert_eq!(label, Label::range(domain, b"forward"));
        assert_ne!(label, Label::range(Label::NONE, b"forward"));
        assert!(label.is_of(domain) && !label.is_of(Label::NONE) && domain.is_domain() && !label.is_domain());
        assert_eq!(Label::from_handle(label.to_handle()), label);
        for nonsense in [0, usize::MAX, 1 << 40, LABELS_MAX + 7, 0x7fff_1234_5678] {
            assert_eq!(Label::from_handle(nonsense), Label::NONE, "{nonsense:x}");
        }
        let mut buffer = [0; NAME_MAX];
        assert_eq!(table().unwrap().text(label.0, &mut buffer), b"forward");
        let long = vec![b'x'; 3 * NAME_MAX];
        assert_eq!(Label::range(domain, &long), Label::range(domain, &long[..NAME_MAX]));
    }
}
