//! The blocks of PyTorch's caching allocator (`--memory blocks`).
//!
//! The allocator calls `c10::reportMemoryUsageToProfiler` of `libc10` for each block that it gives out or
//! takes back, with its own totals, for PyTorch's profiler. We export that symbol and come first in the
//! global scope, so our function is called instead. It records the block if blocks are asked for, then jumps
//! to PyTorch's function with the caller's own arguments and return address. The symbol contains the types of
//! the arguments, so a PyTorch with others calls its own function, and no block is recorded.
//!
//! The allocator holds its lock during the call. Another thread may hold the loader's lock and wait for that
//! one (a library that allocates memory of a device while it is loaded), so the loader is not asked here:
//! PyTorch's function is found by [`mapped_images`], or else in the loader's list, once per call site. The
//! allocator of the host's memory calls the same function, while PyTorch's profiler runs; these calls are
//! passed on only.
//!
//! Every program with PyTorch calls this function for every block, whether or not blocks are asked for, and
//! its caches hold other things meanwhile. Where they are not, a known call site goes straight on to
//! PyTorch's function, through one line of data ([`Direct`]).

use core::arch::naked_asm;
use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicU32, Ordering};

use gputrace_producer::session::{self, Session};
use gputrace_producer::stderr::{self, KeepErrno};
use gputrace_producer::{clock, thread};
use gputrace_wire::block::{Block, Blocks};
use gputrace_wire::counter::Counter;

use super::call_sites::{CallSites, Direct};
use crate::process::settings;
use crate::symbols::{libc_symbols, mapped_images};
use crate::table::tables;

/// `void c10::reportMemoryUsageToProfiler(void*, int64_t, size_t, size_t, c10::Device)`, the same from 2.0 to
/// 2.11 at least.
pub const SYMBOL: &CStr = c"_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE";

/// `c10::DeviceType::CUDA`, the low byte of a `c10::Device`; the next byte is the device's number.
const CUDA: u8 = 1;

static CALL_SITES: CallSites = CallSites::new();
/// It is off while blocks are requested.
static DIRECT: Direct = Direct::new();

/// Searches for PyTorch's function that found none. After so many of them a call site gets none for good.
const FAILED_SEARCHES_MAX: u32 = 8;
static FAILED_SEARCHES: AtomicU32 = AtomicU32::new(0);

/// Called at a session's start: reads whether blocks are requested.
pub fn begin_session(session: &'static Session) {
    let asked = settings::get(settings::MEMORY).is_some_and(|value| value == c"blocks");
    DIRECT.set_off(asked, Ordering::Relaxed);
    if asked {
        note(session, Blocks { is_on: true, ticks: 0 });
    }
}

/// Whether blocks are requested, from now on. Called by the service thread only.
pub fn request(session: &'static Session, asked: bool) {
    if are_requested() == asked {
        return;
    }
    if asked {
        // Blocks that are recorded from here on have later times than the note.
        note(session, Blocks { is_on: true, ticks: clock::now() });
        DIRECT.set_off(true, Ordering::Release);
    } else {
        DIRECT.set_off(false, Ordering::Relaxed);
        note(session, Blocks { is_on: false, ticks: clock::now() });
    }
}

pub fn are_requested() -> bool {
    DIRECT.is_off(Ordering::Relaxed)
}

fn note(session: &'static Session, blocks: Blocks) {
    thread::with(|slot| slot.emit(session, &[blocks.to_cell()]));
}

/// # Safety
/// The same as for PyTorch's function of that name.
#[cfg_attr(not(test), unsafe(export_name = "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"))]
#[unsafe(naked)]
pub unsafe extern "C" fn report_memory_usage() {
    naked_asm!(
        ".cfi_startproc",
        // Unless the direct way is off, a known call site takes it. No argument is in these registers.
        "lea r11, [rip + {direct}]",
        "cmp qword ptr [r11], 0",
        "jne 3f",
        "mov rax, [rsp]",
        "cmp rax, [r11 + 16]",
        "je 2f",
        "cmp rax, [r11 + 24]",
        "je 2f",
        "cmp rax, [r11 + 32]",
        "je 2f",
        "cmp rax, [r11 + 40]",
        "je 2f",
        "cmp rax, [r11 + 48]",
        "je 2f",
        "cmp rax, [r11 + 56]",
        "jne 3f",
        "2:",
        "jmp [r11 + 8]",
        "3:",
        // All registers that hold the arguments; there are none in floating point. Five keep the stack
        // aligned.
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        ".cfi_def_cfa_offset 48",
        "mov r9, [rsp + 40]",
        "call {begin}",
        "mov r11, rax",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        ".cfi_def_cfa_offset 8",
        "jmp r11",
        ".cfi_endproc",
        direct = sym DIRECT,
        begin = sym begin,
    )
}

/// Records a block. Returns PyTorch's function.
unsafe extern "C" fn begin(
    address: u64,
    bytes: i64,
    allocated_bytes: u64,
    reserved_bytes: u64,
    device: u64,
    caller: *const c_void,
) -> *const c_void {
    let _errno = KeepErrno::new();
    let [kind, number, ..] = device.to_le_bytes();
    if kind == CUDA
        && DIRECT.is_off(Ordering::Acquire)
        && let Some(session) = session::current()
    {
        let device = number.into();
        record(
            session,
            Block { device, ticks: 0, allocated_bytes, stack: 0, reserved_bytes, bytes, address },
        );
    }
    CALL_SITES.known(caller).unwrap_or_else(|| first_sight(caller))
}

#[inline(never)]
fn record(session: &'static Session, block: Block) {
    thread::with(|slot| {
        let Some(_inside) = slot.enter() else {
            return session.count(Counter::Nested, 1);
        };
        let Some(tables) = tables::of(session) else { return session.count(Counter::BeforeSession, 1) };
        let is_sampled = slot.samples_cost();
        let ticks = clock::now();
        let stack = if block.bytes > 0 { tables.stack(session, slot) } else { 0 };
        // Other threads may need the allocator's lock, which this one holds.
        slot.without_waiting(|| _ = slot.emit(session, &[Block { ticks, stack, ..block }.to_cell()]));
        if is_sampled {
            slot.add_cost(clock::now().wrapping_sub(ticks));
        }
    });
}

/// PyTorch's function, as the loader would have bound it for the caller.
#[cold]
#[inline(never)]
fn first_sight(caller: *const c_void) -> *const c_void {
    let found = search(caller).unwrap_or_else(|why| {
        let before = FAILED_SEARCHES.fetch_add(1, Ordering::Relaxed);
        if before + 1 == FAILED_SEARCHES_MAX {
            stderr::line(&[b"PyTorch's profiler gets no memory events: ", why]);
        }
        nothing as *mut c_void
    });
    // Another search may find it: the loader may have been changing its list.
    if found != nothing as *mut c_void || FAILED_SEARCHES.load(Ordering::Relaxed) >= FAILED_SEARCHES_MAX {
        CALL_SITES.keep(caller, found);
        DIRECT.keep(caller, found);
    }
    found
}

/// PyTorch's function, or why it is not known.
fn search(caller: *const c_void) -> Result<*mut c_void, &'static [u8]> {
    // SAFETY: the calling thread returns to the caller's library, which is bound to a library of PyTorch's
    // that it depends on.
    let mapped =
        unsafe { mapped_images::function_behind(caller, SYMBOL, |file| file.starts_with(b"libc10.so")) };
    if !mapped.is_null() && mapped != own() {
        return Ok(mapped);
    }
    // Without a free descriptor there is no list of mappings; and a file that was opened by a link has
    // another name there, while the loader's list has the link's. PyTorch is never unloaded.
    match libc_symbols::in_listed(SYMBOL, |file| file.starts_with(b"libc10")) {
        (1, found) if found != own() => Ok(found),
        (0 | 1, _) => Err(b"no library whose name begins with libc10 has their function"),
        _ => Err(b"several libraries whose names begin with libc10 have their function"),
    }
}

/// Our own function of that name.
pub fn own() -> *mut c_void {
    report_memory_usage as *mut c_void
}

/// Called where there is no function of PyTorch's.
extern "C" fn nothing() {}
