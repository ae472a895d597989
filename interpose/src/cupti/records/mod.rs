//! Converts CUPTI's records into events.
//!
//! Runs on CUPTI's worker thread, on any thread that makes CUPTI deliver, and on the service thread, which
//! reads early ([`early`]). The ring for device records has one producer at a time. A thread that finds it
//! taken writes to its own ring instead, so that no thread waits for another inside CUPTI.

mod early;

use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use cupti_sys::cupti::{CUpti_Activity, CUptiResult};
use cupti_sys::records::{KernelRecord, Record};
use gputrace_producer::clock;
use gputrace_producer::session::{self, Session};
use gputrace_producer::system;
use gputrace_producer::thread::{self, Offer};
use gputrace_wire::cell::Cell;
use gputrace_wire::clock::mark::ThreadBegin;
use gputrace_wire::counter::Counter;
use gputrace_wire::definition::{self, kind, role};
use gputrace_wire::device::{DeviceCopy, DeviceFill, DeviceGraph, Execution, Kernel};
use gputrace_wire::ring::Producer;
use gputrace_wire::segment::RingHeader;

pub use early::read_early;

use super::graph_times::Delivered;
use super::kinds::{self, Requester};
use super::known_end::ENABLES;
use super::open::Consumed;
use super::root::{self, Root};
use super::{awaited, guest};
use crate::symbols::driver;
use crate::table::tables::{self, Tables};

/// The longest total wait of one delivery for space in the ring. The waiting thread is CUPTI's, not the
/// program's, or the process is ending and its last records are worth the wait.
const WAIT_MOST: Duration = Duration::from_millis(200);
const WAIT_STEP: Duration = Duration::from_micros(200);

/// The generation of the session whose records ring is held by a delivery; 0 if none. A forked child, whose
/// parent may have held the ring, has another generation.
static TAKEN_FOR: AtomicU32 = AtomicU32::new(0);
/// The generation whose records ring has a `THREAD_BEGIN`. Only the holder of the ring accesses this and
/// `WRITER`.
static BEGUN_FOR: AtomicU32 = AtomicU32::new(0);
/// Upper half: the generation. Lower half: the definition of the ring's writer.
static WRITER: AtomicU64 = AtomicU64::new(0);

/// The execution of a record; the records of graph nodes have them in fields of the same names.
macro_rules! execution_of {
    ($record:ident) => {
        Execution {
            correlation: $record.correlation_id(),
            start_ns: $record.start_ns(),
            end_ns: $record.end_ns(),
            device: $record.device_id(),
            context: $record.context_id(),
            stream: $record.stream_id(),
            graph_node: $record.graph_node_id(),
            graph: $record.graph_id(),
        }
    };
}

/// A kernel's execution. The end time is 0 if CUPTI did not see the end, since the kind was off then.
fn of_known_end(execution: Execution) -> Execution {
    let is_known = ENABLES.is_end_known(execution.start_ns, execution.end_ns);
    Execution { end_ns: if is_known { execution.end_ns } else { 0 }, ..execution }
}

/// The fields that both copy records have under the same names.
macro_rules! copy_of {
    ($record:ident) => {
        DeviceCopy {
            execution: execution_of!($record),
            bytes: $record.bytes(),
            copy_kind: $record.copy_kind(),
            source_memory: $record.source_kind(),
            target_memory: $record.destination_kind(),
            flags: $record.flags(),
            source_device: 0,
            target_device: 0,
        }
    };
}

/// The ring that a delivery writes to.
enum Out<'a> {
    /// The ring for device records, held by means of `TAKEN_FOR`.
    Records { ring: Producer<'static>, header: &'static RingHeader },
    /// The ring of the delivering thread.
    Own(&'a thread::Slot),
}

/// Converts a buffer's records into events, starting after the last consumed one (`consumed`). Returns false,
/// and does nothing, if no ring is available now.
///
/// # Safety
/// CUPTI has handed over the buffer with so many valid bytes and has not got it back. `consumed` is of this
/// buffer.
pub unsafe fn deliver(
    context: *mut c_void,
    stream: u32,
    buffer: *mut u8,
    valid_bytes: usize,
    consumed: Consumed,
) -> bool {
    let (Some(session), Some(root)) = (session::current(), root::in_callback()) else { return true };
    let is_done = with_delivery(session, root, Ring::Any, |delivery| {
        let mut record = consumed.at as *mut CUpti_Activity;
        // SAFETY: the caller's guarantee.
        unsafe { early::compare(session, root, consumed) };
        // SAFETY: the caller's guarantee.
        while unsafe { step(root, buffer, valid_bytes, &mut record) } {
            // SAFETY: CUPTI wrote a record of its reported version here.
            delivery.one(unsafe { Record::new(record.cast(), root.version()) });
        }
        let mut dropped = 0;
        // Dropped records of the global queue, the only queue in use: no kind is ever enabled for one
        // context.
        // SAFETY: the arguments are those of the delivery; the count outlives the call.
        unsafe { (root.api.activity_get_num_dropped_records)(context.cast(), stream, &mut dropped) };
        session.count(Counter::RecordsDropped, dropped as u64);
    });
    is_done.unwrap_or(true)
}

/// Moves to the next record, or from null to the first. False if there is none.
///
/// # Safety
/// So many bytes of the buffer hold consecutive records, then zeros; `record` is null or one of them.
unsafe fn step(root: &Root, buffer: *mut u8, bytes: usize, record: &mut *mut CUpti_Activity) -> bool {
    let before = *record;
    // SAFETY: the caller's guarantee.
    let found = unsafe { (root.api.activity_get_next_record)(buffer, bytes, record) };
    found == CUptiResult::CUPTI_SUCCESS
        && !record.is_null()
        && *record != before
        // SAFETY: every record begins with its kind; this one lies in the buffer.
        && unsafe { record.cast::<u32>().read_unaligned() } != 0
}

/// The rings that a delivery may write to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ring {
    Records,
    /// That ring or the thread's own.
    Any,
}

/// Calls a function with a ring for events. `None` if there are no tables; `Some(false)` if no ring is
/// available now.
fn with_delivery(
    session: &'static Session,
    root: &Root,
    ring: Ring,
    act: impl FnOnce(&mut Delivery<'_>),
) -> Option<bool> {
    let tables = tables::of(session)?;
    let begun = clock::now();
    let is_done = thread::with(|slot| {
        let reserved = session.reserved_ring(role::DEVICE_RECORDS).filter(|_| take(session.generation));
        let taken = reserved.is_some();
        let inside = slot.enter();
        let out = match reserved {
            Some((header, ring)) => Out::Records { ring: Producer::new(ring), header },
            // A thread that is ending may have no ring and may be unable to get one.
            None if ring == Ring::Any && inside.is_some() && slot.attach(session, role::PROGRAM) => {
                Out::Own(slot)
            }
            None => return false,
        };
        let mut delivery = Delivery {
            session,
            tables,
            out,
            waited: Duration::ZERO,
            count: 0,
            first_end_ns: 0,
            of_graphs: Delivered::default(),
        };
        // Read before any wait for the ring, which is not part of the lag.
        let delivered_ns = root.now_ns();
        act(&mut delivery);
        core::mem::take(&mut delivery.of_graphs).add();
        session.count(Counter::RecordsDelivered, delivery.count);
        if delivery.first_end_ns > 0 {
            session.raise(Counter::RecordLagMaxNs, delivered_ns.saturating_sub(delivery.first_end_ns));
        }
        session.count(Counter::RecordTicks, clock::now().wrapping_sub(begun));
        if taken {
            // SYNC: pairs with the exchange in `take`: the next delivery sees our positions. SeqCst, in one
            // order with the list of `returned`: either `postpone`'s caller sees the ring free, or we see
            // the buffer.
            let _ = TAKEN_FOR.compare_exchange(session.generation, 0, Ordering::SeqCst, Ordering::Relaxed);
        }
        true
    });
    Some(is_done)
}

/// Whether there is a ring for records and no delivery holds it.
pub fn ring_is_free() -> bool {
    let is_there =
        || session::current().is_some_and(|session| session.reserved_ring(role::DEVICE_RECORDS).is_some());
    TAKEN_FOR.load(Ordering::SeqCst) == 0 && is_there()
}

/// Takes the session's ring for device records, if no other delivery holds it.
fn take(generation: u32) -> bool {
    let found = TAKEN_FOR.load(Ordering::Relaxed);
    // SYNC: pairs with the exchange at the end of `with_delivery`.
    found != generation
        && TAKEN_FOR.compare_exchange(found, generation, Ordering::SeqCst, Ordering::Relaxed).is_ok()
}

struct Delivery<'a> {
    session: &'static Session,
    tables: &'static Tables,
    out: Out<'a>,
    waited: Duration,
    count: u64,
    /// Counts of graph node records.
    of_graphs: Delivered,
    /// When the first of the delivered operations ended; 0 if not known.
    first_end_ns: u64,
}

impl Delivery<'_> {
    /// Accounts for an operation that has ended.
    fn ended(&mut self, execution: &Execution) {
        self.of_graphs.note(execution);
        if execution.has_timing() && (self.first_end_ns == 0 || execution.end_ns < self.first_end_ns) {
            self.first_end_ns = execution.end_ns;
        }
    }

    fn one(&mut self, record: Record<'_>) {
        self.count += 1;
        match record {
            Record::Kernel(kernel) => {
                let kernel = self.kernel(kernel);
                self.ended(&kernel.execution);
                if kernel.execution.graph_node == 0 {
                    awaited::note(kernel.execution.correlation);
                }
                self.emit(&kernel.to_cells());
            }
            Record::Memcpy(copy) => self.copy(copy_of!(copy)),
            Record::MemcpyPtoP(copy) => self.copy(DeviceCopy {
                source_device: copy.source_device_id().min(0xffff) as u16,
                target_device: copy.destination_device_id().min(0xffff) as u16,
                ..copy_of!(copy)
            }),
            Record::Memset(fill) => {
                let execution = execution_of!(fill);
                self.ended(&execution);
                let memory = fill.memory_kind().min(255) as u8;
                self.emit(&[
                    DeviceFill { execution, bytes: fill.bytes(), value: fill.value(), memory }.to_cell()
                ]);
            }
            Record::GraphTrace(graph) => {
                // If a graph begins with host work, the record has this value as its device.
                const ON_HOST: u32 = i32::MAX as u32;
                let at = match graph.device_id() {
                    ON_HOST => (graph.end_device_id().unwrap_or(0), graph.end_context_id().unwrap_or(0)),
                    device => (device, graph.context_id()),
                };
                let execution = Execution {
                    correlation: graph.correlation_id(),
                    start_ns: graph.start_ns(),
                    end_ns: graph.end_ns(),
                    device: at.0,
                    context: at.1,
                    stream: graph.stream_id(),
                    graph_node: 0,
                    graph: graph.graph_id(),
                };
                self.ended(&execution);
                self.emit(&[DeviceGraph { execution }.to_cell()]);
            }
            // Kinds that only a guest enabled. The guest may have left before its last records arrive.
            Record::Other(kind)
                if guest::takes_records() || kinds::was_requested(Requester::Guest, kind.0) =>
            {
                self.count -= 1;
            }
            Record::Other(_) => self.session.count(Counter::RecordsUnknown, 1),
        }
    }

    fn copy(&mut self, copy: DeviceCopy) {
        self.ended(&copy.execution);
        self.emit(&[copy.to_cell()]);
    }

    fn kernel(&self, kernel: KernelRecord<'_>) -> Kernel {
        // SAFETY: CUPTI has not got the record's buffer back, or has not handed it over yet. CUPTI owns the
        // name, and is not detached from the driver while a reader exists.
        let text = unsafe { kernel.name() }.map_or(&b""[..], |name| {
            // SAFETY: the same C string, cut where it is too long for a definition.
            unsafe { driver::text(name.as_ptr(), definition::TEXT_MAX) }
        });
        let name = if text.is_empty() { 0 } else { self.tables.name(self.session, text) };
        let small = |sizes: [u32; 3]| sizes.map(|size| size.min(255) as u8);
        Kernel {
            execution: of_known_end(execution_of!(kernel)),
            name,
            grid: kernel.grid(),
            block: kernel.block().map(|size| size.min(0xffff) as u16),
            cluster: kernel.cluster().map_or([0; 3], small),
            registers: kernel.registers_per_thread(),
            static_shared_bytes: kernel.static_shared_bytes().max(0).cast_unsigned(),
            dynamic_shared_bytes: kernel.dynamic_shared_bytes().max(0).cast_unsigned(),
            local_bytes_per_thread: kernel.local_bytes_per_thread(),
            shared_executed_bytes: kernel.shared_memory_executed_bytes(),
            launch_type: kernel.launch_type(),
            queued_ns: kernel.queued_ns(),
            submitted_ns: kernel.submitted_ns(),
        }
    }

    /// Writes an entry. Waits a bounded time for space; a lost entry is counted once.
    fn emit(&mut self, cells: &[Cell]) {
        loop {
            let lost = match self.offer(cells) {
                Offer::Written | Offer::Over => return,
                Offer::Full => Counter::RecordsRingFull,
                Offer::NoRing => Counter::NoRing,
            };
            if self.waited >= WAIT_MOST {
                self.session.count(lost, 1);
                return;
            }
            system::sleep_ns(WAIT_STEP.as_nanos() as u64);
            self.waited += WAIT_STEP;
        }
    }

    fn offer(&mut self, cells: &[Cell]) -> Offer {
        let session = self.session;
        match &mut self.out {
            Out::Own(slot) => slot.offer(session, cells),
            // After a fork in a signal handler, the child returns here; it has no such ring.
            Out::Records { .. } if !session.is_current() => Offer::Over,
            Out::Records { ring, header } => {
                if begin(session, ring, header) && push(ring, header, cells) {
                    Offer::Written
                } else {
                    Offer::Full
                }
            }
        }
    }
}

/// Writes the writer's `THREAD_BEGIN` to the records ring, once a session; false if the ring is full.
fn begin(session: &'static Session, ring: &mut Producer<'static>, header: &RingHeader) -> bool {
    if BEGUN_FOR.load(Ordering::Relaxed) == session.generation {
        return true;
    }
    let mut writer = WRITER.load(Ordering::Relaxed);
    if (writer >> 32) as u32 != session.generation {
        let tid = system::gettid();
        let thread = session.define(kind::THREAD, &[tid as u64, role::DEVICE_RECORDS], b"device records");
        writer = u64::from(session.generation) << 32 | u64::from(thread);
        WRITER.store(writer, Ordering::Relaxed);
    }
    let begun = push(ring, header, &[ThreadBegin { thread: writer as u32, ticks: clock::now() }.to_cell()]);
    if begun {
        BEGUN_FOR.store(session.generation, Ordering::Relaxed);
    }
    begun
}

fn push(ring: &mut Producer<'static>, header: &RingHeader, cells: &[Cell]) -> bool {
    let fits = ring.push(cells);
    if fits {
        let written = header.written.load(Ordering::Relaxed);
        header.written.store(written.wrapping_add(1), Ordering::Relaxed);
    }
    fits
}
