//! The join of host calls with the device records that they caused.
//!
//! Either side may come first: calls wait for records and records wait for calls, keyed by (epoch,
//! correlation id). Correlation ids count up, so a table indexed by their low bits is a sliding window over
//! the latest ids: no hashing and no list of ages. A new call takes the slot of an old one. If that still
//! waits for records, it moves to the [overflow table](OverflowTable); a paused one is only noted. A call
//! stays in the window after its first record until a later call needs its slot, since all nodes of a graph
//! launch share the launch's id.

use std::mem;

use crate::model::key::JoinKey;
use crate::model::noted_ids::NotedIds;
use crate::model::operation::{HostCall, Operation};
use crate::model::overflow::OverflowTable;
use crate::model::pending_call::{Form, PendingCall};

/// Slots of a new window, slots up to which any collision makes it grow, and the most slots.
const SLOTS_FIRST: usize = 1 << 10;
const SLOTS_EASY: usize = 1 << 15;
const SLOTS_MAX: usize = 1 << 18;
/// The most records that wait for their calls.
const HELD_MAX: usize = 1 << 18;

#[derive(Debug)]
struct Slot<T> {
    key: JoinKey,
    value: T,
}

/// A table of the latest keys by the low bits of their correlation id.
#[derive(Debug)]
struct JoinWindow<T> {
    slots: Vec<Option<Slot<T>>>,
    /// Slots in use by values that are still needed.
    live: usize,
}

// Derived, it would ask for a default of `T`.
impl<T> Default for JoinWindow<T> {
    fn default() -> Self {
        JoinWindow { slots: Vec::new(), live: 0 }
    }
}

impl<T> JoinWindow<T> {
    #[inline]
    fn index(&self, key: JoinKey) -> usize {
        key.correlation as usize & self.slots.len().wrapping_sub(1)
    }

    #[inline]
    fn get(&mut self, key: JoinKey) -> Option<&mut T> {
        let index = self.index(key);
        match self.slots.get_mut(index)? {
            Some(slot) if slot.key == key => Some(&mut slot.value),
            _ => None,
        }
    }

    fn take(&mut self, key: JoinKey) -> Option<T> {
        let index = self.index(key);
        let slot = self.slots.get_mut(index)?.take_if(|slot| slot.key == key)?;
        Some(slot.value)
    }

    /// Whether a collision makes the window grow. Beyond `SLOTS_EASY` only if a sixteenth of the slots is in
    /// use: not for a few calls whose records never come, but for hundreds of threads whose records come one
    /// CUPTI buffer at a time (measured with 200 threads on an H200).
    fn may_grow(&self) -> bool {
        let slots = self.slots.len();
        slots < SLOTS_EASY || (slots < SLOTS_MAX && self.live > slots / 16)
    }

    fn grow(&mut self) -> Vec<Slot<T>> {
        let slots = (self.slots.len() * 2).max(SLOTS_FIRST);
        let old = mem::take(&mut self.slots);
        self.slots.resize_with(slots, || None);
        let mut lost = Vec::new();
        for slot in old.into_iter().flatten() {
            let index = self.index(slot.key);
            // Keys that had different slots still have, so `lost` stays empty.
            if let Some(free) = self.slots.get_mut(index) {
                lost.extend(free.replace(slot));
            }
        }
        lost
    }
}

/// Records of one key that came before their call.
#[derive(Debug)]
struct Held {
    first: Operation,
    more: Vec<Operation>,
}

/// A result of the join.
#[derive(Debug)]
pub enum JoinOutcome {
    /// A record, with its call if the call is known.
    Record(Operation),
    /// A call that no longer waits for its record.
    Alone(HostCall),
    /// A record of a graph launch that already has records of the other [`Form`]: whole launch and single
    /// nodes.
    Double,
    /// A record of a paused call that lost its slot meanwhile.
    LeftOut,
}

/// The join of one process.
#[derive(Debug, Default)]
pub struct Join {
    calls: JoinWindow<PendingCall>,
    /// Calls whose slot in the window a later call took.
    overflow: OverflowTable,
    records: JoinWindow<Held>,
    held: usize,
    /// Calls that were emitted without device times because too many calls waited for records.
    pub evicted_calls: u64,
    /// Records that were emitted without their call, because too many waited or a later one took their slot.
    pub evicted_records: u64,
    /// Records that came after their call had been evicted. If the call was already emitted alone, the times
    /// in the record are lost.
    pub late_records: u64,
    /// The newest key among evicted calls.
    evicted_to: Option<JoinKey>,
    /// Calls that were emitted without their records. What comes later belongs to an operation that is
    /// already counted.
    emitted_alone: NotedIds,
    /// Paused calls that lost their slots.
    left_out: NotedIds,
}

impl Join {
    /// Adds a call that will have records. `many`: a graph launch or a batch, which has several.
    pub fn call(&mut self, key: JoinKey, call: HostCall, many: bool, out: &mut impl FnMut(JoinOutcome)) {
        let mut matched = false;
        let (mut form, mut nodes_ns) = (Form::default(), 0);
        if self.held > 0
            && let Some(held) = self.records.take(key)
        {
            matched = true;
            self.records.live -= 1;
            self.held = self.held.saturating_sub(1 + held.more.len());
            for mut record in std::iter::once(held.first).chain(held.more) {
                if !form.admits(&mut record, &mut nodes_ns) {
                    out(JoinOutcome::Double);
                    continue;
                }
                record.call = Some(call.clone());
                out(JoinOutcome::Record(record));
            }
        }
        loop {
            let index = self.calls.index(key);
            let grow = match self.calls.slots.get(index) {
                None => true,
                Some(Some(slot)) => slot.key != key && slot.value.is_live() && self.calls.may_grow(),
                Some(None) => false,
            };
            if !grow {
                break;
            }
            for slot in self.calls.grow() {
                self.lose_slot(slot, out);
            }
        }
        let index = self.calls.index(key);
        let pending = PendingCall { call, matched, many, form, nodes_ns };
        let is_live = pending.is_live();
        if let Some(slot) = self.calls.slots.get_mut(index) {
            self.calls.live += usize::from(is_live);
            // Mostly the old call is not needed any more, and is not worth copying.
            let old = slot.take_if(|old| old.value.is_live());
            *slot = Some(Slot { key, value: pending });
            if let Some(old) = old {
                self.lose_slot(old, out);
            }
        }
    }

    fn lose_slot(&mut self, old: Slot<PendingCall>, out: &mut impl FnMut(JoinOutcome)) {
        if !old.value.is_live() {
            return;
        }
        self.calls.live = self.calls.live.saturating_sub(1);
        // Many paused calls have no record, and nobody misses them.
        if old.value.call.is_paused() {
            self.left_out.note(old.key);
            return;
        }
        if let Some((key, oldest)) = self.overflow.put(old.key, old.value) {
            self.emit_alone(key, oldest, out);
        }
    }

    fn emit_alone(&mut self, key: JoinKey, pending: PendingCall, out: &mut impl FnMut(JoinOutcome)) {
        self.evicted_to = self.evicted_to.max(Some(key));
        if !pending.matched && !pending.call.is_paused() {
            self.evicted_calls += 1;
            if !pending.many {
                self.emitted_alone.note(key);
            }
            out(JoinOutcome::Alone(pending.call));
        }
    }

    /// Adds a device record, as an operation without a call.
    #[inline]
    pub fn record(&mut self, key: JoinKey, mut record: Operation, out: &mut impl FnMut(JoinOutcome)) {
        if key.correlation == 0 {
            return out(JoinOutcome::Record(record));
        }
        if let Some(pending) = self.calls.get(key) {
            let was_live = pending.is_live();
            let is_new = pending.join(&mut record);
            let is_live = pending.is_live();
            self.calls.live -= usize::from(was_live && !is_live);
            return out(if is_new { JoinOutcome::Record(record) } else { JoinOutcome::Double });
        }
        if let Some(pending) = self.overflow.get(key) {
            let is_new = pending.join(&mut record);
            if !pending.is_live() {
                self.overflow.remove(key);
            }
            return out(if is_new { JoinOutcome::Record(record) } else { JoinOutcome::Double });
        }
        if self.left_out.has(key) {
            return out(JoinOutcome::LeftOut);
        }
        if self.emitted_alone.take(key) {
            self.late_records += 1;
            return;
        }
        // For example a node of a graph whose launch was evicted after its first records.
        if self.evicted_to.is_some_and(|newest| key <= newest) {
            self.late_records += 1;
            return out(JoinOutcome::Record(record));
        }
        if self.held >= HELD_MAX {
            self.evicted_records += 1;
            return out(JoinOutcome::Record(record));
        }
        self.hold(key, record, out);
    }

    fn hold(&mut self, key: JoinKey, record: Operation, out: &mut impl FnMut(JoinOutcome)) {
        self.held += 1;
        if let Some(held) = self.records.get(key) {
            held.more.push(record);
            return;
        }
        loop {
            let index = self.records.index(key);
            let grow = match self.records.slots.get(index) {
                None => true,
                Some(Some(_)) => self.records.may_grow(),
                Some(None) => false,
            };
            if !grow {
                break;
            }
            for slot in self.records.grow() {
                self.emit_held(slot.value, out);
            }
        }
        let index = self.records.index(key);
        if let Some(slot) = self.records.slots.get_mut(index) {
            self.records.live += 1;
            let value = Held { first: record, more: Vec::new() };
            if let Some(old) = slot.replace(Slot { key, value }) {
                self.emit_held(old.value, out);
            }
        }
    }

    fn emit_held(&mut self, held: Held, out: &mut impl FnMut(JoinOutcome)) {
        self.records.live = self.records.live.saturating_sub(1);
        for record in std::iter::once(held.first).chain(held.more) {
            self.held = self.held.saturating_sub(1);
            self.evicted_records += 1;
            out(JoinOutcome::Record(record));
        }
    }

    /// Moves the calls for which `is_after` is true to an epoch that began before them and was read after
    /// them.
    pub fn move_to_epoch(&mut self, epoch: u32, is_after: impl Fn(&HostCall) -> bool) {
        for slot in self.calls.slots.iter_mut().flatten() {
            if !slot.value.matched && is_after(&slot.value.call) {
                slot.key.epoch = epoch;
            }
        }
        self.overflow.move_to_epoch(epoch, is_after);
    }

    /// The stream has ended: emits all that still waits, calls first, each in order of time.
    pub fn finish(&mut self, out: &mut impl FnMut(JoinOutcome)) {
        let calls = mem::take(&mut self.calls);
        let mut alone: Vec<_> = calls
            .slots
            .into_iter()
            .flatten()
            .map(|slot| (slot.key, slot.value))
            .chain(mem::take(&mut self.overflow))
            .filter(|(_, pending)| !pending.matched)
            .map(|(key, pending)| (pending.call.start_ns, key, pending.call))
            .collect();
        alone.sort_by_key(|(start_ns, key, _)| (*start_ns, *key));
        alone.into_iter().for_each(|(_, _, call)| out(JoinOutcome::Alone(call)));

        let records = mem::take(&mut self.records);
        let mut left: Vec<_> = records
            .slots
            .into_iter()
            .flatten()
            .flat_map(|slot| {
                std::iter::once(slot.value.first).chain(slot.value.more).map(move |r| (slot.key, r))
            })
            .collect();
        left.sort_by_key(|(key, record)| (record.timing.map(|timing| timing.start_ns), *key));
        left.into_iter().for_each(|(_, record)| out(JoinOutcome::Record(record)));
        self.held = 0;
    }
}
