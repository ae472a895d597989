//! The few entries of the CUDA driver that the demo and doctor use, loaded at run time.
//!
//! Own declarations; a missing library or entry is an ordinary error.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::fmt;
use std::ptr::null_mut;

use libloading::os::unix::{Library, RTLD_NOW, Symbol};

pub type Handle = *mut c_void;
pub type DevicePointer = u64;

/// Why the driver did not do what it was asked to.
#[derive(Debug)]
pub enum DriverError {
    /// There is no libcuda.so.1, or it cannot be loaded; the loader's words.
    Missing(String),
    /// The library lacks an entry.
    NoEntry(&'static str),
    /// The call returned this code.
    Code { call: &'static str, code: c_int, name: String },
}

impl fmt::Display for DriverError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DriverError::Missing(why) => write!(out, "the CUDA driver cannot be loaded: {why}"),
            DriverError::NoEntry(entry) => write!(out, "the CUDA driver has no {entry}"),
            DriverError::Code { call, code, name } => write!(out, "{call} failed with {name} ({code})"),
        }
    }
}

/// The dynamic loader's own words, which the error keeps as its source.
pub fn words(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// Makes the struct of entries and its loader from one list.
macro_rules! entries {
    ($($field:ident = $symbol:literal ($($argument:ty),*);)*) => {
        /// The driver's entries; the library stays loaded as long as this lives.
        #[derive(Debug)]
        pub struct Driver {
            $(pub $field: Symbol<unsafe extern "C" fn($($argument),*) -> c_int>,)*
            library: Library,
        }

        impl Driver {
            fn load(library: Library) -> Result<Driver, DriverError> {
                Ok(Driver {
                    // SAFETY: the signatures are those that NVIDIA documents for these entries.
                    $($field: unsafe { library.get(concat!($symbol, "\0").as_bytes()) }
                        .map_err(|_| DriverError::NoEntry($symbol))?,)*
                    library,
                })
            }
        }
    };
}

entries! {
    init = "cuInit" (c_uint);
    driver_version = "cuDriverGetVersion" (*mut c_int);
    error_name = "cuGetErrorName" (c_int, *mut *const c_char);
    device_count = "cuDeviceGetCount" (*mut c_int);
    device = "cuDeviceGet" (*mut c_int, c_int);
    device_name = "cuDeviceGetName" (*mut c_char, c_int, c_int);
    device_attribute = "cuDeviceGetAttribute" (*mut c_int, c_int, c_int);
    device_bus_id = "cuDeviceGetPCIBusId" (*mut c_char, c_int, c_int);
    primary_retain = "cuDevicePrimaryCtxRetain" (*mut Handle, c_int);
    primary_release = "cuDevicePrimaryCtxRelease_v2" (c_int);
    set_current = "cuCtxSetCurrent" (Handle);
    synchronize = "cuCtxSynchronize" ();
    module_load = "cuModuleLoadData" (*mut Handle, *const c_void);
    module_function = "cuModuleGetFunction" (*mut Handle, Handle, *const c_char);
    alloc = "cuMemAlloc_v2" (*mut DevicePointer, usize);
    free = "cuMemFree_v2" (DevicePointer);
    alloc_host = "cuMemAllocHost_v2" (*mut *mut c_void, usize);
    free_host = "cuMemFreeHost" (*mut c_void);
    fill = "cuMemsetD32Async" (DevicePointer, c_uint, usize, Handle);
    to_device = "cuMemcpyHtoDAsync_v2" (DevicePointer, *const c_void, usize, Handle);
    to_host = "cuMemcpyDtoHAsync_v2" (*mut c_void, DevicePointer, usize, Handle);
    stream_create = "cuStreamCreate" (*mut Handle, c_uint);
    stream_destroy = "cuStreamDestroy_v2" (Handle);
    stream_synchronize = "cuStreamSynchronize" (Handle);
    stream_wait = "cuStreamWaitEvent" (Handle, Handle, c_uint);
    event_create = "cuEventCreate" (*mut Handle, c_uint);
    event_record = "cuEventRecord" (Handle, Handle);
    event_destroy = "cuEventDestroy_v2" (Handle);
    launch = "cuLaunchKernel" (Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void);
    begin_capture = "cuStreamBeginCapture_v2" (Handle, c_int);
    end_capture = "cuStreamEndCapture" (Handle, *mut Handle);
    instantiate = "cuGraphInstantiateWithFlags" (*mut Handle, Handle, u64);
    graph_launch = "cuGraphLaunch" (Handle, Handle);
    graph_exec_destroy = "cuGraphExecDestroy" (Handle);
    graph_destroy = "cuGraphDestroy" (Handle);
}

impl Driver {
    /// Loads libcuda.so.1, from the loader's usual places.
    pub fn open() -> Result<Driver, DriverError> {
        // SAFETY: the driver's constructors are what every CUDA program runs.
        let library = unsafe { Library::open(Some("libcuda.so.1"), RTLD_NOW) };
        Driver::load(library.map_err(|error| DriverError::Missing(words(&error)))?)
    }

    /// Whether this is the simulated driver: it has an entry that no real one has.
    pub fn is_simulated(&self) -> bool {
        // SAFETY: the symbol is only looked for, never called.
        unsafe { self.library.get::<unsafe extern "C" fn()>(b"gputrace_sim_version\0") }.is_ok()
    }

    /// Turns a status code into a result.
    pub fn check(&self, call: &'static str, code: c_int) -> Result<(), DriverError> {
        if code == 0 {
            return Ok(());
        }
        let mut name: *const c_char = std::ptr::null();
        // SAFETY: the entry stores a pointer to a static string, or null for an unknown code.
        let name = unsafe {
            (self.error_name)(code, &raw mut name);
            if name.is_null() {
                "an unknown code".into()
            } else {
                CStr::from_ptr(name).to_string_lossy().into()
            }
        };
        Err(DriverError::Code { call, code, name })
    }

    /// Initialises the driver and says how many devices it has.
    pub fn initialise(&self) -> Result<c_int, DriverError> {
        let mut count = 0;
        // SAFETY: flags are 0 as required; `count` outlives the call.
        unsafe {
            self.check("cuInit", (self.init)(0))?;
            self.check("cuDeviceGetCount", (self.device_count)(&raw mut count))?;
        }
        Ok(count)
    }

    /// The version as NVIDIA writes it: 13000 is 13.0.
    pub fn version(&self) -> Result<(c_int, c_int), DriverError> {
        let mut version = 0;
        // SAFETY: `version` outlives the call.
        self.check("cuDriverGetVersion", unsafe { (self.driver_version)(&raw mut version) })?;
        Ok((version / 1000, version % 1000 / 10))
    }

    /// The name of the device with that ordinal.
    pub fn name(&self, ordinal: c_int) -> Result<String, DriverError> {
        let mut device = 0;
        let mut name = [0 as c_char; 256];
        // SAFETY: the entry writes at most the length it is given, with a NUL at the end.
        unsafe {
            self.check("cuDeviceGet", (self.device)(&raw mut device, ordinal))?;
            self.check(
                "cuDeviceGetName",
                (self.device_name)(name.as_mut_ptr(), name.len() as c_int, device),
            )?;
            Ok(CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned())
        }
    }

    /// The device with that ordinal.
    pub fn handle(&self, ordinal: c_int) -> Result<c_int, DriverError> {
        let mut device = 0;
        // SAFETY: `device` outlives the call.
        self.check("cuDeviceGet", unsafe { (self.device)(&raw mut device, ordinal) })?;
        Ok(device)
    }

    /// The device's address: "0000:01:00.0".
    pub fn bus_id(&self, device: c_int) -> Result<String, DriverError> {
        let mut id = [0 as c_char; 64];
        // SAFETY: the entry writes at most the length it is given, with a NUL at the end.
        unsafe {
            let code = (self.device_bus_id)(id.as_mut_ptr(), id.len() as c_int, device);
            self.check("cuDeviceGetPCIBusId", code)?;
            Ok(CStr::from_ptr(id.as_ptr()).to_string_lossy().to_ascii_lowercase())
        }
    }

    /// The attribute with that number; `None` if this driver does not know it.
    pub fn attribute(&self, device: c_int, number: c_int) -> Option<u32> {
        let mut value = 0;
        // SAFETY: `value` outlives the call.
        let code = unsafe { (self.device_attribute)(&raw mut value, number, device) };
        u32::try_from(value).ok().filter(|_| code == 0)
    }

    /// A function of a module that was loaded.
    pub fn function(&self, module: Handle, name: &str) -> Result<Handle, DriverError> {
        let name = CString::new(name).unwrap_or_default();
        let mut function = null_mut();
        // SAFETY: `module` came from cuModuleLoadData; the name is NUL-terminated.
        let code = unsafe { (self.module_function)(&raw mut function, module, name.as_ptr()) };
        self.check("cuModuleGetFunction", code).map(|()| function)
    }
}
