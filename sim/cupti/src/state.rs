//! What this library keeps: enabled kinds, buffers, the subscriber, settings.

use crate::buffers::Buffers;
use crate::lock::{Condvar, Guard, Mutex};
use crate::subscriber::Subscriber;
use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

/// Everything, behind one lock that is never held while a client is called.
#[derive(Default)]
pub struct State {
    pub buffers: Buffers,
    pub subscriber: Option<Subscriber>,
    /// Enabled kinds, a bit each.
    pub kinds: u64,
    /// Kinds enabled for single contexts, by uid.
    pub context_kinds: HashMap<u32, u64>,
    pub attributes: HashMap<u32, u64>,
    /// What makes virtual time the client's clock; none is the time of day.
    pub clock_offset_ns: Option<u64>,
    pub external_ids: HashMap<u32, Vec<u64>>,
    pub thread_id_type: u32,
    /// Domains and callback ids that the client enabled.
    pub enabled_callbacks: HashSet<(u32, u32)>,
}

static STATE: LazyLock<Mutex<State>> = LazyLock::new(|| Mutex::new(State::default()));
/// Signalled when the delivering thread has something to do or has done it; belongs to `STATE`.
pub static CHANGED: Condvar = Condvar::new();

/// The state.
pub fn lock() -> Guard<'static, State> {
    STATE.lock()
}
