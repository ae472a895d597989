//! A session's handles and their definitions.
//!
//! Each session has one set of lock-free tables, in mappings of its own; a forked child's session gets new
//! ones. A handle is defined when it is first seen and forgotten when it is destroyed, before the driver
//! can reuse the address for something else.

use core::ffi::c_int;
use core::mem::size_of;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use gputrace_callstack::active_span::Works;
use gputrace_callstack::native::surroundings;
use gputrace_callstack::stacks::Stacks;
use gputrace_callstack::torch::passes::Outside;
use gputrace_producer::handles::{Handles, key_of};
use gputrace_producer::hook_state::HookState;
use gputrace_producer::memory;
use gputrace_producer::session::Session;
use gputrace_producer::stderr::KeepErrno;
use gputrace_producer::thread::{self, Slot};
use gputrace_producer::{clock, fork};
use gputrace_wire::counted::Counted;
use gputrace_wire::counter::Counter;
use gputrace_wire::definition::{self, kind};

use crate::symbols::driver::{self, Device, Handle, SUCCESS};
use crate::symbols::entry::Entry;
use crate::table::cuda_slot::CudaSlot;
use crate::table::pairs::{Bucket, Launched, Pair, Pairs};

/// Slots for about half as many handles, 16 bytes each. Only touched pages of a table use memory.
const FUNCTION_SLOTS: usize = 1 << 17;
const MODULE_SLOTS: usize = 1 << 14;
const STREAM_SLOTS: usize = 1 << 14;
const CONTEXT_SLOTS: usize = 1 << 10;
const GRAPH_SLOTS: usize = 1 << 17;
const NAME_SLOTS: usize = 1 << 17;
/// Limit for modules' line tables, so that other definitions keep their share of the space. A Triton kernel
/// has a few hundred bytes.
const LINES_BYTES_MAX: u64 = 8 << 20;

/// Returns the number of a graph or an executable graph (if true) in device records; 0 if it is not known.
pub type GraphNumber = fn(Handle, bool) -> u32;

/// What a launch reads comes first, in two cache lines.
#[repr(C, align(64))]
pub struct Tables {
    generation: u32,
    /// Whether CUPTI's records carry registers and shared memory, so that the driver need not be asked.
    has_records: AtomicU32,
    pairs: Pairs,
    functions: Handles,
    streams: Handles,
    /// `None` if there was no memory for them.
    stacks: Option<Stacks>,
    /// The name and the module of each function that a look-up returned.
    function_names: Handles,
    function_modules: Handles,
    /// Which function handles are context-independent kernels (`CUkernel`): 1 if so.
    kernels: Handles,
    modules: Handles,
    contexts: Handles,
    devices: Handles,
    graphs: Handles,
    /// Names, files that could not be loaded, and modules' line tables, by their bytes.
    names: Handles,
    files: Handles,
    lines: Handles,
    /// Bytes written of modules' line tables.
    lines_bytes: AtomicU64,
    graph_number: GraphNumber,
}

/// The tables of that session; `None` before they are made, and between a fork and a new session.
#[inline(always)]
pub fn of(session: &Session) -> Option<&'static Tables> {
    if !session.is_of_process() {
        return None;
    }
    // SAFETY: the pointer is null or to tables that were written whole before it was stored
    // (Release in `make`) and are never freed.
    unsafe { fork::of_process().vendor.load(Ordering::Acquire).cast::<Tables>().as_ref() }
}

/// Makes the tables of a new session.
pub fn make(session: &Session, graph_number: GraphNumber) -> Option<&'static Tables> {
    let tables = Tables {
        generation: session.generation,
        functions: Handles::new(FUNCTION_SLOTS)?,
        function_names: Handles::new(FUNCTION_SLOTS)?,
        function_modules: Handles::new(FUNCTION_SLOTS)?,
        kernels: Handles::new(FUNCTION_SLOTS)?,
        modules: Handles::new(MODULE_SLOTS)?,
        streams: Handles::new(STREAM_SLOTS)?,
        contexts: Handles::new(CONTEXT_SLOTS)?,
        devices: Handles::new(64)?,
        graphs: Handles::new(GRAPH_SLOTS)?,
        names: Handles::new(NAME_SLOTS)?,
        files: Handles::new(MODULE_SLOTS)?,
        lines: Handles::new(MODULE_SLOTS)?,
        lines_bytes: AtomicU64::new(0),
        stacks: Stacks::new(),
        pairs: Pairs::new()?,
        graph_number,
        has_records: AtomicU32::new(0),
    };
    let mapping = memory::map_bytes(size_of::<Tables>())?.cast::<Tables>();
    // SAFETY: the mapping is large enough, page-aligned, ours alone, and never unmapped.
    let tables = unsafe {
        mapping.write(tables);
        &*mapping
    };
    fork::of_process().vendor.store(mapping.cast(), Ordering::Release);
    Some(tables)
}

/// Called when the thread's current context may have changed. The slot keeps the context as one word: the
/// low half is its definition, the high half the session's generation.
pub fn forget_current_context() {
    thread::with(|slot| CudaSlot::of(slot).context.set(0));
}

impl Tables {
    /// Makes the tables of native frames. False if there is no memory for them. One thread at a time calls
    /// this.
    pub fn make_native(&self) -> bool {
        self.stacks.as_ref().is_some_and(Stacks::make_native)
    }

    /// Writes a notice if there was no memory for the tables of stacks.
    pub fn notice_missing_tables(&self, session: &Session) {
        if self.stacks.is_none() || surroundings::is_asked_for() && !self.make_native() {
            session.notice(
                1,
                0,
                b"no stacks, or no native ones: no memory for their tables (RLIMIT_AS too low)",
            );
        }
    }

    pub fn set_has_records(&self, has: bool) {
        self.has_records.store(u32::from(has), Ordering::Relaxed);
    }

    /// Prefetches what the hook reads after the driver returns. Between two calls a program touches more
    /// memory than a core's caches hold, and each cache miss takes longer than all the work of the hook.
    #[inline(always)]
    pub fn expect(&self, slot: &Slot, state: HookState) {
        // The thread's default stream, which most calls use.
        let context = || self.known_current_context(slot).unwrap_or(0);
        self.streams.expect(stream_key(core::ptr::null_mut(), false, context));
        self.expect_entry(slot, state);
    }

    /// The same for a launch whose pair is expected.
    #[inline(always)]
    pub fn expect_entry(&self, slot: &Slot, state: HookState) {
        if !state.records_less()
            && let Some(stacks) = &self.stacks
        {
            stacks.expect(slot, state);
        }
        slot.expect_entry();
    }

    /// The symbol's definition. It is made at the first call.
    #[inline(always)]
    pub fn api(&self, session: &Session, entry: &Entry) -> u32 {
        let known = entry.api.load(Ordering::Relaxed);
        if (known >> 32) as u32 == self.generation { known as u32 } else { self.define_api(session, entry) }
    }

    #[cold]
    #[inline(never)]
    fn define_api(&self, session: &Session, entry: &Entry) -> u32 {
        let id = session.define(kind::API, &[], entry.name().as_bytes());
        // Without room for it, the next call tries again.
        if id != 0 {
            entry.api.store(u64::from(self.generation) << 32 | u64::from(id), Ordering::Relaxed);
        }
        id
    }

    /// The calling thread's current stack; 0 if it is not known.
    #[inline(always)]
    pub fn stack(&self, session: &Session, slot: &Slot) -> u32 {
        self.stack_and_works(session, slot).0
    }

    /// The same, plus the state from which the active span is found.
    #[inline(always)]
    pub fn stack_and_works(&self, session: &Session, slot: &Slot) -> (u32, Works) {
        self.stacks.as_ref().map_or((0, Works::NOT), |stacks| stacks.of_this_thread(session, slot))
    }

    /// The same, plus the thread's position in its frames.
    pub fn stack_and_position(&self, session: &Session, slot: &Slot) -> (u32, Outside) {
        let both = |stacks: &Stacks| (stacks.of_this_thread(session, slot).0, stacks.position(session));
        self.stacks.as_ref().map_or((0, Outside::default()), both)
    }

    /// The definition of a name that is a frame of a stack.
    #[inline(always)]
    pub fn stack_name(&self, session: &Session, name: &[u8]) -> u32 {
        self.stacks.as_ref().map_or(0, |stacks| stacks.name(session, key_of(name), name))
    }

    /// The definition of a name. Each distinct name has one.
    pub fn name(&self, session: &Session, name: &[u8]) -> u32 {
        self.names.get_or_define(key_of(name), || session.define(kind::NAME, &[], name))
    }

    // --- functions and modules

    /// The definition of a launched function. If no look-up saw the function, the driver is asked for its
    /// name.
    #[inline(always)]
    pub fn function(&self, session: &Session, handle: Handle) -> u32 {
        match self.functions.get(handle as u64) {
            // A look-up defines only the name. The first launch adds the driver's attributes of the function,
            // unless device records carry them.
            Some(id) => id,
            None => self.unseen_function(session, handle),
        }
    }

    #[cold]
    #[inline(never)]
    fn unseen_function(&self, session: &Session, handle: Handle) -> u32 {
        let _errno = KeepErrno::new();
        if handle.is_null() {
            return 0;
        }
        let id = self.functions.get_or_define(handle as u64, || {
            // A look-up may have stored the name here for the first launch.
            let known = self.function_names.get(handle as u64);
            let name = known.unwrap_or_else(|| self.asked_name(session, handle));
            let module = self.function_modules.get(handle as u64).unwrap_or(0);
            let is_kernel = self.kernels.get(handle as u64).is_some();
            let asked = if self.has_records.load(Ordering::Relaxed) == 0 && known.is_some() {
                attributes(handle, is_kernel)
            } else {
                [0; 4]
            };
            let [registers, shared, local, threads] = asked;
            let fields = [handle as u64, name.into(), module.into(), registers, shared, local, threads];
            session.define(kind::FUNCTION, &fields, b"")
        });
        if id == 0 {
            session.count(Counter::UnknownHandle, 1);
        }
        id
    }

    /// The driver's name of a function that no look-up saw (CUDA 12.3 and later).
    fn asked_name(&self, session: &Session, handle: Handle) -> u32 {
        let mut name = core::ptr::null();
        if driver::function_name(&mut name, handle) != Some(SUCCESS) || name.is_null() {
            return 0;
        }
        // SAFETY: the driver returned a C string that lives as long as the function's module.
        self.name(session, unsafe { driver::text(name, definition::TEXT_MAX) })
    }

    /// A look-up returned this function. It is defined at its first launch: programs look up thousands and
    /// launch few, and only then is the function certainly loaded.
    pub fn function_found(
        &self,
        session: &Session,
        handle: Handle,
        module: Handle,
        name: &[u8],
        is_kernel: bool,
    ) {
        let name = self.name(session, name);
        let module = self.module(session, module);
        // The same handle has another name, or was launched when no look-up had seen it: its module was
        // unloaded without our hooks seeing it, or may have been.
        let known = self.function_names.get(handle as u64);
        if known != Some(name) && (known.is_some() || self.functions.get(handle as u64).is_some()) {
            self.forget_function(handle as u64);
        }
        self.function_names.get_or_define(handle as u64, || name);
        self.function_modules.get_or_define(handle as u64, || module);
        if is_kernel {
            self.kernels.get_or_define(handle as u64, || 1);
        }
    }

    pub fn function_of_kernel(&self, function: Handle, kernel: Handle) {
        for table in [&self.function_names, &self.function_modules] {
            if let Some(id) = table.get(kernel as u64) {
                table.get_or_define(function as u64, || id);
            }
        }
    }

    /// Takes the launches that were counted since the last time: the definitions of the kernel and of the
    /// stream, and how many.
    pub fn take_launches(&self, each: impl FnMut(u32, u32, u64)) {
        self.pairs.take(each);
    }

    fn forget_function(&self, handle: u64) {
        self.forget_function_alone(handle);
        self.pairs.retire(|function, _| function == handle);
    }

    fn forget_function_alone(&self, handle: u64) {
        for table in [&self.functions, &self.function_names, &self.function_modules, &self.kernels] {
            table.forget(handle);
        }
    }

    fn module(&self, session: &Session, handle: Handle) -> u32 {
        self.modules.get_or_define(handle as u64, || session.define(kind::MODULE, &[handle as u64, 0], b""))
    }

    /// `lines` is the line table of its image: its definition as `module_lines` returns it, and its length.
    pub fn module_loaded(&self, session: &Session, handle: Handle, form: u64, lines: (u32, u64)) -> u32 {
        let fields = [handle as u64, form, lines.0.into(), lines.1];
        self.modules.redefine(handle as u64, || session.define(kind::MODULE, &fields, b""))
    }

    /// The definition of the first chunk of a module's line table; 0 if it is not kept. Modules with equal
    /// tables share one.
    pub fn module_lines(&self, session: &Session, lines: &[u8]) -> u32 {
        if lines.is_empty() {
            return 0;
        }
        let with = |said: u64| said.checked_add(lines.len() as u64).filter(|all| *all <= LINES_BYTES_MAX);
        let first = self.lines.get_or_define(key_of(lines), || {
            if session.definitions_are_half_full()
                || self.lines_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, with).is_err()
            {
                return 0;
            }
            // The last chunk first, so that each chunk can refer to the next.
            let pieces = lines.chunks(definition::TEXT_MAX).rev();
            pieces.fold(0, |more, piece| session.define(kind::LINES, &[more.into()], piece))
        });
        if first == 0 {
            session.count(Counter::DefinitionsFull, 1);
        }
        first
    }

    /// Defines a file that could not be loaded. Each distinct name has one definition.
    pub fn file_not_loaded(&self, session: &Session, path: &[u8], form: u64) -> u32 {
        self.files.get_or_define(key_of(path), || session.define(kind::MODULE, &[0, form], path))
    }

    pub fn module_of_library(&self, session: &Session, module: Handle, library: Handle) {
        let library = self.module(session, library);
        self.modules.redefine(module as u64, || library);
    }

    /// Forgets the module and every function of it.
    pub fn forget_module(&self, handle: Handle) {
        let Some(module) = self.modules.get(handle as u64) else { return };
        self.modules.forget(handle as u64);
        self.function_modules.for_each(|function, of| {
            if of == module {
                self.forget_function_alone(function);
            }
        });
        self.pairs.retire(|function, _| self.functions.get(function).is_none());
    }

    // --- contexts, devices, streams

    /// The context's definition, with its device's.
    pub fn context(&self, session: &Session, handle: Handle, device: Device) -> u32 {
        self.contexts.get_or_define(handle as u64, || {
            let device = self.device(session, device);
            session.define(kind::CONTEXT, &[handle as u64, device.into()], b"")
        })
    }

    pub fn forget_context(&self, handle: Handle) {
        self.contexts.forget(handle as u64);
    }

    pub fn device(&self, session: &Session, device: Device) -> u32 {
        // Ordinals begin at 0, which is no key.
        self.devices.get_or_define(device as u64 + 1, || crate::table::device::define(session, device))
    }

    /// A context that is known already; a name can be given only to a known context or device.
    pub fn known_context(&self, handle: Handle) -> u32 {
        self.contexts.get(handle as u64).unwrap_or(0)
    }

    pub fn known_device(&self, device: Device) -> u32 {
        // The key is the ordinal plus one, as in `device`; a negative ordinal has none.
        u64::try_from(device).ok().and_then(|ordinal| self.devices.get(ordinal + 1)).unwrap_or(0)
    }

    /// The calling thread's current context.
    #[inline(always)]
    fn current_context(&self, session: &Session, slot: &Slot) -> u32 {
        self.known_current_context(slot).unwrap_or_else(|| self.ask_current_context(session, slot))
    }

    /// The same, if it is known without asking the driver.
    #[inline(always)]
    fn known_current_context(&self, slot: &Slot) -> Option<u32> {
        let word = CudaSlot::of(slot).context.get();
        ((word >> 32) as u32 == self.generation).then_some(word as u32)
    }

    #[cold]
    #[inline(never)]
    fn ask_current_context(&self, session: &Session, slot: &Slot) -> u32 {
        let _errno = KeepErrno::new();
        let mut handle = core::ptr::null_mut();
        if driver::current_context(&mut handle) != Some(SUCCESS) || handle.is_null() {
            return 0;
        }
        let id = match self.contexts.get(handle as u64) {
            Some(id) => id,
            None => {
                let mut device: c_int = 0;
                if driver::current_device(&mut device) != Some(SUCCESS) {
                    return 0;
                }
                self.context(session, handle, device)
            }
        };
        CudaSlot::of(slot).context.set(u64::from(id) | u64::from(self.generation) << 32);
        id
    }

    /// The stream's definition. There is one per context for each default stream; the per-thread default
    /// streams of all threads share one.
    #[inline(always)]
    pub fn stream(&self, session: &Session, slot: &Slot, handle: Handle, per_thread: bool) -> u32 {
        let key = stream_key(handle, per_thread, || self.current_context(session, slot));
        match self.streams.get(key) {
            Some(id) => id,
            None => self.define_stream(session, slot, key, handle),
        }
    }

    #[cold]
    #[inline(never)]
    fn define_stream(&self, session: &Session, slot: &Slot, key: u64, handle: Handle) -> u32 {
        let context = self.current_context(session, slot);
        let handle = if key & DEFAULT_STREAM_TAG != 0 { key & 3 } else { handle as u64 };
        self.streams.get_or_define(key, || session.define(kind::STREAM, &[handle, context.into()], b""))
    }

    pub fn stream_created(&self, session: &Session, handle: Handle, flags: u32, priority: c_int) -> u32 {
        let context = thread::with(|slot| self.current_context(session, slot));
        let fields = [handle as u64, context.into(), flags.into(), i64::from(priority).cast_unsigned()];
        self.pairs.retire(|_, stream| stream == handle as u64);
        self.streams.redefine(handle as u64, || session.define(kind::STREAM, &fields, b""))
    }

    pub fn forget_stream(&self, handle: Handle) {
        if handle as u64 > LAST_DEFAULT_STREAM {
            self.streams.forget(handle as u64);
            self.pairs.retire(|_, stream| stream == handle as u64);
        }
    }

    // --- launches of a kernel on a stream

    /// Where the launch's pair of a kernel and a stream is, if it has been launched before.
    #[inline(always)]
    pub fn bucket_of(&self, slot: &Slot, launched: Launched) -> Bucket<'_> {
        // A context that is not known yet is 0 here, which is no context: such a stream has no entry.
        let context = || self.known_current_context(slot).unwrap_or(0);
        let key = stream_key(launched.stream, launched.per_thread, context);
        self.pairs.bucket(launched.function as u64, key)
    }

    /// Gives a launch's pair an entry, if it has none and there is space. `function` is the kernel's
    /// definition.
    #[cold]
    #[inline(never)]
    pub fn meet(&self, session: &Session, slot: &Slot, launched: Launched, function: u32) -> Option<&Pair> {
        let stream = self.stream(session, slot, launched.stream, launched.per_thread);
        let is_default = launched.stream as u64 <= LAST_DEFAULT_STREAM;
        if function == 0 || stream == 0 || is_default && self.current_context(session, slot) == 0 {
            return None;
        }
        // Under its own key by now: the pair may have an entry, made while the thread's context was known.
        let bucket = self.bucket_of(slot, launched);
        bucket.find().or_else(|| self.pairs.insert(bucket, (function, stream)))
    }

    /// Counts a launch of a pair without an entry, and returns its kernel's definition.
    #[cold]
    #[inline(never)]
    pub fn count_first(&self, session: &'static Session, slot: &Slot, launched: Launched) -> u32 {
        let function = self.function(session, launched.function);
        if let Some(pair) = self.meet(session, slot, launched, function) {
            return pair.add();
        }
        // An entry in the ring for this launch alone.
        let stream = self.stream(session, slot, launched.stream, launched.per_thread);
        let ticks = clock::now();
        let counted = Counted { function, begin_ticks: ticks, end_ticks: ticks, launches: 1, stream };
        slot.emit(session, &[counted.to_cell()]);
        function
    }

    // --- graphs

    pub fn graph(&self, session: &Session, handle: Handle, form: u64, source: u32) -> u32 {
        self.graphs.get_or_define(handle as u64, || self.define_graph(session, handle, form, source))
    }

    pub fn graph_made(&self, session: &Session, handle: Handle, form: u64, source: u32) -> u32 {
        self.graphs.redefine(handle as u64, || self.define_graph(session, handle, form, source))
    }

    #[cold]
    fn define_graph(&self, session: &Session, handle: Handle, form: u64, source: u32) -> u32 {
        let number = (self.graph_number)(handle, form == 1);
        session.define(kind::GRAPH, &[handle as u64, form, source.into(), number.into()], b"")
    }

    /// Forgets the graph and returns its definition.
    pub fn forget_graph(&self, handle: Handle) -> u32 {
        let id = self.graphs.get(handle as u64).unwrap_or(0);
        self.graphs.forget(handle as u64);
        id
    }
}

/// The key of a stream in tables. That of a default stream contains its context's definition.
#[inline(always)]
fn stream_key(handle: Handle, per_thread: bool, context: impl FnOnce() -> u32) -> u64 {
    match handle as u64 {
        which @ 0..=LAST_DEFAULT_STREAM => {
            let which = if which == 0 && per_thread { LAST_DEFAULT_STREAM } else { which.max(1) };
            DEFAULT_STREAM_TAG | u64::from(context()) << 2 | which
        }
        key => key,
    }
}

/// `CU_STREAM_PER_THREAD`; `CU_STREAM_LEGACY` is 1 and 0 means either.
const LAST_DEFAULT_STREAM: u64 = 2;
/// Marks the keys of default streams, so that they equal no other stream's key.
const DEFAULT_STREAM_TAG: u64 = 1 << 62;

/// Registers, static shared bytes, local bytes per thread and most threads per block, from the driver.
fn attributes(handle: Handle, is_kernel: bool) -> [u64; 4] {
    let mut function = handle;
    // The driver's query takes functions, so a kernel is first converted to its function.
    if is_kernel && driver::kernel_function(&mut function, handle) != Some(SUCCESS) {
        return [0; 4];
    }
    // CU_FUNC_ATTRIBUTE_NUM_REGS, _SHARED_SIZE_BYTES, _LOCAL_SIZE_BYTES, _MAX_THREADS_PER_BLOCK.
    [4, 1, 3, 0].map(|attribute| {
        let mut value = 0;
        match driver::function_attribute(&mut value, attribute, function) {
            Some(SUCCESS) => u64::try_from(value).unwrap_or(0),
            _ => 0,
        }
    })
}
