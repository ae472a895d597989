//! The buffers that CUPTI fills just now, and how far each was told already.
//!
//! CUPTI hands a buffer over once everything in it has ended, and what was queued at one go is in one: 400 kernels of 5 ms came
//! 2 s after the first had ended. But at every flush it writes the records of what has ended, in the order of the
//! launches, and never changes one that is written (11.8 to 13.0; `scripts/bench-cupti-buffers`). So the service thread reads
//! along: a record that another one stands behind, or that stood there a turn ago, is whole.
//! Owned here: whose a buffer is. A buffer that comes back while it is read waits until that is over.

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use super::buffers::BUFFERS;

mod hands {
    /// The pool's, or those of who tells what came back.
    pub const OURS: u32 = 0;
    pub const CUPTI: u32 = 1;
    /// CUPTI's, and read along.
    pub const BOTH: u32 = 2;
    /// Came back while it was read.
    pub const BACK: u32 = 3;
}

/// A buffer's place in the pool has one of these.
struct Open {
    hands: AtomicU32,
    /// The session that it was given for.
    generation: AtomicU32,
    bytes: AtomicUsize,
    /// The last record that was told; 0 where none was.
    told: AtomicUsize,
    /// The last that was there; 0 where none was.
    seen: AtomicUsize,
}

static OPEN: [Open; BUFFERS] = [const {
    Open {
        hands: AtomicU32::new(hands::OURS),
        generation: AtomicU32::new(0),
        bytes: AtomicUsize::new(0),
        told: AtomicUsize::new(0),
        seen: AtomicUsize::new(0),
    }
}; BUFFERS];

/// CUPTI gets a buffer of so many bytes.
pub fn give(index: usize, generation: u32, bytes: usize) {
    let Some(open) = OPEN.get(index) else { return };
    open.generation.store(generation, Ordering::Relaxed);
    open.bytes.store(bytes, Ordering::Relaxed);
    open.told.store(0, Ordering::Relaxed);
    open.seen.store(0, Ordering::Relaxed);
    // SYNC: pairs with the exchange in `read_along`: who finds it CUPTI's sees the fields above.
    open.hands.store(hands::CUPTI, Ordering::Release);
}

/// It came back. False if it is being read: whoever does that sees it.
pub fn take_back(index: usize) -> bool {
    let Some(open) = OPEN.get(index) else { return true };
    loop {
        let found = open.hands.load(Ordering::Relaxed);
        let to = match found {
            hands::CUPTI => hands::OURS,
            hands::BOTH => hands::BACK,
            _ => return true,
        };
        // SYNC: Acquire: what was told of it last.
        if open.hands.compare_exchange(found, to, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return to == hands::OURS;
        }
    }
}

/// Whether it is ours alone, or only came back.
pub fn is_ours(index: usize) -> bool {
    OPEN.get(index).is_none_or(|open| open.hands.load(Ordering::Acquire) == hands::OURS)
}

/// The last record that was told of it, by its address; 0 for none.
pub fn told(index: usize) -> usize {
    OPEN.get(index).map_or(0, |open| open.told.load(Ordering::Relaxed))
}

/// A buffer that is read along with CUPTI. One reader at a time, who holds the ring for records.
#[derive(Debug)]
pub struct Reading {
    index: usize,
    pub bytes: usize,
    /// As above.
    pub told: usize,
    pub seen: usize,
}

/// Begins to read a buffer along, if CUPTI has it for that session.
pub fn read_along(index: usize, generation: u32) -> Option<Reading> {
    let open = OPEN.get(index)?;
    if open.hands.load(Ordering::Relaxed) != hands::CUPTI {
        return None;
    }
    open.hands.compare_exchange(hands::CUPTI, hands::BOTH, Ordering::AcqRel, Ordering::Relaxed).ok()?;
    let load = |field: &AtomicUsize| field.load(Ordering::Relaxed);
    let reading = Reading { index, bytes: load(&open.bytes), told: load(&open.told), seen: load(&open.seen) };
    (open.generation.load(Ordering::Relaxed) == generation).then_some(reading)
}

impl Drop for Reading {
    fn drop(&mut self) {
        let Some(open) = OPEN.get(self.index) else { return };
        open.told.store(self.told, Ordering::Relaxed);
        open.seen.store(self.seen, Ordering::Relaxed);
        // SYNC: Release: who has it next goes on behind what was told.
        if open
            .hands
            .compare_exchange(hands::BOTH, hands::CUPTI, Ordering::AcqRel, Ordering::Relaxed)
            .is_err()
        {
            open.hands.store(hands::OURS, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_that_comes_back_while_it_is_read_is_ours_when_that_is_over() {
        const INDEX: usize = 7;
        assert!(is_ours(INDEX) && take_back(INDEX) && read_along(INDEX, 3).is_none());
        give(INDEX, 3, 4096);
        assert!(!is_ours(INDEX) && read_along(INDEX, 4).is_none(), "of another session");
        let mut reading = read_along(INDEX, 3).unwrap();
        assert!(read_along(INDEX, 3).is_none(), "two readers");
        assert_eq!((reading.bytes, reading.told, reading.seen), (4096, 0, 0));
        (reading.told, reading.seen) = (64, 128);
        assert!(!take_back(INDEX) && !is_ours(INDEX));
        drop(reading);
        assert!(is_ours(INDEX) && read_along(INDEX, 3).is_none());
        assert_eq!(told(INDEX), 64);

        give(INDEX, 3, 8192);
        assert_eq!(told(INDEX), 0);
        drop(read_along(INDEX, 3).unwrap());
        assert!(take_back(INDEX) && is_ours(INDEX));
    }

    /// Each buffer is told once: by the reader up to where it says, and from there by who has it then.
    #[test]
    fn reader_and_taker_never_have_one_at_the_same_time() {
        const INDEX: usize = 8;
        const ROUNDS: usize = 2_000;
        let is_read = AtomicU32::new(0);
        let over = AtomicU32::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while over.load(Ordering::Relaxed) == 0 {
                    if let Some(mut reading) = read_along(INDEX, 1) {
                        is_read.store(1, Ordering::SeqCst);
                        reading.told += 1;
                        (0..200).for_each(|_| std::hint::spin_loop());
                        is_read.store(0, Ordering::SeqCst);
                    }
                }
            });
            let mut met = 0;
            for round in 0..ROUNDS {
                give(INDEX, 1, 64);
                // Every other one comes back while it is read.
                while round % 2 == 1 && is_read.load(Ordering::SeqCst) == 0 {
                    std::hint::spin_loop();
                }
                if !take_back(INDEX) {
                    met += 1;
                    while !is_ours(INDEX) {
                        std::hint::spin_loop();
                    }
                }
                let told_of = told(INDEX);
                assert_eq!((is_read.load(Ordering::SeqCst), told(INDEX)), (0, told_of));
            }
            over.store(1, Ordering::Relaxed);
            assert!(met > 0, "they never met");
        });
    }
}
