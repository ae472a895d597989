//! Records into the guest's buffers.
//!
//! What CUPTI delivers into our buffers and the guest wants is copied into buffers that the guest
//! gives, as CUPTI would have filled them, and handed over when they are full or when the guest
//! flushes. Whoever delivers takes the buffer under way for itself, so that nothing is locked
//! while the guest is called; a second delivering thread begins a buffer of its own.

use core::cell::Cell;
use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cupti_sys::cupti::{
    CUpti_Activity, CUpti_ActivityKind, CUpti_BuffersCallbackCompleteFunc, CUpti_BuffersCallbackRequestFunc,
    CUptiResult,
};

use cupti_sys::records::Record;

use super::clock::{self, Line};
use super::{own_calls, times, windows};
use crate::cupti::root::{self, Who};
use gputrace_producer::system;

type Request = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
type Complete = unsafe extern "C" fn(cupti_sys::driver::CUcontext, u32, *mut u8, usize, usize);

const KERNEL: u32 = CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_KERNEL.0;
const CONCURRENT_KERNEL: u32 = CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL.0;
/// How long a flush of the guest's waits for a delivery that another thread is in.
const WAIT_MOST: Duration = Duration::from_secs(1);
const WAIT_STEP: Duration = Duration::from_micros(50);
/// Records are a multiple of this long.
const ALIGNMENT: usize = 8;

static REQUEST: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static COMPLETE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
/// The buffer that is being filled and that nobody fills right now.
static UNDER_WAY: AtomicPtr<Filling> = AtomicPtr::new(core::ptr::null_mut());
/// Records for which the guest gave no buffer, since it last asked.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// A buffer of the guest's, partly filled.
struct Filling {
    buffer: *mut u8,
    bytes: usize,
    used_bytes: usize,
    records: usize,
    /// 0 for as many as fit.
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

/// The guest takes no more buffers.
pub fn unregister() {
    REQUEST.store(core::ptr::null_mut(), Ordering::Release);
}

pub fn is_registered() -> bool {
    !REQUEST.load(Ordering::Acquire).is_null()
}

/// Records that found no buffer since the last question.
pub fn take_dropped() -> u64 {
    DROPPED.swap(0, Ordering::Relaxed)
}

/// Copies what the guest wants of a buffer that CUPTI has just delivered.
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
        // SAFETY: CUPTI says that a record is there, and it is of the version that it reported.
        let typed = unsafe { Record::new(record.cast(), root.version()) };
        if let Some(kind) = kind_for_guest(source, &typed) {
            filling.put(source, kind, line.as_ref());
        }
    }
}

/// The kind under which the guest gets the record; `None` if it never asked for it.
fn kind_for_guest(record: &[u8], typed: &Record<'_>) -> Option<u32> {
    let kind = u32::from_ne_bytes(*record.first_chunk()?);
    if let Record::GraphTrace(graph) = typed {
        // The tracer has this kind on and off as it sees fit, and records come late.
        return windows::had(kind, graph.correlation_id(), graph.start_ns()).then_some(kind);
    }
    if !root::wants(Who::Tracer, kind) {
        if own_calls::is_of_one(record) {
            return None;
        }
        // On for the guest alone: CUPTI itself has kept to its windows.
        return Some(if kind == CONCURRENT_KERNEL { as_asked(kind) } else { kind });
    }
    let (correlation, start_ns) = match typed {
        Record::Kernel(kernel) => (kernel.correlation_id(), kernel.start_ns()),
        Record::Memcpy(copy) => (copy.correlation_id(), copy.start_ns()),
        Record::MemcpyPtoP(copy) => (copy.correlation_id(), copy.start_ns()),
        Record::Memset(fill) => (fill.correlation_id(), fill.start_ns()),
        // The tracer has no other kind on, but whole graphs.
        _ => return None,
    };
    if kind == CONCURRENT_KERNEL && windows::had(KERNEL, correlation, start_ns) {
        return Some(KERNEL);
    }
    windows::had(kind, correlation, start_ns).then_some(kind)
}

/// Kernel records go by the name that the guest has on now.
fn as_asked(kind: u32) -> u32 {
    if windows::kinds() >> KERNEL & 1 != 0 { KERNEL } else { kind }
}

/// Hands over what is there: the guest flushes, or ends.
pub fn hand_over() {
    let mut filling = Guard::take();
    if filling.0.as_ref().is_some_and(|filling| filling.records > 0) {
        filling.hand_over();
    }
}

/// Gives even an empty buffer back: the guest takes no more.
pub fn give_back() {
    Guard::take().hand_over();
}

/// Asks the guest for a buffer if it has anything on and none is under way. CUPTI alone asks at the
/// first launch; torch.profiler takes nothing for granted that was never asked for, and flushes
/// only if some buffer was.
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
    /// This thread is in a delivery: it must not wait for itself.
    static IS_DELIVERING: Cell<bool> = const { Cell::new(false) };
}

/// Whether another thread is in the middle of a delivery.
pub fn is_under_way() -> bool {
    DELIVERIES.load(Ordering::Acquire) > u32::from(IS_DELIVERING.get())
}

/// While it lives, a delivery is under way.
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

/// Waits a bounded while.
pub fn wait_until(condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() && begun.elapsed() < WAIT_MOST && !IS_DELIVERING.get() {
        system::sleep_ns(WAIT_STEP.as_nanos() as u64);
    }
}

/// Holds the buffer under way; puts it back when it goes.
struct Guard(Option<Box<Filling>>);

impl Guard {
    fn take() -> Guard {
        let filling = UNDER_WAY.swap(core::ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: the pointer came from Box::into_raw below, and whoever swaps it out owns it.
        Guard((!filling.is_null()).then(|| unsafe { Box::from_raw(filling) }))
    }

    fn put(&mut self, record: &[u8], kind: u32, line: Option<&Line>) {
        let is_full = self.0.as_ref().is_some_and(|filling| !filling.has_room(record.len()));
        if is_full {
            self.hand_over();
        }
        if self.0.is_none() {
            self.0 = Filling::request();
        }
        match &mut self.0 {
            Some(filling) if filling.has_room(record.len()) => filling.write(record, kind, line),
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
            // A second delivery began one of its own meanwhile and was done first.
            // SAFETY: as in `take`.
            unsafe { Box::from_raw(other) }.complete();
        }
    }
}

impl Filling {
    /// A new buffer of the guest's.
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

    fn has_room(&self, bytes: usize) -> bool {
        self.bytes.saturating_sub(self.used_bytes) >= bytes
            && (self.most_records == 0 || self.records < self.most_records)
    }

    /// Appends a record that has room.
    fn write(&mut self, record: &[u8], kind: u32, line: Option<&Line>) {
        // SAFETY: the guest gave so many bytes, and the record fits into what is left of them.
        let target = unsafe {
            core::ptr::copy_nonoverlapping(record.as_ptr(), self.buffer.add(self.used_bytes), record.len());
            core::slice::from_raw_parts_mut(self.buffer.add(self.used_bytes), record.len())
        };
        if let Some(place) = target.get_mut(0..4) {
            place.copy_from_slice(&kind.to_ne_bytes());
        }
        if let Some(line) = line {
            for at in times::offsets(kind) {
                if let Some(place) = target.get_mut(*at..*at + 8)
                    && let Ok(time_ns) = <[u8; 8]>::try_from(&*place)
                {
                    place.copy_from_slice(&line.carry_over(u64::from_ne_bytes(time_ns)).to_ne_bytes());
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
