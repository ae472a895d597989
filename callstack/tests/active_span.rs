//! CALLER entries in a thread's ring.

use std::thread::spawn;

use gputrace_callstack::active_span;
use gputrace_producer::thread;
use gputrace_wire::atomic::Ordering;
use gputrace_wire::caller::{Caller, CallerEntry};
use gputrace_wire::cell::{Cell, kind};

use alone::alone;
use peer::begin;

#[path = "../../producer/tests/session/alone.rs"]
#[allow(dead_code)]
mod alone;
#[path = "../../producer/tests/session/peer.rs"]
#[allow(dead_code)]
mod peer;

const EVENT: u16 = kind::CALL;
/// The first ring of the program's threads.
const FIRST: usize = 2;

/// Whatever room there is when a thread turns to another request: an entry is never in the wrong one.
#[test]
fn entry_is_under_its_own_caller_or_dropped() {
    alone("entry_is_under_its_own_caller_or_dropped", || {
        let (session, peer) = begin();
        let ring = peer.ring(FIRST);
        let capacity = ring.capacity_cells.load(Ordering::Relaxed);
        let turns = 4 * capacity;
        let emit_for = |turn: u64| {
            // Three in a row are for the same one, and every seventh of these is for nobody.
            let request = turn / 3;
            let span = if request.is_multiple_of(7) { 0 } else { request };
            let caller =
                if span == 0 { Caller::NOBODY } else { Caller { trace: [span, 1], span, ..Caller::NOBODY } };
            let mut cell = Cell::new(EVENT, 1, 0);
            cell.put_u64(40, span);
            thread::with(|slot| active_span::emit_under(session, slot, &caller, &[cell]))
        };
        let (mut now, mut written, mut seen) = (Caller::NOBODY, 0, 0);
        let mut check = |cells: Vec<Cell>| {
            for cell in cells {
                match cell.kind() {
                    kind::THREAD_BEGIN => now = Caller::NOBODY,
                    kind::CALLER => now = CallerEntry::from_cell(&cell).caller,
                    _ => {
                        assert_eq!(cell.u64_at(40), now.span);
                        seen += 1;
                    }
                }
            }
        };
        for turn in 0..turns {
            written += u64::from(emit_for(turn));
            // Now and then room for a few, while the ring is full most of the time.
            if turn % (capacity + 5) == 0 {
                check(peer.empty(FIRST));
            }
        }
        check(peer.empty(FIRST));
        assert_eq!(seen, written);
        assert_eq!(
            ring.dropped.load(Ordering::Relaxed),
            turns - written,
            "each that is missing is counted once"
        );
        assert!(written > capacity && written < turns, "{written} of {turns}");
        // Another thread says its own, whoever the last one worked for.
        let other = spawn(move || {
            thread::with(|slot| {
                active_span::emit_under(session, slot, &Caller::NOBODY, &[Cell::new(EVENT, 1, 0)])
            })
        });
        assert!(other.join().unwrap());
    });
}
