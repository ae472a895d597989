//! The live side: processes join by the session socket, and their memory is drained.
//!
//! Owns the socket, the mappings and the threads. Everything a process gives is hostile: what
//! comes out of here is plain data whose bounds were checked and whose meaning was not. Nothing
//! a process does stops the others from being recorded.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod area;
mod bound;
mod death;
mod device_sampling;
mod drain;
mod handle;
mod last;
mod listener;
mod live_order;
mod names;
mod peer;
mod processing;
mod ready;
mod recorder;
mod rotation;
mod segment;
mod shared;
mod status;
mod step;
mod step_sender;
mod store;
mod threads;
mod tracked;

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod tests;

pub use device_sampling::DeviceSampler;
pub use handle::{Handle, RecordingNow, SettingsChange};
pub use listener::listen_for_talk;
pub use live_order::{OrderedBy, ReportedState};
pub use names::command_line;
pub use peer::is_own_peer;
pub use recorder::{FlightConfig, ProcessSource, Recorder, RecorderConfig, Recording};
pub use rotation::{ClosedFile, RotationConfig, numbered};
pub use status::{ProcessStatus, Status};
pub use store::{OnTraceEvent, TraceEvent};
