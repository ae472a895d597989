//! The interpreter in this process, and the calling thread's state in it.
//!
//! The interpreter is found by its exported symbols, in the program or in a library, whenever one is
//! mapped. Of several runtimes in one process the first one found is read; of one runtime all interpreters
//! are read.

use core::cell::Cell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::io::Write as _;

use gputrace_producer::memory;
use gputrace_producer::own_static;
use gputrace_producer::session::Session;
use gputrace_producer::stderr::KeepErrno;

use super::accessor::{self, Accessor};
use super::check::{self, Verdict};
use super::layout::{Layout, debug_offsets};
use super::lives;
use super::memory::{Checked, Memory, is_plausible};
use super::thread_key::KnownKey;
use super::walk::Types;
use crate::native::surroundings;

type ThreadStateGetter = unsafe extern "C" fn() -> *mut c_void;
type Answer = unsafe extern "C" fn() -> c_int;

/// The first version whose "current thread state" belongs to the calling thread or is null. In earlier
/// versions it belongs to the thread that holds the GIL.
const OWN_CURRENT_SINCE: u8 = 12;

/// The first version that may have a thread-local instead of a key, so that another library's key could be
/// taken for its.
const KEY_UNTIL: u8 = 14;

/// What each stack needs comes first, in one cache line.
#[repr(C, align(64))]
pub struct Runtime {
    /// The address of what `is_initialized` returns; 0 if that is not known.
    initialized_at: u64,
    pub layout: Layout,
    is_initialized: Answer,
    /// The state with which the thread runs Python now.
    current: ThreadStateGetter,
    /// The state that the thread has, whether it runs Python or has released the GIL.
    kept: ThreadStateGetter,
    newest_interpreter: ThreadStateGetter,
    main_interpreter: ThreadStateGetter,
    verdict: AtomicU32,
    /// `PY_VERSION_HEX`.
    pub version: u32,
    pub types: Types,
    /// The type of contexts of context variables.
    pub context_type: u64,
    /// What `current` reads, if that is known.
    current_variable: Option<Accessor>,
    /// The address of the key that `kept` asks for, if that is known.
    kept_key: Option<u64>,
}

/// Where a thread's state was found, so that it is found again without calls of the interpreter. Known only
/// of interpreters that are trusted.
#[derive(Clone, Copy, Debug)]
pub struct KnownThread {
    /// The address of what `current` returns on this thread; 0 if that is not known.
    current_at: u64,
    /// The kept state, and the key under which the interpreter stores it for the thread.
    kept: u64,
    key: KnownKey,
    is_searched: bool,
}

mod verdict {
    pub const OPEN: u32 = 0;
    pub const GOOD: u32 = 1;
    pub const BAD: u32 = 2;
}

#[unsafe(link_section = "gputrace_hot")]
static CURRENT: AtomicPtr<Runtime> = AtomicPtr::new(core::ptr::null_mut());

/// The result of a search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RuntimeSearch {
    Nothing,
    /// An interpreter that is read from now on.
    Known,
    /// An interpreter of an unknown version, with its `PY_VERSION_HEX`.
    Unknown(u32),
}

/// The interpreter that was found.
#[inline(always)]
pub fn current() -> Option<&'static Runtime> {
    let runtime = own_static!(CURRENT).load(Ordering::Acquire);
    // SAFETY: the pointer is null, or points to a runtime that was written completely before it was stored
    // (Release in `keep`) and is never freed.
    unsafe { runtime.as_ref() }
}

/// The interpreter and the calling thread's state in it, if its frames are asked for and can be read.
#[inline(always)]
pub fn of_this_thread(session: &Session) -> Option<(&'static Runtime, u64)> {
    if !session.hook_state().has_python() {
        return None;
    }
    let runtime = current()?;
    let state = runtime.thread_state();
    (state != 0 && runtime.is_trusted(session, state)).then_some((runtime, state))
}

/// The same, where the thread's state is probably known, and frames are asked for.
#[inline(always)]
pub fn of_known_thread(session: &Session, known: &Cell<KnownThread>) -> Option<(&'static Runtime, u64)> {
    let runtime = current()?;
    let state = match runtime.known_state(known) {
        Some(state) => state,
        None => runtime.search_state(session, known),
    };
    (state != 0).then_some((runtime, state))
}

/// Searches for an interpreter; `symbol` looks up an exported symbol in everything that is mapped.
pub fn find(symbol: impl Fn(&CStr) -> *mut c_void) -> RuntimeSearch {
    if current().is_some() {
        return RuntimeSearch::Known;
    }
    let Some(version) = version(&symbol) else { return RuntimeSearch::Nothing };
    if describe(&symbol, version).is_some_and(keep) {
        RuntimeSearch::Known
    } else {
        RuntimeSearch::Unknown(version)
    }
}

fn keep(runtime: Runtime) -> bool {
    let Some(mapped) = memory::map_bytes(size_of::<Runtime>()) else { return false };
    let mapped = mapped.cast::<Runtime>();
    // SAFETY: the mapping is large enough, page-aligned, ours alone, and never unmapped.
    unsafe { mapped.write(runtime) };
    CURRENT.store(mapped, Ordering::Release);
    true
}

fn version(symbol: &impl Fn(&CStr) -> *mut c_void) -> Option<u32> {
    let version = symbol(c"Py_Version");
    if !version.is_null() {
        // SAFETY: CPython's `const unsigned long Py_Version`, from 3.11.
        return u32::try_from(unsafe { *version.cast::<core::ffi::c_ulong>() }).ok();
    }
    let asked = symbol(c"Py_GetVersion");
    if asked.is_null() {
        return None;
    }
    // SAFETY: CPython's function of that type; it may be called at any time, and writes the same
    // text to a static place each time.
    let text = unsafe {
        let text = core::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> *const c_char>(asked)();
        if text.is_null() {
            return None;
        }
        CStr::from_ptr(text).to_bytes()
    };
    let mut parts = text.split(|byte| !byte.is_ascii_digit()).map(|digits| {
        digits.iter().take(3).fold(0u32, |number, digit| number * 10 + u32::from(digit - b'0')) & 0xff
    });
    Some(parts.next()? << 24 | parts.next()? << 16 | parts.next()? << 8 | 0xf0)
}

fn describe(symbol: &impl Fn(&CStr) -> *mut c_void, version: u32) -> Option<Runtime> {
    if version >> 24 != 3 {
        return None;
    }
    let minor = (version >> 16) as u8;
    let layout = if minor < 13 {
        Layout::of_minor(minor)?
    } else {
        let layout = debug_offsets::read(&Checked::new(), symbol(c"_PyRuntime") as u64)?;
        Some(layout).filter(|layout| layout.minor == minor)?
    };
    let function = |name: &CStr| Some(symbol(name)).filter(|found| !found.is_null());
    let state = |name: &CStr| -> Option<ThreadStateGetter> {
        // SAFETY: CPython's functions of these names take nothing and return a pointer.
        Some(unsafe { core::mem::transmute::<*mut c_void, ThreadStateGetter>(function(name)?) })
    };
    let is_initialized = function(c"Py_IsInitialized")?;
    let types = [c"PyCode_Type", c"PyUnicode_Type", c"PyBytes_Type"].map(|name| symbol(name) as u64);
    let [code, text, bytes] = types;
    if types.iter().any(|found| !is_plausible(*found)) {
        return None;
    }
    // Without this type no context can be recognised.
    let context_type = symbol(c"PyContext_Type") as u64;
    let read = |name: &CStr| accessor::read(&Checked::new(), symbol(name) as u64);
    let current_names = [c"_PyThreadState_UncheckedGet", c"PyThreadState_GetUnchecked"];
    let initialized_at = match read(c"Py_IsInitialized") {
        Some(Accessor::Static(at)) => at,
        _ => 0,
    };
    let runtime = Runtime {
        layout,
        context_type,
        initialized_at,
        current_variable: current_names.into_iter().find_map(read),
        kept_key: accessor::read_key(&Checked::new(), symbol(c"PyGILState_GetThisThreadState") as u64),
        types: Types { code, text, bytes },
        version,
        // SAFETY: CPython's `int Py_IsInitialized(void)`.
        is_initialized: unsafe { core::mem::transmute::<*mut c_void, Answer>(is_initialized) },
        current: state(c"_PyThreadState_UncheckedGet").or_else(|| state(c"PyThreadState_GetUnchecked"))?,
        kept: state(c"PyGILState_GetThisThreadState")?,
        newest_interpreter: state(c"PyInterpreterState_Head")?,
        main_interpreter: state(c"PyInterpreterState_Main")?,
        verdict: AtomicU32::new(verdict::OPEN),
    };
    // Last, for the interpreter that is used. If this fails, code objects are identified by the
    // interpreter's versions or by their contents.
    lives::begin(&Checked::new(), &runtime.layout, code);
    Some(runtime)
}

impl Runtime {
    /// The calling thread's state; 0 if it has none, and once the interpreter ends.
    #[inline(always)]
    pub fn thread_state(&self) -> u64 {
        // SAFETY: these functions of CPython's read a word or a thread-local and need no GIL.
        unsafe {
            // Finalisation sets this to zero before it touches other threads' states.
            if (self.is_initialized)() == 0 {
                return 0;
            }
            if self.layout.minor >= OWN_CURRENT_SINCE {
                let current = (self.current)() as u64;
                return if current != 0 { current } else { (self.kept)() as u64 };
            }
            let kept = (self.kept)() as u64;
            // With one interpreter a thread has one state.
            if (self.newest_interpreter)() == (self.main_interpreter)() {
                kept
            } else {
                self.of_several(kept)
            }
        }
    }

    /// What [`thread_state`](Runtime::thread_state) returns, unless it must be asked.
    #[inline(always)]
    fn known_state(&self, known: &Cell<KnownThread>) -> Option<u64> {
        self.state_if_held(known, KnownKey::holds)
    }

    /// The same, if it can be found without calling anything.
    #[inline(always)]
    pub fn readable_state(&self, known: &Cell<KnownThread>) -> Option<u64> {
        self.state_if_held(known, KnownKey::is_read_to_hold)
    }

    /// The state that the thread runs Python with, or the kept one if `holds` says that its key has it;
    /// `None` if neither is known, or the interpreter begins or ends.
    #[inline(always)]
    fn state_if_held(
        &self,
        known: &Cell<KnownThread>,
        holds: impl FnOnce(KnownKey, u64) -> bool,
    ) -> Option<u64> {
        let thread = known.get();
        if thread.current_at == 0 {
            return None;
        }
        // SAFETY: `search_state` found the addresses: the interpreter's static, and its thread-local of this
        // thread. The interpreter's library stays mapped.
        let (is_initialized, current) = unsafe {
            (
                (*(self.initialized_at as *const AtomicU32)).load(Ordering::Relaxed) != 0,
                (*(thread.current_at as *const AtomicU64)).load(Ordering::Relaxed),
            )
        };
        if !is_initialized || current == 0 && !holds(thread.key, thread.kept) {
            return None;
        }
        Some(if current == 0 { thread.kept } else { current })
    }

    /// Asks the interpreter, and finds out where its answers are. 0 as of `thread_state`, or if the
    /// interpreter is not trusted.
    #[cold]
    #[inline(never)]
    fn search_state(&self, session: &Session, known: &Cell<KnownThread>) -> u64 {
        let _errno = KeepErrno::new();
        let state = self.thread_state();
        if state == 0 || !self.is_trusted(session, state) {
            return 0;
        }
        let mut thread = known.get();
        if self.layout.minor < OWN_CURRENT_SINCE || thread.current_at == 0 && thread.is_searched {
            return state;
        }
        // SAFETY: as in `thread_state`.
        let (current, kept) = unsafe { ((self.current)() as u64, (self.kept)() as u64) };
        if let Some(variable) =
            self.current_variable.filter(|_| !thread.is_searched && self.initialized_at != 0)
        {
            // SAFETY: read from the interpreter's own function, which was just called on this thread.
            let at = unsafe { variable.address() };
            let memory = Checked::new();
            // The interpreter is initialized.
            if memory.half(self.initialized_at, 0) == Some(1) && memory.word(at, 0) == Some(current) {
                thread.current_at = at;
            }
        }
        thread.is_searched = true;
        if kept != thread.kept || thread.key.is_known() && !thread.key.holds(kept) {
            // Other libraries have keys of their own with the same value.
            let own = self.kept_key.and_then(|at| Checked::new().half(at, 0));
            let has_key = own.is_some() || self.layout.minor < KEY_UNTIL;
            let key = if has_key { KnownKey::of_value(kept, own) } else { KnownKey::default() };
            (thread.kept, thread.key) = (kept, key);
        }
        known.set(thread);
        state
    }

    /// With several interpreters, the state that a thread runs with may not be the one registered for it.
    /// The current state may be another thread's, which may be freeing it now.
    #[cold]
    fn of_several(&self, kept: u64) -> u64 {
        let _errno = KeepErrno::new();
        // SAFETY: as in `thread_state`.
        let current = unsafe { (self.current)() } as u64;
        let is_own = current != kept
            && is_plausible(current)
            && Checked::new().word(current, self.layout.thread_id.into()) == Some(own_thread());
        if is_own { current } else { kept }
    }

    /// Whether stacks have the expected layout. Checked before the first stack; a failure is reported.
    #[inline(always)]
    pub fn is_trusted(&self, session: &Session, state: u64) -> bool {
        match self.verdict.load(Ordering::Relaxed) {
            verdict::GOOD => true,
            verdict::BAD => false,
            _ => self.judge(session, state),
        }
    }

    /// Whether this thread decided.
    fn decide(&self, verdict: u32) -> bool {
        let decided =
            self.verdict.compare_exchange(verdict::OPEN, verdict, Ordering::Relaxed, Ordering::Relaxed);
        decided.is_ok()
    }

    #[cold]
    #[inline(never)]
    fn judge(&self, session: &Session, state: u64) -> bool {
        let _errno = KeepErrno::new();
        match check::look(&Checked::new(), &self.layout, &self.types, state, own_thread()) {
            Verdict::Open => false,
            // If another thread was faster, its verdict holds.
            Verdict::Good(layout) if layout == self.layout => {
                self.decide(verdict::GOOD);
                self.verdict.load(Ordering::Relaxed) == verdict::GOOD
            }
            // The next call finds the runtime with the confirmed layout.
            Verdict::Good(layout) => {
                keep(Runtime { layout, verdict: AtomicU32::new(verdict::GOOD), ..*self });
                false
            }
            Verdict::Bad => {
                if self.decide(verdict::BAD) {
                    // Its frames are no longer shown as Python's, so its native frames are.
                    surroundings::interpreter_is_at(0, 0);
                    say_unread(session, self.version, b"is not laid out as its version says");
                }
                false
            }
        }
    }
}

fn own_thread() -> u64 {
    // SAFETY: pthread_self has no preconditions.
    unsafe { libc::pthread_self() }
}

/// Reports that stacks of an interpreter of that version are not read.
pub fn say_unread(session: &Session, version: u32, why: &[u8]) {
    say_of_interpreter(session, b"no Python stacks: ", version, why);
}

/// Reports what is missing for an interpreter of that version.
pub fn say_of_interpreter(session: &Session, what: &[u8], version: u32, why: &[u8]) {
    let mut line = [0u8; 160];
    let mut rest = &mut line[..];
    let [major, minor, micro, _] = version.to_be_bytes();
    // Longer text is cut.
    let _ = rest.write(what);
    let _ = write!(rest, "the interpreter ({major}.{minor}.{micro}) ");
    let _ = rest.write(why);
    let length = 160 - rest.len();
    session.notice(1, 0, line.get(..length).unwrap_or_default());
}
