//! What samples the devices of a session: the crate `monitor` reads them, the collector stores the samples.
//!
//! Nothing here runs in a traced program.

mod reading;
mod request;
mod sampler;
mod shared;

use gputrace_collector::session::DeviceSampler;

pub use request::{DeviceMetricsRequest, INTERVAL_MIN, interval};
pub use sampler::{Sampler, SamplerHandle};

/// The sampler of a session, and what changes it. It is there even if nothing is sampled at first, so that it
/// can be switched on; `None` if the system refuses its thread.
pub fn of_session(request: DeviceMetricsRequest) -> (Option<Box<dyn DeviceSampler>>, Option<SamplerHandle>) {
    match Sampler::start(request) {
        Some((sampler, handle)) => (Some(Box::new(sampler)), Some(handle)),
        None => (None, None),
    }
}
