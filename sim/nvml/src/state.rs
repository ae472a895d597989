//! The state of the initialised library: the script that it plays, and when it began to.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::abi::{Code, UNKNOWN};
use crate::script::Script;

pub struct State {
    pub script: Script,
    begin: Instant,
}

impl State {
    /// The script's time: how long ago `nvmlInit_v2` was called.
    pub fn now(&self) -> Duration {
        self.begin.elapsed()
    }
}

static STATE: Mutex<Option<Arc<State>>> = Mutex::new(None);

pub fn current() -> Option<Arc<State>> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Reads the script that the environment names, otherwise the one beside the library. Without a script there
/// are no devices.
pub fn load() -> Result<Arc<State>, Code> {
    let path = std::env::var_os("GPUTRACE_SIM_NVML").filter(|path| !path.is_empty()).map(PathBuf::from);
    let text = match path.or_else(beside) {
        Some(path) => std::fs::read_to_string(&path)
            .map_err(|error| complain(&path.to_string_lossy(), &error.to_string()))?,
        None => String::new(),
    };
    let script = Script::parse(&text)
        .map_err(|line| complain("the script", &format!("a line makes no sense: {line}")))?;
    Ok(Arc::new(State { script, begin: Instant::now() }))
}

fn complain(what: &str, why: &str) -> Code {
    eprintln!("the simulated NVML: {what}: {why}");
    UNKNOWN
}

/// Keeps the state for later calls. After a second initialisation the first one's state stays.
pub fn keep(state: Arc<State>) {
    STATE.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(state);
}

/// The path `<this library>.script`, if that file exists.
fn beside() -> Option<PathBuf> {
    // SAFETY: all zero bytes are a valid Dl_info: null pointers.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the address is one of this library; dladdr's string stays while the library is loaded.
    let name = unsafe {
        if libc::dladdr(beside as fn() -> Option<PathBuf> as *const _, &raw mut info) == 0
            || info.dli_fname.is_null()
        {
            return None;
        }
        std::ffi::CStr::from_ptr(info.dli_fname)
    };
    let path = PathBuf::from(format!("{}.script", name.to_str().ok()?));
    path.exists().then_some(path)
}
