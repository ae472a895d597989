//! Runs a small known program on the GPU under a given libcupti and compares its records with what was
//! launched.
//!
//!     cargo run -p cupti-sys --example records -- /path/to/libcupti.so.12
//!
//! Exit code 0 if every record is as launched. It checks on a real library what the unit tests can only check
//! against headers.

use std::alloc::Layout;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use cupti_sys::cupti::{ApiVersion, CUpti_Activity, CUpti_ActivityKind as Kind, CUptiResult, Cupti};
use cupti_sys::driver::*;
use cupti_sys::records::Record;

/// A kernel without parameters, old enough for every driver in use to compile.
const PTX: &CStr = c".version 6.5
.target sm_75
.address_size 64
.visible .entry little_kernel() { ret; }
";

const BUFFER: Layout = match Layout::from_size_align(1 << 20, 8) {
    Ok(layout) => layout,
    Err(_) => panic!("a megabyte is a valid size"),
};

/// What the completion callback needs: CUPTI passes it nothing of ours.
static CUPTI: AtomicPtr<Cupti> = AtomicPtr::new(std::ptr::null_mut());
static VERSION: AtomicU32 = AtomicU32::new(0);
static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

unsafe extern "C" fn buffer_requested(buffer: *mut *mut u8, size: *mut usize, max_records: *mut usize) {
    // SAFETY: CUPTI passes three places to write to; the layout's size is not zero.
    unsafe {
        *buffer = std::alloc::alloc(BUFFER);
        *size = BUFFER.size();
        *max_records = 0;
    }
}

unsafe extern "C" fn buffer_completed(_: CUcontext, _: u32, buffer: *mut u8, _: usize, valid: usize) {
    // SAFETY: `main` stored a Cupti that is never freed, before it registered this.
    let cupti = unsafe { &*CUPTI.load(Ordering::Acquire) };
    let version = ApiVersion(VERSION.load(Ordering::Acquire));
    let mut record: *mut CUpti_Activity = std::ptr::null_mut();
    // SAFETY: CUPTI gives the buffer and its valid length, and each record is read before the buffer is
    // freed.
    unsafe {
        while (cupti.activity_get_next_record)(buffer, valid, &mut record) == CUptiResult::CUPTI_SUCCESS {
            let line = describe(Record::new(record.cast(), version));
            LINES.lock().unwrap_or_else(|poison| poison.into_inner()).push(line);
        }
        std::alloc::dealloc(buffer, BUFFER);
    }
}

/// A record in words, times only as valid or not.
fn describe(record: Record) -> String {
    let timed = |start: u64, end: u64| if start > 0 && end > start { "timed" } else { "untimed" };
    match record {
        Record::Kernel(k) => format!(
            "kernel {} grid {:?} block {:?} shared {}+{} registers {} {} device {} {} cluster {:?}",
            // SAFETY: called within the completion callback.
            unsafe { k.name() }.unwrap_or(c"?").to_string_lossy(),
            k.grid(),
            k.block(),
            k.static_shared_bytes(),
            k.dynamic_shared_bytes(),
            if (1..=255).contains(&k.registers_per_thread()) { "some" } else { "impossible" },
            if k.graph_id() != 0 && k.graph_node_id() != 0 { "in graph" } else { "direct" },
            k.device_id(),
            timed(k.start_ns(), k.end_ns()),
            k.cluster().map(|cluster| cluster.iter().product::<u32>()),
        ),
        Record::Memcpy(m) => {
            format!("memcpy kind {} bytes {} {}", m.copy_kind(), m.bytes(), timed(m.start_ns(), m.end_ns()))
        }
        Record::Memset(m) => format!(
            "memset value {:#x} bytes {} memory {} {}",
            m.value(),
            m.bytes(),
            m.memory_kind(),
            timed(m.start_ns(), m.end_ns())
        ),
        Record::GraphTrace(g) => format!("graph {}", timed(g.start_ns(), g.end_ns())),
        Record::MemcpyPtoP(m) => format!("peer copy bytes {}", m.bytes()),
        Record::Other(kind) => format!("kind {}", kind.0),
    }
}

/// A driver function by its exported name. Unsafe: `facts/driver_abi.txt` must have the symbol with the
/// signature named.
macro_rules! driver {
    ($library:expr, $symbol:literal, $type:ty) => {
        std::mem::transmute::<*mut c_void, $type>(libc::dlsym(
            $library,
            concat!($symbol, "\0").as_ptr().cast(),
        ))
        .expect($symbol)
    };
}

fn ok(result: CUresult) {
    assert_eq!(result, CUresult::CUDA_SUCCESS);
}

fn open(path: &CStr) -> *mut c_void {
    // SAFETY: the path ends with a zero; running the library's constructors is the point.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    assert!(!library.is_null(), "cannot open {}", path.to_string_lossy());
    library
}

unsafe extern "C" fn lookup(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: `Cupti::load` passes the handle it was given and a name that ends with a zero.
    unsafe { libc::dlsym(handle, name) }
}

fn main() {
    let path = std::env::args().nth(1).expect("usage: records PATH_OF_LIBCUPTI");
    let cuda = open(c"libcuda.so.1");
    // SAFETY: each function is named with its signature, and every call passes live variables of the types
    // that the signature asks for, and handles that an earlier call returned with success.
    unsafe {
        ok(driver!(cuda, "cuInit", PFN_cuInit_v2000)(0));
        let mut device: c_int = 0;
        ok(driver!(cuda, "cuDeviceGet", PFN_cuDeviceGet_v2000)(&mut device, 0));

        let cupti =
            Cupti::load(open(&CString::new(path.clone()).expect("a path")), lookup).expect("a libcupti");
        let version = cupti.version().expect("a version");
        println!("{path}: API version {version}");
        VERSION.store(version.0, Ordering::Release);
        let cupti: &'static Cupti = Box::leak(Box::new(cupti));
        CUPTI.store(std::ptr::from_ref(cupti).cast_mut(), Ordering::Release);
        let good = |result: CUptiResult| {
            assert_eq!(result, CUptiResult::CUPTI_SUCCESS, "{}", cupti_sys::cupti::result_name(result));
        };
        good((cupti.activity_register_callbacks)(Some(buffer_requested), Some(buffer_completed)));
        for kind in [
            Kind::CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
            Kind::CUPTI_ACTIVITY_KIND_MEMCPY,
            Kind::CUPTI_ACTIVITY_KIND_MEMSET,
        ] {
            good((cupti.activity_enable)(kind));
        }

        let mut context = std::ptr::null_mut();
        ok(driver!(cuda, "cuDevicePrimaryCtxRetain", PFN_cuDevicePrimaryCtxRetain_v7000)(
            &mut context,
            device,
        ));
        ok(driver!(cuda, "cuCtxSetCurrent", PFN_cuCtxSetCurrent_v4000)(context));
        let mut module = std::ptr::null_mut();
        ok(driver!(cuda, "cuModuleLoadData", PFN_cuModuleLoadData_v2000)(&mut module, PTX.as_ptr().cast()));
        let mut kernel = std::ptr::null_mut();
        let get_function = driver!(cuda, "cuModuleGetFunction", PFN_cuModuleGetFunction_v2000);
        ok(get_function(&mut kernel, module, c"little_kernel".as_ptr()));
        let launch = driver!(cuda, "cuLaunchKernel", PFN_cuLaunchKernel_v4000);
        let run = |stream: CUstream, grid: u32| {
            let none = std::ptr::null_mut();
            ok(launch(kernel, grid, 2, 3, 32, 4, 2, 512, stream, none, none));
        };

        let mut host = [0_u8; 4096];
        let mut memory: CUdeviceptr = 0;
        ok(driver!(cuda, "cuMemAlloc_v2", PFN_cuMemAlloc_v3020)(&mut memory, 8192));
        ok(driver!(cuda, "cuMemcpyHtoD_v2", PFN_cuMemcpyHtoD_v3020)(memory, host.as_ptr().cast(), 4096));
        ok(driver!(cuda, "cuMemcpyDtoD_v2", PFN_cuMemcpyDtoD_v3020)(memory + 4096, memory, 2048));
        ok(driver!(cuda, "cuMemsetD32_v2", PFN_cuMemsetD32_v3020)(memory, 0xabcd, 256));
        run(std::ptr::null_mut(), 5);
        ok(driver!(cuda, "cuMemcpyDtoH_v2", PFN_cuMemcpyDtoH_v3020)(host.as_mut_ptr().cast(), memory, 1024));

        let mut stream = std::ptr::null_mut();
        ok(driver!(cuda, "cuStreamCreate", PFN_cuStreamCreate_v2000)(&mut stream, 1));
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
        ok(driver!(cuda, "cuStreamBeginCapture_v2", PFN_cuStreamBeginCapture_v10010)(stream, mode));
        run(stream, 7);
        run(stream, 8);
        let (mut graph, mut executable) = (std::ptr::null_mut(), std::ptr::null_mut());
        ok(driver!(cuda, "cuStreamEndCapture", PFN_cuStreamEndCapture_v10000)(stream, &mut graph));
        let instantiate =
            driver!(cuda, "cuGraphInstantiateWithFlags", PFN_cuGraphInstantiateWithFlags_v11040);
        ok(instantiate(&mut executable, graph, 0));
        ok(driver!(cuda, "cuGraphLaunch", PFN_cuGraphLaunch_v10000)(executable, stream));
        ok(driver!(cuda, "cuCtxSynchronize", PFN_cuCtxSynchronize_v2000)());
        good((cupti.activity_flush_all)(1));

        let cluster = (version >= ApiVersion::CUDA_11_8).then_some(0);
        let kernel = |grid: u32, how: &str| {
            format!(
                "kernel little_kernel grid [{grid}, 2, 3] block [32, 4, 2] shared 0+512 registers some {how} \
                 device 0 timed cluster {cluster:?}"
            )
        };
        let expected = [
            "memcpy kind 1 bytes 4096 timed".to_owned(),
            "memcpy kind 8 bytes 2048 timed".to_owned(),
            "memset value 0xabcd bytes 1024 memory 3 timed".to_owned(),
            kernel(5, "direct"),
            "memcpy kind 2 bytes 1024 timed".to_owned(),
            kernel(7, "in graph"),
            kernel(8, "in graph"),
        ];
        let lines = LINES.lock().unwrap_or_else(|poison| poison.into_inner());
        for line in lines.iter() {
            println!("{} {line}", if expected.contains(line) { "  " } else { "? " });
        }
        let missing: Vec<_> = expected.iter().filter(|line| !lines.contains(line)).collect();
        for line in &missing {
            println!("- {line}");
        }
        std::process::exit(i32::from(!missing.is_empty() || lines.len() != expected.len()));
    }
}
