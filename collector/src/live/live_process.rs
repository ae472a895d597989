//! What the live view shows of one running process: its memory and what a hook costs.

use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct LiveProcess {
    pub pid: u32,
    /// Allocations of device and managed memory that were not freed; `None` once a context ended, or after
    /// too many.
    pub allocations: Option<u64>,
    /// What it holds on devices, and the most that it held.
    #[serde(default)]
    pub held_bytes: u64,
    #[serde(default)]
    pub peak_bytes: u64,
    /// The mean time of a hook, of those that were measured.
    pub hook_cost_ns: Option<f64>,
}
