//! What this machine offers a tracer: the facts behind `gputrace doctor`, one file a subject.
//! Nothing here prints.

pub mod cuda_properties;
pub mod cupti;
pub mod finding;
pub mod gpu;
mod host;
pub mod preload;
pub mod system;
