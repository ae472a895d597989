//! The one table of hooked driver functions.
//!
//! A row is a function by its base name and one signature, the symbols that export it with that signature
//! (each with the CUDA version from which `cuGetProcAddress` returns it), and the description of a call. A
//! row of a function that destroys also says what to forget before the call and may keep until after it.
//! `launch` names the kernel and the stream of a launch, which may be all that is counted of it. `fails`
//! marks a function that is recorded only if it fails, `node` one that adds a node to a graph. From each
//! symbol the macro makes the export, the typed call of the original and the [`Entry`] that look-ups and
//! tests read. Adding a function anywhere else is a defect.
//!
//! Left out on purpose: the 32-bit ABIs from before CUDA 3.2 (`cuMemcpyHtoD` without `_v2` and the like).
//! No 64-bit program built since 2010 asks for them; they pass through unhooked.
//! Versions and symbols are from `cupti-sys/facts/driver_abi.txt`; a test compares.

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU64};

use cupti_sys::driver::{
    CUDA_ARRAY3D_DESCRIPTOR_v2 as CUDA_ARRAY3D_DESCRIPTOR,
    CUDA_MEM_ALLOC_NODE_PARAMS_v1 as CUDA_MEM_ALLOC_NODE_PARAMS, CUDA_MEMCPY2D_v2 as CUDA_MEMCPY2D,
    CUDA_MEMCPY3D_PEER_v1 as CUDA_MEMCPY3D_PEER, CUDA_MEMCPY3D_v2 as CUDA_MEMCPY3D, CUlaunchConfig,
    CUmemPoolProps_v1 as CUmemPoolProps,
};
use gputrace_wire::call::{direction as dir, memory as mem, operation as op, wait};

use crate::cupti::{self, instantiation, whole_kind};
use crate::describe::{array, context, copy, fill, graph, launch, memory, module, pool, sync};
use crate::hook::capture;
use crate::hook::description::{Context, Description, Sizes};
use crate::hook::launch_frame::Frame;
use crate::hook::{around_launch, launch as launch_steps, paused_launch, plain_launch, steps};
use crate::lifecycle::device_times::DEVICE_TIMES;
use crate::lifecycle::start;
use crate::resolve::proc_address;
use crate::symbols::driver::{Device, DevicePointer, ERROR_STUB_LIBRARY, Handle, Status};
use crate::symbols::entry::{self, Entry, hash, only_waits};
use crate::symbols::originals;

/// The entry that exports this symbol.
pub fn by_symbol(name: &[u8]) -> Option<&'static Entry> {
    let wanted = hash(name);
    ENTRIES.iter().find(|entry| entry.hash == wanted && entry.name().as_bytes() == name)
}

/// Handles a hooked call that returned while there was no session. After `cuInit` it links the layers. A
/// constructor of ours would be too late: another library's may run earlier and call `cuInit`.
#[cold]
fn without_session(entry: &'static Entry, was_starting: bool, status: Status) -> Status {
    static TABLE: &[Entry] = &ENTRIES;
    if entry.hash == start::INIT {
        entry::TABLE.set(&TABLE);
        DEVICE_TIMES.set(&cupti::DEVICE_TIMES);
        capture::SWITCH.set(&cupti::pause::SWITCH);
    }
    start::without_session(entry, was_starting, status)
}

macro_rules! hooks {
    ($($base:ident $args:tt => $body:tt [$($symbol:ident $since:literal $flavour:ident),+])*) => {
        /// The index of every symbol in [`ENTRIES`].
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        #[repr(usize)]
        enum Index { $($($symbol),+),*, cuGetProcAddress, cuGetProcAddress_v2, COUNT }

        pub static ENTRIES: [Entry; Index::COUNT as usize] = [
            $($(hooks!(@entry $base $symbol $since $flavour)),+),*,
            hooks!(@entry cuGetProcAddress cuGetProcAddress 11030 legacy),
            hooks!(@entry cuGetProcAddress cuGetProcAddress_v2 12000 legacy),
        ];

        $($(hooks!(@export $symbol $flavour $args $body);)+)*
    };
    (@entry $base:ident $symbol:ident $since:literal $flavour:ident) => {
        Entry {
            base: stringify!($base),
            symbol: concat!(stringify!($symbol), "\0"),
            since: $since,
            per_thread: hooks!(@per_thread $flavour),
            only_waits: only_waits(stringify!($base)),
            hook: || $symbol as *mut c_void,
            hash: hash(stringify!($symbol).as_bytes()),
            original: AtomicPtr::new(core::ptr::null_mut()),
            api: AtomicU64::new(0),
        }
    };
    (@export $symbol:ident $flavour:ident $args:tt (before let $kept:ident = $before:expr; |$cx:ident| $description:expr)) => {
        hooks!(@function $symbol $args ($kept = $before) |$cx| $description);
    };
    (@export $symbol:ident $flavour:ident $args:tt (before $before:expr; |$cx:ident| $description:expr)) => {
        hooks!(@function $symbol $args (_ = $before) |$cx| $description);
    };
    (@export $symbol:ident $flavour:ident $args:tt (launch ($of:ident, $stream:expr); $sizes:expr)) => {
        hooks!(@launch $symbol $flavour $args ($of, $stream) $sizes);
    };
    // The typed call of the original.
    (@call ($($arg:ident: $type:ty),*)) => {
        #[derive(Clone, Copy)]
        struct Call(*mut c_void, $($type),*);
        impl steps::DriverCall for Call {
            #[inline(always)]
            fn call(self) -> Status {
                let Call(original, $($arg),*) = self;
                // SAFETY: the address is the driver's function of that name, which has this signature;
                // the arguments are the caller's own.
                unsafe {
                    core::mem::transmute::<*mut c_void, unsafe extern "C-unwind" fn($($type),*) -> Status>(
                        original,
                    )($($arg),*)
                }
            }
        }
    };
    (@entry_of $symbol:ident) => {{
        #[allow(clippy::indexing_slicing)]
        let entry: &'static Entry = &ENTRIES[const { Index::$symbol as usize }];
        entry
    }};
    // A launch: its hook is written in instructions, and has functions around the driver's.
    (@launch $symbol:ident $flavour:ident ($($arg:ident: $type:ty),*) ($of:ident, $stream:expr) $sizes:expr) => {
        // The steps of a plain launch rely on it: a symbol that launches is defined before.
        const _: () = assert!(entry::launches_kernels(stringify!($symbol)));

        // What a launch runs through lies together, in one page. A section has the largest alignment of its
        // parts, so that the empty part made here, behind the functions, aligns all of it to a page.
        core::arch::global_asm!(
            concat!(".pushsection .text.hot.hooks.", stringify!($symbol), ", \"ax\", @progbits"),
            ".subsection 1",
            ".p2align 12",
            ".popsection",
        );

        /// # Safety
        /// The same as for the driver's function of that name: the caller's arguments are passed on
        /// unchanged.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        #[unsafe(link_section = concat!(".text.hot.hooks.", stringify!($symbol)))]
        pub unsafe extern "C-unwind" fn $symbol($($arg: $type),*) -> Status {
            around_launch::hook!(
                size_of::<Entry>() * Index::$symbol as usize,
                ENTRIES,
                [$(stringify!($arg)),*].len(),
                $symbol
            )
        }

        mod $symbol {
            use super::*;

            hooks!(@call ($($arg: $type),*));
            #[allow(unused_variables)]
            impl launch_steps::LaunchCall for Call {
                const PER_THREAD: bool = hooks!(@per_thread $flavour);

                #[inline(always)]
                fn launched(self) -> (Handle, Handle) {
                    let Call(_, $($arg),*) = self;
                    ($of, $stream)
                }
                #[inline(always)]
                fn sizes(self) -> Sizes {
                    let Call(_, $($arg),*) = self;
                    $sizes
                }
                #[inline(always)]
                unsafe fn of(frame: Frame) -> Call {
                    let mut arguments = frame.arguments();
                    // SAFETY: the arguments of this function, in their order.
                    unsafe {
                        $(let $arg: $type = arguments.next();)*
                        Call(core::ptr::null_mut(), $($arg),*)
                    }
                }
            }

            /// Called before a launch that may be plain.
            ///
            /// # Safety
            /// The frame is that of this function's hook.
            #[unsafe(link_section = concat!(".text.hot.hooks.", stringify!($symbol)))]
            pub unsafe extern "C" fn plain_begin(frame: Frame) -> *mut c_void {
                // SAFETY: the caller's frame.
                unsafe { plain_launch::begin::<Call>(frame, hooks!(@entry_of $symbol)) }
            }

            /// Called after it.
            ///
            /// # Safety
            /// The frame is that of this function's hook.
            #[unsafe(link_section = concat!(".text.hot.hooks.", stringify!($symbol)))]
            pub unsafe extern "C" fn plain_end(frame: Frame, status: Status) -> Status {
                // SAFETY: the caller's frame.
                unsafe { plain_launch::end::<Call>(frame, status, hooks!(@entry_of $symbol)) }
            }

            /// Called after a launch that was to be plain and is not.
            ///
            /// # Safety
            /// The same as for the driver's function of that name.
            #[cold]
            pub unsafe extern "C-unwind" fn not_plain($($arg: $type),*) -> Status {
                launch_steps::not_plain(hooks!(@entry_of $symbol), Call(core::ptr::null_mut(), $($arg),*))
            }

            /// Called after a launch of a paused session that failed, or during which the session went on.
            ///
            /// # Safety
            /// The same as for the driver's function of that name.
            #[cold]
            pub unsafe extern "C-unwind" fn paused($($arg: $type),*) -> Status {
                paused_launch::record(hooks!(@entry_of $symbol), Call(core::ptr::null_mut(), $($arg),*))
            }

            /// Called instead of the driver's function, for a launch that is neither plain nor paused.
            ///
            /// # Safety
            /// The same as for the driver's function of that name.
            pub unsafe extern "C-unwind" fn otherwise($($arg: $type),*) -> Status {
                let entry = hooks!(@entry_of $symbol);
                let original = originals::of(entry);
                if original.is_null() {
                    return ERROR_STUB_LIBRARY;
                }
                launch_steps::otherwise(entry, without_session, Call(original, $($arg),*))
            }
        }
    };
    (@export $symbol:ident $flavour:ident $args:tt (|$cx:ident| $description:expr)) => {
        hooks!(@function $symbol $args (_ = ()) |$cx| $description);
    };
    (@export $symbol:ident $flavour:ident $args:tt (fails |$cx:ident| $description:expr)) => {
        hooks!(@function $symbol $args (_ = ()) (steps around_failure) |$cx| $description);
    };
    (@export $symbol:ident $flavour:ident $args:tt (before $before:expr; fails |$cx:ident| $description:expr)) => {
        hooks!(@function $symbol $args (_ = $before) (steps around_failure) |$cx| $description);
    };
    (@export $symbol:ident $flavour:ident ($out:ident: $of:ty, $graph:ident: $handle:ty, $($more:tt)*) node) => {
        hooks!(@export $symbol $flavour ($out: $of, $graph: $handle, $($more)*)
            (|cx| graph::node_added(cx, $graph, core::ptr::null_mut())));
    };
    (@function $symbol:ident $args:tt $before:tt |$cx:ident| $description:expr) => {
        hooks!(@function $symbol $args $before (steps around) |$cx| $description);
    };
    (@function $symbol:ident ($($arg:ident: $type:ty),*) ($kept:pat = $before:expr) $steps:tt |$cx:ident| $description:expr) => {
        /// # Safety
        /// The same as for the driver's function of that name: the caller's arguments are passed on
        /// unchanged.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C-unwind" fn $symbol($($arg: $type),*) -> Status {
            let entry = hooks!(@entry_of $symbol);
            let original = originals::of(entry);
            if original.is_null() {
                return ERROR_STUB_LIBRARY;
            }
            hooks!(@call ($($arg: $type),*));
            let $kept = $before;
            hooks!(@steps $steps ($($arg),*) |$cx| $description, entry, Call(original, $($arg),*))
        }
    };
    (@steps (steps $around:ident) $args:tt |$cx:ident| $description:expr, $entry:expr, $call:expr) => {
        steps::$around($entry, without_session, $call, |$cx: &Context| $description)
    };
    (@per_thread legacy) => { false };
    (@per_thread ptsz) => { true };
    (@per_thread ptds) => { true };
}

/// # Safety
/// The same as for the driver's function of that name.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn cuGetProcAddress(
    symbol: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    flags: u64,
) -> Status {
    #[allow(clippy::indexing_slicing)]
    let original = originals::of(&ENTRIES[Index::cuGetProcAddress as usize]);
    if original.is_null() {
        return ERROR_STUB_LIBRARY;
    }
    type Original = unsafe extern "C-unwind" fn(*const c_char, *mut *mut c_void, c_int, u64) -> Status;
    // SAFETY: the driver's function of that name has this signature; the arguments are the caller's.
    let status =
        unsafe { core::mem::transmute::<*mut c_void, Original>(original)(symbol, function, version, flags) };
    // SAFETY: as the original, which has just used both pointers.
    unsafe { proc_address::replace(&ENTRIES, status, symbol, function, version, flags) };
    status
}

/// # Safety
/// The same as for the driver's function of that name.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn cuGetProcAddress_v2(
    symbol: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    flags: u64,
    found: *mut c_int,
) -> Status {
    #[allow(clippy::indexing_slicing)]
    let original = originals::of(&ENTRIES[Index::cuGetProcAddress_v2 as usize]);
    if original.is_null() {
        return ERROR_STUB_LIBRARY;
    }
    type Original =
        unsafe extern "C-unwind" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> Status;
    // SAFETY: as above.
    let status = unsafe {
        core::mem::transmute::<*mut c_void, Original>(original)(symbol, function, version, flags, found)
    };
    // SAFETY: as above.
    unsafe { proc_address::replace(&ENTRIES, status, symbol, function, version, flags) };
    status
}

#[rustfmt::skip]
hooks! {
    // --- start
    cuInit(flags: c_uint) => (|cx| context::initialised(cx, flags, start::wait))
        [cuInit 2000 legacy]

    // --- launches
    cuLaunchKernel(f: Handle, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint,
                   shared: c_uint, stream: Handle, params: *mut *mut c_void, extra: *mut *mut c_void)
        => (launch (f, stream); launch::sizes([gx, gy, gz], [bx, by, bz], shared))
        [cuLaunchKernel 4000 legacy, cuLaunchKernel_ptsz 7000 ptsz]
    cuLaunchKernelEx(config: *const CUlaunchConfig, f: Handle, params: *mut *mut c_void, extra: *mut *mut c_void)
        => (launch (f, launch::stream_of(config)); launch::sizes_ex(config))
        [cuLaunchKernelEx 11060 legacy, cuLaunchKernelEx_ptsz 11060 ptsz]
    cuLaunchCooperativeKernel(f: Handle, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint,
                              shared: c_uint, stream: Handle, params: *mut *mut c_void)
        => (launch (f, stream); launch::sizes([gx, gy, gz], [bx, by, bz], shared))
        [cuLaunchCooperativeKernel 9000 legacy, cuLaunchCooperativeKernel_ptsz 9000 ptsz]
    cuLaunchCooperativeKernelMultiDevice(list: *mut c_void, devices: c_uint, flags: c_uint)
        => (|cx| launch::multi_device(cx, devices))
        [cuLaunchCooperativeKernelMultiDevice 9000 legacy]
    cuLaunch(f: Handle) => (|cx| Description::of_launch(cx, f, launch::sizes([1, 1, 1], [0, 0, 0], 0), core::ptr::null_mut()))
        [cuLaunch 2000 legacy]
    cuLaunchGrid(f: Handle, width: c_int, height: c_int)
        => (|cx| Description::of_launch(cx, f, launch::sizes([width.cast_unsigned(), height.cast_unsigned(), 1], [0, 0, 0], 0), core::ptr::null_mut()))
        [cuLaunchGrid 2000 legacy]
    cuLaunchGridAsync(f: Handle, width: c_int, height: c_int, stream: Handle)
        => (|cx| Description::of_launch(cx, f, launch::sizes([width.cast_unsigned(), height.cast_unsigned(), 1], [0, 0, 0], 0), stream))
        [cuLaunchGridAsync 2000 legacy]
    cuLaunchHostFunc(stream: Handle, function: Handle, data: *mut c_void)
        => (|cx| sync::on_stream(cx, op::HOST_FUNCTION, stream, function as u64))
        [cuLaunchHostFunc 10000 legacy, cuLaunchHostFunc_ptsz 10000 ptsz]
    cuLaunchHostFunc(stream: Handle, function: Handle, data: *mut c_void, mode: c_uint)
        => (|cx| sync::on_stream(cx, op::HOST_FUNCTION, stream, function as u64))
        [cuLaunchHostFunc_v2 13010 legacy, cuLaunchHostFunc_v2_ptsz 13010 ptsz]
    cuStreamAddCallback(stream: Handle, function: Handle, data: *mut c_void, flags: c_uint)
        => (|cx| sync::on_stream(cx, op::HOST_FUNCTION, stream, function as u64))
        [cuStreamAddCallback 5000 legacy, cuStreamAddCallback_ptsz 7000 ptsz]
    cuGraphLaunch(exec: Handle, stream: Handle) => (before let _launching = whole_kind::launch_begins(); |cx| graph::launch(cx, exec, stream))
        [cuGraphLaunch 10000 legacy, cuGraphLaunch_ptsz 10000 ptsz]

    // --- copies
    cuMemcpy(to: DevicePointer, from: DevicePointer, bytes: usize)
        => (|cx| copy::bytes(cx, dir::UNKNOWN, bytes, None))
        [cuMemcpy 4000 legacy, cuMemcpy_ptds 7000 ptds]
    cuMemcpyAsync(to: DevicePointer, from: DevicePointer, bytes: usize, stream: Handle)
        => (|cx| copy::bytes(cx, dir::UNKNOWN, bytes, Some(stream)))
        [cuMemcpyAsync 4000 legacy, cuMemcpyAsync_ptsz 7000 ptsz]
    cuMemcpyHtoD(to: DevicePointer, from: *const c_void, bytes: usize)
        => (|cx| copy::bytes(cx, dir::HOST_TO_DEVICE, bytes, None))
        [cuMemcpyHtoD_v2 3020 legacy, cuMemcpyHtoD_v2_ptds 7000 ptds]
    cuMemcpyHtoDAsync(to: DevicePointer, from: *const c_void, bytes: usize, stream: Handle)
        => (|cx| copy::bytes(cx, dir::HOST_TO_DEVICE, bytes, Some(stream)))
        [cuMemcpyHtoDAsync_v2 3020 legacy, cuMemcpyHtoDAsync_v2_ptsz 7000 ptsz]
    cuMemcpyDtoH(to: *mut c_void, from: DevicePointer, bytes: usize)
        => (|cx| copy::bytes(cx, dir::DEVICE_TO_HOST, bytes, None))
        [cuMemcpyDtoH_v2 3020 legacy, cuMemcpyDtoH_v2_ptds 7000 ptds]
    cuMemcpyDtoHAsync(to: *mut c_void, from: DevicePointer, bytes: usize, stream: Handle)
        => (|cx| copy::bytes(cx, dir::DEVICE_TO_HOST, bytes, Some(stream)))
        [cuMemcpyDtoHAsync_v2 3020 legacy, cuMemcpyDtoHAsync_v2_ptsz 7000 ptsz]
    cuMemcpyDtoD(to: DevicePointer, from: DevicePointer, bytes: usize)
        => (|cx| copy::bytes(cx, dir::DEVICE_TO_DEVICE, bytes, None))
        [cuMemcpyDtoD_v2 3020 legacy, cuMemcpyDtoD_v2_ptds 7000 ptds]
    cuMemcpyDtoDAsync(to: DevicePointer, from: DevicePointer, bytes: usize, stream: Handle)
        => (|cx| copy::bytes(cx, dir::DEVICE_TO_DEVICE, bytes, Some(stream)))
        [cuMemcpyDtoDAsync_v2 3020 legacy, cuMemcpyDtoDAsync_v2_ptsz 7000 ptsz]
    cuMemcpyPeer(to: DevicePointer, to_context: Handle, from: DevicePointer, from_context: Handle, bytes: usize)
        => (|cx| copy::bytes(cx, dir::PEER, bytes, None))
        [cuMemcpyPeer 4000 legacy, cuMemcpyPeer_ptds 7000 ptds]
    cuMemcpyPeerAsync(to: DevicePointer, to_context: Handle, from: DevicePointer, from_context: Handle, bytes: usize, stream: Handle)
        => (|cx| copy::bytes(cx, dir::PEER, bytes, Some(stream)))
        [cuMemcpyPeerAsync 4000 legacy, cuMemcpyPeerAsync_ptsz 7000 ptsz]
    cuMemcpyDtoA(to: Handle, to_offset: usize, from: DevicePointer, bytes: usize)
        => (|cx| copy::bytes(cx, dir::DEVICE_TO_DEVICE, bytes, None))
        [cuMemcpyDtoA_v2 3020 legacy, cuMemcpyDtoA_v2_ptds 7000 ptds]
    cuMemcpyAtoD(to: DevicePointer, from: Handle, from_offset: usize, bytes: usize)
        => (|cx| copy::bytes(cx, dir::DEVICE_TO_DEVICE, bytes, None))
        [cuMemcpyAtoD_v2 3020 legacy, cuMemcpyAtoD_v2_ptds 7000 ptds]
    cuMemcpyHtoA(to: Handle, to_offset: usize, from: *const c_void, bytes: usize)
        => (|cx| copy::bytes(cx, dir::HOST_TO_DEVICE, bytes, None))
        [cuMemcpyHtoA_v2 3020 legacy, cuMemcpyHtoA_v2_ptds 7000 ptds]
    cuMemcpyHtoAAsync(to: Handle, to_offset: usize, from: *const c_void, bytes: usize, stream: Handle)
        => (|cx| copy::bytes(cx, dir::HOST_TO_DEVICE, bytes, Some(stream)))
        [cuMemcpyHtoAAsync_v2 3020 legacy, cuMemcpyHtoAAsync_v2_ptsz 7000 ptsz]
    cuMemcpyAtoH(to: *mut c_void, from: Handle, from_offset: usize, bytes: usize)
        => (|cx| copy::bytes(cx, dir::DEVICE_TO_HOST, bytes, None))
        [cuMemcpyAtoH_v2 3020 legacy, cuMemcpyAtoH_v2_ptds 7000 ptds]
    cuMemcpyAtoHAsync(to: *mut c_void, from: Handle, from_offset: usize, bytes: usize, stream: Handle)
        => (|cx| copy::bytes(cx, dir::DEVICE_TO_HOST, bytes, Some(stream)))
        [cuMemcpyAtoHAsync_v2 3020 legacy, cuMemcpyAtoHAsync_v2_ptsz 7000 ptsz]
    cuMemcpyAtoA(to: Handle, to_offset: usize, from: Handle, from_offset: usize, bytes: usize)
        => (|cx| copy::bytes(cx, dir::DEVICE_TO_DEVICE, bytes, None))
        [cuMemcpyAtoA_v2 3020 legacy, cuMemcpyAtoA_v2_ptds 7000 ptds]
    cuMemcpy2D(what: *const CUDA_MEMCPY2D) => (|cx| copy::two_d(cx, what, None))
        [cuMemcpy2D_v2 3020 legacy, cuMemcpy2D_v2_ptds 7000 ptds]
    cuMemcpy2DUnaligned(what: *const CUDA_MEMCPY2D) => (|cx| copy::two_d(cx, what, None))
        [cuMemcpy2DUnaligned_v2 3020 legacy, cuMemcpy2DUnaligned_v2_ptds 7000 ptds]
    cuMemcpy2DAsync(what: *const CUDA_MEMCPY2D, stream: Handle) => (|cx| copy::two_d(cx, what, Some(stream)))
        [cuMemcpy2DAsync_v2 3020 legacy, cuMemcpy2DAsync_v2_ptsz 7000 ptsz]
    cuMemcpy3D(what: *const CUDA_MEMCPY3D) => (|cx| copy::three_d(cx, what, None))
        [cuMemcpy3D_v2 3020 legacy, cuMemcpy3D_v2_ptds 7000 ptds]
    cuMemcpy3DAsync(what: *const CUDA_MEMCPY3D, stream: Handle) => (|cx| copy::three_d(cx, what, Some(stream)))
        [cuMemcpy3DAsync_v2 3020 legacy, cuMemcpy3DAsync_v2_ptsz 7000 ptsz]
    cuMemcpy3DPeer(what: *const CUDA_MEMCPY3D_PEER) => (|cx| copy::three_d_peer(cx, what, None))
        [cuMemcpy3DPeer 4000 legacy, cuMemcpy3DPeer_ptds 7000 ptds]
    cuMemcpy3DPeerAsync(what: *const CUDA_MEMCPY3D_PEER, stream: Handle) => (|cx| copy::three_d_peer(cx, what, Some(stream)))
        [cuMemcpy3DPeerAsync 4000 legacy, cuMemcpy3DPeerAsync_ptsz 7000 ptsz]
    cuMemcpyBatchAsync(to: *mut DevicePointer, from: *mut DevicePointer, sizes: *mut usize, count: usize, attributes: *mut c_void,
                       indices: *mut usize, attribute_count: usize, failed: *mut usize, stream: Handle)
        => (|cx| copy::batch(cx, sizes, count, stream))
        [cuMemcpyBatchAsync 12080 legacy, cuMemcpyBatchAsync_ptsz 12080 ptsz]
    cuMemcpyBatchAsync(to: *mut DevicePointer, from: *mut DevicePointer, sizes: *mut usize, count: usize, attributes: *mut c_void,
                       indices: *mut usize, attribute_count: usize, stream: Handle)
        => (|cx| copy::batch(cx, sizes, count, stream))
        [cuMemcpyBatchAsync_v2 13000 legacy, cuMemcpyBatchAsync_v2_ptsz 13000 ptsz]
    cuMemcpy3DBatchAsync(count: usize, list: *mut c_void, failed: *mut usize, flags: u64, stream: Handle)
        => (|cx| copy::batch(cx, core::ptr::null(), count, stream))
        [cuMemcpy3DBatchAsync 12080 legacy, cuMemcpy3DBatchAsync_ptsz 12080 ptsz]
    cuMemcpy3DBatchAsync(count: usize, list: *mut c_void, flags: u64, stream: Handle)
        => (|cx| copy::batch(cx, core::ptr::null(), count, stream))
        [cuMemcpy3DBatchAsync_v2 13000 legacy, cuMemcpy3DBatchAsync_v2_ptsz 13000 ptsz]
    cuMemcpyWithAttributesAsync(to: DevicePointer, from: DevicePointer, bytes: usize, attributes: *mut c_void, stream: Handle)
        => (|cx| copy::bytes(cx, dir::UNKNOWN, bytes, Some(stream)))
        [cuMemcpyWithAttributesAsync 13020 legacy, cuMemcpyWithAttributesAsync_ptsz 13020 ptsz]
    cuMemcpy3DWithAttributesAsync(what: *mut c_void, flags: u64, stream: Handle)
        => (|cx| copy::batch(cx, core::ptr::null(), 1, stream))
        [cuMemcpy3DWithAttributesAsync 13020 legacy, cuMemcpy3DWithAttributesAsync_ptsz 13020 ptsz]
    cuMemPrefetchAsync(pointer: DevicePointer, bytes: usize, device: Device, stream: Handle)
        => (|cx| sync::on_stream(cx, op::PREFETCH, stream, bytes as u64))
        [cuMemPrefetchAsync 8000 legacy, cuMemPrefetchAsync_ptsz 8000 ptsz]
    cuMemPrefetchAsync(pointer: DevicePointer, bytes: usize, location: u64, flags: c_uint, stream: Handle)
        => (|cx| sync::on_stream(cx, op::PREFETCH, stream, bytes as u64))
        [cuMemPrefetchAsync_v2 12020 legacy, cuMemPrefetchAsync_v2_ptsz 12020 ptsz]

    // --- fills
    cuMemsetD8(to: DevicePointer, value: u8, count: usize) => (|cx| fill::bytes(cx, u32::from(value), 1, count, 1, None))
        [cuMemsetD8_v2 3020 legacy, cuMemsetD8_v2_ptds 7000 ptds]
    cuMemsetD16(to: DevicePointer, value: u16, count: usize) => (|cx| fill::bytes(cx, u32::from(value), 2, count, 1, None))
        [cuMemsetD16_v2 3020 legacy, cuMemsetD16_v2_ptds 7000 ptds]
    cuMemsetD32(to: DevicePointer, value: c_uint, count: usize) => (|cx| fill::bytes(cx, value, 4, count, 1, None))
        [cuMemsetD32_v2 3020 legacy, cuMemsetD32_v2_ptds 7000 ptds]
    cuMemsetD2D8(to: DevicePointer, pitch: usize, value: u8, width: usize, height: usize)
        => (|cx| fill::bytes(cx, u32::from(value), 1, width, height, None))
        [cuMemsetD2D8_v2 3020 legacy, cuMemsetD2D8_v2_ptds 7000 ptds]
    cuMemsetD2D16(to: DevicePointer, pitch: usize, value: u16, width: usize, height: usize)
        => (|cx| fill::bytes(cx, u32::from(value), 2, width, height, None))
        [cuMemsetD2D16_v2 3020 legacy, cuMemsetD2D16_v2_ptds 7000 ptds]
    cuMemsetD2D32(to: DevicePointer, pitch: usize, value: c_uint, width: usize, height: usize)
        => (|cx| fill::bytes(cx, value, 4, width, height, None))
        [cuMemsetD2D32_v2 3020 legacy, cuMemsetD2D32_v2_ptds 7000 ptds]
    cuMemsetD8Async(to: DevicePointer, value: u8, count: usize, stream: Handle)
        => (|cx| fill::bytes(cx, u32::from(value), 1, count, 1, Some(stream)))
        [cuMemsetD8Async 3020 legacy, cuMemsetD8Async_ptsz 7000 ptsz]
    cuMemsetD16Async(to: DevicePointer, value: u16, count: usize, stream: Handle)
        => (|cx| fill::bytes(cx, u32::from(value), 2, count, 1, Some(stream)))
        [cuMemsetD16Async 3020 legacy, cuMemsetD16Async_ptsz 7000 ptsz]
    cuMemsetD32Async(to: DevicePointer, value: c_uint, count: usize, stream: Handle)
        => (|cx| fill::bytes(cx, value, 4, count, 1, Some(stream)))
        [cuMemsetD32Async 3020 legacy, cuMemsetD32Async_ptsz 7000 ptsz]
    cuMemsetD2D8Async(to: DevicePointer, pitch: usize, value: u8, width: usize, height: usize, stream: Handle)
        => (|cx| fill::bytes(cx, u32::from(value), 1, width, height, Some(stream)))
        [cuMemsetD2D8Async 3020 legacy, cuMemsetD2D8Async_ptsz 7000 ptsz]
    cuMemsetD2D16Async(to: DevicePointer, pitch: usize, value: u16, width: usize, height: usize, stream: Handle)
        => (|cx| fill::bytes(cx, u32::from(value), 2, width, height, Some(stream)))
        [cuMemsetD2D16Async 3020 legacy, cuMemsetD2D16Async_ptsz 7000 ptsz]
    cuMemsetD2D32Async(to: DevicePointer, pitch: usize, value: c_uint, width: usize, height: usize, stream: Handle)
        => (|cx| fill::bytes(cx, value, 4, width, height, Some(stream)))
        [cuMemsetD2D32Async 3020 legacy, cuMemsetD2D32Async_ptsz 7000 ptsz]

    // --- memory
    cuMemAlloc(out: *mut DevicePointer, bytes: usize) => (|cx| memory::allocated(cx, mem::DEVICE, bytes, out, None))
        [cuMemAlloc_v2 3020 legacy]
    cuMemAllocPitch(out: *mut DevicePointer, pitch: *mut usize, width: usize, height: usize, element: c_uint)
        => (|cx| memory::allocated_pitch(cx, pitch, [width, height], out))
        [cuMemAllocPitch_v2 3020 legacy]
    cuMemAllocManaged(out: *mut DevicePointer, bytes: usize, flags: c_uint)
        => (|cx| memory::allocated(cx, mem::MANAGED, bytes, out, None))
        [cuMemAllocManaged 6000 legacy]
    cuMemAllocHost(out: *mut *mut c_void, bytes: usize)
        => (|cx| memory::allocated(cx, mem::PINNED, bytes, out.cast(), None))
        [cuMemAllocHost_v2 3020 legacy]
    cuMemHostAlloc(out: *mut *mut c_void, bytes: usize, flags: c_uint)
        => (|cx| memory::allocated(cx, mem::PINNED, bytes, out.cast(), None))
        [cuMemHostAlloc 2020 legacy]
    cuMemHostRegister(pointer: *mut c_void, bytes: usize, flags: c_uint)
        => (|cx| memory::registered(cx, bytes, pointer as u64))
        [cuMemHostRegister 4000 legacy, cuMemHostRegister_v2 6050 legacy]
    cuMemAllocAsync(out: *mut DevicePointer, bytes: usize, stream: Handle)
        => (|cx| memory::allocated(cx, mem::POOL, bytes, out, Some(stream)))
        [cuMemAllocAsync 11020 legacy, cuMemAllocAsync_ptsz 11020 ptsz]
    cuMemAllocFromPoolAsync(out: *mut DevicePointer, bytes: usize, pool: Handle, stream: Handle)
        => (|cx| pool::allocated_from(cx, mem::POOL, bytes, out, pool, Some(stream)))
        [cuMemAllocFromPoolAsync 11020 legacy, cuMemAllocFromPoolAsync_ptsz 11020 ptsz]
    cuMemCreate(out: *mut u64, bytes: usize, properties: *const memory::Properties, flags: u64)
        => (|cx| memory::created(cx, out, bytes, properties))
        [cuMemCreate 10020 legacy]
    cuMemMap(pointer: DevicePointer, bytes: usize, offset: usize, handle: u64, flags: u64)
        => (|cx| memory::mapped(cx, pointer, bytes, handle))
        [cuMemMap 10020 legacy]
    cuMemUnmap(pointer: DevicePointer, bytes: usize) => (|cx| memory::unmapped(cx, pointer, bytes))
        [cuMemUnmap 10020 legacy]
    cuMemRelease(handle: u64) => (|cx| memory::freed(cx, mem::VIRTUAL, handle, None))
        [cuMemRelease 10020 legacy]
    cuMemFree(pointer: DevicePointer) => (|cx| memory::freed(cx, mem::DEVICE, pointer, None))
        [cuMemFree_v2 3020 legacy]
    cuMemFreeHost(pointer: *mut c_void) => (|cx| memory::freed(cx, mem::PINNED, pointer as u64, None))
        [cuMemFreeHost 2000 legacy]
    cuMemHostUnregister(pointer: *mut c_void) => (|cx| memory::freed(cx, mem::REGISTERED, pointer as u64, None))
        [cuMemHostUnregister 4000 legacy]
    cuMemFreeAsync(pointer: DevicePointer, stream: Handle) => (|cx| memory::freed(cx, mem::POOL, pointer, Some(stream)))
        [cuMemFreeAsync 11020 legacy, cuMemFreeAsync_ptsz 11020 ptsz]
    cuMemRetainAllocationHandle(out: *mut u64, pointer: *mut c_void) => (|cx| memory::retained(cx, out, pointer as u64))
        [cuMemRetainAllocationHandle 11000 legacy]
    cuMemImportFromShareableHandle(out: *mut u64, from: *mut c_void, kind: c_uint) => (|cx| memory::imported(cx, out))
        [cuMemImportFromShareableHandle 10020 legacy]
    cuIpcOpenMemHandle(out: *mut DevicePointer, handle: memory::IpcHandle, flags: c_uint) => (|cx| memory::imported(cx, out))
        [cuIpcOpenMemHandle 4010 legacy, cuIpcOpenMemHandle_v2 11000 legacy]
    cuIpcCloseMemHandle(pointer: DevicePointer) => (|cx| memory::freed(cx, mem::IMPORTED, pointer, None))
        [cuIpcCloseMemHandle 4010 legacy]
    cuArrayCreate(out: *mut Handle, what: *const array::Flat) => (|cx| array::created(cx, out, what))
        [cuArrayCreate_v2 3020 legacy]
    cuArray3DCreate(out: *mut Handle, what: *const CUDA_ARRAY3D_DESCRIPTOR) => (|cx| array::deep_created(cx, out, what, 1))
        [cuArray3DCreate_v2 3020 legacy]
    cuArrayDestroy(array: Handle) => (|cx| memory::freed(cx, mem::ARRAY, array as u64, None))
        [cuArrayDestroy 2000 legacy]
    cuMipmappedArrayCreate(out: *mut Handle, what: *const CUDA_ARRAY3D_DESCRIPTOR, levels: c_uint)
        => (|cx| array::deep_created(cx, out, what, levels))
        [cuMipmappedArrayCreate 5000 legacy]
    cuMipmappedArrayDestroy(array: Handle) => (|cx| memory::freed(cx, mem::ARRAY, array as u64, None))
        [cuMipmappedArrayDestroy 5000 legacy]
    cuMemGetInfo(free: *mut usize, total: *mut usize) => (|cx| memory::asked(cx, free, total))
        [cuMemGetInfo_v2 3020 legacy]

    // --- pools
    cuMemPoolCreate(out: *mut Handle, properties: *const CUmemPoolProps) => (|cx| pool::created(cx, out, properties))
        [cuMemPoolCreate 11020 legacy]
    cuMemPoolDestroy(pool: Handle) => (|cx| pool::changed(cx, op::DESTROY, pool, 0))
        [cuMemPoolDestroy 11020 legacy]
    cuMemPoolTrimTo(pool: Handle, keep: usize) => (|cx| pool::changed(cx, op::TRIM, pool, keep as u64))
        [cuMemPoolTrimTo 11020 legacy]
    cuMemPoolSetAttribute(pool: Handle, attribute: c_int, value: *mut c_void) => (|cx| pool::attribute_set(cx, pool, attribute, value))
        [cuMemPoolSetAttribute 11020 legacy]
    cuMemPoolGetAttribute(pool: Handle, attribute: c_int, value: *mut c_void) => (|cx| pool::attribute_read(cx, pool, attribute, value))
        [cuMemPoolGetAttribute 11020 legacy]
    cuMemPoolImportFromShareableHandle(out: *mut Handle, from: *mut c_void, kind: c_uint, flags: u64)
        => (|cx| pool::named(cx, op::CREATE, out, 0))
        [cuMemPoolImportFromShareableHandle 11020 legacy]
    cuMemPoolImportPointer(out: *mut DevicePointer, pool: Handle, from: *mut c_void) => (|cx| pool::imported(cx, out, pool))
        [cuMemPoolImportPointer 11020 legacy]
    cuDeviceGetDefaultMemPool(out: *mut Handle, device: Device) => (|cx| pool::own(cx, out, device))
        [cuDeviceGetDefaultMemPool 11020 legacy]
    cuDeviceGetMemPool(out: *mut Handle, device: Device) => (|cx| pool::current(cx, out, device))
        [cuDeviceGetMemPool 11020 legacy]
    cuMemGetDefaultMemPool(out: *mut Handle, location: *mut c_void, kind: c_uint)
        => (|cx| pool::default_of(cx, out, location, kind))
        [cuMemGetDefaultMemPool 13000 legacy]
    cuMemGetMemPool(out: *mut Handle, location: *mut c_void, kind: c_uint) => (|cx| pool::current_of(cx, out, location, kind))
        [cuMemGetMemPool 13000 legacy]
    cuDeviceSetMemPool(device: Device, pool: Handle) => (|cx| pool::made_current(cx, pool, device))
        [cuDeviceSetMemPool 11020 legacy]
    cuMemSetMemPool(location: *mut c_void, kind: c_uint, pool: Handle) => (|cx| pool::made_default(cx, location, kind, pool))
        [cuMemSetMemPool 13000 legacy]

    // --- waits
    cuStreamSynchronize(stream: Handle) => (|cx| sync::waited(cx, wait::STREAM, stream as u64))
        [cuStreamSynchronize 2000 legacy, cuStreamSynchronize_ptsz 7000 ptsz]
    cuCtxSynchronize() => (|cx| sync::waited(cx, wait::CONTEXT, 0))
        [cuCtxSynchronize 2000 legacy]
    cuCtxSynchronize(context: Handle) => (|cx| sync::waited(cx, wait::CONTEXT, context as u64))
        [cuCtxSynchronize_v2 13000 legacy]
    cuEventSynchronize(event: Handle) => (|cx| sync::waited(cx, wait::EVENT, event as u64))
        [cuEventSynchronize 2000 legacy]
    cuStreamWaitEvent(stream: Handle, event: Handle, flags: c_uint)
        => (|cx| sync::stream_waits(cx, wait::STREAM_ON_EVENT, stream, event as u64))
        [cuStreamWaitEvent 3020 legacy, cuStreamWaitEvent_ptsz 7000 ptsz]
    cuStreamWaitValue32(stream: Handle, address: DevicePointer, value: c_uint, flags: c_uint)
        => (|cx| sync::stream_waits(cx, wait::STREAM_ON_VALUE, stream, address))
        [cuStreamWaitValue32 8000 legacy, cuStreamWaitValue32_ptsz 8000 ptsz,
         cuStreamWaitValue32_v2 11070 legacy, cuStreamWaitValue32_v2_ptsz 11070 ptsz]
    cuStreamWaitValue64(stream: Handle, address: DevicePointer, value: u64, flags: c_uint)
        => (|cx| sync::stream_waits(cx, wait::STREAM_ON_VALUE, stream, address))
        [cuStreamWaitValue64 9000 legacy, cuStreamWaitValue64_ptsz 9000 ptsz,
         cuStreamWaitValue64_v2 11070 legacy, cuStreamWaitValue64_v2_ptsz 11070 ptsz]
    cuEventRecord(event: Handle, stream: Handle) => (|cx| sync::on_stream(cx, op::RECORD, stream, event as u64))
        [cuEventRecord 2000 legacy, cuEventRecord_ptsz 7000 ptsz]
    cuEventRecordWithFlags(event: Handle, stream: Handle, flags: c_uint)
        => (|cx| sync::on_stream(cx, op::RECORD, stream, event as u64))
        [cuEventRecordWithFlags 11010 legacy, cuEventRecordWithFlags_ptsz 11010 ptsz]

    // --- modules and functions
    cuModuleLoad(out: *mut Handle, path: *const c_char) => (|cx| module::loaded_from(cx, out, 0, path))
        [cuModuleLoad 2000 legacy]
    cuModuleLoadData(out: *mut Handle, image: *const c_void) => (|cx| module::loaded_image(cx, out, 0, image))
        [cuModuleLoadData 2000 legacy]
    cuModuleLoadDataEx(out: *mut Handle, image: *const c_void, count: c_uint, options: *mut c_void, values: *mut *mut c_void)
        => (|cx| module::loaded_image(cx, out, 0, image))
        [cuModuleLoadDataEx 2010 legacy]
    cuModuleLoadFatBinary(out: *mut Handle, image: *const c_void) => (|cx| module::loaded(cx, out, 0))
        [cuModuleLoadFatBinary 2000 legacy]
    cuModuleUnload(module: Handle) => (before module::forget(module); |cx| module::unloaded(cx, module))
        [cuModuleUnload 2000 legacy]
    cuModuleGetFunction(out: *mut Handle, module: Handle, name: *const c_char)
        => (|cx| module::function(cx, out, module, name, false))
        [cuModuleGetFunction 2000 legacy]
    cuLibraryLoadData(out: *mut Handle, image: *const c_void, jit: *mut c_void, jit_values: *mut *mut c_void, jit_count: c_uint,
                      options: *mut c_void, values: *mut *mut c_void, count: c_uint)
        => (|cx| module::loaded_image(cx, out, 1, image))
        [cuLibraryLoadData 12000 legacy]
    cuLibraryLoadFromFile(out: *mut Handle, path: *const c_char, jit: *mut c_void, jit_values: *mut *mut c_void, jit_count: c_uint,
                          options: *mut c_void, values: *mut *mut c_void, count: c_uint)
        => (|cx| module::loaded_from(cx, out, 1, path))
        [cuLibraryLoadFromFile 12000 legacy]
    cuLibraryUnload(library: Handle) => (before module::forget(library); |cx| module::unloaded(cx, library))
        [cuLibraryUnload 12000 legacy]
    cuLibraryGetKernel(out: *mut Handle, library: Handle, name: *const c_char)
        => (|cx| module::function(cx, out, library, name, true))
        [cuLibraryGetKernel 12000 legacy]
    cuLibraryGetModule(out: *mut Handle, library: Handle) => (|cx| module::of_library(cx, out, library))
        [cuLibraryGetModule 12000 legacy]
    cuKernelGetFunction(out: *mut Handle, kernel: Handle) => (|cx| module::function_of_kernel(cx, out, kernel))
        [cuKernelGetFunction 12000 legacy]

    // --- contexts and streams
    cuCtxCreate(out: *mut Handle, flags: c_uint, device: Device) => (|cx| context::created(cx, out, device, start::SERVICE))
        [cuCtxCreate 2000 legacy, cuCtxCreate_v2 3020 legacy]
    cuCtxCreate(out: *mut Handle, affinity: *mut c_void, count: c_int, flags: c_uint, device: Device)
        => (|cx| context::created(cx, out, device, start::SERVICE))
        [cuCtxCreate_v3 11040 legacy]
    cuCtxCreate(out: *mut Handle, parameters: *mut c_void, flags: c_uint, device: Device)
        => (|cx| context::created(cx, out, device, start::SERVICE))
        [cuCtxCreate_v4 12050 legacy]
    cuCtxDestroy(context: Handle) => (before context::forget(context); |cx| context::destroyed(cx, context))
        [cuCtxDestroy 2000 legacy, cuCtxDestroy_v2 4000 legacy]
    cuCtxSetCurrent(context: Handle) => (|cx| context::switched(cx, context))
        [cuCtxSetCurrent 4000 legacy]
    cuCtxPushCurrent(context: Handle) => (|cx| context::switched(cx, context))
        [cuCtxPushCurrent 2000 legacy, cuCtxPushCurrent_v2 4000 legacy]
    cuCtxPopCurrent(out: *mut Handle) => (|cx| context::switched(cx, core::ptr::null_mut()))
        [cuCtxPopCurrent 2000 legacy, cuCtxPopCurrent_v2 4000 legacy]
    cuDevicePrimaryCtxRetain(out: *mut Handle, device: Device) => (|cx| context::created(cx, out, device, start::SERVICE))
        [cuDevicePrimaryCtxRetain 7000 legacy]
    cuDevicePrimaryCtxRelease(device: Device) => (|cx| context::released(cx, device))
        [cuDevicePrimaryCtxRelease 7000 legacy, cuDevicePrimaryCtxRelease_v2 11000 legacy]
    cuDevicePrimaryCtxReset(device: Device) => (|cx| context::released(cx, device))
        [cuDevicePrimaryCtxReset 7000 legacy, cuDevicePrimaryCtxReset_v2 11000 legacy]
    cuStreamCreate(out: *mut Handle, flags: c_uint) => (|cx| context::stream_created(cx, out, flags, 0))
        [cuStreamCreate 2000 legacy]
    cuStreamCreateWithPriority(out: *mut Handle, flags: c_uint, priority: c_int)
        => (|cx| context::stream_created(cx, out, flags, priority))
        [cuStreamCreateWithPriority 5050 legacy]
    cuStreamDestroy(stream: Handle) => (before context::forget_stream(stream); |cx| sync::other(cx, op::DESTROY, stream as u64))
        [cuStreamDestroy 2000 legacy, cuStreamDestroy_v2 4000 legacy]

    // --- recorded only if they fail: polling, and what often fails before the first launch
    cuProfilerStart() => (before capture::profiler_starts(); fails |cx| sync::other(cx, op::ENABLE, 1))
        [cuProfilerStart 4000 legacy]
    cuProfilerStop() => (before capture::profiler_stops(); fails |cx| sync::other(cx, op::ENABLE, 0))
        [cuProfilerStop 4000 legacy]
    cuEventQuery(event: Handle) => (fails |cx| sync::other(cx, op::QUERY, event as u64))
        [cuEventQuery 2000 legacy]
    cuStreamQuery(stream: Handle) => (fails |cx| sync::other(cx, op::QUERY, stream as u64))
        [cuStreamQuery 2000 legacy, cuStreamQuery_ptsz 7000 ptsz]
    cuEventCreate(out: *mut Handle, flags: c_uint) => (fails |cx| sync::other(cx, op::CREATE, flags.into()))
        [cuEventCreate 2000 legacy]
    cuCtxEnablePeerAccess(peer: Handle, flags: c_uint) => (fails |cx| sync::other(cx, op::ENABLE, peer as u64))
        [cuCtxEnablePeerAccess 4000 legacy]
    cuFuncSetAttribute(f: Handle, attribute: c_uint, value: c_int)
        => (fails |cx| sync::other(cx, op::ENABLE, u64::from(value.cast_unsigned())))
        [cuFuncSetAttribute 9000 legacy]
    cuKernelSetAttribute(attribute: c_uint, value: c_int, kernel: Handle, device: Device)
        => (fails |cx| sync::other(cx, op::ENABLE, u64::from(value.cast_unsigned())))
        [cuKernelSetAttribute 12000 legacy]
    cuMemAddressReserve(out: *mut DevicePointer, bytes: usize, alignment: usize, near: DevicePointer, flags: u64)
        => (fails |cx| memory::allocated(cx, mem::VIRTUAL, bytes, core::ptr::null(), None))
        [cuMemAddressReserve 10020 legacy]
    cuMemSetAccess(pointer: DevicePointer, bytes: usize, access: *const c_void, count: usize)
        => (fails |cx| sync::other(cx, op::ENABLE, bytes as u64))
        [cuMemSetAccess 10020 legacy]

    // --- graphs
    cuStreamBeginCapture(stream: Handle) => (before instantiation::graph_begins(); |cx| graph::capture_begun(cx))
        [cuStreamBeginCapture 10000 legacy, cuStreamBeginCapture_ptsz 10000 ptsz]
    cuStreamBeginCapture(stream: Handle, mode: c_uint) => (before instantiation::graph_begins(); |cx| graph::capture_begun(cx))
        [cuStreamBeginCapture_v2 10010 legacy, cuStreamBeginCapture_v2_ptsz 10010 ptsz]
    cuStreamBeginCaptureToGraph(stream: Handle, into: Handle, dependencies: *const Handle, data: *const c_void, count: usize, mode: c_uint)
        => (before instantiation::graph_begins(); |cx| graph::capture_begun(cx))
        [cuStreamBeginCaptureToGraph 12030 legacy, cuStreamBeginCaptureToGraph_ptsz 12030 ptsz]
    cuStreamEndCapture(stream: Handle, out: *mut Handle) => (|cx| graph::capture_ended(cx, out))
        [cuStreamEndCapture 10000 legacy, cuStreamEndCapture_ptsz 10000 ptsz]
    cuGraphCreate(out: *mut Handle, flags: c_uint) => (before instantiation::graph_begins(); |cx| graph::made(cx, op::CREATE, 0, out, core::ptr::null_mut()))
        [cuGraphCreate 10000 legacy]
    cuGraphClone(out: *mut Handle, source: Handle) => (|cx| graph::made(cx, op::CLONE, 0, out, source))
        [cuGraphClone 10000 legacy]
    cuGraphInstantiate(out: *mut Handle, source: Handle, error: *mut Handle, log: *mut c_char, log_bytes: usize)
        => (before let _making = instantiation::begins(); |cx| graph::made(cx, op::INSTANTIATE, 1, out, source))
        [cuGraphInstantiate 10000 legacy, cuGraphInstantiate_v2 11000 legacy]
    cuGraphInstantiateWithFlags(out: *mut Handle, source: Handle, flags: u64)
        => (before let _making = instantiation::begins(); |cx| graph::made(cx, op::INSTANTIATE, 1, out, source))
        [cuGraphInstantiateWithFlags 11040 legacy]
    cuGraphInstantiateWithParams(out: *mut Handle, source: Handle, parameters: *mut c_void)
        => (before let _making = instantiation::begins(); |cx| graph::made(cx, op::INSTANTIATE, 1, out, source))
        [cuGraphInstantiateWithParams 12000 legacy, cuGraphInstantiateWithParams_ptsz 12000 ptsz]
    cuGraphExecUpdate(exec: Handle, source: Handle, error: *mut Handle, result: *mut c_uint)
        => (|cx| graph::updated(cx, exec, source))
        [cuGraphExecUpdate 10020 legacy]
    cuGraphExecUpdate(exec: Handle, source: Handle, result: *mut c_void) => (|cx| graph::updated(cx, exec, source))
        [cuGraphExecUpdate_v2 12000 legacy]
    cuGraphUpload(exec: Handle, stream: Handle) => (|cx| sync::on_stream(cx, op::LOAD, stream, exec as u64))
        [cuGraphUpload 11010 legacy, cuGraphUpload_ptsz 11010 ptsz]
    cuGraphExecDestroy(exec: Handle) => (before let id = graph::forget(exec); |cx| graph::destroyed(cx, id))
        [cuGraphExecDestroy 10000 legacy]
    cuGraphDestroy(which: Handle) => (before let id = graph::forget(which); |cx| graph::destroyed(cx, id))
        [cuGraphDestroy 10000 legacy]
    cuGraphAddKernelNode(out: *mut Handle, graph: Handle, before: *const Handle, count: usize, what: *const c_void) => node
        [cuGraphAddKernelNode 10000 legacy, cuGraphAddKernelNode_v2 12000 legacy]
    cuGraphAddMemcpyNode(out: *mut Handle, graph: Handle, before: *const Handle, count: usize, what: *const c_void, context: Handle) => node
        [cuGraphAddMemcpyNode 10000 legacy]
    cuGraphAddMemsetNode(out: *mut Handle, graph: Handle, before: *const Handle, count: usize, what: *const c_void, context: Handle) => node
        [cuGraphAddMemsetNode 10000 legacy]
    cuGraphAddHostNode(out: *mut Handle, graph: Handle, before: *const Handle, count: usize, what: *const c_void) => node
        [cuGraphAddHostNode 10000 legacy]
    cuGraphAddEmptyNode(out: *mut Handle, graph: Handle, before: *const Handle, count: usize) => node [cuGraphAddEmptyNode 10000 legacy]
    cuGraphAddEventRecordNode(out: *mut Handle, graph: Handle, before: *const Handle, count: usize, event: Handle) => node
        [cuGraphAddEventRecordNode 11010 legacy]
    cuGraphAddEventWaitNode(out: *mut Handle, graph: Handle, before: *const Handle, count: usize, event: Handle) => node
        [cuGraphAddEventWaitNode 11010 legacy]
    cuGraphAddMemAllocNode(out: *mut Handle, graph: Handle, before: *const Handle, count: usize, what: *const CUDA_MEM_ALLOC_NODE_PARAMS)
        => (|cx| graph::allocation_added(cx, graph, what))
        [cuGraphAddMemAllocNode 11040 legacy]
    cuGraphAddMemFreeNode(out: *mut Handle, graph: Handle, before: *const Handle, count: usize, pointer: DevicePointer) => node
        [cuGraphAddMemFreeNode 11040 legacy]
    cuGraphAddBatchMemOpNode(out: *mut Handle, graph: Handle, before: *const Handle, count: usize, what: *const c_void) => node
        [cuGraphAddBatchMemOpNode 11070 legacy]
    cuGraphAddExternalSemaphoresSignalNode(out: *mut Handle, graph: Handle, before: *const Handle, count: usize, what: *const c_void) => node
        [cuGraphAddExternalSemaphoresSignalNode 11020 legacy]
    cuGraphAddExternalSemaphoresWaitNode(out: *mut Handle, graph: Handle, before: *const Handle, count: usize, what: *const c_void) => node
        [cuGraphAddExternalSemaphoresWaitNode 11020 legacy]
    cuGraphAddChildGraphNode(out: *mut Handle, graph: Handle, before: *const Handle, count: usize, child: Handle)
        => (|cx| graph::node_added(cx, graph, child))
        [cuGraphAddChildGraphNode 10000 legacy]
    cuGraphAddNode(out: *mut Handle, graph: Handle, before: *const Handle, count: usize, what: *mut c_void)
        => (|cx| graph::any_node_added(cx, graph, what))
        [cuGraphAddNode 12020 legacy]
    cuGraphAddNode(out: *mut Handle, graph: Handle, before: *const Handle, edges: *const c_void, count: usize, what: *mut c_void)
        => (|cx| graph::any_node_added(cx, graph, what))
        [cuGraphAddNode_v2 12030 legacy, cuGraphAddNode_v3 13040 legacy]
}

#[cfg(test)]
#[path = "api_tests.rs"]
mod tests;
