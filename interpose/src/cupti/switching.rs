//! The right to switch what the process records and times: one thread of the process at a time has it.

use core::sync::atomic::{AtomicI32, Ordering};

use gputrace_producer::{clock, system};

pub struct Switching(());

static OWNER: AtomicI32 = AtomicI32::new(Switching::NOBODY);
/// How long a hook waits for the right to switch. Another thread's switch takes less: CUPTI's kinds, and once
/// a process the launches under way ([`super::launch_callbacks`]); but for a late subscription
/// ([`super::attach`]), which is only where no range lets hooks switch.
const WAIT_NS: u64 = 250_000_000;
const WAIT_STEP_NS: u64 = 20_000;

impl Switching {
    /// The process whose thread switches; 0 for none. A forked child is not its parent.
    const NOBODY: i32 = 0;

    pub fn try_take() -> Option<Switching> {
        let (own, found) = (system::getpid(), OWNER.load(Ordering::Acquire));
        let is_free = found != own;
        // SYNC: pairs with the Release in `drop`: what the last owner switched is seen.
        let takes = || OWNER.compare_exchange(found, own, Ordering::AcqRel, Ordering::Acquire).is_ok();
        // One that is made is given back as it is dropped, so only an owner makes one.
        (is_free && takes()).then(|| Switching(()))
    }

    /// Waits for the right, for a bounded time: its owner may wait in CUPTI for what the caller holds.
    pub fn take() -> Option<Switching> {
        let deadline_ns = clock::monotonic_ns() + WAIT_NS;
        loop {
            if let Some(taken) = Switching::try_take() {
                return Some(taken);
            }
            if clock::monotonic_ns() >= deadline_ns {
                return None;
            }
            system::sleep_ns(WAIT_STEP_NS);
        }
    }
}

impl Drop for Switching {
    fn drop(&mut self) {
        OWNER.store(Switching::NOBODY, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The right is the process's, so one test covers all cases in order.
    #[test]
    fn one_thread_at_a_time_has_the_right() {
        let right = Switching::try_take();
        assert!(right.is_some());
        for _ in 0..2 {
            assert!(Switching::try_take().is_none(), "who is refused leaves it to its owner");
        }
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| Switching::take().is_some());
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!waits.is_finished());
            drop(right);
            assert!(waits.join().is_ok_and(|has_got_it| has_got_it));
        });
        assert!(Switching::try_take().is_some());
    }
}
