//! A thread's open ranges: one page, mapped at the thread's first push and later given to another thread.
//!
//! Only the page's thread touches it, and a signal handler on that thread. So everything is a plain cell,
//! and after each step the list is valid for a handler that pushes onto it and pops again.
//!
//! The page also records which ranges the ring contains: the ring's list has `said` ranges, and the first
//! `same` of them equal the thread's. The two numbers differ after an entry was dropped.

use core::cell::Cell as Shared;
use core::sync::atomic::{AtomicPtr, Ordering};

use gputrace_producer::memory;
use gputrace_producer::stderr::KeepErrno;
use gputrace_producer::system;
use gputrace_wire::caller::Caller;
use gputrace_wire::cell::{Cell, kind};
use gputrace_wire::range::{POSITIONS_MAX, RangeBegin, RangeEnd};

use super::label::Label;
use super::look::Look;

/// Ranges beyond the recorded ones, whose domains are kept so that returned levels are true. Beyond these,
/// too, only the number is known, and all count as ranges of the domain that is asked for.
const MORE_MAX: usize = 192;
/// Pages that can wait for another thread.
const POOL: usize = 256;

#[derive(Clone, Copy, Debug, Default)]
pub struct Range {
    label: Label,
    domain: Label,
    level: u32,
    look: Look,
    start_ticks: u64,
    /// The range's position in the list when it was popped.
    position: u32,
}

#[derive(Debug)]
pub struct Open {
    ranges: [Shared<Range>; POSITIONS_MAX as usize],
    count: Shared<u32>,
    said: Shared<u32>,
    same: Shared<u32>,
    /// How many ranges are open beyond `ranges`.
    more: Shared<u32>,
    more_domains: [Shared<Label>; MORE_MAX],
    /// One bit for each position whose range names a span.
    naming: Shared<u64>,
    /// The spans that ranges name. Last in the page: the memory stays untouched if no range names one.
    callers: [Shared<Caller>; POSITIONS_MAX as usize],
}

const _: () = assert!(POSITIONS_MAX == u64::BITS);
const PAGE_BYTES: usize = 8192;
const _: () = assert!(size_of::<Open>() <= PAGE_BYTES);

pub struct Pushed {
    pub level: i32,
    /// `None` for a range that is not recorded.
    pub position: Option<u32>,
}

pub struct Popped {
    pub level: i32,
    /// `None` for a range that was not recorded.
    pub range: Option<Range>,
    pub was_said: bool,
}

static WAITING: [AtomicPtr<Open>; POOL] = [const { AtomicPtr::new(core::ptr::null_mut()) }; POOL];

impl Open {
    /// Takes an empty list; `None` if there is no memory for it.
    #[cold]
    pub fn take() -> Option<&'static Open> {
        let mut waiting = WAITING.iter().filter(|place| !place.load(Ordering::Relaxed).is_null());
        let page = waiting.find_map(|place| {
            let page = place.swap(core::ptr::null_mut(), Ordering::Acquire);
            (!page.is_null()).then_some(page)
        });
        let _errno = KeepErrno::new();
        let page = page.or_else(|| Some(memory::map_bytes(PAGE_BYTES)?.cast()))?;
        // SAFETY: a page that no other thread has, large enough and aligned. Zero is a valid value of all
        // of `Open`, and so is what another thread left in it.
        let open: &'static Open = unsafe { &*page };
        for counter in [&open.count, &open.said, &open.same, &open.more] {
            counter.set(0);
        }
        open.naming.set(0);
        Some(open)
    }

    /// Returns the page after the thread's end; another thread may take it.
    pub fn give_back(&'static self) {
        let page = core::ptr::from_ref(self).cast_mut();
        for place in &WAITING {
            if place
                .compare_exchange(core::ptr::null_mut(), page, Ordering::Release, Ordering::Relaxed)
                .is_ok()
            {
                return;
            }
        }
        // SAFETY: the page was mapped by `take`, and its only user gives it up here.
        unsafe { system::munmap(page.cast(), PAGE_BYTES) };
    }

    #[inline(always)]
    pub fn push(&self, domain: Label, label: Label, look: Look, start_ticks: u64) -> Pushed {
        let position = self.count.get();
        let level = match position.checked_sub(1).and_then(|last| self.ranges.get(last as usize)) {
            None => 0,
            Some(last) if last.get().domain == domain && self.more.get() == 0 => last.get().level + 1,
            Some(_) => self.level_of(domain),
        };
        let Some(place) = self.ranges.get(position as usize) else {
            let more = self.more.get();
            self.more.set(more.saturating_add(1));
            if let Some(place) = self.more_domains.get(more as usize) {
                place.set(domain);
            }
            return Pushed { level: level as i32, position: None };
        };
        // The count first: a signal handler then pushes behind this range.
        self.count.set(position + 1);
        place.set(Range { label, domain, level, look, start_ticks, position });
        Pushed { level: level as i32, position: Some(position) }
    }

    /// Records that the range at that position, which was pushed last, names a span.
    #[cold]
    pub fn name_caller(&self, position: u32, caller: &Caller) {
        if let Some(place) = self.callers.get(position as usize) {
            place.set(*caller);
            self.naming.set(self.naming.get() | 1 << position);
        }
    }

    /// The span that the range at that position names.
    #[inline(always)]
    fn caller(&self, position: u32) -> Option<Caller> {
        if self.naming.get() == 0 || self.naming.get() >> position & 1 == 0 {
            return None;
        }
        self.callers.get(position as usize).map(Shared::get)
    }

    /// Removes the span of the range at that position and moves those behind it up.
    #[cold]
    fn forget_caller(&self, position: u32) {
        let naming = self.naming.get();
        let before = naming & ((1 << position) - 1);
        self.naming.set(before | naming >> position >> 1 << position);
        let moved = self.callers.iter().skip(position as usize);
        for (to, from) in moved.zip(self.callers.iter().skip(position as usize + 1)) {
            to.set(from.get());
        }
    }

    /// How many ranges of the domain are open.
    #[cold]
    fn level_of(&self, domain: Label) -> u32 {
        let more = self.more.get();
        let known = self.more_domains.iter().take(more as usize).filter(|of| of.get() == domain).count();
        let unknown = more.saturating_sub(MORE_MAX as u32);
        self.latest(domain).map_or(0, |(_, range)| range.level + 1) + known as u32 + unknown
    }

    #[inline(always)]
    fn latest(&self, domain: Label) -> Option<(u32, Range)> {
        let open = self.ranges.get(..self.count.get() as usize)?;
        let at = open.iter().rposition(|range| range.get().domain == domain)?;
        Some((at as u32, open.get(at)?.get()))
    }

    #[inline(always)]
    pub fn pop(&self, domain: Label) -> Option<Popped> {
        if self.more.get() > 0
            && let Some(level) = self.pop_more(domain)
        {
            return Some(Popped { level, range: None, was_said: false });
        }
        let (position, range) = self.latest(domain)?;
        let count = self.count.get();
        for at in position as usize..(count as usize).saturating_sub(1) {
            if let (Some(to), Some(from)) = (self.ranges.get(at), self.ranges.get(at + 1)) {
                to.set(from.get());
            }
        }
        self.count.set(count - 1);
        if self.naming.get() != 0 {
            self.forget_caller(position);
        }
        let was_said = position < self.same.get();
        Some(Popped { level: range.level as i32, range: Some(Range { position, ..range }), was_said })
    }

    /// Pops one of the ranges beyond the list; `None` if none is of the domain.
    #[cold]
    fn pop_more(&self, domain: Label) -> Option<i32> {
        let more = self.more.get() as usize;
        if more <= MORE_MAX {
            let known = self.more_domains.get(..more)?;
            let at = known.iter().rposition(|of| of.get() == domain)?;
            for (to, from) in known.iter().skip(at).zip(known.iter().skip(at + 1)) {
                to.set(from.get());
            }
        }
        self.more.set(more as u32 - 1);
        Some(self.level_of(domain) as i32)
    }

    /// Resets the ring's list: the ring is a new one.
    pub fn none_said(&self) {
        self.said.set(0);
        self.same.set(0);
    }

    /// The entry for the range at that position, if it is the next one for the ring.
    #[inline(always)]
    pub fn next_to_say(&self, position: u32, define: impl Fn(Label) -> u32) -> Option<BeginEntry> {
        let is_next = self.said.get() == position && self.same.get() == position;
        let range = self.ranges.get(position as usize).filter(|_| is_next)?.get();
        let begin = range.pushed(position, define);
        Some(match self.caller(position) {
            None => BeginEntry::Plain([begin.to_cell()]),
            Some(caller) => BeginEntry::Naming(begin.to_cells(&caller)),
        })
    }

    /// Records that the range at that position was written.
    #[inline(always)]
    pub fn push_said(&self, position: u32) {
        self.said.set(position + 1);
        self.same.set(position + 1);
    }

    /// The entry for a range that was written and has been popped.
    pub fn popped(&self, range: &Range, end_ticks: u64, define: impl Fn(Label) -> u32) -> RangeEnd {
        RangeEnd {
            kind: kind::RANGE_POP,
            range: define(range.label),
            start_ticks: range.start_ticks,
            end_ticks,
            position: range.position,
            open: self.said.get().saturating_sub(1),
            id: 0,
        }
    }

    /// Records that the pop was written, or that it was dropped; the ring's list then has one range too
    /// many.
    #[inline(always)]
    pub fn pop_said(&self, range: &Range, is_written: bool) {
        if is_written {
            self.said.set(self.said.get().saturating_sub(1));
            self.same.set(self.same.get().saturating_sub(1));
        } else {
            self.same.set(self.same.get().min(range.position));
        }
    }

    /// Writes entries until the ring's list equals the thread's; false if an entry did not fit.
    #[cold]
    pub fn say_all(
        &self,
        end_ticks: u64,
        define: impl Fn(Label) -> u32,
        mut write: impl FnMut(&[Cell]) -> bool,
    ) -> bool {
        let same = self.same.get().min(self.count.get());
        if same < self.said.get() {
            let cut = RangeEnd { kind: kind::RANGE_POP, end_ticks, open: same, ..RangeEnd::default() };
            if !write(&[cut.to_cell()]) {
                return false;
            }
            self.said.set(same);
            self.same.set(same);
        }
        while let at = self.said.get()
            && at < self.count.get()
        {
            if !self.next_to_say(at, &define).is_some_and(|entry| write(entry.cells())) {
                return false;
            }
            self.push_said(at);
        }
        true
    }
}

/// The entry of a range that begins.
pub enum BeginEntry {
    Plain([Cell; 1]),
    Naming([Cell; 2]),
}

impl BeginEntry {
    #[inline(always)]
    pub fn cells(&self) -> &[Cell] {
        match self {
            BeginEntry::Plain(cells) => cells,
            BeginEntry::Naming(cells) => cells,
        }
    }
}

impl Range {
    pub fn new(label: Label, start_ticks: u64) -> Range {
        Range { label, start_ticks, ..Range::default() }
    }

    #[inline(always)]
    fn pushed(&self, position: u32, define: impl Fn(Label) -> u32) -> RangeBegin {
        let begin = self.look.begin(kind::RANGE_PUSH, define(self.label), self.start_ticks);
        RangeBegin { position, ..begin }
    }

    /// The entry for a started range that has ended.
    pub fn ended(&self, end_ticks: u64, id: u64, define: impl Fn(Label) -> u32) -> RangeEnd {
        RangeEnd {
            kind: kind::RANGE_END,
            range: if self.start_ticks == 0 { 0 } else { define(self.label) },
            start_ticks: self.start_ticks,
            end_ticks,
            position: 0,
            open: 0,
            id,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(open: &Open, domain: Label) -> (i32, Option<u32>) {
        let pushed = open.push(domain, Label::NONE, Look::default(), 1);
        (pushed.level, pushed.position)
    }

    #[test]
    fn ranges_beyond_the_limit_have_correct_levels() {
        let open = Open::take().unwrap();
        let other = Label::of_test(7);
        let levels: Vec<_> = (0..1000).map(|_| push(open, Label::NONE)).collect();
        assert!(levels.iter().enumerate().all(|(at, (level, _))| *level == at as i32), "{levels:?}");
        assert_eq!((levels[63].1, levels[64].1), (Some(63), None));
        for level in (0..1000).rev() {
            assert_eq!(open.pop(Label::NONE).unwrap().level, level);
        }
        assert!(open.pop(Label::NONE).is_none());
        // Two domains in turn, beyond the bound.
        for at in 0..100 {
            assert_eq!((push(open, Label::NONE).0, push(open, other).0), (at, at));
        }
        for at in (0..100).rev() {
            assert_eq!(open.pop(Label::NONE).unwrap().level, at);
        }
        for at in (0..100).rev() {
            assert_eq!(open.pop(other).unwrap().level, at);
        }
        open.give_back();
    }

    /// Applies the entries as the format requires of a reader.
    fn read(list: &mut Vec<(u64, u64)>, cells: &[Cell]) {
        let cell = &cells[0];
        assert_eq!(usize::from(cell.cells()), cells.len());
        if let Some(begin) = RangeBegin::from_cell(cell) {
            list.resize(begin.position as usize, (0, 0));
            list.push((begin.start_ticks, cells.get(1).map_or(0, |further| Caller::of_cell(further).span)));
        }
        if let Some(end) = RangeEnd::from_cell(cell) {
            if end.start_ticks != 0 && (end.position as usize) < list.len() {
                assert_eq!(list.remove(end.position as usize).0, end.start_ticks);
            }
            list.truncate(end.open as usize);
        }
    }

    #[test]
    fn reader_s_list_is_the_thread_s_whatever_was_dropped() {
        let open = Open::take().unwrap();
        let define = |_| 0;
        let mut random = 1u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        let domains = [Label::NONE, Label::of_test(7), Label::of_test(8)];
        let mut list: Vec<(u64, u64)> = Vec::new();
        let mut mirror: Vec<(usize, (u64, u64))> = Vec::new();
        let mut pending = false;
        for ticks in 1..40_000u64 {
            let fits = next(4) != 0;
            let domain = next(3) as usize;
            if next(2) == 0 && mirror.len() < 60 {
                let position =
                    open.push(domains[domain], Label::NONE, Look::default(), ticks).position.unwrap();
                let span = if ticks.is_multiple_of(3) { ticks } else { 0 };
                if span != 0 {
                    open.name_caller(position, &Caller { trace: [1, 2], span, ..Caller::NOBODY });
                }
                mirror.push((domain, (ticks, span)));
                match open.next_to_say(position, define).filter(|_| !pending && fits) {
                    Some(entry) => {
                        read(&mut list, entry.cells());
                        open.push_said(position);
                    }
                    None => pending = true,
                }
            } else if let Some(popped) = open.pop(domains[domain]) {
                let range = popped.range.unwrap();
                let at = mirror.iter().rposition(|(of, _)| *of == domain).unwrap();
                assert_eq!(mirror.remove(at).1.0, range.start_ticks);
                if popped.was_said && !pending && fits {
                    read(&mut list, &[open.popped(&range, ticks, define).to_cell()]);
                    open.pop_said(&range, true);
                } else if popped.was_said {
                    open.pop_said(&range, false);
                    pending = true;
                }
            } else {
                assert!(mirror.iter().all(|(of, _)| *of != domain));
            }
            if pending {
                let fits = &mut next;
                pending = !open.say_all(ticks, define, |cells| {
                    let is_written = fits(4) != 0;
                    if is_written {
                        read(&mut list, cells);
                    }
                    is_written
                });
            }
            if !pending {
                assert_eq!(list, mirror.iter().map(|(_, range)| *range).collect::<Vec<_>>(), "at {ticks}");
            }
        }
        open.give_back();
    }
}
