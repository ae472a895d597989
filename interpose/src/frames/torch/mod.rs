//! PyTorch's backward passes, observed when they begin.
//!
//! `libtorch_python` calls `Engine::execute_with_graph_task` of `libtorch_cpu` by its symbol. Programs in C++
//! call it through the engine's virtual function table, which the loader also fills by symbol. We export
//! that symbol and come first in the global scope, so our function is called instead. It stores the caller's
//! stack with the pass, then jumps to PyTorch's function with the caller's own arguments and return address.
//! So no frame of ours exists while the pass runs, and C++ exceptions take their usual way.
//!
//! The function has had two forms with a name each. Both take the pass as third argument, after the address
//! of the result and the engine. The loader bound the symbol; without us, it would have bound the next
//! definition in the global scope or one in the caller's own scope. That definition is looked up here, once
//! per call site. If PyTorch is linked in a way that bypasses the symbol (RTLD_DEEPBIND, a static link),
//! nothing is stored, and the launches of its threads are recorded without their caller.

pub mod blocks;
mod call_sites;
pub mod operators;
mod original;

use core::arch::naked_asm;
use core::ffi::{CStr, c_void};

use gputrace_callstack::torch::{self, engine, passes};
use gputrace_producer::session;
use gputrace_producer::stderr::KeepErrno;
use gputrace_producer::thread;

use crate::table::tables;

/// A form of the function.
pub struct Form {
    pub symbol: &'static CStr,
    /// Whether nodes contain their own reference count.
    pub counts_within: bool,
}

/// Up to 2.11 and a little later.
const WITH_SHARED_NODES: Form = Form {
    symbol: c"_ZN5torch8autograd6Engine23execute_with_graph_taskERKSt10shared_ptrINS0_9GraphTaskEES2_INS0_4NodeEEONS0_11InputBufferE",
    counts_within: false,
};

/// Up to 2.15 at least.
const WITH_INTRUSIVE_NODES: Form = Form {
    symbol: c"_ZN5torch8autograd6Engine23execute_with_graph_taskERKSt10shared_ptrINS0_9GraphTaskEEN3c1013intrusive_ptrINS0_4NodeENS7_6detail34intrusive_target_default_null_typeIS9_EEEEONS0_11InputBufferE",
    counts_within: true,
};

/// Our own function of that name, if it is one of PyTorch's.
pub fn own(name: &CStr) -> Option<*mut c_void> {
    if name == WITH_SHARED_NODES.symbol {
        Some(execute_with_shared_nodes as *mut c_void)
    } else if name == WITH_INTRUSIVE_NODES.symbol {
        Some(execute_with_intrusive_nodes as *mut c_void)
    } else if name == blocks::SYMBOL {
        Some(blocks::own())
    } else {
        None
    }
}

macro_rules! forward {
    ($function:ident $symbol:literal $begin:ident) => {
        /// # Safety
        /// The same as for PyTorch's function of that name.
        #[cfg_attr(not(test), unsafe(export_name = $symbol))]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $function() {
            naked_asm!(
                ".cfi_startproc",
                // All registers that can hold arguments, except floating point: the function has no such
                // argument.
                "push rdi",
                "push rsi",
                "push rdx",
                "push rcx",
                "push r8",
                "push r9",
                // Keeps the stack aligned.
                "push rax",
                ".cfi_def_cfa_offset 64",
                "mov rdi, rdx",
                "mov rsi, [rsp + 56]",
                "call {begin}",
                "mov r11, rax",
                "pop rax",
                "pop r9",
                "pop r8",
                "pop rcx",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                ".cfi_def_cfa_offset 8",
                "jmp r11",
                ".cfi_endproc",
                begin = sym $begin,
            )
        }
    };
}

forward! {
    execute_with_shared_nodes
    "_ZN5torch8autograd6Engine23execute_with_graph_taskERKSt10shared_ptrINS0_9GraphTaskEES2_INS0_4NodeEEONS0_11InputBufferE"
    begin_with_shared_nodes
}

forward! {
    execute_with_intrusive_nodes
    "_ZN5torch8autograd6Engine23execute_with_graph_taskERKSt10shared_ptrINS0_9GraphTaskEEN3c1013intrusive_ptrINS0_4NodeENS7_6detail34intrusive_target_default_null_typeIS9_EEEEONS0_11InputBufferE"
    begin_with_intrusive_nodes
}

unsafe extern "C" fn begin_with_shared_nodes(pass: *const u64, caller: *const c_void) -> *const c_void {
    // SAFETY: the caller's own arguments.
    unsafe { begin(&WITH_SHARED_NODES, own_of(execute_with_shared_nodes), pass, caller) }
}

unsafe extern "C" fn begin_with_intrusive_nodes(pass: *const u64, caller: *const c_void) -> *const c_void {
    // SAFETY: the caller's own arguments.
    unsafe { begin(&WITH_INTRUSIVE_NODES, own_of(execute_with_intrusive_nodes), pass, caller) }
}

fn own_of(function: unsafe extern "C" fn()) -> *mut c_void {
    function as *mut c_void
}

/// A backward pass begins. Returns PyTorch's function.
///
/// # Safety
/// `pass` is a `shared_ptr` to the pass: the pass's address is its first word.
unsafe fn begin(form: &Form, own: *mut c_void, pass: *const u64, caller: *const c_void) -> *const c_void {
    let _errno = KeepErrno::new();
    let original = original::of(form, own, caller);
    if pass.is_null() {
        return original;
    }
    // SAFETY: the caller's guarantee.
    let pass = unsafe { *pass };
    let session = session::current();
    // Passes are counted even if there is no session.
    if let Some(beginning) = engine::begins(original, session.map(|_| pass))
        && let Some(session) = session
    {
        thread::with(|slot| {
            if let Some(_inside) = slot.enter()
                && let Some(tables) = tables::of(session)
            {
                let (stack, outside) = tables.stack_and_position(session, slot);
                passes::note(pass, beginning, session.generation, stack, outside);
                torch::begins_pass();
            }
        });
    }
    original
}
