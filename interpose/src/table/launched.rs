//! Launches of a kernel on a stream: the part of [`Tables`] that finds, makes and empties their
//! [pairs](crate::table::pairs), and notes when a thread's launches can take the short way.

use core::sync::atomic::Ordering;

use gputrace_producer::clock;
use gputrace_producer::hook_state::HookState;
use gputrace_producer::session::Session;
use gputrace_producer::thread::Slot;
use gputrace_wire::counted::Counted;

use crate::symbols::entry;
use crate::table::pairs::{Bucket, Buckets, Launched, Pair};
use crate::table::streams::{LAST_DEFAULT_STREAM, forget_earlier_context, key_of_launch};
use crate::table::tables::Tables;

/// As [`Tables::bucket_of`], but reads nothing of the tables: where they lie is a cache line that a launch of
/// a known pair has no other use for. The thread's launches are [known](Tables::knows_launches).
#[inline(always)]
pub fn bucket_of(pairs: &'static Buckets, slot: &Slot, launched: Launched) -> Bucket<'static> {
    let Launched { function, stream, per_thread } = launched;
    Bucket::of(pairs, function as u64, key_of_launch(stream, per_thread, slot))
}

impl Tables {
    /// Where the launch's pair of a kernel and a stream is, if it has been launched before.
    #[inline(always)]
    pub fn bucket_of(&self, slot: &Slot, launched: Launched) -> Bucket<'static> {
        forget_earlier_context(self.generation, slot);
        bucket_of(self.pairs.buckets(), slot, launched)
    }

    /// Lets the thread's launches take few steps as long as what hooks do is this, if all functions that
    /// launch can be [defined](entry::Entry::latest_api).
    pub fn knows_launches(&self, session: &Session, slot: &Slot, state: HookState) {
        forget_earlier_context(self.generation, slot);
        // SYNC: pairs with the Release below: who sees it sees the definitions, whichever thread made them.
        if self.has_launching_apis.load(Ordering::Acquire) != 0 || self.define_launching_apis(session) {
            slot.knows_launches(state);
        }
    }

    #[cold]
    fn define_launching_apis(&self, session: &Session) -> bool {
        let mut launching = entry::TABLE.get().iter().filter(|entry| entry.launches_kernels());
        let are_defined = launching.all(|entry| self.api(session, entry) != 0);
        self.has_launching_apis.store(are_defined.into(), Ordering::Release);
        are_defined
    }

    /// Gives a launch's pair an entry, if it has none and there is space. `function` is the kernel's
    /// definition.
    #[cold]
    #[inline(never)]
    pub fn meet(&self, session: &Session, slot: &Slot, launched: Launched, function: u32) -> Option<&Pair> {
        let stream = self.stream(session, slot, launched.stream, launched.per_thread);
        let is_default = launched.stream as u64 <= LAST_DEFAULT_STREAM;
        if function == 0 || stream == 0 || is_default && self.current_context(session, slot) == 0 {
            return None;
        }
        // The thread's context is known by now, and with it the pair's key, under which it may have an entry.
        let bucket = self.bucket_of(slot, launched);
        bucket.find().or_else(|| self.pairs.insert(bucket, (function, stream)))
    }

    /// Counts a launch of a pair without an entry, and returns its kernel's definition.
    #[cold]
    #[inline(never)]
    pub fn count_first(&self, session: &'static Session, slot: &Slot, launched: Launched) -> u32 {
        let function = self.function(session, launched.function);
        if let Some(pair) = self.meet(session, slot, launched, function) {
            return pair.add();
        }
        // An entry in the ring for this launch alone.
        let stream = self.stream(session, slot, launched.stream, launched.per_thread);
        let ticks = clock::now();
        let counted = Counted { function, begin_ticks: ticks, end_ticks: ticks, launches: 1, stream };
        slot.emit(session, &[counted.to_cell()]);
        function
    }

    /// Takes the launches that were counted since the last time: the definitions of the kernel and of the
    /// stream, and how many.
    pub fn take_launches(&self, each: impl FnMut(u32, u32, u64)) {
        self.pairs.take(each);
    }
}
