//! Early reading: consumes records before CUPTI hands their buffer over.
//!
//! Runs on the service thread, after a flush. [`open`] knows which buffers are open and how far each was
//! consumed. Early reading never waits: records that do not fit the ring now stay in the buffer.

use cupti_sys::cupti::CUpti_Activity;
use cupti_sys::records::Record;
use gputrace_callstack::fold::fold;
use gputrace_producer::session::{self, Session};

use super::{Delivery, Out, Ring, step, with_delivery};
use crate::cupti::buffers;
use crate::cupti::open::{self, Consumed, Reading};
use crate::cupti::root::{Reader, Root};

/// Most cells of one entry, plus the cell that names the writer.
const CELLS_MAX: u64 = 3;
const CHANGED: &[u8] =
    b"this libcupti changes records that it has written: earlier device times may be wrong, \
                         later ones are read when it delivers them";

/// Consumes the records of ended work in the buffers that CUPTI is filling.
pub fn read_early(root: &Root) {
    let (Some(session), Some(_reader)) = (session::current(), Reader::new()) else { return };
    with_delivery(session, root, Ring::Records, |delivery| {
        for index in buffers::in_use() {
            if let (Some(buffer), Some(mut reading)) =
                (buffers::at(index), open::read_early(index, session.generation))
            {
                delivery.open_buffer(root, buffer, &mut reading);
            }
        }
    });
}

/// Stops early reading for good if the last consumed record of a returned buffer has changed since.
///
/// # Safety
/// CUPTI gave that buffer back.
pub unsafe fn compare(session: &Session, root: &Root, consumed: Consumed) {
    if consumed.at == 0 {
        return;
    }
    // SAFETY: the caller's guarantee; it was a record of the version that CUPTI reported.
    let is_same =
        checksum_of(&unsafe { Record::new(consumed.at as *const u8, root.version()) }) == consumed.checksum;
    if !is_same && open::turn_off() {
        session.notice(1, 0, CHANGED);
    }
}

impl Delivery<'_> {
    /// Consumes the complete records of an open buffer: each record that another follows, and the last one if
    /// it was complete at the previous turn.
    fn open_buffer(&mut self, root: &Root, buffer: *mut u8, reading: &mut Reading) {
        let mut newest: *mut CUpti_Activity = core::ptr::null_mut();
        let mut at = reading.consumed.at as *mut CUpti_Activity;
        // SAFETY: a buffer of CUPTI. It is zero wherever CUPTI has not written since it got the buffer,
        // because CUPTI writes no more than it reports as valid on return. The consumed records are in it.
        while unsafe { step(root, buffer, reading.bytes, &mut at) } {
            if !newest.is_null() && !self.consume(root, newest, reading) {
                return;
            }
            newest = at;
        }
        if !newest.is_null() && newest.addr() == reading.seen {
            self.consume(root, newest, reading);
        }
        // SAFETY: as in `consume`.
        let is_whole = !newest.is_null() && has_ended(&unsafe { Record::new(newest.cast(), root.version()) });
        reading.seen = if is_whole { newest.addr() } else { 0 };
    }

    /// Whether the next entry can be written at once. Early reading never waits: what does not fit comes
    /// later.
    fn entry_fits(&mut self) -> bool {
        match &mut self.out {
            // A kernel, and the cell that names the writer.
            Out::Records { ring, .. } => self.session.is_current() && ring.has_space(CELLS_MAX),
            Out::Own(_) => false,
        }
    }

    /// Consumes one record. False if its work has not ended or the ring is full; a later turn then retries.
    fn consume(&mut self, root: &Root, record: *mut CUpti_Activity, reading: &mut Reading) -> bool {
        // SAFETY: CUPTI wrote a whole record of its reported version here, and never changes a written
        // record.
        let found = unsafe { Record::new(record.cast(), root.version()) };
        let is_consumed = has_ended(&found) && self.entry_fits();
        if is_consumed {
            reading.consumed = Consumed { at: record.expose_provenance(), checksum: checksum_of(&found) };
            self.one(found);
        }
        is_consumed
    }
}

/// Start, end and correlation id; `None` for kinds that are not consumed.
fn identity(record: &Record<'_>) -> Option<[u64; 3]> {
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
    identity(record).is_none_or(|[start_ns, end_ns, _]| start_ns != 0 && end_ns != 0)
}

/// Checksum of a record, to find out whether it has changed.
fn checksum_of(record: &Record<'_>) -> u64 {
    identity(record).map_or(1, |identity| identity.into_iter().fold(0, fold))
}
