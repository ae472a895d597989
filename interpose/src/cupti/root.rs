//! The process's only real use of CUPTI: one library, one subscription, one pair of buffer callbacks.
//!
//! Two parties use it: the tracer ([`super::client`]) and another client of the same library
//! ([`super::guest`]). Nobody holds a lock while CUPTI is called, because a client may call CUPTI from inside
//! a callback.

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, Ordering};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cupti_sys::cupti::{
    ApiVersion, CUpti_BuffersCallbackCompleteFunc, CUpti_BuffersCallbackRequestFunc, CUpti_CallbackFunc,
    CUpti_SubscriberHandle, CUptiResult, Cupti,
};
use gputrace_producer::system;
use once_cell::race::OnceBox;

pub struct Root {
    pub api: Cupti,
    pub path: PathBuf,
    /// Known once it may be queried: without a driver the query crashes CUPTI 13.2.
    version: AtomicU32,
    /// The process that attached: CUPTI does not work in a forked child.
    pid: i32,
    buffers_are_ours: AtomicBool,
}

static ROOT: OnceBox<Root> = OnceBox::new();
mod tracer {
    pub const WAITS: u32 = 0;
    pub const COLLECTS: u32 = 1;
    pub const LEFT: u32 = 2;
    pub const PUT_OFF: u32 = 3;
}
static TRACER: AtomicU32 = AtomicU32::new(tracer::WAITS);
static SUBSCRIBER: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
/// The longest wait for a flush to end before CUPTI is detached from the driver.
const FLUSH_WAIT_MOST: Duration = Duration::from_secs(1);
const FLUSH_WAIT_STEP: Duration = Duration::from_micros(50);
/// Number of the tracer's flushes under way.
static FLUSHES: AtomicU32 = AtomicU32::new(0);
/// Number of readers of buffers that CUPTI is still filling.
static READERS: AtomicU32 = AtomicU32::new(0);
/// Whether CUPTI was left to a client that cannot be a guest.
static LEFT: AtomicBool = AtomicBool::new(false);
/// The process that left CUPTI. A forked child inherits LEFT, and CUPTI does not work there.
static LEFT_IN: AtomicI32 = AtomicI32::new(0);

fn own_pid() -> i32 {
    system::getpid()
}

/// The library in use; `None` before the first attach, in a forked child, and after leaving.
pub fn current() -> Option<&'static Root> {
    ROOT.get().filter(|root| !LEFT.load(Ordering::Acquire) && root.pid == own_pid())
}

/// The library in use while the tracer collects records.
pub fn of_tracer() -> Option<&'static Root> {
    if TRACER.load(Ordering::Acquire) == tracer::COLLECTS { current() } else { None }
}

/// The tracer has a library, and puts its subscription off until it needs one.
pub fn put_off() {
    TRACER.store(tracer::PUT_OFF, Ordering::Release);
}

/// The library, while the tracer's subscription is put off.
#[inline]
pub fn of_put_off() -> Option<&'static Root> {
    if TRACER.load(Ordering::Acquire) == tracer::PUT_OFF { current() } else { None }
}

/// A subscription that is put off will not be made. True for the first caller.
pub fn leave_put_off() -> bool {
    let (put_off, left) = (tracer::PUT_OFF, tracer::LEFT);
    TRACER.compare_exchange(put_off, left, Ordering::AcqRel, Ordering::Acquire).is_ok()
}

/// The tracer collects records from here on.
pub fn begin_collecting() {
    TRACER.store(tracer::COLLECTS, Ordering::Release);
}

/// The tracer collects no more records in this process. True for the first caller.
pub fn end_collecting() -> bool {
    let (collects, left) = (tracer::COLLECTS, tracer::LEFT);
    TRACER.compare_exchange(collects, left, Ordering::AcqRel, Ordering::Acquire).is_ok()
}

/// The library in use, for callers inside CUPTI's callbacks, which run only in its own process.
pub fn in_callback() -> Option<&'static Root> {
    ROOT.get()
}

/// Whether this process left CUPTI to another client.
pub fn is_left() -> bool {
    LEFT.load(Ordering::Acquire) && LEFT_IN.load(Ordering::Relaxed) == own_pid()
}

/// Takes a loaded library into use, without calling it yet.
///
/// # Errors
/// If another libcupti is in use already.
pub fn attach(api: Cupti, path: &Path) -> Result<&'static Root, String> {
    let new = || {
        Box::new(Root {
            api,
            path: path.to_path_buf(),
            version: AtomicU32::new(0),
            pid: own_pid(),
            buffers_are_ours: AtomicBool::new(false),
        })
    };
    let root = ROOT.get_or_init(new);
    if root.pid != own_pid() {
        return Err("a forked child cannot use its parent's CUPTI".into());
    }
    if root.path != path {
        return Err(format!("the process uses {} already", root.path.display()));
    }
    Ok(root)
}

impl Root {
    /// The library's version; 0 before [`Root::learn_version`].
    pub fn version(&self) -> ApiVersion {
        ApiVersion(self.version.load(Ordering::Relaxed))
    }

    /// Queries the version. To be called only after `cuInit` succeeded.
    pub fn learn_version(&self) -> Result<ApiVersion, CUptiResult> {
        let version = self.api.version()?;
        self.version.store(version.0, Ordering::Relaxed);
        Ok(version)
    }

    /// The time in CUPTI's own clock, in nanoseconds; 0 if it cannot be read.
    pub fn now_ns(&self) -> u64 {
        let mut now_ns = 0;
        // SAFETY: the out pointer outlives the call.
        match unsafe { (self.api.get_timestamp)(&mut now_ns) } {
            CUptiResult::CUPTI_SUCCESS => now_ns,
            _ => 0,
        }
    }

    /// The real subscription; null if there is none.
    pub fn subscriber(&self) -> CUpti_SubscriberHandle {
        SUBSCRIBER.load(Ordering::Acquire).cast()
    }

    /// Subscribes with a callback that lives as long as the process, if nobody did. There is one subscription
    /// for the life of the process: before CUDA 13.1 a second one gets wrong correlation ids for graphs.
    pub fn subscribe(&self, callback: CUpti_CallbackFunc) -> CUptiResult {
        if !self.subscriber().is_null() {
            return CUptiResult::CUPTI_SUCCESS;
        }
        let mut subscriber: CUpti_SubscriberHandle = core::ptr::null_mut();
        // SAFETY: the out pointer outlives the call; the callback lives as long as the process.
        let result = unsafe { (self.api.subscribe)(&mut subscriber, callback, core::ptr::null_mut()) };
        if result == CUptiResult::CUPTI_SUCCESS {
            SUBSCRIBER.store(subscriber.cast(), Ordering::Release);
        }
        result
    }

    /// Ends the real subscription.
    pub fn unsubscribe(&self) {
        let subscriber = SUBSCRIBER.swap(core::ptr::null_mut(), Ordering::AcqRel);
        if !subscriber.is_null() {
            // SAFETY: the subscription made above; it is not used again.
            unsafe { (self.api.unsubscribe)(subscriber.cast()) };
        }
    }

    /// Registers our buffer callbacks, which live as long as the process, once. No timestamp callback is ever
    /// registered: CUPTI would call it on the launch path. A guest's clock is computed from CUPTI's instead.
    pub fn register_buffers(
        &self,
        requested: CUpti_BuffersCallbackRequestFunc,
        completed: CUpti_BuffersCallbackCompleteFunc,
    ) -> CUptiResult {
        if self.buffers_are_ours.load(Ordering::Acquire) {
            return CUptiResult::CUPTI_SUCCESS;
        }
        // SAFETY: both callbacks live as long as the process.
        let result = unsafe { (self.api.activity_register_callbacks)(requested, completed) };
        self.buffers_are_ours.store(result == CUptiResult::CUPTI_SUCCESS, Ordering::Release);
        result
    }

    /// Makes CUPTI deliver finished records; a forced flush also delivers unfinished ones.
    pub fn flush(&self, flag: u32) -> CUptiResult {
        FLUSHES.fetch_add(1, Ordering::AcqRel);
        // SAFETY: no precondition except that records were enabled.
        let result = unsafe { (self.api.activity_flush_all)(flag) };
        FLUSHES.fetch_sub(1, Ordering::AcqRel);
        result
    }

    /// Leaves this libcupti, as [`Root::leave`] does, so that another one in the process can use the driver.
    /// The driver refuses the other one unless CUPTI detaches itself from the driver; versions up to 12.9 can
    /// do that.
    pub fn leave_to_another_library(&self) {
        self.leave();
        // The service thread may be in a flush or may be reading open buffers. The wait is bounded, because
        // the holder may itself be blocked on CUPTI's own lock.
        let begun = Instant::now();
        let is_read = || READERS.load(Ordering::SeqCst) > 0;
        while (is_flushing() || is_read()) && begun.elapsed() < FLUSH_WAIT_MOST {
            system::sleep_ns(FLUSH_WAIT_STEP.as_nanos() as u64);
        }
        if let Some(finalize) = self.api.finalize.filter(|_| !is_read()) {
            // SAFETY: no record is wanted and nobody is subscribed; nothing of this library is
            // called from here on: LEFT is set, and an early reader checks LEFT first.
            unsafe { finalize() };
        }
    }

    /// Leaves CUPTI to another client for good. The tracer's kinds are off already, so that the flush
    /// delivers the last of their records.
    pub fn leave(&self) {
        // Unforced, so that running kernels are not affected.
        self.flush(0);
        self.leave_unread();
    }

    /// The same, where nobody reads records any more.
    pub fn leave_unread(&self) {
        self.unsubscribe();
        LEFT_IN.store(self.pid, Ordering::Relaxed);
        LEFT.store(true, Ordering::SeqCst);
    }
}

/// While it lives, CUPTI is not detached from the driver, so memory that CUPTI owns stays valid.
#[derive(Debug)]
pub struct Reader(());

impl Reader {
    /// `None` if CUPTI was left.
    pub fn new() -> Option<Reader> {
        // SYNC: a leaver stores LEFT and then loads READERS, all SeqCst. Either it sees this reader, or this
        // reader sees LEFT.
        READERS.fetch_add(1, Ordering::SeqCst);
        let reader = Reader(());
        (!LEFT.load(Ordering::SeqCst)).then_some(reader)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        READERS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Leaves CUPTI unused for good: a client that cannot be a guest came first.
pub fn leave_unused() {
    LEFT_IN.store(own_pid(), Ordering::Relaxed);
    LEFT.store(true, Ordering::Release);
}

/// Whether one of the tracer's flushes is under way.
pub fn is_flushing() -> bool {
    FLUSHES.load(Ordering::Acquire) > 0
}
