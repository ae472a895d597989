//! The buffers that CUPTI is filling, and how far each has been read.
//!
//! CUPTI hands a buffer over once everything in it has ended, and one buffer holds everything queued in one
//! burst: the records of 400 kernels of 5 ms came 2 s after the first had ended. But at every flush CUPTI
//! writes the records of ended work, in launch order, and never changes a written record (11.8 to 13.0.1;
//! `scripts/bench-cupti-buffers`). So the service thread reads buffers before CUPTI hands them over (early
//! reading). A record is consumed once another follows it, or once it was complete at the previous turn.
//! When the buffer comes back, the last consumed record is compared with its current content; if CUPTI
//! changed it, early reading stops for good.
//!
//! Owned here: the owner state of each buffer, and the number of the service thread's turn, by which buffers
//! have an age. A buffer that comes back while it is read early is processed after the reading.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::buffers::BUFFERS;

mod owner {
    /// Free in the pool, or returned by CUPTI and being processed.
    pub const TRACER: u32 = 0;
    pub const CUPTI: u32 = 1;
    /// CUPTI fills the buffer while the service thread reads it.
    pub const CUPTI_AND_READER: u32 = 2;
    /// CUPTI returned the buffer while the service thread was reading it.
    pub const RETURNED_WHILE_READ: u32 = 3;
}

/// The state of one buffer of the pool.
struct Open {
    owner: AtomicU32,
    /// The session in which CUPTI got the buffer.
    generation: AtomicU32,
    /// The turn of the service thread in which CUPTI got it.
    given_in: AtomicU32,
    bytes: AtomicUsize,
    /// Address of the last record that was consumed; 0 if none was.
    consumed: AtomicUsize,
    /// Checksum of that record.
    checksum: AtomicU64,
    /// Address of the last record if it was complete; otherwise 0.
    seen: AtomicUsize,
}

static OPEN: [Open; BUFFERS] = [const {
    Open {
        owner: AtomicU32::new(owner::TRACER),
        generation: AtomicU32::new(0),
        given_in: AtomicU32::new(0),
        bytes: AtomicUsize::new(0),
        consumed: AtomicUsize::new(0),
        checksum: AtomicU64::new(0),
        seen: AtomicUsize::new(0),
    }
}; BUFFERS];

/// Whether this CUPTI was found to change written records.
static IS_OFF: AtomicBool = AtomicBool::new(false);

/// Stops early reading for good. True for the first caller.
pub fn turn_off() -> bool {
    !IS_OFF.swap(true, Ordering::Relaxed)
}

/// Turns of the service thread so far.
static TURNS: AtomicU32 = AtomicU32::new(0);

/// Begins the service thread's next turn, and returns its number.
pub fn begin_turn() -> u32 {
    TURNS.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
}

/// The number of the service thread's latest turn.
fn latest_turn() -> u32 {
    TURNS.load(Ordering::Relaxed)
}

/// CUPTI gets a buffer of so many bytes, in that session; 0 means no session.
pub fn give(index: usize, generation: u32, bytes: usize) {
    let Some(open) = OPEN.get(index) else { return };
    open.generation.store(generation, Ordering::Relaxed);
    open.given_in.store(latest_turn(), Ordering::Relaxed);
    open.bytes.store(bytes, Ordering::Relaxed);
    open.consumed.store(0, Ordering::Relaxed);
    open.checksum.store(0, Ordering::Relaxed);
    open.seen.store(0, Ordering::Relaxed);
    // SYNC: pairs with the exchange in `read_early`: a reader that finds CUPTI sees the fields above.
    open.owner.store(owner::CUPTI, Ordering::Release);
}

/// CUPTI returned the buffer. False if it is being read early: the reader then sees the return.
pub fn take_back(index: usize) -> bool {
    let Some(open) = OPEN.get(index) else { return true };
    loop {
        let found = open.owner.load(Ordering::Relaxed);
        let to = match found {
            owner::CUPTI => owner::TRACER,
            owner::CUPTI_AND_READER => owner::RETURNED_WHILE_READ,
            other => return other == owner::TRACER,
        };
        // SYNC: Acquire: sees the last record that the reader consumed.
        if open.owner.compare_exchange(found, to, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return to == owner::TRACER;
        }
    }
}

/// The turn of the service thread in which CUPTI got the buffer.
pub fn given_in(index: usize) -> u32 {
    OPEN.get(index).map_or(0, |open| open.given_in.load(Ordering::Relaxed))
}

/// Whether neither CUPTI nor a reader has the buffer.
pub fn is_ours(index: usize) -> bool {
    OPEN.get(index).is_none_or(|open| open.owner.load(Ordering::Acquire) == owner::TRACER)
}

/// How far a buffer was consumed: address and checksum of the last consumed record; zeros for none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Consumed {
    pub at: usize,
    pub checksum: u64,
}

pub fn consumed(index: usize) -> Consumed {
    OPEN.get(index).map_or(Consumed::default(), |open| Consumed {
        at: open.consumed.load(Ordering::Relaxed),
        checksum: open.checksum.load(Ordering::Relaxed),
    })
}

/// A buffer that is read early. There is one reader at a time: it holds the ring for records.
#[derive(Debug)]
pub struct Reading {
    index: usize,
    pub bytes: usize,
    pub consumed: Consumed,
    /// Address of the last record if it was complete; otherwise 0.
    pub seen: usize,
}

/// Begins to read a buffer early, if CUPTI has it for that session.
pub fn read_early(index: usize, generation: u32) -> Option<Reading> {
    let open = OPEN.get(index)?;
    if open.owner.load(Ordering::Relaxed) != owner::CUPTI || IS_OFF.load(Ordering::Relaxed) {
        return None;
    }
    open.owner
        .compare_exchange(owner::CUPTI, owner::CUPTI_AND_READER, Ordering::AcqRel, Ordering::Relaxed)
        .ok()?;
    let load = |field: &AtomicUsize| field.load(Ordering::Relaxed);
    let reading =
        Reading { index, bytes: load(&open.bytes), consumed: consumed(index), seen: load(&open.seen) };
    (open.generation.load(Ordering::Relaxed) == generation).then_some(reading)
}

impl Drop for Reading {
    fn drop(&mut self) {
        let Some(open) = OPEN.get(self.index) else { return };
        open.consumed.store(self.consumed.at, Ordering::Relaxed);
        open.checksum.store(self.consumed.checksum, Ordering::Relaxed);
        open.seen.store(self.seen, Ordering::Relaxed);
        // SYNC: Release: the next owner continues after the last consumed record.
        if open
            .owner
            .compare_exchange(owner::CUPTI_AND_READER, owner::CUPTI, Ordering::AcqRel, Ordering::Relaxed)
            .is_err()
        {
            open.owner.store(owner::TRACER, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffer_returned_while_read_is_ours_after_the_read() {
        const INDEX: usize = 7;
        const NOTHING: Consumed = Consumed { at: 0, checksum: 0 };
        assert!(is_ours(INDEX) && take_back(INDEX) && read_early(INDEX, 3).is_none());
        let turn = begin_turn();
        give(INDEX, 3, 4096);
        assert!(!is_ours(INDEX) && read_early(INDEX, 4).is_none(), "of another session");
        assert_eq!(given_in(INDEX), turn);
        let mut reading = read_early(INDEX, 3).unwrap();
        assert!(read_early(INDEX, 3).is_none(), "two readers");
        assert_eq!((reading.bytes, reading.consumed, reading.seen), (4096, NOTHING, 0));
        (reading.consumed, reading.seen) = (Consumed { at: 64, checksum: 9 }, 128);
        assert!(!take_back(INDEX) && !take_back(INDEX) && !is_ours(INDEX));
        drop(reading);
        assert!(is_ours(INDEX) && read_early(INDEX, 3).is_none());
        assert_eq!(consumed(INDEX), Consumed { at: 64, checksum: 9 });

        // A buffer given without a session also starts with nothing consumed.
        give(INDEX, 0, 8192);
        assert_eq!(consumed(INDEX), NOTHING);
        assert!(read_early(INDEX, 3).is_none());
        drop(read_early(INDEX, 0).unwrap());
        assert!(take_back(INDEX) && is_ours(INDEX));
    }

    /// Stops the reader, however the test ends.
    struct Over<'a>(&'a AtomicBool);

    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// The reader consumes the first records, and the owner that takes the buffer back the rest: each once.
    #[test]
    fn records_read_early_and_at_the_end_are_consumed_once() {
        const INDEX: usize = 8;
        const ROUNDS: usize = 2_000;
        const RECORDS: usize = 64;
        let (consumed_count, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
        // Makes the reader keep the buffer until CUPTI returned it.
        let keeps = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let Some(mut reading) = read_early(INDEX, 1) else { continue };
                    for _ in 0..8 {
                        if reading.consumed.at < RECORDS {
                            reading.consumed.at += 1;
                            consumed_count.fetch_add(1, Ordering::Relaxed);
                        }
                        std::hint::spin_loop();
                    }
                    let is_back = || OPEN[INDEX].owner.load(Ordering::Relaxed) == owner::RETURNED_WHILE_READ;
                    while keeps.load(Ordering::Relaxed) && !is_back() && !is_over.load(Ordering::Relaxed) {
                        std::thread::yield_now();
                    }
                }
            });
            let _over = Over(&is_over);
            let (mut met, mut early) = (0, 0);
            for round in 0..ROUNDS {
                consumed_count.store(0, Ordering::Relaxed);
                keeps.store(round % 4 == 3, Ordering::Relaxed);
                give(INDEX, 1, 64);
                // Every other buffer returns when some of it was consumed, and every fourth while it is read.
                while round % 2 == 1 && consumed_count.load(Ordering::Relaxed) == 0 {
                    std::thread::yield_now();
                }
                if !take_back(INDEX) {
                    met += 1;
                    while !is_ours(INDEX) {
                        std::thread::yield_now();
                    }
                }
                let at = consumed(INDEX).at;
                early += usize::from(at > 0);
                let rest = RECORDS - at;
                assert_eq!(consumed_count.load(Ordering::Relaxed) + rest, RECORDS, "round {round}");
            }
            assert!(met >= ROUNDS / 4 && early >= ROUNDS / 2, "{met} {early}");
        });
    }
}
