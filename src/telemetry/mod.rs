//! What `gputrace monitor` sends: a page for Prometheus and OpenTelemetry's `hw.*` metrics, from the latest
//! sample of each device.

pub mod families;
pub mod hardware;
pub mod latest;
pub mod page;
pub mod server;
