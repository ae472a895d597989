//! What samples the devices of a session: the crate `monitor` reads them, the collector stores the samples.
//!
//! Nothing here runs in a traced program.

mod reading;
mod sampler;
mod shared;

use gputrace_collector::session::DeviceSampler;

pub use sampler::{DeviceMetricsRequest, Sampler};

/// The sampler of a session. It is there even if nothing is sampled at first, so that it can be switched on.
pub fn of_session(request: DeviceMetricsRequest) -> Option<Box<dyn DeviceSampler>> {
    let (sampler, _) = Sampler::start(request)?;
    Some(Box::new(sampler))
}
