//! Copies records into the guest's buffers.
//!
//! The records that the guest wants are copied from our buffers into buffers that the guest provides, in
//! CUPTI's own layout. A buffer is handed over when it is full or when the guest flushes. A delivering thread
//! takes the current buffer for itself, so that no lock is held while the guest is called; a second
//! delivering thread begins a buffer of its own.

use core::cell::Cell;
use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cupti_sys::cupti::{
    CUpti_Activity, CUpti_BuffersCallbackCompleteFunc, CUpti_BuffersCallbackRequestFunc, CUptiResult,
};

use cupti_sys::records::Record;

use super::clock::{self, Line};
use super::{own_calls, times, windows};
use crate::cupti::kinds::{self, Requester};
use crate::cupti::root;
use gputrace_producer::system;

type Request = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
type Complete = unsafe extern "C" fn(cupti_sys::driver::CUcontext, u32, *mut u8, usize, usize);

const KERNEL: u32 = kinds::KERNEL.0;
const CONCURRENT_KERNEL: u32 = kinds::CONCURRENT_KERNEL.0;
/// The longest wait of a guest's flush for a delivery on another thread.
const WAIT_MOST: Duration = Duration::from_secs(1);
const WAIT_STEP: Duration = Duration::from_micros(50);
/// Record sizes are a multiple of this.
const ALIGNMENT: usize = 8;

static REQUEST: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static COMPLETE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
/// The partly filled buffer while no thread is filling it.
static UNDER_WAY: AtomicPtr<Filling> = AtomicPtr::new(core::ptr::null_mut());
/// Records for which the guest gave no buffer, since it last queried the count.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// A guest's buffer that is partly filled.
struct Filling {
    buffer: *mut u8,
    bytes: usize,
    used_bytes: usize,
    records: usize,
    /// 0 means as many as fit.
    most_records: usize,
}

/// The guest's pair of buffer callbacks, both of them.
pub fn register(
    request: CUpti_BuffersCallbackRequestFunc,
    complete: CUpti_BuffersCallbackCompleteFunc,
) -> bool {
    let (Some(request), Some(complete)) = (request, complete) else { return false };
    COMPLETE.store(complete as *mut c_void, Ordering::Release);
    REQUEST.store(request as *mut c_void, Ordering::Release);
    true
}

/// Removes the guest's buffer callbacks.
pub fn unregister() {
    REQUEST.store(core::ptr::null_mut(), Ordering::Release);
}

pub fn is_registered() -> bool {
    !REQUEST.load(Ordering::Acquire).is_null()
}

/// The number of records without a buffer since the last query.
pub fn take_dropped() -> u64 {
    DROPPED.swap(0, Ordering::Relaxed)
}

/// Copies the records that the guest wants from a buffer that CUPTI has just delivered.
///
/// # Safety
/// So many bytes of the buffer are CUPTI's records.
pub unsafe fn deliver(buffer: *mut u8, valid_bytes: usize) {
    let Some(root) = root::in_callback() else { return };
    if !is_registered() {
        return;
    }
    let _under_way = UnderWay::begin();
    let line = clock::line(root);
    let mut filling = Guard::take();
    let mut next: *mut CUpti_Activity = core::ptr::null_mut();
    // SAFETY: CUPTI's own buffer; `next` is null or the last record that it gave.
    let step = |next: &mut *mut CUpti_Activity| unsafe {
        (root.api.activity_get_next_record)(buffer, valid_bytes, next) == CUptiResult::CUPTI_SUCCESS
    };
    let mut is_there = step(&mut next);
    while is_there {
        let record = next;
        is_there = step(&mut next);
        let at = (record as usize).wrapping_sub(buffer as usize);
        let end = if is_there { (next as usize).wrapping_sub(buffer as usize) } else { valid_bytes };
        let bytes = end.saturating_sub(at) & !(ALIGNMENT - 1);
        if end > valid_bytes || bytes < ALIGNMENT {
            break;
        }
        // SAFETY: a record lies in these bytes.
        let source = unsafe { core::slice::from_raw_parts(record.cast::<u8>(), bytes) };
        // SAFETY: CUPTI wrote a record of its reported version here.
        let typed = unsafe { Record::new(record.cast(), root.version()) };
        if let Some(kind) = kind_for_guest(source, &typed) {
            filling.put(source, kind, line.as_ref());
        }
    }
}

/// The kind under which the guest gets the record; `None` if the guest never enabled it.
fn kind_for_guest(record: &[u8], typed: &Record<'_>) -> Option<u32> {
    let kind = u32::from_ne_bytes(*record.first_chunk()?);
    if let Record::GraphTrace(graph) = typed {
        // The tracer switches this kind independently, and records come late.
        return windows::had(kind, graph.correlation_id(), graph.start_ns()).then_some(kind);
    }
    let is_for_guest_alone = !kinds::was_requested(Requester::Base, kind);
    if is_for_guest_alone && own_calls::is_of_one(record) {
        return None;
    }
    let (correlation, start_ns) = match typed {
        Record::Kernel(kernel) => (kernel.correlation_id(), kernel.start_ns()),
        Record::Memcpy(copy) => (copy.correlation_id(), copy.start_ns()),
        Record::MemcpyPtoP(copy) => (copy.correlation_id(), copy.start_ns()),
        Record::Memset(fill) => (fill.correlation_id(), fill.start_ns()),
        // Besides these and graph-level timing (above), the tracer enables no kind.
        _ => return is_for_guest_alone.then_some(kind),
    };
    if kind == CONCURRENT_KERNEL && windows::had(KERNEL, correlation, start_ns) {
        return Some(KERNEL);
    }
    // Where the kind is on for the guest alone, CUPTI itself respects the guest's windows.
    (is_for_guest_alone || windows::had(kind, correlation, start_ns)).then_some(kind)
}

/// Hands over the current buffer: the guest flushes or ends.
pub fn hand_over() {
    let mut filling = Guard::take();
    if filling.0.as_ref().is_some_and(|filling| filling.records > 0) {
        filling.hand_over();
    }
}

/// Gives the current buffer back, even if it is empty: the guest takes no more records.
pub fn give_back() {
    Guard::take().hand_over();
}

/// Asks the guest for a buffer if it has any kind on and no buffer is current. CUPTI alone asks at the first
/// launch. torch.profiler depends on it: it flushes only if a buffer was requested.
pub fn prepare() {
    if is_registered() && windows::kinds() != 0 {
        let mut filling = Guard::take();
        if filling.0.is_none() {
            filling.0 = Filling::request();
        }
    }
}

/// Deliveries under way.
static DELIVERIES: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// Whether this thread is in a delivery, so that it does not wait for itself.
    static IS_DELIVERING: Cell<bool> = const { Cell::new(false) };
}

/// Whether another thread is delivering.
pub fn is_under_way() -> bool {
    DELIVERIES.load(Ordering::Acquire) > u32::from(IS_DELIVERING.get())
}

/// A delivery is under way for as long as this lives.
struct UnderWay;

impl UnderWay {
    fn begin() -> UnderWay {
        DELIVERIES.fetch_add(1, Ordering::AcqRel);
        IS_DELIVERING.set(true);
        UnderWay
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        IS_DELIVERING.set(false);
        DELIVERIES.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Waits for a condition, up to `WAIT_MOST`. Returns at once if this thread is in a delivery.
pub fn wait_until(condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() && begun.elapsed() < WAIT_MOST && !IS_DELIVERING.get() {
        system::sleep_ns(WAIT_STEP.as_nanos() as u64);
    }
}

/// Holds the current buffer and puts it back when dropped.
struct Guard(Option<Box<Filling>>);

impl Guard {
    fn take() -> Guard {
        let filling = UNDER_WAY.swap(core::ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: the pointer came from Box::into_raw below, and whoever swaps it out owns it.
        Guard((!filling.is_null()).then(|| unsafe { Box::from_raw(filling) }))
    }

    fn put(&mut self, record: &[u8], kind: u32, line: Option<&Line>) {
        let is_full = self.0.as_ref().is_some_and(|filling| !filling.fits(record.len()));
        if is_full {
            self.hand_over();
        }
        if self.0.is_none() {
            self.0 = Filling::request();
        }
        match &mut self.0 {
            Some(filling) if filling.fits(record.len()) => filling.write(record, kind, line),
            _ => {
                DROPPED.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn hand_over(&mut self) {
        if let Some(filling) = self.0.take() {
            filling.complete();
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let Some(filling) = self.0.take() else { return };
        let other = UNDER_WAY.swap(Box::into_raw(filling), Ordering::AcqRel);
        if !other.is_null() {
            // A second delivery meanwhile began a buffer of its own and finished first.
            // SAFETY: as in `take`.
            unsafe { Box::from_raw(other) }.complete();
        }
    }
}

impl Filling {
    /// Requests a new buffer from the guest.
    fn request() -> Option<Box<Filling>> {
        let request = REQUEST.load(Ordering::Acquire);
        if request.is_null() {
            return None;
        }
        let (mut buffer, mut bytes, mut most_records) = (core::ptr::null_mut(), 0, 0);
        // SAFETY: only `register` stores here, a function of this type; the out pointers live.
        unsafe {
            core::mem::transmute::<*mut c_void, Request>(request)(&mut buffer, &mut bytes, &mut most_records);
        }
        (!buffer.is_null())
            .then(|| Box::new(Filling { buffer, bytes, used_bytes: 0, records: 0, most_records }))
    }

    fn fits(&self, bytes: usize) -> bool {
        self.bytes.saturating_sub(self.used_bytes) >= bytes
            && (self.most_records == 0 || self.records < self.most_records)
    }

    /// Appends a record; the caller made sure that it fits.
    fn write(&mut self, record: &[u8], kind: u32, line: Option<&Line>) {
        // SAFETY: the guest gave so many bytes, and the record fits into the rest of them.
        let target = unsafe {
            core::ptr::copy_nonoverlapping(record.as_ptr(), self.buffer.add(self.used_bytes), record.len());
            core::slice::from_raw_parts_mut(self.buffer.add(self.used_bytes), record.len())
        };
        if let Some(field) = target.get_mut(0..4) {
            field.copy_from_slice(&kind.to_ne_bytes());
        }
        if let Some(line) = line {
            for at in times::offsets(kind) {
                if let Some(field) = target.get_mut(*at..*at + 8)
                    && let Ok(time_ns) = <[u8; 8]>::try_from(&*field)
                {
                    field.copy_from_slice(&line.carry_over(u64::from_ne_bytes(time_ns)).to_ne_bytes());
                }
            }
        }
        self.used_bytes += record.len();
        self.records += 1;
    }

    /// Gives the buffer back to the guest.
    fn complete(self) {
        let complete = COMPLETE.load(Ordering::Acquire);
        if !complete.is_null() {
            // SAFETY: only `register` stores here, a function of this type; the buffer is the
            // guest's own. Global buffers belong to no context.
            unsafe {
                core::mem::transmute::<*mut c_void, Complete>(complete)(
                    core::ptr::null_mut(),
                    0,
                    self.buffer,
                    self.bytes,
                    self.used_bytes,
                );
            }
        }
    }
}
