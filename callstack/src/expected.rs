//! The stack that a thread probably has next, recognised without a walk.
//!
//! Programs launch from the same call sites in the same order over and over. So a thread keeps, for the
//! stacks that it had lately, which of them came after each, and what was read when the stack was found: the
//! addresses and instructions of Python's frames ([`crate::python::known_chain`]), and the words of the C
//! stack that the walk read ([`crate::native::last_walk`]). If all of that is there again, in the same
//! [`Circumstances`] and from the same [`NativeStart`], so is the stack. Where a walk must read one frame to
//! know the next one's address, here all addresses are known: the processor reads ahead, although the code
//! asks for an address only after the one before it was as expected.
//!
//! Which stack comes next may depend on the last two, as where a line of a program launches twice before the
//! next one does. So a stack is kept once for each stack that came before it. Two successors of it are
//! known, the latest first, since a loop ends some time.
//!
//! 16 threads of a session have room for that. Other threads, and stacks that are too deep, are walked.

use core::cell::{Cell, UnsafeCell};
use core::hint::cold_path;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use gputrace_producer::memory::{self, Zeroed, prefetch_at, prefetch_lines};

use crate::native::last_walk::{LastNativeWalk, NativeStart};
use crate::python::lives;
use crate::read_word::ReadWord;
use crate::recent::Cached;

/// How many threads can keep stacks at the same time. Up to 4.3 MiB of address space each, of which memory is
/// taken where something was written: 16 bytes a word, and 64 a stack.
const THREADS_MAX: usize = 16;
/// A stack's entry and that of the stack before it select a set. The stack is kept in any element of it. In
/// sets of two, some stacks of most programs would replace each other all the time.
const SETS: usize = 1 << 10;
const WAYS: usize = 4;
/// How many words a thread has for all its kept stacks. When fewer than [`WORDS_OF_STACK`] are left, all kept
/// stacks are forgotten.
const WORDS: usize = 1 << 18;
/// A stack of more words is not kept. A Python frame is one word.
const WORDS_OF_STACK: usize = 1 << 10;
/// The count of misses in succession goes up to this number, and then begins at 1 again.
const MISSES_MAX: u16 = 1 << 10;

/// What a stack depends on besides its words: the session, the thread's Python state, the PyTorch operators
/// and the backward pass that the thread is in, how many code objects have ended, and whether native frames
/// are asked for. A hash: different ones are equal only by chance. 0 is none that a thread is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Circumstances(u64);

impl Circumstances {
    const NONE: Circumstances = Circumstances(0);

    /// `generation` is the session's. `state` is 0 if the thread runs no Python, or if Python's frames are
    /// not asked for; `torch` is a hash, 0 for no operators and no pass.
    #[inline(always)]
    pub fn now(generation: u32, state: u64, torch: u64, has_native: bool) -> Circumstances {
        let counted = lives::all_ends() << 32 ^ u64::from(generation) << 1 ^ u64::from(has_native);
        let mixed = counted.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Circumstances(state.wrapping_add(torch).wrapping_add(mixed) | 1)
    }
}

/// At most so many lines of a stack's words are prefetched, those of some 128 frames, so that the driver's
/// data stays in the first cache.
const MOST_LINES: u32 = 32;

/// A kept stack. One cache line.
#[repr(C, align(64))]
pub struct KeptStack {
    circumstances: Circumstances,
    /// The entry of the stack cache; 0 if nothing is kept here.
    entry: u32,
    stack: u32,
    /// The index of its first word.
    first: u32,
    /// How many Python frames it has.
    python: u16,
    /// How many native words follow them.
    native: u16,
    pub start: NativeStart,
    /// The numbers of the stacks that came after it, the latest first; 0 for none.
    next: [u16; 2],
    /// How often in succession the stack was expected, but its words were others.
    misses: Cell<u16>,
    /// The entry of the stack before it; 0 for none.
    before: u32,
}

/// A thread's position among its kept stacks. Zeroed memory is valid: no position.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeptPosition {
    /// The number of the thread's last stack; 0 for none.
    last: u16,
    /// The number of the stack that came after it the last time.
    next: u16,
}

/// The stacks that a thread keeps. They are numbered from 1.
pub struct KeptStacks {
    /// How many of the words are in use.
    used: usize,
    /// How often a kept stack made room for another one. Selects in turn which of a set.
    replaced: usize,
    /// The first one is none.
    kept: [KeptStack; 1 + SETS * WAYS],
    words: [ReadWord; WORDS],
}

/// What a thread keeps: its stacks, and its last native walk, which helps to walk a stack that was not
/// recognised.
pub struct Content {
    pub stacks: KeptStacks,
    pub last_walk: LastNativeWalk,
}

/// A store for what a thread keeps. One thread at a time has taken it.
pub struct ThreadStore {
    is_taken: AtomicU32,
    content: UnsafeCell<Content>,
}

// SAFETY: what is in the cell is touched only by the thread that took it.
unsafe impl Sync for ThreadStore {}
// SAFETY: all of it is numbers and bools.
unsafe impl Zeroed for ThreadStore {}

/// What the threads of a session keep. Each is mapped when a thread first takes it.
#[derive(Default)]
pub struct ThreadStores([AtomicPtr<ThreadStore>; THREADS_MAX]);

impl ThreadStores {
    /// Takes one that is free, for the calling thread. `None` if there is none, or no memory.
    pub fn take(&self) -> Option<&'static ThreadStore> {
        let mut mapped = None;
        for store in &self.0 {
            // SAFETY: null, or a mapping that is never unmapped.
            let taken = match unsafe { store.load(Ordering::Acquire).as_ref() } {
                // SYNC: pairs with the Release in `give_back`: this thread's writes come after those of the
                // one before.
                Some(one) => {
                    one.is_taken.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).ok().map(|_| {
                        // SAFETY: this thread has just taken it.
                        unsafe { &mut *one.content.get() }.begin_turn();
                        one
                    })
                }
                None => {
                    let new = match mapped {
                        Some(new) => new,
                        None => memory::map::<ThreadStore>(1)?.first()?,
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
            if taken.is_some() {
                return taken;
            }
        }
        None
    }
}

impl ThreadStore {
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
    /// Called when another thread had it before: what is kept may be of that thread's C stack.
    fn begin_turn(&mut self) {
        self.stacks.begin_again();
        self.last_walk.forget();
    }
}

impl KeptPosition {
    /// The number of the stack that the thread probably has next.
    #[inline(always)]
    pub fn expected(self) -> u16 {
        self.next
    }
}

impl KeptStack {
    /// Whether that entry's stack is kept here, as it came after that of the other entry.
    #[inline(always)]
    fn is_of(&self, entry: u32, before: u32) -> bool {
        self.entry == entry && self.before == before
    }

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
    #[cold]
    fn begin_again(&mut self) {
        self.used = 0;
        // What was never written is only read, which takes no memory.
        for kept in self.kept.iter_mut().filter(|kept| kept.entry != 0) {
            (kept.circumstances, kept.entry, kept.before) = (Circumstances::NONE, 0, 0);
        }
    }

    /// Prefetches the words of Python's frames of the stack that the thread probably has next. The stack
    /// itself was prefetched by [`follow`](Self::follow).
    #[inline(always)]
    pub fn expect(&self, position: KeptPosition) {
        if let Some(kept) = self.kept.get(usize::from(position.next)) {
            let words = self.words.as_ptr().wrapping_add(kept.first as usize);
            // A line has four words, and the first one may be the last of its line.
            let lines = (u32::from(kept.python) + 6) / 4;
            prefetch_lines(words.addr() as u64, lines.min(MOST_LINES));
        }
    }

    /// The stack of that number, if it is one in these circumstances: Python's frames, and the native words.
    #[inline(always)]
    pub fn find(
        &self,
        number: u16,
        circumstances: Circumstances,
    ) -> Option<(&KeptStack, &[ReadWord], &[ReadWord])> {
        let Some(kept) = self.kept.get(usize::from(number)) else {
            cold_path();
            return None;
        };
        if kept.circumstances != circumstances {
            return None;
        }
        let (first, python, native) = (kept.first as usize, kept.python.into(), kept.native.into());
        let words = self.words.as_ptr().wrapping_add(first);
        // SAFETY: `write` wrote so many words there, within the array, and none of them again before it has
        // taken the stack's circumstances away.
        unsafe {
            Some((
                kept,
                core::slice::from_raw_parts(words, python),
                core::slice::from_raw_parts(words.add(python), native),
            ))
        }
    }

    /// The number of the stack that the thread has next, if it is not the expected one.
    #[inline(always)]
    pub fn second(&self, position: KeptPosition) -> u16 {
        self.kept.get(usize::from(position.last)).map_or(0, |last| last.next[1])
    }

    /// The thread's position once it has come to the stack that was expected.
    #[inline(always)]
    pub fn follow(&self, position: KeptPosition) -> KeptPosition {
        let next = self.kept.get(usize::from(position.next)).map_or(0, |kept| kept.next[0]);
        let position = KeptPosition { last: position.next, next };
        // A number past the array may give an address that is not mapped: then this does nothing.
        prefetch_at(self.kept.as_ptr().wrapping_add(next.into()).addr() as u64);
        position
    }

    /// The same, once it has come to the stack of that number.
    pub fn come_to(&mut self, number: u16, position: KeptPosition) -> KeptPosition {
        if let Some(KeptStack { next, .. }) = self.kept.get_mut(usize::from(position.last))
            && position.last != 0
            && next[0] != number
        {
            *next = [number, next[0]];
        }
        self.follow(KeptPosition { last: position.last, next: number })
    }

    /// The number under which an entry's stack is kept, by the entry of the stack before it too: where it
    /// already is, or where there is room, or else in turn.
    fn number_for(&mut self, entry: u32, before: u32) -> u16 {
        let mixed = (u64::from(entry) << 32 | u64::from(before)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let set = mixed >> (64 - SETS.trailing_zeros());
        let first = 1 + (set * WAYS as u64) as u16;
        let numbers = first..first + WAYS as u16;
        let number_of = |entry, before| {
            let is_it = |number: &u16| {
                self.kept.get(usize::from(*number)).is_some_and(|kept| kept.is_of(entry, before))
            };
            numbers.clone().find(is_it)
        };
        number_of(entry, before).or_else(|| number_of(0, 0)).unwrap_or_else(|| {
            self.replaced = self.replaced.wrapping_add(1);
            first + (self.replaced % WAYS) as u16
        })
    }

    /// Comes to a stack that was found by a walk, and is in the stack cache. Keeps it, if it is time to and
    /// there is room. `python` writes Python's frames, and returns their number, or `None` if they do not fit
    /// or cannot be read. `walk` is the native words, and where the walk began.
    pub fn keep(
        &mut self,
        position: KeptPosition,
        found: Cached,
        circumstances: Circumstances,
        python: impl FnOnce(&mut [ReadWord]) -> Option<usize>,
        walk: (&[ReadWord], NativeStart),
    ) -> KeptPosition {
        let before = self.kept.get(usize::from(position.last)).map_or(0, |last| last.entry);
        let number = self.number_for(found.entry, before);
        let is_kept = self.kept.get(usize::from(number)).is_some_and(|kept| kept.is_of(found.entry, before));
        // One that was expected was compared, and is another now. What is kept of others may be right.
        let is_another = number == position.next || number == self.second(position);
        if !is_kept || is_another && self.is_time_to_write(number) {
            self.write((number, before), found, circumstances, python, walk);
        }
        self.come_to(number, position)
    }

    /// Of a stack whose words are others each time, every second one is written, then every fourth, and so
    /// on; after a thousand it begins again.
    fn is_time_to_write(&self, number: u16) -> bool {
        self.kept.get(usize::from(number)).is_some_and(|kept| {
            let misses = kept.misses.get() % MISSES_MAX + 1;
            kept.misses.set(misses);
            misses.is_power_of_two()
        })
    }

    fn write(
        &mut self,
        (number, before): (u16, u32),
        Cached { entry, stack }: Cached,
        circumstances: Circumstances,
        python: impl FnOnce(&mut [ReadWord]) -> Option<usize>,
        (native, start): (&[ReadWord], NativeStart),
    ) {
        if WORDS - self.used < WORDS_OF_STACK {
            self.begin_again();
        }
        let used = self.used;
        let Some(kept) = self.kept.get_mut(usize::from(number)) else { return };
        let Some(words) = self.words.get_mut(used..used + WORDS_OF_STACK) else { return };
        let python = python(words).filter(|count| count + native.len() <= WORDS_OF_STACK);
        // Of a stack that does not fit only the number of tries is kept. No thread finds it.
        let (circumstances, python, native) = match python {
            Some(python) => (circumstances, python, native),
            None => (Circumstances::NONE, 0, &[][..]),
        };
        for (to, word) in words.iter_mut().skip(python).zip(native) {
            *to = *word;
        }
        let (next, misses) = match kept.is_of(entry, before) {
            true => (kept.next, kept.misses.get()),
            false => ([0; 2], 0),
        };
        *kept = KeptStack {
            circumstances,
            entry,
            stack,
            first: used as u32,
            python: python as u16,
            native: native.len() as u16,
            start,
            next,
            misses: Cell::new(misses),
            before,
        };
        self.used += python + native.len();
    }
}

const _: () = assert!(size_of::<KeptStack>() == 64);

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Circumstances = Circumstances(7);

    fn stacks() -> &'static mut KeptStacks {
        // SAFETY: this thread has just taken it, and asks once.
        &mut unsafe { ThreadStores::default().take().unwrap().content() }.stacks
    }

    /// A thread among its stacks.
    struct Thread {
        stacks: &'static mut KeptStacks,
        position: KeptPosition,
    }

    impl Thread {
        fn new(stacks: &'static mut KeptStacks) -> Thread {
            Thread { stacks, position: KeptPosition::default() }
        }

        /// A walk finds a stack of ten times that id, with these Python frames and native words.
        fn walks(&mut self, entry: u32, frames: &[u64], native: &[ReadWord]) {
            let python = |into: &mut [ReadWord]| {
                for (to, at) in into.iter_mut().zip(frames) {
                    *to = ReadWord { at: *at, word: at + 1 };
                }
                (frames.len() <= into.len()).then_some(frames.len())
            };
            let found = Cached { entry, stack: 10 * entry };
            self.position = self.stacks.keep(self.position, found, NOW, python, (native, NativeStart::NONE));
        }

        /// What is kept under that number: its id, the addresses of its Python frames, its native words.
        fn kept(&self, number: u16, circumstances: Circumstances) -> Option<(u32, Vec<u64>, Vec<ReadWord>)> {
            let (kept, python, native) = self.stacks.find(number, circumstances)?;
            Some((kept.stack, python.iter().map(|frame| frame.at).collect(), native.to_vec()))
        }

        /// The same of the thread's last stack.
        fn last(&self) -> Option<(u32, Vec<u64>, Vec<ReadWord>)> {
            self.kept(self.position.last, NOW)
        }

        /// The id of the stack that is expected, and the second one.
        fn expects(&self) -> [Option<u32>; 2] {
            [self.position.expected(), self.stacks.second(self.position)]
                .map(|number| self.kept(number, NOW).map(|(stack, ..)| stack))
        }
    }

    #[test]
    fn stack_is_found_in_the_same_circumstances() {
        let mut thread = Thread::new(stacks());
        assert_eq!(thread.expects(), [None, None]);
        let native = [ReadWord { at: 8, word: 9 }];
        thread.walks(3, &[100, 200], &native);
        let number = thread.position.last;
        thread.walks(4, &[], &[]);
        assert_eq!(thread.last(), Some((40, vec![], vec![])));
        assert_eq!(thread.kept(number, NOW), Some((30, vec![100, 200], native.to_vec())));
        for (number, other) in [(number, Circumstances(8)), (0, NOW), (9999, NOW)] {
            assert_eq!(thread.kept(number, other), None, "{number} {other:?}");
        }
        let now = [(1, 7, 0, true), (1, 7, 0, false), (1, 7, 9, false), (1, 8, 0, false), (2, 7, 0, false)];
        let now = now.map(|(of, state, torch, has_native)| Circumstances::now(of, state, torch, has_native));
        assert!((1..5).all(|at| !now[at..].contains(&now[at - 1])), "{now:?}");
        assert!(!now.contains(&Circumstances::NONE));
    }

    #[test]
    fn stack_whose_set_is_full_replaces_another() {
        let mut thread = Thread::new(stacks());
        (1..=20_000).for_each(|entry| thread.walks(entry, &[entry.into()], &[]));
        let mut kept: Vec<_> = (0..=u16::MAX).filter_map(|number| thread.kept(number, NOW)).collect();
        assert_eq!(kept.len(), SETS * WAYS);
        for (stack, frames, _) in &kept {
            assert_eq!(frames, &[u64::from(stack / 10)]);
        }
        kept.sort_by_key(|(stack, ..)| *stack);
        kept.dedup();
        assert_eq!(kept.len(), SETS * WAYS);
        thread.walks(20_000, &[20_000], &[]);
        assert_eq!(thread.last(), Some((200_000, vec![20_000], vec![])));
    }

    #[test]
    fn some_hundred_stacks_do_not_replace_each_other() {
        // Entries are numbered by a hash, as if at random.
        let mut random = 1u64;
        let mut entry = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            1 + (random >> 33) as u32 % 80_000
        };
        let replaced_of_a_program = |_| {
            let mut thread = Thread::new(stacks());
            (0..350).map(|_| entry()).for_each(|entry| thread.walks(entry, &[1], &[]));
            thread.stacks.replaced
        };
        let programs: Vec<usize> = (0..100).map(replaced_of_a_program).collect();
        assert!(programs.iter().filter(|replaced| **replaced == 0).count() >= 90, "{programs:?}");
    }

    #[test]
    fn forgotten_stacks_are_replaced_first() {
        let mut thread = Thread::new(stacks());
        let full = |thread: &mut Thread| {
            for entry in 1..=20_000 {
                thread.walks(entry, &[], &[]);
            }
            thread.stacks.replaced
        };
        let replaced = full(&mut thread);
        assert!(replaced > 0);
        thread.stacks.begin_again();
        assert_eq!(full(&mut thread), 2 * replaced, "as in an empty store");
    }

    /// How often, in two rounds of these steps, after two others, the stack was the expected one, the second
    /// one, and neither.
    fn came_as(steps: &[u32]) -> [u32; 3] {
        let mut thread = Thread::new(stacks());
        let mut came_as = [0; 3];
        for round in 0..4 {
            for entry in steps.iter().copied() {
                // As a hook does that recognises the stack, or walks.
                let at = thread.expects().iter().position(|stack| *stack == Some(10 * entry));
                let second = thread.stacks.second(thread.position);
                match at {
                    Some(0) => thread.position = thread.stacks.follow(thread.position),
                    Some(_) => thread.position = thread.stacks.come_to(second, thread.position),
                    None => thread.walks(entry, &[entry.into()], &[]),
                }
                assert_eq!(thread.last().unwrap().0, 10 * entry);
                if round >= 2 {
                    came_as[at.unwrap_or(2)] += 1;
                }
            }
        }
        came_as
    }

    #[test]
    fn stack_is_expected_by_the_two_before_it() {
        // After 2 come another 2 and 3, after 1 come 2 and 4 in turn.
        assert_eq!(came_as(&[1, 2, 2, 3, 1, 4]), [12, 0, 0]);
        // As of a line that launches before and after it calls another one.
        assert_eq!(came_as(&[1, 2, 1, 1, 3]), [10, 0, 0]);
    }

    #[test]
    fn both_stacks_that_came_after_two_are_expected() {
        // After two of 1 come another 1 and 2: what comes in turn is always the second one.
        assert_eq!(came_as(&[1, 1, 1, 2]), [4, 4, 0]);
    }

    #[test]
    fn stack_that_only_came_unexpectedly_is_not_written_again() {
        let mut thread = Thread::new(stacks());
        // Each of three after itself and each other one, in an order in which neither successor is right.
        let go = |thread: &mut Thread| {
            for entry in [1, 1, 2, 2, 3, 3, 1, 3, 2, 1, 2, 3, 1, 1, 3, 2, 2, 1] {
                if !thread.expects().contains(&Some(10 * entry)) {
                    thread.walks(entry, &[entry.into()], &[]);
                }
            }
        };
        (0..2).for_each(|_| go(&mut thread));
        let used = thread.stacks.used;
        (0..9).for_each(|_| go(&mut thread));
        assert_eq!(thread.stacks.used, used);
    }

    #[test]
    fn stack_that_is_another_one_each_time_is_kept_less_and_less_often() {
        let mut thread = Thread::new(stacks());
        let times = |thread: &mut Thread, count: u64| {
            let kept = (0..count).filter(|at| {
                thread.walks(3, &[1_000 + at], &[]);
                thread.last().unwrap().1 == [1_000 + at]
            });
            kept.count()
        };
        // The first one, the first one after itself, and from then on it is known that it follows itself.
        assert_eq!(times(&mut thread, 102), 2 + 7);
        // Once it was met, the next change is kept at once.
        assert_eq!(thread.stacks.find(thread.position.last, NOW).unwrap().0.met(), 30);
        thread.walks(3, &[5], &[]);
        assert_eq!(thread.last().unwrap().1, [5]);
        assert!(times(&mut thread, 100 * u64::from(MISSES_MAX)) > 100, "it is never given up");
    }

    #[test]
    fn keeping_begins_again_when_the_words_are_used_up() {
        let mut thread = Thread::new(stacks());
        let deep: Vec<u64> = (0..WORDS_OF_STACK as u64).collect();
        thread.walks(9, &[&deep[..], &[0]].concat(), &[]);
        assert_eq!(thread.last(), None);
        thread.walks(8, &deep, &[ReadWord { at: 0, word: 0 }]);
        assert_eq!(thread.last(), None);
        let tries = Cell::new(0);
        for _ in 0..100 {
            let python = |_: &mut [ReadWord]| {
                tries.set(tries.get() + 1);
                None
            };
            let found = Cached { entry: 9, stack: 9 };
            thread.position =
                thread.stacks.keep(thread.position, found, NOW, python, (&[], NativeStart::NONE));
        }
        // After 8, after itself, and from then on as one that is another each time.
        assert_eq!(tries.get(), 2 + 7);
        thread.stacks.begin_again();
        let fits = (WORDS / WORDS_OF_STACK) as u32;
        let mut numbers = Vec::new();
        for entry in 1..=fits + 1 {
            thread.walks(entry, &deep, &[]);
            assert_eq!(thread.last(), Some((10 * entry, deep.clone(), vec![])));
            numbers.push(thread.position.last);
        }
        let kept = numbers.iter().filter(|number| thread.kept(**number, NOW).is_some());
        assert_eq!(kept.count(), 1, "only the one that did not fit");
    }

    #[test]
    fn thread_finds_nothing_of_the_one_before_it() {
        let stores = ThreadStores::default();
        let one = stores.take().unwrap();
        // SAFETY: this thread has just taken it, and asks once at a time.
        let mut thread = Thread::new(&mut unsafe { one.content() }.stacks);
        thread.walks(3, &[100], &[]);
        let others: Vec<_> = std::iter::from_fn(|| stores.take()).collect();
        assert_eq!(others.len(), THREADS_MAX - 1);
        one.give_back();
        let again = stores.take().unwrap();
        assert!(core::ptr::eq(one, again));
        assert_eq!((0..=u16::MAX).find(|number| thread.kept(*number, NOW).is_some()), None);
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
