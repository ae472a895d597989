//! Aggregates: what reports and flamegraphs need of the stream, in bounded memory.
//!
//! A sink of the model. Everything is keyed by ids; names are looked up at the end. Counts and
//! sums are exact and do not depend on the order of arrival; quantiles are within 0.4 %. What
//! does not fit a bound goes into an "other" of its kind and is counted there.

mod aggregates;
mod anomalies;
mod bounded;
mod busy;
mod calls;
mod devices;
mod durations;
mod estimates;
mod failure;
mod failures;
mod graphs;
mod idle;
mod kernels;
mod launches;
mod occupancy;
mod peers;
mod rhythm;
mod sampled;
mod stacks;
mod step_watch;
mod steps;
mod streams;
mod surroundings;
mod transfers;

pub use aggregates::Aggregates;
pub use anomalies::{Anomalies, KernelOutliers, Outlier};
pub use busy::Busy;
pub use calls::{CallAggregate, CallClass, CallKey, Calls};
pub use devices::{DeviceAggregate, DeviceTime, Devices};
pub use durations::Durations;
pub use estimates::{
    DrawnWindows, Estimate, EstimateKey, EstimatedRow, Estimates, Estimation, KeyWork, OutsideWindows,
    RunningMeans, WindowCounts, WindowPlan, WindowSchedule, Windowed,
};
pub use failure::{Failure, FailureKey};
pub use failures::Failures;
pub use graphs::{GraphAggregate, GraphKey, Graphs};
#[cfg(test)]
pub(crate) use idle::QUEUED_NS;
pub use idle::{Between, Cause, Idle, Pieces};
pub use kernels::{Config, KernelAggregate, KernelKey, Kernels};
pub use launches::{LaunchStacks, LaunchSums, LaunchTimes};
pub use occupancy::{BestBlock, Occupancy, OccupancyLimit, best_block, occupancy, occupancy_limits};
pub use peers::{EndDevice, PeerCopies, PeerMoved};
pub use rhythm::Rhythm;
pub use sampled::{DeviceMoment, Energy, Level, SampledDevice, SampledDevices, gap_ns};
pub use stacks::{Leaf, MANY_STREAMS, NO_DEVICE, Owner, StackKey, Stacks, Weight};
pub use step_watch::{Doing, StepPart, StepSums, StepWatch, WatchedStep, WatchedSteps};
pub use steps::{StackLaunches, first_of_step};
pub use streams::{Stream, Streams};
pub use transfers::{Memories, Moved, Transfers};
