//! Backward passes and the stacks of the calls that began them.
//!
//! A pass is recorded by its address as it begins, before any thread works on it. It is looked up by an
//! address inside of it, which is all that PyTorch returns of a pass besides its number. No two live
//! passes overlap, so a new one that overlaps a recorded one proves that the recorded one is gone; its
//! record is then removed.
//!
//! A pass that began unnoticed may have the address of a recorded one. Its number distinguishes it, because
//! numbers rise from pass to pass. A recorded pass's number is read as it begins, at the offset that
//! PyTorch's own functions contain ([`super::pass_offsets`]). If those functions have an unknown form, the
//! number of a new pass is taken to be the lowest that no earlier pass had. A recorded pass is then used only
//! if no other can be the thread's, and passes that threads begin at the same moment may get no calling
//! stack. Otherwise none is reported.
//!
//! The ends of passes are not seen and need not be. The records are bounded: the latest 512.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use gputrace_wire::caller::Caller;

use super::engine::{Beginning, Engine};

const PASSES_MAX: usize = 512;
/// The size that every pass has at least. The address that PyTorch returns is within these bytes (at 288 to
/// 300 in versions 2.0 to 2.15, of more than 600).
const SPAN_BYTES: u64 = 512;
const NO_NUMBER: u64 = u64::MAX;

/// The position at which a pass was begun, on the thread that began it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outside {
    /// The Python frame.
    pub frame: u64,
    /// An address on the thread's native stack: frames above it are outside the pass.
    pub stack: u64,
    /// The thread's active span.
    pub caller: Caller,
}

struct Pass {
    /// 0 while the slot is empty or incomplete.
    at: AtomicU64,
    /// The calling stack, below the session's generation.
    caller: AtomicU64,
    outer_frame: AtomicU64,
    outer_stack: AtomicU64,
    /// Trace id, span id, and flags below the remote bit.
    active_span: [AtomicU64; 4],
    /// The pass's number, if it is known.
    number: AtomicU64,
    /// The lowest number that the pass can have.
    at_least: AtomicU64,
    engine: AtomicU32,
    is_taken: AtomicU32,
}

static PASSES: [Pass; PASSES_MAX] = [const {
    Pass {
        at: AtomicU64::new(0),
        caller: AtomicU64::new(0),
        outer_frame: AtomicU64::new(0),
        outer_stack: AtomicU64::new(0),
        active_span: [const { AtomicU64::new(0) }; 4],
        number: AtomicU64::new(NO_NUMBER),
        at_least: AtomicU64::new(0),
        engine: AtomicU32::new(0),
        is_taken: AtomicU32::new(0),
    }
}; PASSES_MAX];
static NEXT: AtomicU32 = AtomicU32::new(0);

impl Pass {
    fn caller_outside(&self) -> Caller {
        let [lower, upper, span, rest] = self.active_span.each_ref().map(|word| word.load(Ordering::Relaxed));
        Caller { trace: [lower, upper], span, flags: (rest >> 8) as u8, remote: rest as u8 }
    }
}

/// Records a pass that begins, with the calling stack and position.
pub fn note(at: u64, beginning: Beginning, generation: u32, stack: u32, outside: Outside) {
    forget_about(at);
    let first = NEXT.fetch_add(1, Ordering::Relaxed) as usize;
    let free_passes = (0..PASSES_MAX).filter_map(|step| PASSES.get((first + step) % PASSES_MAX));
    for pass in free_passes {
        if pass.is_taken.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            continue;
        }
        pass.at.store(0, Ordering::Relaxed);
        // SYNC: with the fence in `find`: a thread that reads a word stored below reads no older address
        // after it.
        fence(Ordering::Release);
        pass.caller.store(u64::from(generation) << 32 | u64::from(stack), Ordering::Relaxed);
        pass.outer_frame.store(outside.frame, Ordering::Relaxed);
        pass.outer_stack.store(outside.stack, Ordering::Relaxed);
        let Caller { trace: [lower, upper], span, flags, remote } = outside.caller;
        let words = [lower, upper, span, u64::from(flags) << 8 | u64::from(remote)];
        for (to, word) in pass.active_span.iter().zip(words) {
            to.store(word, Ordering::Relaxed);
        }
        pass.number.store(beginning.number.map_or(NO_NUMBER, u64::from), Ordering::Relaxed);
        pass.at_least.store(beginning.at_least, Ordering::Relaxed);
        pass.engine.store(beginning.engine as u32, Ordering::Relaxed);
        // SYNC: pairs with the Acquire in `find`.
        pass.at.store(at, Ordering::Release);
        // SYNC: pairs with the Acquire above.
        pass.is_taken.store(0, Ordering::Release);
        return;
    }
}

/// Removes recorded passes that overlap a new pass at `at`: they no longer exist.
fn forget_about(at: u64) {
    for pass in &PASSES {
        let noted = pass.at.load(Ordering::Relaxed);
        if noted != 0 && noted.abs_diff(at) < SPAN_BYTES {
            // Another thread may have stored its own pass here in the meantime, and that one stays.
            let _ = pass.at.compare_exchange(noted, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

/// The stack and position of the call that began the pass that the calling thread works on; zeros if they
/// are not known.
pub fn find((index, engine): (usize, &Engine), inside: u64, number: u32, generation: u32) -> (u32, Outside) {
    engine.is_met(inside, number);
    let mut nearest: Option<(&Pass, u64)> = None;
    for pass in &PASSES {
        let at = pass.at.load(Ordering::Acquire);
        if at != 0 && inside.wrapping_sub(at) < SPAN_BYTES && nearest.is_none_or(|(_, found)| found < at) {
            nearest = Some((pass, at));
        }
    }
    let Some((pass, at)) = nearest else { return (0, Outside::default()) };
    let caller = pass.caller.load(Ordering::Relaxed);
    let outside = Outside {
        frame: pass.outer_frame.load(Ordering::Relaxed),
        stack: pass.outer_stack.load(Ordering::Relaxed),
        caller: pass.caller_outside(),
    };
    let known = match pass.number.load(Ordering::Relaxed) {
        known if known != NO_NUMBER && engine.knows_numbers() => known,
        _ => pass.at_least.load(Ordering::Relaxed),
    };
    let is_its_own = known == number.into() && pass.engine.load(Ordering::Relaxed) as usize == index;
    fence(Ordering::Acquire);
    // The thread's pass is alive; if the slot changed, it belonged to another pass.
    let is_whole = pass.at.load(Ordering::Relaxed) == at;
    if !is_whole || !is_its_own || (caller >> 32) as u32 != generation {
        return (0, Outside::default());
    }
    (caller as u32, outside)
}

#[cfg(test)]
mod tests {
    use super::super::engine::tests::engine_that_knows_numbers;
    use super::*;

    fn outside(frame: u64) -> Outside {
        let caller = Caller { trace: [frame, 3], span: frame + 1, flags: 1, remote: frame as u8 & 1 };
        Outside { frame, stack: frame * 2, caller }
    }

    // The table is process-wide: each test uses its own addresses.

    fn numbered(number: u32) -> Beginning {
        Beginning { engine: 0, number: Some(number), at_least: 0 }
    }

    fn at_least(at_least: u64) -> Beginning {
        Beginning { engine: 0, number: None, at_least }
    }

    fn find(inside: u64, number: u32, generation: u32) -> (u32, Outside) {
        super::find((0, &engine_that_knows_numbers()), inside, number, generation)
    }

    #[test]
    fn passes_have_the_stacks_of_their_callers() {
        let base = 0x1000_0000;
        for pass in 0..100 {
            note(base + pass * 0x300, numbered(pass as u32), 7, 10 + pass as u32, outside(0x9000 + pass));
        }
        for pass in 0..100 {
            assert_eq!(
                find(base + pass * 0x300 + 288, pass as u32, 7),
                (10 + pass as u32, outside(0x9000 + pass))
            );
        }
        assert_eq!(find(base + 99 * 0x300 + 0x300, 5, 7), (0, Outside::default()), "behind the last");
        assert_eq!(find(base - 8, 5, 7), (0, Outside::default()), "before the first");
        assert_eq!(find(base + 288, 0, 8), (0, Outside::default()), "another session's");
        let other = super::find((1, &engine_that_knows_numbers()), base + 288, 0, 7);
        assert_eq!(other, (0, Outside::default()), "another copy's");
    }

    #[test]
    fn pass_at_or_about_the_address_of_one_that_is_gone_replaces_it() {
        let base = 0x2000_0000;
        note(base, numbered(1), 7, 1, outside(0));
        assert_eq!(find(base + 288, 1, 7).0, 1);
        note(base, numbered(2), 7, 2, outside(0));
        assert_eq!(find(base + 288, 2, 7).0, 2);
        // The old pass is between the new one's beginning and the address that is returned for it.
        note(base + 64, numbered(3), 7, 3, outside(0));
        note(base - 64, numbered(4), 7, 4, outside(0));
        assert_eq!(find(base - 64 + 288, 4, 7).0, 4);
    }

    #[test]
    fn pass_that_began_unnoticed_gets_nobody_elses_stack() {
        let base = 0x3000_0000;
        // One pass that a thread was seen to work on, and one that launched nothing.
        note(base, numbered(40), 7, 1, outside(0));
        assert_eq!(find(base + 288, 40, 7).0, 1);
        note(base + 0x300, numbered(41), 7, 2, outside(0));
        for unnoticed in [base, base + 0x300] {
            assert_eq!(find(unnoticed + 288, 42, 7), (0, Outside::default()));
        }
        assert_eq!((find(base + 288, 40, 7).0, find(base + 0x300 + 288, 41, 7).0), (1, 2));
    }

    #[test]
    fn pass_whose_number_is_not_known_is_believed_where_no_other_can_be() {
        let base = 0x4000_0000;
        note(base, at_least(5), 7, 1, outside(0));
        assert_eq!(find(base + 288, 5, 7).0, 1);
        // The pass's own number if others began unnoticed before it, or another pass's at the same address.
        assert_eq!(find(base + 288, 6, 7), (0, Outside::default()));
        assert_eq!(find(base + 288, 4, 7), (0, Outside::default()));
    }
}
