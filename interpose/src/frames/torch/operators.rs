//! PyTorch's operators, recorded through PyTorch's observer callbacks (`--torch-ops`).
//!
//! `at::addGlobalCallback` takes a pair of functions that every thread calls around each operator and each
//! range of the program. No arguments are copied, no Python runs and nothing is imported. Most of the cost
//! is PyTorch's own: it makes a record of each operator that has an observer. So a session that is paused
//! until somebody orders otherwise has none in PyTorch.
//!
//! PyTorch's headers warn that adding and removing is not safe beside other threads. From 1.12 on it is: both
//! take a lock and raise a number, by which each thread sees at its next operator that its list is old. The
//! function that is asked below has been there since then, so an older PyTorch is left alone. A child that is
//! forked while that lock is held would wait for it for ever, so both happen apart from forks.
//!
//! The description of a callback is passed by value, so its layout matters. The layout has been the same
//! from 1.13 to 2.15 at least, and the process itself checks it. After adding ours, PyTorch is asked which
//! callbacks it would call, for the requested scopes and for one other. If our functions are missing, or are
//! where they should not be, the callback is removed again and a notice is written.

use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use gputrace_callstack::torch::operators;
use gputrace_producer::session::{self, Session};
use gputrace_producer::{loader, thread};
use gputrace_wire::counter::Counter;

use crate::frames::python;
use crate::hook::beginning;
use crate::process::{loaded, settings};
use crate::symbols::{driver, libc_symbols, originals};
use crate::table::tables;

/// `at::RecordFunctionCallback`, plus space for fields of later versions: all zeros means "no" there.
#[repr(C)]
#[derive(Clone, Copy)]
struct Callback {
    start: Start,
    end: End,
    sampling_probability: f64,
    scopes: [u8; 16],
    reserved: [u64; 16],
}

type Start = unsafe extern "C" fn(*mut *mut c_void, *const c_void) -> *mut *mut c_void;
type End = unsafe extern "C" fn(*const c_void, *mut c_void);
type Add = unsafe extern "C" fn(Callback) -> u64;
type Remove = unsafe extern "C" fn(u64);
/// `std::optional<StepCallbacks> getStepCallbacksUnlessEmpty(RecordScope)`.
type Called = unsafe extern "C" fn(*mut [u64; CALLED_WORDS], u8) -> *mut c_void;
/// `const char* RecordFunction::name() const`.
type Name = unsafe extern "C" fn(*const c_void) -> *const c_char;

/// More than the list of an operator's callbacks has ever had: it has 112 bytes.
const CALLED_WORDS: usize = 128;

/// `at::RecordScope`: operators, nodes of backward passes, and ranges of the program's own.
const FUNCTION: u8 = 0;
const BACKWARD_FUNCTION: u8 = 1;
const USER_SCOPE: u8 = 7;

/// Prefix of the engine's names around a node. The node itself is already in the stack.
const OF_ENGINE: &[u8] = b"autograd::engine::";
/// Longer names are truncated.
const NAME_MAX: usize = 512;

static IS_REQUESTED: AtomicBool = AtomicBool::new(false);
/// Whether callbacks are in PyTorch, or could not be added.
static IS_DONE: AtomicBool = AtomicBool::new(false);
/// PyTorch's numbers of the callbacks that are in it, and its function that removes them; 0 for none.
static HANDLES: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
static REMOVE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
/// Number of loaded objects at the last search for PyTorch.
static LOADED: AtomicU64 = AtomicU64::new(0);
/// PyTorch's function that returns an operator's name.
static NAME: AtomicName = AtomicName(AtomicPtr::new(core::ptr::null_mut()));

struct AtomicName(AtomicPtr<c_void>);

impl AtomicName {
    #[inline(always)]
    fn get(&self) -> Option<Name> {
        // SAFETY: null or PyTorch's function of that type; null is `None` in this type.
        unsafe { core::mem::transmute::<*mut c_void, Option<Name>>(self.0.load(Ordering::Acquire)) }
    }
}

/// Called at a session's start.
pub fn prepare() {
    let asked = settings::get(settings::TORCH_OPS).is_some() && !settings::is_off(settings::TORCH_OPS);
    IS_REQUESTED.store(asked, Ordering::Relaxed);
}

/// Whether operators are requested, from now on. Called by the service thread only.
pub fn request(session: &Session, asked: bool) {
    let remove = REMOVE.load(Ordering::Acquire);
    let is_unknown = IS_DONE.load(Ordering::Acquire) && remove.is_null();
    let before = IS_REQUESTED.swap(asked && !is_unknown, Ordering::Relaxed);
    if before != asked && !is_unknown {
        if asked {
            // PyTorch may have been loaded long ago.
            LOADED.store(0, Ordering::Relaxed);
        }
        turn(session);
    }
}

/// Has the callbacks in PyTorch while operators are requested and the session may record, and only then.
/// Called by the thread that starts the session, and by the service thread.
pub fn turn(session: &Session) {
    if beginning::may_record(session) {
        go_on(session);
    } else {
        take_out();
    }
}

/// Called by the service thread before it lets the session go on.
pub fn go_on(session: &Session) {
    if are_requested() {
        search(session);
    } else {
        take_out();
    }
}

/// Removes the callbacks from PyTorch, if they are there. An operator that is under way keeps those with
/// which it began, so that its end is reported as its begin was.
fn take_out() {
    let remove = REMOVE.load(Ordering::Acquire);
    if !remove.is_null() {
        loader::apart_from_forks(|| {
            for handle in &HANDLES {
                // SAFETY: PyTorch's function of that type. It takes a lock of its own, and the number is its
                // own.
                let remove = unsafe { core::mem::transmute::<*mut c_void, Remove>(remove) };
                // SAFETY: as above.
                unsafe { remove(handle.swap(0, Ordering::Relaxed)) };
            }
        });
        REMOVE.store(core::ptr::null_mut(), Ordering::Release);
        IS_DONE.store(false, Ordering::Release);
        // PyTorch is found again without another library being loaded.
        LOADED.store(0, Ordering::Relaxed);
    }
    operators::set_observed(false);
}

pub fn are_requested() -> bool {
    IS_REQUESTED.load(Ordering::Relaxed)
}

/// Searches for PyTorch. Not on the path of a call.
fn search(session: &Session) {
    if IS_DONE.load(Ordering::Relaxed) {
        return;
    }
    let loaded = loaded::counts().loaded;
    if LOADED.swap(loaded, Ordering::Relaxed) == loaded {
        return;
    }
    let of_torch = |name: &CStr| libc_symbols::in_mapped(name, |file| file.starts_with(b"libtorch_cpu"));
    let add = of_torch(c"_ZN2at17addGlobalCallbackENS_22RecordFunctionCallbackE");
    if add.is_null() || IS_DONE.swap(true, Ordering::AcqRel) {
        return;
    }
    // The library must stay mapped: its functions are called from now on, and it calls ours.
    python::pin(add);
    let names = [
        c"_ZN2at14removeCallbackEm",
        c"_ZN2at27getStepCallbacksUnlessEmptyENS_11RecordScopeE",
        c"_ZNK2at14RecordFunction4nameEv",
    ];
    let [remove, called, name] = names.map(of_torch);
    let library = originals::library_of(add);
    let is_whole = [remove, called, name]
        .into_iter()
        .all(|found| !found.is_null() && originals::library_of(found) == library);
    if !is_whole || !loader::apart_from_forks(|| put_in(add, remove, called, name)) {
        IS_REQUESTED.store(false, Ordering::Relaxed);
        session.notice(1, 0, b"no PyTorch operators: the callbacks of this version of PyTorch are unknown");
    }
}

/// A callback for one scope.
fn callback(start: Start, scope: u8) -> Callback {
    let mut scopes = [0; 16];
    if let Some(wanted) = scopes.get_mut(usize::from(scope)) {
        *wanted = 1;
    }
    Callback { start, end, sampling_probability: 1.0, scopes, reserved: [0; 16] }
}

/// Adds the callbacks, and removes them again if PyTorch would not call them as expected.
fn put_in(add: *mut c_void, remove: *mut c_void, called: *mut c_void, name: *mut c_void) -> bool {
    const WANTED: [(Start, u8); 2] = [(begin_operator, FUNCTION), (begin_range, USER_SCOPE)];
    // SAFETY: PyTorch's functions of these names have these types. The callback consists of two functions
    // that do nothing before `NAME` is set, and zeros, so no interpretation of it does harm.
    unsafe {
        let add = core::mem::transmute::<*mut c_void, Add>(add);
        let handles = WANTED.map(|(start, scope)| add(callback(start, scope)));
        let called = core::mem::transmute::<*mut c_void, Called>(called);
        let is_called = |start: Start, scope| {
            let mut list = [0u64; CALLED_WORDS];
            called(&mut list, scope);
            let (start, end) = (start as *const () as u64, end as *const () as u64);
            list.array_windows().any(|[first, second]| *first == start && *second == end)
        };
        let is_right = WANTED.iter().all(|(start, _)| {
            let scopes = [FUNCTION, BACKWARD_FUNCTION, USER_SCOPE];
            scopes.iter().all(|scope| is_called(*start, *scope) == WANTED.contains(&(*start, *scope)))
        });
        if is_right {
            HANDLES.iter().zip(handles).for_each(|(kept, handle)| kept.store(handle, Ordering::Relaxed));
            REMOVE.store(remove, Ordering::Release);
            NAME.0.store(name, Ordering::Release);
            operators::set_observed(true);
        } else {
            let remove = core::mem::transmute::<*mut c_void, Remove>(remove);
            handles.into_iter().for_each(|handle| remove(handle));
        }
        is_right
    }
}

/// An operator begins.
unsafe extern "C" fn begin_operator(kept: *mut *mut c_void, record: *const c_void) -> *mut *mut c_void {
    // SAFETY: PyTorch's own arguments.
    unsafe { begin(kept, record, |name, _| (!name.starts_with(OF_ENGINE)).then_some(name)) }
}

/// A range of the program begins. Names that count (`step 17`) become one name; otherwise each would make
/// every stack inside it a different one.
unsafe extern "C" fn begin_range(kept: *mut *mut c_void, record: *const c_void) -> *mut *mut c_void {
    // SAFETY: PyTorch's own arguments.
    unsafe { begin(kept, record, |name, buffer| Some(without_numbers(name, buffer))) }
}

/// A name with each number in it written as `#`.
fn without_numbers<'r>(name: &[u8], buffer: &'r mut [u8; NAME_MAX]) -> &'r [u8] {
    let mut length = 0;
    for byte in name {
        let written = if byte.is_ascii_digit() { b'#' } else { *byte };
        let follows = byte.is_ascii_digit() && length > 0 && buffer.get(length - 1) == Some(&b'#');
        if !follows && let Some(to) = buffer.get_mut(length) {
            *to = written;
            length += 1;
        }
    }
    buffer.get(..length).unwrap_or_default()
}

/// A named operator or range begins; `recorded` is the recorded form of the name. No data is passed to its
/// end.
///
/// # Safety
/// As PyTorch calls an observer.
#[inline(always)]
unsafe fn begin(
    kept: *mut *mut c_void,
    record: *const c_void,
    recorded: impl for<'n> FnOnce(&'n [u8], &'n mut [u8; NAME_MAX]) -> Option<&'n [u8]>,
) -> *mut *mut c_void {
    // SAFETY: the out location of the returned `unique_ptr`.
    unsafe { kept.write(core::ptr::null_mut()) };
    if let Some(name) = NAME.get()
        && let Some(session) = session::current()
        && let Some(tables) = tables::of(session)
    {
        thread::with(|slot| {
            // SAFETY: PyTorch's record of the operator and its name live until the operator's end.
            let name = unsafe { name(record) };
            if let Some(_inside) = slot.enter()
                && !name.is_null()
            {
                // SAFETY: as above.
                let name = unsafe { driver::text(name, NAME_MAX) };
                let mut buffer = [0; NAME_MAX];
                let recorded = recorded(name, &mut buffer);
                let name =
                    recorded.map_or(operators::UNNAMED, |recorded| tables.stack_name(session, recorded));
                if recorded.is_some() && name == operators::UNNAMED {
                    // The table of names is full: the operator is in no stack.
                    session.count(Counter::StacksFull, 1);
                }
                operators::begin(record as u64, name, session.generation);
            }
        });
    }
    kept
}

/// An operator ends.
unsafe extern "C" fn end(record: *const c_void, _: *mut c_void) {
    operators::end(record as u64);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_count_have_one_name() {
        for (name, expected) in [
            ("step 17", "step #"),
            ("ProfilerStep#3", "ProfilerStep#"),
            ("1 of 20", "# of #"),
            ("Optimizer.step#Adam.step", "Optimizer.step#Adam.step"),
            ("", ""),
        ] {
            assert_eq!(without_numbers(name.as_bytes(), &mut [0; NAME_MAX]), expected.as_bytes());
        }
        assert_eq!(without_numbers(&[b'x'; 2 * NAME_MAX], &mut [0; NAME_MAX]).len(), NAME_MAX);
    }
}
