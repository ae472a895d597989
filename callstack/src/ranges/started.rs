//! Ranges that were started by number, so that any thread can end them.
//!
//! A number consists of a serial and a slot; the slot holds what the end's entry needs. A slot is taken and
//! given back by a compare-exchange of its number. So a range ends once, however often and by however many
//! threads its end is called.

use core::sync::atomic::{AtomicU64, Ordering};

use super::label::Label;
use super::open::Range;

/// Ranges that can be open at once. The ends of further ones do not know their start.
const SLOTS: u64 = 1 << 10;
/// How many slots are searched for a free one.
const PROBES: u64 = 32;
/// Set in a number that has no slot.
const WITHOUT_SLOT: u64 = 1 << 63;
/// The number in a slot that is being filled.
const BUSY: u64 = 1;

struct StartedSlot {
    /// 0 while free.
    id: AtomicU64,
    start_ticks: AtomicU64,
    label: AtomicU64,
}

static STARTED: [StartedSlot; SLOTS as usize] = [const {
    StartedSlot { id: AtomicU64::new(0), start_ticks: AtomicU64::new(0), label: AtomicU64::new(0) }
}; SLOTS as usize];
static SERIAL: AtomicU64 = AtomicU64::new(1);

/// Adds a range; returns its number, which is neither 0 nor 1.
pub fn add(label: Label, start_ticks: u64) -> u64 {
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    for at in (0..PROBES).map(|step| serial.wrapping_add(step) % SLOTS) {
        let Some(slot) = STARTED.get(at as usize) else { continue };
        if slot.id.compare_exchange(0, BUSY, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            let id = (serial.wrapping_mul(SLOTS) | at) & !WITHOUT_SLOT;
            slot.start_ticks.store(start_ticks, Ordering::Relaxed);
            slot.label.store(label.to_handle() as u64, Ordering::Relaxed);
            // SYNC: pairs with the Acquire load in `take`, which reads what the slot keeps.
            slot.id.store(id, Ordering::Release);
            return id;
        }
    }
    serial | WITHOUT_SLOT
}

/// Removes and returns the range of that number; `None` if it is not open. A range without a slot is
/// returned empty.
pub fn take(id: u64) -> Option<Range> {
    if id & WITHOUT_SLOT != 0 {
        let is_given = id & !WITHOUT_SLOT < SERIAL.load(Ordering::Relaxed);
        return is_given.then(Range::default);
    }
    let slot = STARTED.get((id % SLOTS) as usize).filter(|_| id > BUSY)?;
    // SYNC: pairs with the Release store in `add`.
    if slot.id.load(Ordering::Acquire) != id {
        return None;
    }
    let label = Label::from_handle(slot.label.load(Ordering::Relaxed) as usize);
    let range = Range::new(label, slot.start_ticks.load(Ordering::Relaxed));
    slot.id.compare_exchange(id, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok().then_some(range)
}
