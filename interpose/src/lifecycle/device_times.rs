//! What `cupti` does in a session's life.

use core::ffi::c_int;

use gputrace_producer::service::{Between, NOTHING_DUE};
use gputrace_producer::session::Session;
use gputrace_wire::run_settings::TimesSetting;

use crate::process::link::Link;
use crate::symbols::driver;
use crate::table::tables::{GraphNumber, Tables};

pub struct DeviceTimes {
    /// Starts collecting device records, given the driver's version and whether it is simulated.
    pub start: fn(&'static Session, &Tables, c_int, bool),
    /// The periodic work of the service thread.
    pub turn: fn(&'static Session),
    /// A step towards that. True once it is done, or cannot be.
    pub switch: fn(&'static Session, TimesSetting) -> bool,
    /// What is in force.
    pub now: fn(&Session) -> TimesSetting,
    /// What the service thread does between turns, and the time until it is due again.
    pub between: Between,
    /// The last delivery.
    pub finish: fn(&'static Session),
    pub graph_number: GraphNumber,
    pub run_call: driver::Run,
}

/// Set before the first session starts.
pub static DEVICE_TIMES: Link<DeviceTimes> = Link::new(&DeviceTimes {
    start: |_, _, _, _| (),
    turn: |_| (),
    switch: |_, _| true,
    now: |_| TimesSetting::Off,
    between: |_| NOTHING_DUE,
    finish: |_| (),
    graph_number: |_, _| 0,
    run_call: driver::as_it_is,
});
