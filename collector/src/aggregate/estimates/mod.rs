//! GPU time of operations without device times, where only a part of the time had them (windows, or device
//! times that were switched): an exact count times the mean of those that were timed, with an error.
//!
//! The mean is that of operations of one key: stack, kernel and launch configuration, or copy and class of
//! size; a kernel whose key was never timed has the mean of its function ([`collapsed`]). It is taken over
//! operations in scheduled windows only. What a window was opened for because it was
//! new is timed exactly, and enters no mean unless there is nothing else.
//!
//! Launches whose stack was not taken, or that were only counted, are divided among the sites of other
//! launches of their kernel ([`placement`]).
//!
//! The error is linearised with the window as the unit, since operations of one window resemble each other.

mod collapsed;
mod drawn;
mod estimation;
mod interval;
mod key;
mod key_sums;
mod launch_sites;
mod placement;
mod running;
mod sampled_windows;
mod table;
mod units;
mod windowed;

#[cfg(test)]
mod simulation_tests;
#[cfg(test)]
mod tests;

pub use drawn::{DrawnWindows, OutsideWindows, WindowPlan, WindowSchedule};
pub use estimation::{Estimate, EstimatedRow, Estimation};
pub use key::{EstimateKey, KeyWork};
pub use running::RunningMeans;
pub use sampled_windows::WindowCounts;
pub use table::Estimates;
pub use windowed::Windowed;
