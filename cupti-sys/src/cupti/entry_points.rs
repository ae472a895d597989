//! CUPTI's functions, looked up once in a loaded library.
//!
//! Loading the library is the caller's, and so is the look-up: the injected library exports a `dlsym` of its
//! own and must reach the real one, which only it knows. Nothing is called here but that look-up.

use core::ffi::{c_char, c_void};
use core::fmt;

use super::generated::*;
use super::{ApiVersion, CUptiResult};
use crate::driver::{CUcontext, CUgraph, CUgraphExec, CUgraphNode, CUstream};

/// `dlsym`, or what stands in for it: a handle and a name, to an address or NULL.
pub type Lookup = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// The library lacks a function that every supported CUPTI has, named here: it is too old, or is no libcupti.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MissingSymbol(pub &'static str);

impl fmt::Display for MissingSymbol {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "the library has no {}", self.0)
    }
}

impl core::error::Error for MissingSymbol {}

macro_rules! entry_points {
    (
        required { $($(#[$required_doc:meta])* $required:ident = $required_symbol:ident($($required_type:ty),*);)* }
        optional { $($(#[$optional_doc:meta])* $optional:ident = $optional_symbol:ident($($optional_type:ty),*);)* }
    ) => {
        /// The entry points of one loaded libcupti. Valid while that library stays loaded.
        #[derive(Clone, Copy)]
        pub struct Cupti {
            $(#[doc = concat!("`", stringify!($required_symbol), "`.")] $(#[$required_doc])*
            pub $required: unsafe extern "C" fn($($required_type),*) -> CUptiResult,)*
            $(#[doc = concat!("`", stringify!($optional_symbol), "`.")] $(#[$optional_doc])*
            pub $optional: Option<unsafe extern "C" fn($($optional_type),*) -> CUptiResult>,)*
        }

        impl Cupti {
            /// Looks every function up in the library behind `handle`. A failed look-up of an optional
            /// function may leave a message for `dlerror`.
            ///
            /// # Errors
            /// The first required function that the library lacks. Optional ones become `None`.
            ///
            /// # Safety
            /// `lookup` must accept `handle` and return NULL or the address of the symbol asked for, and the
            /// library must be a CUPTI, so that its symbols have the signatures in NVIDIA's headers.
            pub unsafe fn load(handle: *mut c_void, lookup: Lookup) -> Result<Self, MissingSymbol> {
                Ok(Self {
                    $($required: {
                        // SAFETY: the caller vouches for the look-up; the name ends with a zero.
                        let address = unsafe {
                            lookup(handle, concat!(stringify!($required_symbol), "\0").as_ptr().cast())
                        };
                        if address.is_null() {
                            return Err(MissingSymbol(stringify!($required_symbol)));
                        }
                        // SAFETY: the caller vouches that this is CUPTI's function of that name, and a test
                        // compares the signature with the header's.
                        unsafe {
                            core::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($required_type),*) -> CUptiResult,
                            >(address)
                        }
                    },)*
                    $($optional: {
                        // SAFETY: as above. NULL is `None` in an optional function pointer.
                        unsafe {
                            core::mem::transmute::<
                                *mut c_void,
                                Option<unsafe extern "C" fn($($optional_type),*) -> CUptiResult>,
                            >(lookup(handle, concat!(stringify!($optional_symbol), "\0").as_ptr().cast()))
                        }
                    },)*
                })
            }
        }

        /// The names of the functions that [`Cupti::load`] insists on.
        #[cfg(test)]
        const REQUIRED: &[&str] = &[$(stringify!($required_symbol)),*];

        /// Compiles only if each signature above equals the one that bindgen read from the headers. Never
        /// called: the prototypes are symbols that nothing here links.
        #[cfg(test)]
        #[allow(dead_code)]
        fn signatures_are_those_of_the_headers() {
            use super::prototypes;
            $(let _: unsafe extern "C" fn($($required_type),*) -> CUptiResult = prototypes::$required_symbol;)*
            $(let _: unsafe extern "C" fn($($optional_type),*) -> CUptiResult = prototypes::$optional_symbol;)*
        }
    };
}

entry_points! {
    required {
        get_version = cuptiGetVersion(*mut u32);
        get_result_string = cuptiGetResultString(CUptiResult, *mut *const c_char);
        get_timestamp = cuptiGetTimestamp(*mut u64);
        subscribe = cuptiSubscribe(*mut CUpti_SubscriberHandle, CUpti_CallbackFunc, *mut c_void);
        unsubscribe = cuptiUnsubscribe(CUpti_SubscriberHandle);
        enable_callback =
            cuptiEnableCallback(u32, CUpti_SubscriberHandle, CUpti_CallbackDomain, CUpti_CallbackId);
        enable_domain = cuptiEnableDomain(u32, CUpti_SubscriberHandle, CUpti_CallbackDomain);
        activity_register_callbacks = cuptiActivityRegisterCallbacks(
            CUpti_BuffersCallbackRequestFunc, CUpti_BuffersCallbackCompleteFunc
        );
        activity_enable = cuptiActivityEnable(CUpti_ActivityKind);
        activity_disable = cuptiActivityDisable(CUpti_ActivityKind);
        activity_flush_all = cuptiActivityFlushAll(u32);
        activity_get_next_record = cuptiActivityGetNextRecord(*mut u8, usize, *mut *mut CUpti_Activity);
        activity_get_num_dropped_records = cuptiActivityGetNumDroppedRecords(CUcontext, u32, *mut usize);
        activity_get_attribute = cuptiActivityGetAttribute(CUpti_ActivityAttribute, *mut usize, *mut c_void);
        activity_set_attribute = cuptiActivitySetAttribute(CUpti_ActivityAttribute, *mut usize, *mut c_void);
    }
    optional {
        activity_enable_context = cuptiActivityEnableContext(CUcontext, CUpti_ActivityKind);
        activity_disable_context = cuptiActivityDisableContext(CUcontext, CUpti_ActivityKind);
        activity_flush_period = cuptiActivityFlushPeriod(u32);
        activity_enable_latency_timestamps = cuptiActivityEnableLatencyTimestamps(u8);
        activity_register_timestamp_callback =
            cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc);
        activity_push_external_correlation_id =
            cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind, u64);
        activity_pop_external_correlation_id =
            cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind, *mut u64);
        activity_enable_driver_api = cuptiActivityEnableDriverApi(CUpti_CallbackId, u8);
        activity_enable_runtime_api = cuptiActivityEnableRuntimeApi(CUpti_CallbackId, u8);
        /// Times kernels by hardware events; wants to be called before the first context.
        activity_enable_hw_trace = cuptiActivityEnableHWTrace(u8);
        enable_all_domains = cuptiEnableAllDomains(u32, CUpti_SubscriberHandle);
        /// Subscribes beside others, where the driver allows it.
        subscribe_v2 = cuptiSubscribe_v2(
            *mut CUpti_SubscriberHandle, CUpti_CallbackFunc, *mut c_void, *mut CUpti_SubscriberParams
        );
        get_callback_name = cuptiGetCallbackName(CUpti_CallbackDomain, u32, *mut *const c_char);
        get_context_id = cuptiGetContextId(CUcontext, *mut u32);
        get_device_id = cuptiGetDeviceId(CUcontext, *mut u32);
        get_stream_id_ex = cuptiGetStreamIdEx(CUcontext, CUstream, u8, *mut u32);
        get_graph_id = cuptiGetGraphId(CUgraph, *mut u32);
        get_graph_exec_id = cuptiGetGraphExecId(CUgraphExec, *mut u32);
        get_graph_node_id = cuptiGetGraphNodeId(CUgraphNode, *mut u64);
        get_thread_id_type = cuptiGetThreadIdType(*mut CUpti_ActivityThreadIdType);
        set_thread_id_type = cuptiSetThreadIdType(CUpti_ActivityThreadIdType);
        get_last_error = cuptiGetLastError();
        finalize = cuptiFinalize();
    }
}

impl Cupti {
    /// The loaded library's own version. To be asked only where `cuInit` has succeeded: without a driver,
    /// 13.2 crashes in this call, and 13.3 and later return an error.
    ///
    /// # Errors
    /// What `cuptiGetVersion` returned instead of success.
    #[doc(alias = "cuptiGetVersion")]
    pub fn version(&self) -> Result<ApiVersion, CUptiResult> {
        let mut version = 0;
        // SAFETY: whoever loaded the library vouched for it; `version` outlives the call.
        match unsafe { (self.get_version)(&raw mut version) } {
            CUptiResult::CUPTI_SUCCESS => Ok(ApiVersion(version)),
            error => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ffi::CStr;

    unsafe extern "C" fn fake_get_version(version: *mut u32) -> CUptiResult {
        // SAFETY: `Cupti::version` passes its own variable.
        unsafe { *version = 130_001 };
        CUptiResult::CUPTI_SUCCESS
    }

    unsafe extern "C" fn refuse() -> CUptiResult {
        CUptiResult::CUPTI_ERROR_NOT_INITIALIZED
    }

    /// A library that has every required symbol but the one whose name is the handle, and no optional one.
    unsafe extern "C" fn without(handle: *mut c_void, name: *const c_char) -> *mut c_void {
        // SAFETY: `Cupti::load` passes a name that ends with a zero, and the tests a `String` or NULL.
        let (name, missing) = unsafe { (CStr::from_ptr(name), handle.cast::<String>().as_ref()) };
        let name = name.to_str().unwrap();
        if missing.is_some_and(|missing| missing == name) || !REQUIRED.contains(&name) {
            core::ptr::null_mut()
        } else if name == "cuptiGetVersion" {
            fake_get_version as *mut c_void
        } else {
            refuse as *mut c_void
        }
    }

    #[test]
    fn missing_required_symbol_is_named() {
        for symbol in REQUIRED {
            let missing = String::from(*symbol);
            // SAFETY: `without` takes such a handle; the functions it returns are not called.
            let loaded = unsafe { Cupti::load((&raw const missing).cast_mut().cast(), without) };
            assert_eq!(loaded.err(), Some(MissingSymbol(symbol)));
        }
        assert_eq!(MissingSymbol("cuptiSubscribe").to_string(), "the library has no cuptiSubscribe");
    }

    #[test]
    fn missing_optional_symbols_are_none() {
        // SAFETY: `without` takes NULL; of the functions it returns, only `fake_get_version` is called.
        let cupti = unsafe { Cupti::load(core::ptr::null_mut(), without) }.unwrap();
        assert!(cupti.finalize.is_none() && cupti.subscribe_v2.is_none());
        assert_eq!(cupti.version(), Ok(ApiVersion(130_001)));
    }

    #[test]
    fn version_passes_errors_on() {
        unsafe extern "C" fn fail(_: *mut u32) -> CUptiResult {
            CUptiResult::CUPTI_ERROR_UNKNOWN
        }
        // SAFETY: as above.
        let mut cupti = unsafe { Cupti::load(core::ptr::null_mut(), without) }.unwrap();
        cupti.get_version = fail;
        assert_eq!(cupti.version(), Err(CUptiResult::CUPTI_ERROR_UNKNOWN));
    }
}
