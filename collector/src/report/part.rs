//! The report of a part of the traces: what `--filter`, `--from` and `--to` selected.

use serde::Serialize;

use crate::label::units::duration;
use crate::report::{DeviceTimes, MemoryReport, Report};

/// What was selected, as it was asked for.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PartReport {
    /// Any of these.
    pub filters: Vec<String>,
    /// From the begin of the first session.
    pub from_ns: Option<u64>,
    pub to_ns: Option<u64>,
}

impl PartReport {
    /// `kernel=*gemm* or device=1, from 1.50 s to 1.75 s`.
    pub fn text(&self) -> String {
        let filters = (!self.filters.is_empty()).then(|| self.filters.join(" or "));
        let moment = |word: &str, ns: Option<u64>| ns.map(|ns| format!("{word} {}", duration(ns)));
        let times = [moment("from", self.from_ns), moment("to", self.to_ns)].into_iter().flatten();
        let times = times.collect::<Vec<_>>().join(" ");
        let parts = filters.into_iter().chain(Some(times).filter(|times| !times.is_empty()));
        parts.collect::<Vec<_>>().join(", ")
    }
}

impl Report {
    /// The same of a part: what only the whole trace has is left out. The wall time is that of the interval.
    pub fn of_part(mut self, part: PartReport) -> Report {
        let to_ns = part.to_ns.unwrap_or(self.wall_ns).min(self.wall_ns);
        self.wall_ns = to_ns.saturating_sub(part.from_ns.unwrap_or(0));
        // While a device executed nothing of the part, it may have executed something else.
        for device in &mut self.devices {
            (device.idle_ns, device.idle_at_most_ns, device.idle) = (None, None, None);
        }
        self.findings = None;
        // Calls that were not selected would count as host code.
        self.steps.iter_mut().for_each(|steps| steps.slowest.clear());
        self.memory = MemoryReport::default();
        self.processes.retain(|process| process.host_calls + process.executed_operations > 0);
        // The model counts ranges in all of a trace. Of a part is known what was launched in them.
        self.ranges.retain(|range| range.operations > 0);
        for range in &mut self.ranges {
            (range.calls, range.open, range.host_total_ns, range.marks) = (0, 0, 0, 0);
        }
        let counts = &mut self.counts;
        let switched = self.switched_times.as_ref().map_or(0, |times| times.switched_off_operations);
        let on_devices = counts.executed_operations.saturating_sub(counts.host_to_host + switched);
        counts.untimed_operations = match self.device_times {
            DeviceTimes::Partial => on_devices.saturating_sub(counts.timed_operations),
            DeviceTimes::Full | DeviceTimes::Windows | DeviceTimes::None => 0,
        };
        if part.from_ns.is_some() || part.to_ns.is_some() {
            // Its intervals are those of the whole.
            self.switched_times = None;
        }
        self.part = Some(part);
        self
    }
}
