//! Outliers: runs of kernels that took far longer than usual, with the worst run of each kernel.

use crate::aggregate::bounded::Bounded;
use crate::aggregate::surroundings::{LastOperations, Ran, Surroundings};
use crate::aggregate::{DeviceMoment, Devices, KernelKey, SampledDevices};
use crate::model::operation::{Anomaly, HostCall, Kernel, Operation, Timing, Verdict, What};

/// Kernels that have a row.
const KERNELS_MAX: usize = 4096;
/// Devices whose last operations are kept.
const DEVICES_MAX: usize = 256;

/// The outliers of one kernel.
#[derive(Clone, Debug)]
pub struct KernelOutliers {
    pub runs: u64,
    /// What they took beyond their medians.
    pub over_ns: u64,
    pub worst: Outlier,
}

/// The run that was farthest from its median.
#[derive(Clone, Debug)]
pub struct Outlier {
    pub kernel: Kernel,
    pub anomaly: Anomaly,
    pub timing: Timing,
    pub call: Option<HostCall>,
    /// The stack that it is charged to: of a node of a graph, the stack that captured it. 0 for none.
    pub stack: u32,
    /// Index of the device in [`Devices`].
    pub device: usize,
    pub surroundings: Surroundings,
    /// What the device did then, once its samples are known.
    moment: Option<DeviceMoment>,
}

impl Outlier {
    #[cold]
    fn new(
        operation: &Operation,
        device: usize,
        kernel: Kernel,
        timing: Timing,
        anomaly: Anomaly,
    ) -> Outlier {
        let launched = operation.call.as_ref().map_or(0, |call| call.stack);
        let made = operation.graph.and_then(|node| node.made).map_or(0, |made| made.stack);
        let stack = if made != 0 { made } else { launched };
        let call = operation.call.clone();
        let surroundings = Surroundings::default();
        Outlier { kernel, anomaly, timing, call, stack, device, surroundings, moment: None }
    }

    /// What the device did at the time of the run, if it was sampled. With `is_last`, no more samples come.
    fn find_moment(
        &self,
        devices: &Devices,
        sampled: &SampledDevices,
        is_last: bool,
    ) -> Option<DeviceMoment> {
        let Timing { start_ns, duration_ns } = self.timing;
        let device = &devices.get(self.device)?.device;
        sampled.moment(device, start_ns, start_ns.saturating_add(duration_ns), is_last)
    }

    /// The same at the end of the stream.
    pub fn moment(&self, devices: &Devices, sampled: &SampledDevices) -> Option<DeviceMoment> {
        self.moment.or_else(|| self.find_moment(devices, sampled, true))
    }

    fn over_ns(&self) -> u64 {
        self.anomaly.over_ns(self.timing.duration_ns)
    }
}

#[derive(Clone, Debug, Default)]
pub struct Anomalies {
    kernels: Bounded<KernelKey, KernelOutliers, KERNELS_MAX>,
    pub runs: u64,
    /// Runs of kernels that have no row.
    pub beyond: u64,
    /// Runs of kernels that have no history, since there are too many.
    pub unjudged: u64,
    /// Kernels whose worst run waits for samples of its time.
    unexplained: Vec<KernelKey>,
    /// By device.
    last: Vec<LastOperations>,
}

impl Anomalies {
    /// Notes any operation: it may run beside an outlier.
    #[inline]
    pub fn passes(&mut self, operation: &Operation, device: usize) {
        let Some(other) = Ran::of(operation).filter(|_| device < DEVICES_MAX) else { return };
        let Anomalies { kernels, last, .. } = self;
        if last.len() <= device {
            last.resize_with(device + 1, LastOperations::default);
        }
        let Some(last) = last.get_mut(device) else { return };
        last.add(other, |key, run| {
            if let Some(known) = kernels.get_mut(&key) {
                known.worst.surroundings.add(run, other);
            }
        });
    }

    /// Adds a kernel, after [`Anomalies::passes`].
    #[inline]
    pub fn add(&mut self, operation: &Operation, device: usize) {
        match operation.verdict {
            Verdict::None | Verdict::Usual => {}
            Verdict::Unjudged => self.unjudged += 1,
            Verdict::Outlier(anomaly) => self.outlier(operation, device, anomaly),
        }
    }

    /// Notes what devices did at the worst runs, as far as samples have come: they are kept for minutes only.
    pub fn explain(&mut self, devices: &Devices, sampled: &SampledDevices) {
        let Anomalies { kernels, unexplained, .. } = self;
        unexplained.retain(|key| {
            let Some(known) = kernels.get_mut(key) else { return false };
            known.worst.moment = known.worst.find_moment(devices, sampled, false);
            known.worst.moment.is_none()
        });
    }

    #[cold]
    #[inline(never)]
    fn outlier(&mut self, operation: &Operation, device: usize, anomaly: Anomaly) {
        let (What::Kernel(kernel), Some(timing)) = (operation.what, operation.timing) else { return };
        self.runs += 1;
        let key = KernelKey { process: operation.process, name: kernel.name };
        let over_ns = anomaly.over_ns(timing.duration_ns);
        let new = || KernelOutliers {
            runs: 0,
            over_ns: 0,
            worst: Outlier::new(operation, device, kernel, timing, anomaly),
        };
        let Some(known) = self.kernels.row(key, new) else {
            self.beyond += 1;
            return;
        };
        known.runs += 1;
        known.over_ns = known.over_ns.saturating_add(over_ns);
        if over_ns > known.worst.over_ns() {
            known.worst = Outlier::new(operation, device, kernel, timing, anomaly);
        } else if known.runs > 1 {
            return;
        }
        if let (Some(last), Some(run)) = (self.last.get_mut(device), Ran::of(operation)) {
            known.worst.surroundings = last.around(key, run);
        }
        if !self.unexplained.contains(&key) {
            self.unexplained.push(key);
        }
    }

    /// The one that cost the most first.
    pub fn sorted(&self) -> Vec<(KernelKey, &KernelOutliers)> {
        let mut all: Vec<_> = self.kernels.iter().map(|(key, runs)| (*key, runs)).collect();
        all.sort_unstable_by_key(|(key, runs)| (std::cmp::Reverse(runs.over_ns), *key));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outlier(name: u32, duration_ns: u64) -> Operation {
        Operation {
            process: 0,
            what: What::Kernel(Kernel { name, ..Kernel::default() }),
            call: None,
            timing: Some(Timing { start_ns: duration_ns, duration_ns }),
            device: 0,
            context: 0,
            stream: 0,
            graph: None,
            verdict: Verdict::Outlier(Anomaly { sigmas: 3.0, median_ns: 100.0 }),
        }
    }

    #[test]
    fn outliers_are_added_up_and_the_worst_is_kept() {
        let mut anomalies = Anomalies::default();
        for duration_ns in [150, 900, 200] {
            anomalies.add(&outlier(1, duration_ns), 0);
        }
        anomalies.add(&outlier(2, 5_000), 0);
        anomalies.add(&Operation { verdict: Verdict::Usual, ..outlier(1, 9_999) }, 0);
        anomalies.add(&Operation { verdict: Verdict::Unjudged, ..outlier(3, 9_999) }, 0);
        let all: Vec<_> = anomalies.sorted();
        let rows: Vec<_> = all
            .iter()
            .map(|(key, runs)| (key.name, runs.runs, runs.over_ns, runs.worst.timing.duration_ns))
            .collect();
        assert_eq!(rows, [(2, 1, 4_900, 5_000), (1, 3, 950, 900)]);
        assert_eq!((anomalies.runs, anomalies.unjudged, anomalies.beyond), (4, 1, 0));
    }

    #[test]
    fn outliers_of_kernels_without_a_row_are_counted() {
        let mut anomalies = Anomalies::default();
        (0..KERNELS_MAX as u32 + 7).for_each(|name| anomalies.add(&outlier(name, 500), 0));
        anomalies.add(&outlier(0, 500), 0);
        assert_eq!((anomalies.sorted().len(), anomalies.beyond), (KERNELS_MAX, 7));
        assert_eq!(anomalies.runs, KERNELS_MAX as u64 + 8);
    }
}
