//! Chooses a libcupti: the one that the process already has, otherwise the best fit.
//!
//! A process must not use two libcuptis: the driver refuses the second, or worse happens. So the first of
//! these is used: the one that GPUTRACE_CUPTI names (an error if another one is mapped), the mapped one, the
//! one beside the mapped libcudart, the one that the loader finds by the driver's version, the toolkit's.
//!
//! On the simulated device only the simulation's libcupti is used, whatever is mapped. The vendor's would ask
//! the simulated driver for tables that the driver lacks, again and again until the stack overflows.
//!
//! [`load`] runs once, right after `cuInit`; it may allocate.

use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use cupti_sys::cupti::Cupti;
use cupti_sys::locate;
use gputrace_producer::loader;

use crate::process::settings;
use crate::symbols::failed_look_up::{self, KeepError};
use crate::symbols::{libc_symbols, originals};

pub struct Library {
    pub api: Cupti,
    pub path: PathBuf,
}

/// A symbol that only the simulated libcupti exports.
const SIMULATED: &CStr = c"gputrace_sim_cupti_version";

/// A function of the libcupti that another CUPTI client in this process uses; null if no client was seen.
static OF_CLIENT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Notes that another CUPTI client in this process uses the library that defines this function. Only the
/// first note counts.
pub fn note_client(function: *mut c_void) {
    let _ = OF_CLIENT.compare_exchange(core::ptr::null_mut(), function, Ordering::Relaxed, Ordering::Relaxed);
}

/// Finds and loads the library.
///
/// # Errors
/// One line for the user: what was tried, and what to do.
pub fn load(driver_version: c_int, simulated: bool) -> Result<Library, String> {
    let _error = KeepError::while_loading();
    let mapped = of_function(OF_CLIENT.load(Ordering::Relaxed))
        .or_else(|| mapped("libcupti.so"))
        .filter(|path| !simulated || find(path, SIMULATED).is_some());
    if let Some(wanted) = settings::get(settings::CUPTI) {
        let wanted = path_of(wanted);
        return match mapped {
            Some(mapped) if !same_file(&mapped, &wanted) => Err(format!(
                "GPUTRACE_CUPTI={} was not loaded: the process already has {}",
                wanted.display(),
                mapped.display()
            )),
            _ => open(&wanted).map_err(|why| format!("GPUTRACE_CUPTI={}: {why}", wanted.display())),
        };
    }
    if let Some(mapped) = mapped {
        return open(&mapped).map_err(|why| format!("the process's own {}: {why}", mapped.display()));
    }
    let mut last = String::from(
        "no libcupti was found; gputrace doctor prints the command that installs one, or set GPUTRACE_CUPTI to one of CUDA \
         11.8 or later",
    );
    for candidate in candidates(driver_version, simulated) {
        match open(&candidate) {
            Ok(library) => return Ok(library),
            Err(why) if candidate.is_absolute() => last = format!("{}: {why}", candidate.display()),
            Err(_) => {}
        }
    }
    Err(last)
}

fn candidates(driver_version: c_int, simulated: bool) -> Vec<PathBuf> {
    let mut all = Vec::new();
    if simulated {
        let driver = originals::path_of(originals::find_in_driver("cuInit\0")).map(path_of);
        all.extend(driver.and_then(|driver| Some(driver.parent()?.join("libcupti.so"))));
        return all;
    }
    if let Some(cudart) = mapped("libcudart.so") {
        all.extend(locate::beside_cudart(&cudart));
    }
    let major = driver_version / 1000;
    if major >= 12 {
        all.push(PathBuf::from(format!("libcupti.so.{major}")));
    }
    all.extend(locate::TOOLKIT_ROOTS.iter().flat_map(|root| locate::in_toolkit(Path::new(root))));
    all.extend(["libcupti.so.12", "libcupti.so.11.8", "libcupti.so"].map(PathBuf::from));
    all
}

/// Loads the library at that path, or finds it loaded already.
///
/// # Errors
/// The loader's message, or the symbol that the library lacks.
pub fn open(path: &Path) -> Result<Library, String> {
    let Ok(name) = CString::new(path.as_os_str().as_bytes()) else { return Err("not a path".into()) };
    // SAFETY: the name is a C string. Loading runs the library's constructors, as in every program with
    // CUPTI.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        // SAFETY: libc's dlerror returns null or a C string.
        let why = unsafe {
            let text = failed_look_up::libc_dlerror();
            if text.is_null() {
                String::from("cannot be loaded")
            } else {
                CStr::from_ptr(text).to_string_lossy().into()
            }
        };
        return Err(why);
    }
    let Some(lookup) = libc_symbols::dlsym() else { return Err("the C library has no dlsym".into()) };
    // SAFETY: the handle is the library's, and the look-up is the real dlsym. The file is a libcupti: its
    // name says so, or the user chose it.
    let api = unsafe { Cupti::load(handle, lookup) }.map_err(|missing| missing.to_string())?;
    let loaded =
        originals::path_of(api.get_version as *mut c_void).map_or_else(|| path.to_path_buf(), path_of);
    Ok(Library { api, path: loaded })
}

/// The path of the first mapped library whose file name begins with `prefix`.
pub fn mapped(prefix: &str) -> Option<PathBuf> {
    first_mapped(prefix, path_of)
}

/// Whether a library is mapped whose file name begins with `prefix`. It allocates nothing, since the symbol
/// look-ups of the program call it.
pub fn is_mapped(prefix: &str) -> bool {
    first_mapped(prefix, |_| ()).is_some()
}

/// The result of `take` on the path of the first mapped library whose file name begins with `prefix`.
fn first_mapped<T>(prefix: &str, take: fn(&CStr) -> T) -> Option<T> {
    struct Search<'a, T> {
        prefix: &'a [u8],
        take: fn(&CStr) -> T,
        found: Option<T>,
    }
    unsafe extern "C" fn look_at<T>(object: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
        // SAFETY: the loader passes a valid description, and `search` points to the variable below.
        let (object, search) = unsafe { (&*object, &mut *search.cast::<Search<T>>()) };
        if object.dlpi_name.is_null() {
            return 0;
        }
        // SAFETY: the loader gives a C string.
        let path = unsafe { CStr::from_ptr(object.dlpi_name) };
        let file = path.to_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        if file.starts_with(search.prefix) {
            search.found = Some((search.take)(path));
            return 1;
        }
        0
    }
    let mut search = Search { prefix: prefix.as_bytes(), take, found: None };
    // SAFETY: the callback gets a pointer to `search`, which outlives the call.
    unsafe { loader::each_object(look_at::<T>, (&raw mut search).cast()) };
    search.found
}

/// The path of the library that defines a function.
pub fn of_function(function: *mut c_void) -> Option<PathBuf> {
    if function.is_null() {
        return None;
    }
    let path = originals::path_of(function)?;
    Some(path_of(path))
}

/// The function of that name in a library that is mapped.
pub fn find(path: &Path, name: &CStr) -> Option<*mut c_void> {
    let _error = KeepError::new();
    let dlsym = libc_symbols::dlsym()?;
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    // The handle stays open, so that the library and its function stay mapped.
    // SAFETY: RTLD_NOLOAD only finds what is mapped; the handle and the name are valid.
    let found = unsafe {
        let handle = crate::symbols::loader::handle_of_mapped(path.as_ptr(), 0);
        if handle.is_null() {
            return None;
        }
        dlsym(handle, name.as_ptr())
    };
    (!found.is_null()).then_some(found)
}

fn path_of(text: &CStr) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(text.to_bytes()))
}

fn same_file(one: &Path, other: &Path) -> bool {
    match (std::fs::canonicalize(one), std::fs::canonicalize(other)) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}
