//! Devices whose clocks were lowered.

use super::input::RuleInput;
use super::{Confidence, Finding};
use crate::label::units::duration;

/// The least part of the sampled time with lowered clocks.
const SHARE_MIN: f64 = 0.05;
const LONG_NS: u64 = 1_000_000_000;
/// The least part of the sampled time in which the device was busy.
const BUSY_MIN: f64 = 0.2;

pub(super) fn find(input: &RuleInput<'_>, to: &mut Vec<Finding>) {
    for device in &input.report.devices {
        let Some(metrics) = &device.metrics else { continue };
        let Some(worst) = metrics.throttled.iter().flatten().max_by_key(|reason| reason.ns) else { continue };
        let Some(clock) = metrics.sm_clock_mhz.filter(|clock| clock.max > 0.0) else { continue };
        let highest_mhz = metrics.sm_clock_max_mhz.unwrap_or(0.0).max(clock.max);
        let of_sampled = |ns: u64| ns as f64 / metrics.sampled_ns.max(1) as f64;
        let busy_ns = device.busy_ns.unwrap_or(0);
        // A GPU that has little to do lowers its clocks by itself.
        if worst.ns < LONG_NS || of_sampled(worst.ns) < SHARE_MIN || of_sampled(busy_ns) < BUSY_MIN {
            continue;
        }
        to.push(Finding {
            rule: "throttled",
            title: format!(
                "GPU {} ran with lowered clocks for {} ({}): {:.0} MHz on average of {highest_mhz:.0}",
                device.ordinal,
                duration(worst.ns),
                worst.reason,
                clock.mean
            ),
            lines: Vec::new(),
            advice: "Look at cooling, at the power limit (nvidia-smi -q -d POWER,PERFORMANCE) and at who else uses \
                     the machine"
                .to_owned(),
            saves: input.saves((busy_ns as f64 * (1.0 - clock.mean / highest_mhz)) as u64),
            basis: "busy time times the part by which the mean clock is below the highest that can be set",
            confidence: Confidence::Medium,
        });
    }
}
