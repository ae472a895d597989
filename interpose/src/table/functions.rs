//! Functions and the modules that they are in: the part of [`Tables`] about them.

use core::sync::atomic::Ordering;

use gputrace_producer::handles::key_of;
use gputrace_producer::session::Session;
use gputrace_producer::stderr::KeepErrno;
use gputrace_wire::counter::Counter;
use gputrace_wire::definition::{self, kind};

use crate::symbols::driver::{self, Handle, SUCCESS};
use crate::table::tables::Tables;

/// Limit for modules' line tables, so that other definitions keep their share of the space. A Triton kernel
/// has a few hundred bytes.
const LINES_BYTES_MAX: u64 = 8 << 20;

impl Tables {
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
        // Threads that begin together launch the same kernel at once, and the one that defines it may be
        // long about it. The others' launches have the kernel's name all the same.
        let id = self.functions.get_or_define_now(handle as u64, || {
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
            if table.get(function as u64).is_none()
                && let Some(id) = table.get(kernel as u64)
            {
                table.get_or_define(function as u64, || id);
            }
        }
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
}

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
