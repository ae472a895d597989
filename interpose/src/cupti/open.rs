//! The buffers that CUPTI fills just now, and how far each was told already.
//!
//! CUPTI hands a buffer over once everything in it has ended, and what was queued at one go is in one: 400 kernels of 5 ms came
//! 2 s after the first had ended. But at every flush it writes the records of what has ended, in the order of the
//! launches, and changes none that is written (11.8 to 13.0.1; `scripts/bench-cupti-buffers`). So the service thread reads
//! along: a record that another one stands behind, or that stood there whole a turn ago, is told. When the buffer comes back,
//! the last that was told is compared with what is there: of a CUPTI that does otherwise nothing is read along any more.
//! Owned here: whose a buffer is. A buffer that comes back while it is read waits until that is over.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

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
    /// What it said, as one number.
    mark: AtomicU64,
    /// The last that was there, and whole; 0 where none was.
    seen: AtomicUsize,
}

static OPEN: [Open; BUFFERS] = [const {
    Open {
        hands: AtomicU32::new(hands::OURS),
        generation: AtomicU32::new(0),
        bytes: AtomicUsize::new(0),
        told: AtomicUsize::new(0),
        mark: AtomicU64::new(0),
        seen: AtomicUsize::new(0),
    }
}; BUFFERS];

/// Whether this CUPTI was found to change what is written.
static IS_OFF: AtomicBool = AtomicBool::new(false);

/// Nothing is read along from now on. True for the first one who says so.
pub fn turn_off() -> bool {
    !IS_OFF.swap(true, Ordering::Relaxed)
}

/// CUPTI gets a buffer of so many bytes, in that session; 0 for none.
pub fn give(index: usize, generation: u32, bytes: usize) {
    let Some(open) = OPEN.get(index) else { return };
    open.generation.store(generation, Ordering::Relaxed);
    open.bytes.store(bytes, Ordering::Relaxed);
    open.told.store(0, Ordering::Relaxed);
    open.mark.store(0, Ordering::Relaxed);
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
            other => return other == hands::OURS,
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

/// What was told of a buffer: the last record of that, by its address, and what it said, as one number; zeros for nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Told {
    pub at: usize,
    pub mark: u64,
}

pub fn told(index: usize) -> Told {
    OPEN.get(index).map_or(Told::default(), |open| Told {
        at: open.told.load(Ordering::Relaxed),
        mark: open.mark.load(Ordering::Relaxed),
    })
}

/// A buffer that is read along with CUPTI. One reader at a time, who holds the ring for records.
#[derive(Debug)]
pub struct Reading {
    index: usize,
    pub bytes: usize,
    pub told: Told,
    /// The last record that was there, and whole; 0 for none.
    pub seen: usize,
}

/// Begins to read a buffer along, if CUPTI has it for that session.
pub fn read_along(index: usize, generation: u32) -> Option<Reading> {
    let open = OPEN.get(index)?;
    if open.hands.load(Ordering::Relaxed) != hands::CUPTI || IS_OFF.load(Ordering::Relaxed) {
        return None;
    }
    open.hands.compare_exchange(hands::CUPTI, hands::BOTH, Ordering::AcqRel, Ordering::Relaxed).ok()?;
    let load = |field: &AtomicUsize| field.load(Ordering::Relaxed);
    let reading = Reading { index, bytes: load(&open.bytes), told: told(index), seen: load(&open.seen) };
    (open.generation.load(Ordering::Relaxed) == generation).then_some(reading)
}

impl Drop for Reading {
    fn drop(&mut self) {
        let Some(open) = OPEN.get(self.index) else { return };
        open.told.store(self.told.at, Ordering::Relaxed);
        open.mark.store(self.told.mark, Ordering::Relaxed);
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
        const NOTHING: Told = Told { at: 0, mark: 0 };
        assert!(is_ours(INDEX) && take_back(INDEX) && read_along(INDEX, 3).is_none());
        give(INDEX, 3, 4096);
        assert!(!is_ours(INDEX) && read_along(INDEX, 4).is_none(), "of another session");
        let mut reading = read_along(INDEX, 3).unwrap();
        assert!(read_along(INDEX, 3).is_none(), "two readers");
        assert_eq!((reading.bytes, reading.told, reading.seen), (4096, NOTHING, 0));
        (reading.told, reading.seen) = (Told { at: 64, mark: 9 }, 128);
        assert!(!take_back(INDEX) && !take_back(INDEX) && !is_ours(INDEX));
        drop(reading);
        assert!(is_ours(INDEX) && read_along(INDEX, 3).is_none());
        assert_eq!(told(INDEX), Told { at: 64, mark: 9 });

        // Also where there is no session: nothing of it was told.
        give(INDEX, 0, 8192);
        assert_eq!(told(INDEX), NOTHING);
        assert!(read_along(INDEX, 3).is_none());
        drop(read_along(INDEX, 0).unwrap());
        assert!(take_back(INDEX) && is_ours(INDEX));
    }

    /// Readers stop, however a test ends.
    struct Over<'a>(&'a AtomicBool);

    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// A buffer of some records, of which the reader tells the first ones, and who takes it back the rest: each once.
    #[test]
    fn what_is_told_early_and_what_is_told_at_the_end_are_all_of_it_once() {
        const INDEX: usize = 8;
        const ROUNDS: usize = 2_000;
        const RECORDS: usize = 64;
        let (told_of, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
        // The reader keeps the buffer until it came back.
        let keeps = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let Some(mut reading) = read_along(INDEX, 1) else { continue };
                    for _ in 0..8 {
                        if reading.told.at < RECORDS {
                            reading.told.at += 1;
                            told_of.fetch_add(1, Ordering::Relaxed);
                        }
                        std::hint::spin_loop();
                    }
                    let is_back = || OPEN[INDEX].hands.load(Ordering::Relaxed) == hands::BACK;
                    while keeps.load(Ordering::Relaxed) && !is_back() && !is_over.load(Ordering::Relaxed) {
                        std::thread::yield_now();
                    }
                }
            });
            let _over = Over(&is_over);
            let (mut met, mut early) = (0, 0);
            for round in 0..ROUNDS {
                told_of.store(0, Ordering::Relaxed);
                keeps.store(round % 4 == 3, Ordering::Relaxed);
                give(INDEX, 1, 64);
                // Every other one comes back when some of it was told, and every fourth while it is read.
                while round % 2 == 1 && told_of.load(Ordering::Relaxed) == 0 {
                    std::thread::yield_now();
                }
                if !take_back(INDEX) {
                    met += 1;
                    while !is_ours(INDEX) {
                        std::thread::yield_now();
                    }
                }
                let at = told(INDEX).at;
                early += usize::from(at > 0);
                let rest = RECORDS - at;
                assert_eq!(told_of.load(Ordering::Relaxed) + rest, RECORDS, "round {round}");
            }
            assert!(met >= ROUNDS / 4 && early >= ROUNDS / 2, "{met} {early}");
        });
    }
}
