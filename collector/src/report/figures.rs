//! Single figures of a report, which two reports are compared by and conditions name.

use crate::filter::Glob;
use crate::report::diff::Moments;
use crate::report::{DeviceReport, DeviceTimes, KernelReport, MovedReport, Report};

impl Report {
    /// Whether any operation has a device time, or there was no operation that could have one.
    pub fn has_device_times(&self) -> bool {
        self.device_times != DeviceTimes::None
    }

    /// Whether nothing was recorded that could be compared.
    pub fn is_empty(&self) -> bool {
        self.counts.host_calls == 0 && self.counts.executed_operations == 0
    }

    /// The devices that executed anything.
    pub fn used_devices(&self) -> impl Iterator<Item = &DeviceReport> {
        self.devices.iter().filter(|device| device.operations > 0)
    }

    /// The sum over the devices that were used.
    pub fn busy_ns(&self) -> Option<u64> {
        self.of_devices(|device| device.busy_ns)
    }

    /// From the first to the last operation, as a sum over the devices that were used.
    pub fn active_ns(&self) -> Option<u64> {
        self.of_devices(|device| device.active_span_ns)
    }

    /// The sum over the devices that were used; an upper bound if not every operation's time is known.
    pub fn idle_ns(&self) -> Option<u64> {
        self.of_devices(|device| device.idle_at_most_ns)
    }

    /// Idle time as a share of the wall time, over the devices that were used.
    pub fn idle_share(&self) -> Option<f64> {
        let wall_ns = self.wall_ns as f64 * self.used_devices().count() as f64;
        self.idle_ns().filter(|_| wall_ns > 0.0).map(|idle_ns| idle_ns as f64 / wall_ns)
    }

    /// Device time of the kernels whose short or full name matches; of all without a pattern.
    pub fn kernel_ns(&self, pattern: Option<&Glob>) -> Option<u64> {
        let matching = self.kernels_of(pattern).filter_map(KernelReport::time_ns);
        let other = pattern.map_or(self.other_kernels.total_ns, |_| 0);
        self.has_device_times().then(|| matching.fold(other, u64::saturating_add))
    }

    /// Executions of the same kernels.
    pub fn kernel_calls(&self, pattern: Option<&Glob>) -> u64 {
        let other = pattern.map_or(self.other_kernels.calls, |_| 0);
        self.kernels_of(pattern).map(|kernel| kernel.calls).fold(other, u64::saturating_add)
    }

    /// The mean step of the process with the most launches.
    pub fn step_ns(&self) -> Option<f64> {
        self.steps.first().map(|steps| steps.mean_ns)
    }

    /// Mean and variance of these steps; the mean is without the longest.
    pub fn step_moments(&self) -> Option<Moments> {
        let steps = self.steps.first()?;
        // Between so many begins are one less, and the longest is left out.
        let count = steps.steps.checked_sub(2).filter(|count| *count >= 2)? as f64;
        let variance = steps.deviation_ns.powi(2) * count / (count - 1.0);
        Some(Moments { mean: steps.mean_ns, variance, count })
    }

    /// The number of steps of the same process.
    pub fn step_count(&self) -> Option<u64> {
        self.steps.first().map(|steps| steps.steps)
    }

    /// Device time of copies and memsets.
    pub fn moved_ns(&self) -> Option<u64> {
        let moved = self.transfers.iter().map(|transfer| &transfer.moved).chain([&self.memsets]);
        let ns = moved.filter_map(MovedReport::time_ns).fold(0, u64::saturating_add);
        self.has_device_times().then_some(ns)
    }

    /// Host time in calls of the driver.
    pub fn calls_ns(&self) -> u64 {
        self.calls.iter().filter_map(|call| call.spread.total_ns).fold(0, u64::saturating_add)
    }

    fn of_devices(&self, of: impl Fn(&DeviceReport) -> Option<u64>) -> Option<u64> {
        let mut used = self.used_devices().peekable();
        used.peek()?;
        used.try_fold(0, |sum: u64, device| Some(sum.saturating_add(of(device)?)))
    }

    fn kernels_of<'a>(
        &'a self,
        pattern: Option<&'a Glob>,
    ) -> impl Iterator<Item = &'a crate::report::KernelReport> {
        self.kernels.iter().filter(move |kernel| {
            pattern.is_none_or(|glob| glob.matches(&kernel.name) || glob.matches(&kernel.full_name))
        })
    }
}
