//! Devices whose clocks were lowered.

use super::input::RuleInput;
use super::{Confidence, Finding};
use crate::label::units::duration;

/// The least part of the sampled time with lowered clocks.
const SHARE_MIN: f64 = 0.05;

pub(super) fn find(input: &RuleInput<'_>, to: &mut Vec<Finding>) {
    for device in &input.report.devices {
        let Some(metrics) = &device.metrics else { continue };
        let Some(worst) = metrics.throttled.iter().flatten().max_by_key(|reason| reason.ns) else { continue };
        let Some(clock) = metrics.sm_clock_mhz.filter(|clock| clock.max > 0.0) else { continue };
        if (worst.ns as f64) < metrics.sampled_ns as f64 * SHARE_MIN {
            continue;
        }
        to.push(Finding {
            rule: "throttled",
            title: format!(
                "GPU {} ran with lowered clocks for {} ({}): {:.0} MHz on average, {:.0} at most",
                device.ordinal,
                duration(worst.ns),
                worst.reason,
                clock.mean,
                clock.max
            ),
            lines: Vec::new(),
            advice: "Look at cooling, at the power limit (nvidia-smi -q -d POWER,PERFORMANCE) and at who else uses \
                     the machine"
                .to_owned(),
            saves_ns: (device.busy_ns.unwrap_or(0) as f64 * (1.0 - clock.mean / clock.max)) as u64,
            saves_share: 0.0,
            basis: "busy time times the part by which the mean clock is below the highest",
            confidence: Confidence::Medium,
        });
    }
}
