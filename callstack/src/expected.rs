//! The stack that a thread probably has next, recognised without a walk.
//!
//! Programs launch from the same call sites in the same order over and over, and the stack cache knows which
//! of its entries a thread probably comes to next ([`crate::recent`]). So a thread keeps, for the entries
//! that it came to lately, what was read when the entry's stack was found: the addresses and instructions of
//! Python's frames ([`crate::python::known_chain`]), and the words of the C stack that the walk read
//! ([`crate::native::last_walk`]). If all of that is there again, in the same [`Circumstances`] and from the
//! same [`NativeStart`], so is the stack. Where a walk must read one frame to know the next one's address,
//! here all addresses are known: the processor reads ahead, although the code asks for an address only after
//! the one before it was as expected.
//!
//! 16 threads of a session have room for that. Other threads, and stacks that are too deep, are walked.

use core::cell::{Cell, UnsafeCell};
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use gputrace_producer::memory::{self, Zeroed, prefetch};

use crate::native::last_walk::{LastNativeWalk, NativeStart};
use crate::python::lives;
use crate::read_word::ReadWord;

/// How many threads can keep stacks at the same time. Up to 4.3 MiB of address space each, of which memory is
/// taken where something was written: 16 bytes a word, and 64 a stack.
const THREADS_MAX: usize = 16;
/// An entry's stack is kept in one of the two parts of a pair, which the entry's number selects.
const PAIRS: usize = 1 << 11;
/// How many words a thread has for all its kept stacks. When fewer than [`WORDS_OF_STACK`] are left, all kept
/// stacks are forgotten.
const WORDS: usize = 1 << 18;
/// A stack of more words is not kept. A Python frame is one word.
const WORDS_OF_STACK: usize = 1 << 10;

/// What a stack depends on besides its words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Circumstances {
    /// The address of the thread's Python state (0 if there is none, or if Python's frames are not asked
    /// for), plus a hash of the PyTorch operators and the backward pass that the thread is in (0 if there
    /// are none). Sums of other parts are equal only by chance, as hashes are.
    state_and_torch: u64,
    /// How many code objects have ended. The highest bit says whether native frames are asked for.
    ends: u64,
}

impl Circumstances {
    /// No thread is in these.
    const NONE: Circumstances = Circumstances { state_and_torch: u64::MAX, ends: u64::MAX };

    #[inline(always)]
    pub fn now(state: u64, torch: u64, has_native: bool) -> Circumstances {
        let ends = lives::all_ends() | u64::from(has_native) << 63;
        Circumstances { state_and_torch: state.wrapping_add(torch), ends }
    }
}

/// A kept stack. One cache line.
#[repr(C, align(64))]
pub struct KeptStack {
    /// The entry of the stack cache.
    entry: u32,
    /// [`KeptStacks::round`] when it was kept. The first round is 1, so that zeroed memory is of
    /// no round.
    round: u32,
    stack: u32,
    /// The index of its first word.
    first: u32,
    /// How many Python frames it has.
    python: u16,
    /// How many native words follow them.
    native: u16,
    /// How often in succession the stack was found by a walk, although it was expected.
    misses: Cell<u16>,
    circumstances: Circumstances,
    pub start: NativeStart,
}

/// The stacks that a thread keeps.
pub struct KeptStacks {
    /// Counts how often keeping began again.
    round: u32,
    /// How many of the words are in use.
    used: usize,
    /// How often a kept stack made room for another entry's. Selects in turn which of a pair.
    replaced: usize,
    kept: [[KeptStack; 2]; PAIRS],
    words: [ReadWord; WORDS],
}

/// What a thread keeps: its stacks, and its last native walk, which helps to walk a stack that was not
/// recognised.
pub struct Content {
    pub stacks: KeptStacks,
    pub last_walk: LastNativeWalk,
}

/// A store for what a thread keeps. One thread at a time has taken it.
pub struct ExpectedStacks {
    is_taken: AtomicU32,
    content: UnsafeCell<Content>,
}

// SAFETY: what is in the cell is touched only by the thread that took it.
unsafe impl Sync for ExpectedStacks {}
// SAFETY: all of it is numbers and bools.
unsafe impl Zeroed for ExpectedStacks {}

/// What the threads of a session keep. Each is mapped when a thread first takes it.
#[derive(Default)]
pub struct ThreadStores([AtomicPtr<ExpectedStacks>; THREADS_MAX]);

impl ThreadStores {
    /// Takes one that is free, for the calling thread. `None` if there is none, or no memory.
    pub fn take(&self) -> Option<&'static ExpectedStacks> {
        let mut mapped = None;
        for store in &self.0 {
            // SAFETY: null, or a mapping that is never unmapped.
            let taken = match unsafe { store.load(Ordering::Acquire).as_ref() } {
                // SYNC: pairs with the Release in `give_back`: this thread's writes come after those of the
                // one before.
                Some(one) => one
                    .is_taken
                    .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
                    .ok()
                    .map(|_| one),
                None => {
                    let new = match mapped {
                        Some(new) => new,
                        None => memory::map::<ExpectedStacks>(1)?.first()?,
                    };
                    new.is_taken.store(1, Ordering::Relaxed);
                    let at = core::ptr::from_ref(new).cast_mut();
                    // SYNC: pairs with the Acquire of the load above: another thread finds it complete. If
                    // one was faster, this mapping is for the next store.
                    let is_ours = store
                        .compare_exchange(core::ptr::null_mut(), at, Ordering::Release, Ordering::Relaxed)
                        .is_ok();
                    mapped = Some(new);
                    is_ours.then_some(new)
                }
            };
            if let Some(taken) = taken {
                // SAFETY: this thread has just taken it.
                unsafe { &mut *taken.content.get() }.begin_turn();
                return Some(taken);
            }
        }
        None
    }
}

impl ExpectedStacks {
    /// # Safety
    ///
    /// The caller is the thread that took this, inside the guard of a hook, which keeps a signal handler's
    /// hook out, and has no other such reference.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn content(&self) -> &mut Content {
        // SAFETY: the caller's guarantee.
        unsafe { &mut *self.content.get() }
    }

    pub fn give_back(&self) {
        // SYNC: pairs with the Acquire in `take`.
        self.is_taken.store(0, Ordering::Release);
    }
}

impl Content {
    /// Called whenever a thread takes it: what is kept may be of another thread's C stack.
    fn begin_turn(&mut self) {
        self.stacks.begin_again();
        self.last_walk.forget();
    }
}

impl KeptStack {
    /// The stack's id. To be called when the thread has that stack: its misses in succession end.
    #[inline(always)]
    pub fn met(&self) -> u32 {
        if self.misses.get() != 0 {
            self.misses.set(0);
        }
        self.stack
    }
}

impl KeptStacks {
    fn begin_again(&mut self) {
        (self.round, self.used) = (self.round.wrapping_add(1).max(1), 0);
    }

    #[inline(always)]
    fn pair_of(entry: u32) -> usize {
        (entry.wrapping_mul(0x9e37_79b9) >> (32 - PAIRS.trailing_zeros())) as usize
    }

    /// Prefetches what is kept for an entry.
    #[inline(always)]
    pub fn expect(&self, entry: u32) {
        if let Some([one, other]) = self.kept.get(KeptStacks::pair_of(entry)) {
            prefetch(one);
            prefetch(other);
        }
    }

    /// What is kept for an entry, if it is of a stack in these circumstances: Python's frames, and the native
    /// words.
    #[inline(always)]
    pub fn find(
        &self,
        entry: u32,
        circumstances: Circumstances,
    ) -> Option<(&KeptStack, &[ReadWord], &[ReadWord])> {
        let pair = self.kept.get(KeptStacks::pair_of(entry))?;
        let kept = pair.iter().find(|kept| kept.entry == entry && kept.round == self.round)?;
        if kept.circumstances != circumstances {
            return None;
        }
        let (first, python, native) =
            (kept.first as usize, usize::from(kept.python), usize::from(kept.native));
        let words = self.words.get(first..first + python + native)?;
        let (python, native) = words.split_at_checked(python)?;
        Some((kept, python, native))
    }

    /// Keeps a stack for an entry, if it is time to and there is room. `python` writes Python's frames, and
    /// returns their number, or `None` if they do not fit or cannot be read. `walk` is the native words, and
    /// where the walk began.
    pub fn keep(
        &mut self,
        entry: u32,
        stack: u32,
        circumstances: Circumstances,
        python: impl FnOnce(&mut [ReadWord]) -> Option<usize>,
        walk: (&[ReadWord], NativeStart),
    ) {
        let (round, used, (native, start)) = (self.round, self.used, walk);
        let Some(pair) = self.kept.get_mut(KeptStacks::pair_of(entry)).filter(|_| entry != 0) else { return };
        let is_of_entry = |kept: &KeptStack| kept.entry == entry && kept.round == round;
        let is_free = |kept: &KeptStack| kept.entry == 0 || kept.round != round;
        let way = pair.iter().position(is_of_entry).or_else(|| pair.iter().position(is_free));
        if way.is_none() {
            self.replaced = self.replaced.wrapping_add(1);
        }
        let Some(kept) = pair.get_mut(way.unwrap_or(self.replaced % 2)) else { return };
        let mut misses = 0;
        if is_of_entry(kept) {
            // If an entry's words are others each time, they are kept again less and less often.
            misses = kept.misses.get().saturating_add(1);
            kept.misses.set(misses);
            if !misses.is_power_of_two() {
                return;
            }
        }
        let Some(words) = self.words.get_mut(used..used + WORDS_OF_STACK) else {
            return self.begin_again();
        };
        let python = python(words).filter(|count| count + native.len() <= WORDS_OF_STACK);
        // Of a stack that does not fit only the number of tries is kept. No thread finds it.
        let (circumstances, python, native) = match python {
            Some(python) => (circumstances, python, native),
            None => (Circumstances::NONE, 0, &[][..]),
        };
        for (to, word) in words.iter_mut().skip(python).zip(native) {
            *to = *word;
        }
        self.used += python + native.len();
        *kept = KeptStack {
            entry,
            round,
            stack,
            first: used as u32,
            python: python as u16,
            native: native.len() as u16,
            misses: Cell::new(misses),
            circumstances,
            start,
        };
    }
}

const _: () = assert!(size_of::<KeptStack>() == 64);

#[cfg(test)]
mod tests {
    use super::*;

    fn stacks() -> &'static mut KeptStacks {
        // SAFETY: this thread has just taken it, and asks once.
        &mut unsafe { ThreadStores::default().take().unwrap().content() }.stacks
    }

    fn circumstances(state: u64) -> Circumstances {
        Circumstances { state_and_torch: state, ends: 0 }
    }

    fn keep(stacks: &mut KeptStacks, entry: u32, stack: u32, frames: &[u64], native: &[ReadWord]) {
        let python = |into: &mut [ReadWord]| {
            for (to, at) in into.iter_mut().zip(frames) {
                *to = ReadWord { at: *at, word: at + 1 };
            }
            (frames.len() <= into.len()).then_some(frames.len())
        };
        stacks.keep(entry, stack, circumstances(7), python, (native, NativeStart::default()));
    }

    /// The stack of an entry, the addresses of its Python frames, and its native words.
    fn found(stacks: &KeptStacks, entry: u32) -> Option<(u32, Vec<u64>, Vec<ReadWord>)> {
        let (kept, python, native) = stacks.find(entry, circumstances(7))?;
        Some((kept.stack, python.iter().map(|frame| frame.at).collect(), native.to_vec()))
    }

    #[test]
    fn stacks_are_found_by_entry_in_the_same_circumstances() {
        let stacks = stacks();
        keep(stacks, 0, 30, &[100], &[]);
        assert_eq!(found(stacks, 0), None, "no entry was expected");
        let native = [ReadWord { at: 8, word: 9 }];
        keep(stacks, 3, 30, &[100, 200], &native);
        keep(stacks, 4, 40, &[], &[]);
        assert_eq!(found(stacks, 3), Some((30, vec![100, 200], native.to_vec())));
        assert_eq!(found(stacks, 4), Some((40, vec![], vec![])));
        assert_eq!(found(stacks, 5), None);
        for other in [circumstances(8), Circumstances { ends: 1, ..circumstances(7) }] {
            assert!(stacks.find(3, other).is_none(), "{other:?}");
        }
        let now = [(7, 0, true), (7, 0, false), (7, 9, false), (8, 0, false)];
        let now = now.map(|(state, torch, has_native)| Circumstances::now(state, torch, has_native));
        assert!((1..4).all(|at| !now[at..].contains(&now[at - 1])), "{now:?}");
        // An entry whose pair is full replaces another one.
        let all: Vec<u32> = (1..=20_000).collect();
        all.iter().for_each(|entry| keep(stacks, *entry, *entry, &[u64::from(*entry)], &[]));
        let kept: Vec<_> = all.iter().filter_map(|entry| Some((entry, found(stacks, *entry)?))).collect();
        assert_eq!(kept.len(), 2 * PAIRS);
        for (entry, stack) in kept {
            assert_eq!(stack, (*entry, vec![u64::from(*entry)], vec![]));
        }
    }

    #[test]
    fn stack_that_is_another_one_each_time_is_kept_less_and_less_often() {
        let stacks = stacks();
        let times = |stacks: &mut KeptStacks, count: u64| {
            let kept = (0..count).filter(|at| {
                keep(stacks, 3, 30, &[1_000 + at], &[]);
                found(stacks, 3).unwrap().1 == [1_000 + at]
            });
            kept.count()
        };
        assert_eq!(times(stacks, 100), 1 + 7);
        // Once it was met, the next change is kept at once.
        assert_eq!(stacks.find(3, circumstances(7)).unwrap().0.met(), 30);
        keep(stacks, 3, 30, &[5], &[]);
        assert_eq!(found(stacks, 3).unwrap().1, [5]);
    }

    #[test]
    fn keeping_begins_again_when_the_words_are_used_up() {
        let stacks = stacks();
        let deep: Vec<u64> = (0..WORDS_OF_STACK as u64).collect();
        let too_deep = [&deep[..], &[0]].concat();
        keep(stacks, 9, 9, &too_deep, &[]);
        keep(stacks, 8, 8, &deep, &[ReadWord { at: 0, word: 0 }]);
        assert_eq!((found(stacks, 9), found(stacks, 8)), (None, None));
        let tries = Cell::new(0);
        for _ in 0..100 {
            let python = |_: &mut [ReadWord]| {
                tries.set(tries.get() + 1);
                None
            };
            stacks.keep(9, 9, circumstances(7), python, Default::default());
        }
        assert_eq!(tries.get(), 7);
        stacks.begin_again();
        for entry in 1..=WORDS as u32 {
            keep(stacks, entry, entry, &deep, &[]);
            match found(stacks, entry) {
                Some(kept) => assert_eq!(kept, (entry, deep.clone(), vec![])),
                None => {
                    assert_eq!(entry as usize, WORDS / WORDS_OF_STACK + 1, "the one that did not fit");
                    assert_eq!(found(stacks, entry - 1), None);
                    keep(stacks, entry, entry, &deep, &[]);
                    assert_eq!(found(stacks, entry).unwrap().0, entry);
                    return;
                }
            }
        }
        panic!("all of them fitted");
    }

    #[test]
    fn thread_finds_nothing_of_the_one_before_it() {
        let stores = ThreadStores::default();
        let one = stores.take().unwrap();
        // SAFETY: this thread has just taken it, and asks once at a time.
        keep(&mut unsafe { one.content() }.stacks, 3, 30, &[100], &[]);
        let others: Vec<_> = std::iter::from_fn(|| stores.take()).collect();
        assert_eq!(others.len(), THREADS_MAX - 1);
        one.give_back();
        let again = stores.take().unwrap();
        assert!(core::ptr::eq(one, again));
        // SAFETY: as above.
        assert_eq!(found(&unsafe { again.content() }.stacks, 3), None);
    }

    #[test]
    fn store_is_one_threads_at_a_time() {
        let (stores, holders) = (ThreadStores::default(), [const { AtomicU32::new(0) }; 2 * THREADS_MAX]);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let taken = stores.take().unwrap();
                        let index = stores.0.iter().position(|store| {
                            store.load(Ordering::Relaxed).cast_const() == core::ptr::from_ref(taken)
                        });
                        let holder = &holders[index.unwrap()];
                        assert_eq!(holder.fetch_add(1, Ordering::Relaxed), 0);
                        holder.fetch_sub(1, Ordering::Relaxed);
                        taken.give_back();
                    }
                });
            }
        });
    }
}
