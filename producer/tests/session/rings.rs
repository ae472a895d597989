//! Who gets a ring, what stands in it first, and what is left where there is none.

use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Barrier};
use std::thread::spawn;

use gputrace_producer::session::Session;
use gputrace_producer::thread::{self, Callbacks, Offer};
use gputrace_producer::{clock, on_full};
use gputrace_wire::atomic::Ordering;
use gputrace_wire::cell::{Cell, kind};
use gputrace_wire::counter::Counter;
use gputrace_wire::handshake;

use crate::alone::{alone, holdings};
use crate::peer::{begin, begin_by_path};

const EVENT: u16 = kind::CALL;
/// The first ring of the program's threads.
const FIRST: usize = 2;

fn emit(session: &'static Session) -> bool {
    thread::with(|slot| slot.emit(session, &[Cell::new(EVENT, 1, 0)]))
}

/// Runs `threads` threads that emit `first` events each, and `then` more once all have begun; all
/// keep their rings until the last has ended. Returns how many events were written.
fn threads_that_emit(session: &'static Session, threads: usize, first: usize, then: usize) -> usize {
    let barrier = Arc::new(Barrier::new(threads));
    let running: Vec<_> = (0..threads)
        .map(|_| {
            let barrier = barrier.clone();
            spawn(move || {
                let begun = (0..first).filter(|_| emit(session)).count();
                barrier.wait();
                let more = (0..then).filter(|_| emit(session)).count();
                barrier.wait();
                begun + more
            })
        })
        .collect();
    running.into_iter().map(|thread| thread.join().unwrap()).sum()
}

#[test]
fn threads_beyond_the_rings_get_more_rings() {
    alone("rings::threads_beyond_the_rings_get_more_rings", || {
        let (session, peer) = begin();
        let threads = peer.rings() - FIRST + 10;
        let before = holdings();
        let written = threads_that_emit(session, threads, 0, 100);
        assert_eq!((written, peer.counter(Counter::NoRing)), (threads * 100, 0));
        let (head, beside) = peer.hear().unwrap();
        assert_eq!((head.kind, beside), (handshake::kind::SEGMENT, true));
        assert_eq!(holdings(), (before.0 + 1, before.1), "one segment, and its descriptor closed");
    });
}

#[test]
fn segment_that_nobody_takes_leaves_nothing_behind() {
    alone("rings::segment_that_nobody_takes_leaves_nothing_behind", || {
        let (session, peer) = begin();
        let rings = peer.rings() - FIRST;
        peer.hang_up();
        let before = holdings();
        let written = threads_that_emit(session, rings + 8, 1, 100);
        assert_eq!(written, rings * 101);
        assert_eq!(peer.counter(Counter::NoRing), 8 * 101);
        assert_eq!(holdings(), before);
    });
}

/// A signal that arrives while the thread gives its ring back, and whose handler calls a hook.
#[test]
fn thread_that_gives_its_ring_back_is_not_made_ready_again() {
    static SIGNALS: AtomicU32 = AtomicU32::new(0);
    static AFTERWARDS: AtomicU32 = AtomicU32::new(0);
    extern "C" fn hook(_: libc::c_int) {
        SIGNALS.fetch_add(1, Ordering::Relaxed);
        thread::with(|slot| {
            if let Some(_inside) = slot.enter() {
                slot.emit(gputrace_producer::session::current().unwrap(), &[Cell::new(EVENT, 1, 0)]);
            }
        });
    }
    extern "C" fn destructor(_: *mut libc::c_void) {
        let is_ready = thread::with(|slot| slot.is_caught_up());
        AFTERWARDS.store(1 + u32::from(is_ready), Ordering::Relaxed);
    }
    static CALLBACKS: Callbacks = Callbacks {
        ring_is_new: |_| {},
        catch_up: |_, _, _| true,
        // SAFETY: a signal to this thread, which has a handler.
        thread_ends: |_| unsafe { _ = libc::raise(libc::SIGUSR1) },
    };
    alone("rings::thread_that_gives_its_ring_back_is_not_made_ready_again", || {
        let (session, _peer) = begin();
        // SAFETY: the handler does what a hook does. The C library runs destructors in the order in which
        // keys were made, so this one's comes after the one that gives rings back.
        let key = unsafe {
            libc::signal(libc::SIGUSR1, hook as *const () as libc::sighandler_t);
            let mut key = 0;
            assert_eq!(libc::pthread_key_create(&mut key, Some(destructor)), 0);
            key
        };
        spawn(move || {
            thread::with(|slot| slot.set_callbacks(&CALLBACKS));
            assert!(emit(session));
            // SAFETY: the key was made above, and no one reads the value.
            unsafe { libc::pthread_setspecific(key, std::ptr::dangling()) };
        })
        .join()
        .unwrap();
        assert_eq!(SIGNALS.load(Ordering::Relaxed), 1);
        assert_eq!(AFTERWARDS.load(Ordering::Relaxed), 1, "2: the thread is ready without a ring");
    });
}

#[test]
fn failed_segment_is_not_tried_at_every_event() {
    alone("rings::failed_segment_is_not_tried_at_every_event", || {
        let (session, peer) = begin();
        peer.hang_up();
        // Takes all rings, so that this thread gets none.
        let rings = peer.rings() - FIRST;
        let taken: Vec<_> = (0..rings).map(|_| session.take_ring().unwrap()).collect();
        assert_eq!(taken.len(), rings);
        assert!(!emit(session), "the first try, which fails");
        // A memory file that is not made leaves the next inode's number as it is. Each processor has
        // numbers of its own, and other processes' sockets take some: the fewest of some rounds.
        stay_on_one_processor();
        let round = || {
            let before = next_inode();
            for _ in 0..1_000 {
                assert!(!emit(session));
            }
            next_inode().abs_diff(before) - 1
        };
        let made = (0..5).map(|_| round()).min().unwrap();
        assert!(made < 100, "{made} memory files for 1000 events");
    });
}

fn stay_on_one_processor() {
    // SAFETY: zero is a valid set, which lives across the calls; 0 is this thread.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu() as usize, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set), 0);
    }
}

/// The number of a new memory file.
fn next_inode() -> u64 {
    // SAFETY: the descriptor is new; zero is a valid stat.
    unsafe {
        let descriptor = libc::memfd_create(c"number".as_ptr(), libc::MFD_CLOEXEC);
        let mut stat: libc::stat = std::mem::zeroed();
        assert_eq!(libc::fstat(descriptor, &mut stat), 0);
        libc::close(descriptor);
        stat.st_ino
    }
}

#[test]
fn thread_that_holds_a_lock_of_the_programs_does_not_wait_for_space() {
    alone("rings::thread_that_holds_a_lock_of_the_programs_does_not_wait_for_space", || {
        let (session, peer) = begin();
        on_full::set_waits(true);
        thread::with(|slot| slot.without_waiting(|| while emit(session) {}));
        assert_eq!(peer.counter(Counter::Waits), 0);
        assert_eq!(peer.ring(FIRST).dropped.load(Ordering::Relaxed), 1);
        // The collector is alive, and does not read the ring.
        session.control().heartbeat_ns.store(clock::monotonic_ns(), Ordering::Relaxed);
        assert!(!emit(session));
        assert_eq!(peer.counter(Counter::Waits), 1, "outside of the lock it waits");
    });
}

#[test]
fn ring_taken_over_full_names_its_new_owner_first() {
    alone("rings::ring_taken_over_full_names_its_new_owner_first", || {
        let (session, peer) = begin();
        let ring = peer.ring(FIRST);
        let capacity = ring.capacity_cells.load(Ordering::Relaxed);
        spawn(move || while emit(session) {}).join().unwrap();
        assert_eq!(ring.written.load(Ordering::Relaxed), capacity);
        assert_eq!(ring.dropped.load(Ordering::Relaxed), 1);
        let first = peer.empty(FIRST);
        assert_eq!((first[0].kind(), first[1].kind()), (kind::THREAD_BEGIN, EVENT));
        spawn(move || while emit(session) {}).join().unwrap();
        assert_eq!(ring.dropped.load(Ordering::Relaxed), 2);
        let second = std::thread::scope(|scope| {
            let body = || {
                assert!(!emit(session), "the ring is full");
                assert!(!emit(session));
                assert_eq!(ring.dropped.load(Ordering::Relaxed), 4, "two events, and no mark");
                let cells = peer.empty(FIRST);
                assert_eq!(cells[0].kind(), kind::THREAD_BEGIN);
                assert_ne!(cells[0].u32_at(4), first[0].u32_at(4), "another thread's definition");
                assert!(emit(session));
                assert!(emit(session));
                cells[0].u32_at(4)
            };
            scope.spawn(body).join().unwrap()
        });
        let cells = peer.empty(FIRST);
        let kinds: Vec<u16> = cells.iter().map(Cell::kind).collect();
        assert_eq!(kinds, [kind::THREAD_BEGIN, EVENT, EVENT]);
        assert_ne!(cells[0].u32_at(4), second, "the third thread's own");
        assert_eq!(ring.dropped.load(Ordering::Relaxed), 4);
        assert_eq!(ring.written.load(Ordering::Relaxed), capacity * 2 + 3);
        assert_eq!(peer.counter(Counter::NoRing), 0, "the losses are the ring's, not for want of one");
    });
}

#[test]
fn offer_that_is_repeated_counts_nothing() {
    alone("rings::offer_that_is_repeated_counts_nothing", || {
        let (session, peer) = begin();
        let offer = || thread::with(|slot| slot.offer(session, &[Cell::new(EVENT, 1, 0)]));
        let mut taken = Vec::new();
        for _ in 0..peer.rings() - FIRST {
            taken.push(session.take_ring().unwrap().0);
        }
        peer.hang_up();
        for _ in 0..1_000 {
            assert_eq!(offer(), Offer::NoRing);
        }
        assert_eq!(peer.counter(Counter::NoRing), 0);
        taken[0].state.store(gputrace_wire::segment::ring_state::FREE, Ordering::Release);
        while offer() == Offer::Written {}
        assert_eq!(offer(), Offer::Full);
        let ring = peer.ring(FIRST);
        assert_eq!(ring.dropped.load(Ordering::Relaxed), 0);
        assert_eq!(ring.written.load(Ordering::Relaxed), ring.capacity_cells.load(Ordering::Relaxed));
        gputrace_producer::session::turn_off();
        assert_eq!(offer(), Offer::Over);
    });
}

/// A segment that a full socket did not take goes later, though by then it is known that nobody
/// takes over and files are closed.
#[test]
fn segment_filed_before_the_welcome_is_handed_over_after_it() {
    alone("rings::segment_filed_before_the_welcome_is_handed_over_after_it", || {
        let (session, peer) = begin_by_path();
        let rings = peer.rings() - FIRST;
        let mut taken: Vec<_> = (0..rings).map(|_| session.take_ring().unwrap()).collect();
        let mut fillers = 0;
        let filler = handshake::Head::new(handshake::kind::WELCOME, 0, 0, 0);
        while session.socket().send(filler, &[0; 1024], None) {
            fillers += 1;
        }
        let before = holdings();
        taken.push(session.take_ring().expect("another may take over, so it is made all the same"));
        assert_eq!(holdings(), (before.0 + 1, before.1 + 1), "a segment, and its file kept");
        session.connection().apply_welcome(0);
        session.hand_over();
        assert_eq!(holdings().1, before.1, "of the two files only that of the segment is kept");
        for _ in 0..fillers {
            assert_eq!(peer.hear().unwrap().0.kind, handshake::kind::WELCOME);
        }
        session.hand_over();
        let (head, beside) = peer.hear().unwrap();
        assert_eq!((head.kind, beside), (handshake::kind::SEGMENT, true));
        assert_eq!(holdings().1, before.1 - 1, "no file is kept");
    });
}

#[test]
fn entries_of_a_segment_that_nobody_received_are_counted() {
    alone("rings::entries_of_a_segment_that_nobody_received_are_counted", || {
        let (session, peer) = begin_by_path();
        let taken: Vec<_> = (0..peer.rings() - FIRST).map(|_| session.take_ring().unwrap()).collect();
        assert!(!taken.is_empty());
        let filler = handshake::Head::new(handshake::kind::WELCOME, 0, 0, 0);
        while session.socket().send(filler, &[0; 1024], None) {}
        for _ in 0..3 {
            assert!(emit(session), "into a segment that is not handed over yet");
        }
        assert_eq!(peer.counter(Counter::NoRing), 0);
        session.say_bye(handshake::bye::EXIT);
        let lost = peer.counter(Counter::NoRing);
        assert!((3..=4).contains(&lost), "{lost}: three events, and perhaps the thread's mark");
    });
}
