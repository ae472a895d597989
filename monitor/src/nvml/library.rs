//! Finds and loads libnvidia-ml.so.1, once for each path, and for good.
//!
//! The library stays loaded and initialised until the process ends, since its threads may still be in it.

use std::collections::HashMap;
use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::sync::{Mutex, PoisonError};

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

use super::failure;
use crate::config::Sources;
use crate::error::GpuMonitorError;

/// The loader's own places first, then where containers, WSL and some distributions have it.
const PATHS: [&str; 11] = [
    "libnvidia-ml.so.1",
    "libnvidia-ml.so",
    "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
    "/usr/lib/aarch64-linux-gnu/libnvidia-ml.so.1",
    "/usr/lib64/libnvidia-ml.so.1",
    "/usr/lib/libnvidia-ml.so.1",
    "/usr/lib/wsl/lib/libnvidia-ml.so.1",
    "/usr/local/nvidia/lib64/libnvidia-ml.so.1",
    "/run/nvidia/driver/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
    "/run/nvidia/driver/usr/lib64/libnvidia-ml.so.1",
    "/run/opengl-driver/lib/libnvidia-ml.so.1",
];

/// The library, loaded and initialised. A failure is not kept: the next call tries again.
pub fn load(sources: &Sources) -> Result<&'static Nvml, GpuMonitorError> {
    let paths: Vec<OsString> = match &sources.nvml {
        Some(path) => vec![path.into()],
        None => PATHS.iter().map(OsString::from).collect(),
    };
    static LOADED: Mutex<Option<HashMap<OsString, &'static Nvml>>> = Mutex::new(None);
    if let Some(loaded) = &*LOADED.lock().unwrap_or_else(PoisonError::into_inner)
        && let Some(nvml) = paths.iter().find_map(|path| loaded.get(path))
    {
        return Ok(nvml);
    }
    // Loaded without the lock: a driver may hang in its initialisation.
    let (path, nvml) = first(&paths)?;
    let nvml: &'static Nvml = Box::leak(Box::new(nvml));
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    loaded.get_or_insert_default().insert(path, nvml);
    Ok(nvml)
}

/// The first that is there. One that is there and cannot be used ends the search: another one would not
/// match the kernel's module either.
fn first(paths: &[OsString]) -> Result<(OsString, Nvml), GpuMonitorError> {
    for path in paths {
        match Nvml::builder().lib_path(path).init() {
            Ok(nvml) => return Ok((path.clone(), nvml)),
            Err(NvmlError::LibloadingError(error)) => {
                let why = words(&error);
                if !is_missing(&why, path) {
                    return Err(GpuMonitorError::BadLibrary(why));
                }
            }
            Err(NvmlError::FailedToLoadSymbol(_)) => {
                let path = path.to_string_lossy();
                return Err(GpuMonitorError::BadLibrary(format!("{path} has no nvmlInit_v2")));
            }
            Err(error) => return Err(failure::explain("nvmlInit_v2", 0, &error)),
        }
    }
    Err(GpuMonitorError::NoDriver(match paths {
        [path] => format!("{} is not there", path.to_string_lossy()),
        _ => format!("libnvidia-ml.so.1 is in none of {} usual places", paths.len()),
    }))
}

/// The dynamic loader's own words, which the error keeps as its source.
fn words(error: &dyn Error) -> String {
    error.source().map_or_else(|| error.to_string(), words)
}

/// Whether the library itself is missing, and not one that it needs.
fn is_missing(why: &str, path: &OsStr) -> bool {
    why.contains("No such file or directory") && why.starts_with(&*path.to_string_lossy())
}
