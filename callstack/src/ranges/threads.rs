//! Names that the program gave to its threads. They are kept, since a session may begin later.

use core::sync::atomic::{AtomicU32, Ordering};

use gputrace_producer::session::{self, Session};
use gputrace_wire::definition::kind;

use super::label::Label;

/// How many threads' names are kept for a later session.
const KEPT: usize = 256;

/// Thread id and label. A slot whose thread id has just been stored has no label yet.
static NAMES: [(AtomicU32, AtomicU32); KEPT] = [const { (AtomicU32::new(0), AtomicU32::new(0)) }; KEPT];

/// Sets the name of the thread with that id.
pub fn name_thread(tid: u32, name: &[u8]) {
    if let Some(session) = session::current() {
        say(session, tid, name);
    }
    let label = Label::range(Label::NONE, name);
    for (known, place) in &NAMES {
        let found = known.compare_exchange(0, tid, Ordering::AcqRel, Ordering::Acquire);
        if found.is_ok() || found == Err(tid) {
            return place.store(label.to_handle() as u32, Ordering::Release);
        }
    }
}

/// Defines the names that were given before the session began.
pub fn say_threads(session: &Session) {
    for (known, place) in &NAMES {
        let (tid, label) = (known.load(Ordering::Acquire), place.load(Ordering::Acquire));
        if tid != 0 && label != 0 {
            Label::from_handle(label as usize).with_text(|name| say(session, tid, name));
        }
    }
}

fn say(session: &Session, tid: u32, name: &[u8]) {
    session.define(kind::LABEL, &[0, tid.into()], name);
}
