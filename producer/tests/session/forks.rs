//! What a forked child does with what it inherited: nothing.

use std::sync::Barrier;
use std::thread::scope;

use gputrace_producer::session;
use gputrace_producer::thread::{self, Offer};
use gputrace_wire::cell::{Cell, kind};
use gputrace_wire::counter::Counter;
use gputrace_wire::definition;

use crate::alone::{alone, in_child};
use crate::peer::begin;

fn event() -> [Cell; 1] {
    [Cell::new(kind::CALL, 1, 0)]
}

#[test]
fn child_with_a_session_of_its_own_leaves_its_parents_ring_alone() {
    alone("forks::child_with_a_session_of_its_own_leaves_its_parents_ring_alone", || {
        let (parents, _peer) = begin();
        thread::with(|slot| assert!(slot.emit(parents, &event())));
        let ended = in_child(|| {
            fill_holes();
            let (own, peer) = begin();
            let (generation, theirs) = (own.generation, parents.generation);
            assert_ne!(generation, theirs);
            // No ring is left for this thread, and none can be made.
            peer.hang_up();
            let rings = (2..peer.rings()).map_while(|_| own.take_ring()).count();
            assert_eq!(rings, peer.rings() - 2);
            thread::with(|slot| {
                slot.add_cost(7);
                assert!(!slot.emit(own, &event()));
                slot.add_cost(7);
                assert_eq!(slot.offer(own, &event()), Offer::NoRing);
            });
            assert_eq!(peer.counter(Counter::NoRing), 1);
            3
        });
        assert!(libc::WIFEXITED(ended), "killed by signal {}", libc::WTERMSIG(ended));
        assert_eq!(libc::WEXITSTATUS(ended), 3);
        thread::with(|slot| assert!(slot.emit(parents, &event()), "the parent goes on"));
    });
}

/// Fills the address space where the parent's segment was with memory that nobody may touch, so
/// that the child's own does not happen to lie there.
fn fill_holes() {
    for _ in 0..64 {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping touches no existing memory.
        unsafe { libc::mmap(std::ptr::null_mut(), 64 << 20, libc::PROT_NONE, flags, -1, 0) };
    }
}

/// As after a signal handler that interrupted a hook and forked.
#[test]
fn child_that_returns_into_its_parents_hook_writes_nothing() {
    alone("forks::child_that_returns_into_its_parents_hook_writes_nothing", || {
        let (parents, peer) = begin();
        thread::with(|slot| {
            let _inside = slot.enter();
            assert!(slot.emit(parents, &event()));
            let ended = in_child(|| {
                assert!(!slot.emit(parents, &event()));
                assert_eq!(slot.offer(parents, &event()), Offer::Over);
                slot.add_cost(1);
                parents.count(Counter::Nested, 1);
                assert_eq!(parents.define(definition::kind::NAME, &[], b"name"), 0);
                3
            });
            assert!(libc::WIFEXITED(ended), "killed by signal {}", libc::WTERMSIG(ended));
            assert_eq!(libc::WEXITSTATUS(ended), 3);
        });
        assert_eq!(peer.counter(Counter::Nested), 0);
    });
}

/// A thread that has a ring but is not named in it yet, because the ring was full.
#[test]
fn child_of_a_thread_not_yet_named_writes_nothing() {
    alone("forks::child_of_a_thread_not_yet_named_writes_nothing", || {
        let (parents, _peer) = begin();
        scope(|scope| {
            let fill = || thread::with(|slot| while slot.emit(parents, &event()) {});
            scope.spawn(fill).join().unwrap();
        });
        thread::with(|slot| {
            assert!(!slot.emit(parents, &event()));
            let ended = in_child(|| {
                assert!(!slot.emit(parents, &event()));
                slot.add_cost(1);
                3
            });
            assert!(libc::WIFEXITED(ended), "killed by signal {}", libc::WTERMSIG(ended));
        });
    });
}

#[test]
fn one_thread_starts_a_process_s_session() {
    alone("forks::one_thread_starts_a_process_s_session", || {
        assert_eq!(claims(), 1);
        assert!(session::claim().is_none());
        // The claim's holder has not started yet: a child is another process all the same.
        let ended = in_child(|| claims() as i32);
        assert_eq!(libc::WEXITSTATUS(ended), 1);
    });
}

#[test]
fn one_thread_starts_a_forked_child_s_session() {
    alone("forks::one_thread_starts_a_forked_child_s_session", || {
        let (_parents, _peer) = begin();
        assert!(session::claim().is_none());
        for _ in 0..50 {
            let ended = in_child(|| claims() as i32);
            assert_eq!(libc::WEXITSTATUS(ended), 1);
        }
        session::turn_off();
        let ended = in_child(|| claims() as i32);
        assert_eq!(libc::WEXITSTATUS(ended), 0, "off is for good");
    });
}

/// How many of eight threads get to start the session.
fn claims() -> usize {
    let barrier = Barrier::new(8);
    scope(|scope| {
        let claim = || {
            barrier.wait();
            session::claim().is_some()
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(claim)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).filter(|claimed| *claimed).count()
    })
}
