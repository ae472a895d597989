//! Records that are told before CUPTI hands their buffer over.
//!
//! Runs on the service thread, after a flush; which buffers, and how far, is in [`open`]. It waits for nobody: what does not fit
//! the ring now stays where it is.

use cupti_sys::cupti::CUpti_Activity;
use cupti_sys::records::Record;
use gputrace_callstack::python::identity::fold;
use gputrace_producer::session::{self, Session};

use super::{Delivery, Out, Ring, step, with_delivery};
use crate::cupti::open::{self, Reading, Told};
use crate::cupti::root::{Reader, Root};
use crate::cupti::{buffers, postponed};

/// Cells of one entry at most, and one that says who writes.
const CELLS_MOST: u64 = 3;
const CHANGED: &[u8] = b"this libcupti changes records after it has written them: device times that were read before it handed them \
                         over may be wrong, and from here on come when it does";

/// Tells what has ended of what is in CUPTI's hands.
pub fn read_along(root: &Root) {
    let (Some(session), Some(_reader)) = (session::current(), Reader::new()) else { return };
    with_delivery(session, root, Ring::Records, |delivery| {
        for index in buffers::in_use() {
            if let (Some(buffer), Some(mut reading)) =
                (buffers::at(index), open::read_along(index, session.generation))
            {
                delivery.along(root, buffer, &mut reading);
            }
        }
    });
    // What came back meanwhile.
    postponed::catch_up();
}

/// Nothing is read along any more if the last record of a buffer that was told is another one now.
///
/// # Safety
/// CUPTI gave that buffer back.
pub unsafe fn compare(session: &Session, root: &Root, told: Told) {
    if told.at == 0 {
        return;
    }
    // SAFETY: the caller's word; it was a record of the version that CUPTI reported.
    let is_same = mark_of(&unsafe { Record::new(told.at as *const u8, root.version()) }) == told.mark;
    if !is_same && open::turn_off() {
        session.notice(1, 0, CHANGED);
    }
}

impl Delivery<'_> {
    /// Tells what is whole of a buffer that CUPTI fills: what another record stands behind, and what was there at the last look.
    fn along(&mut self, root: &Root, buffer: *mut u8, reading: &mut Reading) {
        let mut newest: *mut CUpti_Activity = core::ptr::null_mut();
        let mut at = reading.told.at as *mut CUpti_Activity;
        // SAFETY: CUPTI's buffer, which is of zeros where it wrote nothing since it got it, as it writes to no more than it says is
        // valid when it gives a buffer back; what was told is in it.
        while unsafe { step(root, buffer, reading.bytes, &mut at) } {
            if !newest.is_null() && !self.whole(root, newest, reading) {
                return;
            }
            newest = at;
        }
        if !newest.is_null() && newest.addr() == reading.seen {
            self.whole(root, newest, reading);
        }
        // SAFETY: as in `whole`.
        let is_whole = !newest.is_null() && has_ended(&unsafe { Record::new(newest.cast(), root.version()) });
        reading.seen = if is_whole { newest.addr() } else { 0 };
    }

    /// Whether what comes next can be written at once. Who reads along waits for nobody: what is not told now is told later.
    fn has_room(&mut self) -> bool {
        match &mut self.out {
            // A kernel, and who writes.
            Out::Records { ring, .. } => self.session.is_current() && ring.has_room(CELLS_MOST),
            Out::Own(_) => false,
        }
    }

    /// Tells a record that CUPTI wrote. False if what it is of has not ended, or there is no room: it is to be told later.
    fn whole(&mut self, root: &Root, record: *mut CUpti_Activity, reading: &mut Reading) -> bool {
        // SAFETY: CUPTI said that a record is there, of the version that it reported, and it changes none.
        let found = unsafe { Record::new(record.cast(), root.version()) };
        let is_told = has_ended(&found) && self.has_room();
        if is_told {
            reading.told = Told { at: record.expose_provenance(), mark: mark_of(&found) };
            self.one(found);
        }
        is_told
    }
}

/// Start and end, and whose it is; `None` for kinds that are not told.
fn gist(record: &Record<'_>) -> Option<[u64; 3]> {
    let (start_ns, end_ns, correlation) = match record {
        Record::Kernel(kernel) => (kernel.start_ns(), kernel.end_ns(), kernel.correlation_id()),
        Record::Memcpy(copy) => (copy.start_ns(), copy.end_ns(), copy.correlation_id()),
        Record::MemcpyPtoP(copy) => (copy.start_ns(), copy.end_ns(), copy.correlation_id()),
        Record::Memset(fill) => (fill.start_ns(), fill.end_ns(), fill.correlation_id()),
        Record::GraphTrace(graph) => (graph.start_ns(), graph.end_ns(), graph.correlation_id()),
        Record::Other(_) => return None,
    };
    Some([start_ns, end_ns, correlation.into()])
}

fn has_ended(record: &Record<'_>) -> bool {
    gist(record).is_none_or(|[start_ns, end_ns, _]| start_ns != 0 && end_ns != 0)
}

/// What a record says, as one number: whether it is still the same.
fn mark_of(record: &Record<'_>) -> u64 {
    gist(record).map_or(1, |gist| gist.into_iter().fold(0, fold))
}
