//! What lies between the begin of a launch and the end of its kernel, summed, and by the stack of the launch.

use crate::aggregate::bounded::Bounded;
use crate::model::operation::Operation;

/// Stacks that have a row; launches of others go into [`LaunchStacks::beyond`].
const STACKS_MAX: usize = 1 << 17;

/// From the begin of a launch to the end of its kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LaunchTimes {
    /// In the call.
    pub api_ns: u64,
    /// From the end of the call to the start of the kernel; 0 if that started before.
    pub queue_ns: u64,
    pub kernel_ns: u64,
    /// From the begin of the call to the end of the kernel.
    pub total_ns: u64,
}

impl LaunchTimes {
    /// `None` of nodes of graphs, and where a time is not known.
    #[inline]
    pub fn of(operation: &Operation) -> Option<LaunchTimes> {
        let (call, timing) = operation.call.as_ref().zip(operation.timing)?;
        if operation.graph.is_some() {
            return None;
        }
        let end_ns = call.start_ns.saturating_add(call.duration_ns);
        Some(LaunchTimes {
            api_ns: call.duration_ns,
            queue_ns: timing.start_ns.saturating_sub(end_ns),
            kernel_ns: timing.duration_ns,
            total_ns: timing.start_ns.saturating_add(timing.duration_ns).saturating_sub(call.start_ns),
        })
    }
}

/// Sums over launches: of a kernel, or of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LaunchSums {
    pub calls: u64,
    pub api_ns: u64,
    pub api_max_ns: u64,
    /// Launches whose kernel started after the call, and for how long these waited.
    pub queued: u64,
    pub queue_ns: u64,
    pub queue_max_ns: u64,
    pub kernel_ns: u64,
    pub total_ns: u64,
    /// Launches whose call took longer than the kernel.
    pub shorter: u64,
}

impl LaunchSums {
    #[inline]
    pub(super) fn add(&mut self, times: LaunchTimes) {
        self.merge(&LaunchSums {
            calls: 1,
            api_ns: times.api_ns,
            api_max_ns: times.api_ns,
            queued: u64::from(times.queue_ns > 0),
            queue_ns: times.queue_ns,
            queue_max_ns: times.queue_ns,
            kernel_ns: times.kernel_ns,
            total_ns: times.total_ns,
            shorter: u64::from(times.kernel_ns < times.api_ns),
        });
    }

    #[inline]
    pub fn merge(&mut self, other: &LaunchSums) {
        self.calls = self.calls.saturating_add(other.calls);
        self.api_ns = self.api_ns.saturating_add(other.api_ns);
        self.api_max_ns = self.api_max_ns.max(other.api_max_ns);
        self.queued = self.queued.saturating_add(other.queued);
        self.queue_ns = self.queue_ns.saturating_add(other.queue_ns);
        self.queue_max_ns = self.queue_max_ns.max(other.queue_max_ns);
        self.kernel_ns = self.kernel_ns.saturating_add(other.kernel_ns);
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.shorter = self.shorter.saturating_add(other.shorter);
    }
}

/// Launches by the stack of their call. Stacks become lines when a report is made.
#[derive(Clone, Debug, Default)]
pub struct LaunchStacks {
    rows: Bounded<(u32, u32), LaunchSums, STACKS_MAX>,
    beyond: LaunchSums,
}

impl LaunchStacks {
    #[inline]
    pub(super) fn add(&mut self, process: u32, stack: u32, times: LaunchTimes) {
        let row = self.rows.row((process, stack), LaunchSums::default);
        row.unwrap_or(&mut self.beyond).add(times);
    }

    /// By process and stack definition, sorted.
    pub fn sorted(&self) -> Vec<((u32, u32), &LaunchSums)> {
        self.rows.sorted()
    }

    /// Launches of stacks that have no row.
    pub fn beyond(&self) -> &LaunchSums {
        &self.beyond
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::operation::{GraphNode, HostCall, Kernel, Timing, Verdict, What};

    #[test]
    fn launches_are_summed_without_nodes_of_graphs() {
        let call = HostCall { start_ns: 1_000, duration_ns: 500, ..HostCall::default() };
        let timing = |start_ns, duration_ns| Some(Timing { start_ns, duration_ns });
        let operation = |timing, graph| Operation {
            process: 0,
            what: What::Kernel(Kernel { name: 7, ..Kernel::default() }),
            call: Some(call.clone()),
            timing,
            device: 0,
            context: 0,
            stream: 0,
            graph,
            verdict: Verdict::None,
        };
        let node = GraphNode { graph: 1, node: 2, nodes: 0, made: None };
        let mut sums = LaunchSums::default();
        for (start_ns, duration_ns) in [(1_400, 400), (1_800, 600), (2_500, 700)] {
            sums.add(LaunchTimes::of(&operation(timing(start_ns, duration_ns), None)).unwrap());
        }
        assert_eq!(LaunchTimes::of(&operation(None, None)), None);
        assert_eq!(LaunchTimes::of(&operation(timing(1_800, 5), Some(node))), None);
        let expected = LaunchSums {
            calls: 3,
            api_ns: 1_500,
            api_max_ns: 500,
            queued: 2,
            queue_ns: 300 + 1_000,
            queue_max_ns: 1_000,
            kernel_ns: 1_700,
            total_ns: 800 + 1_400 + 2_200,
            shorter: 1,
        };
        assert_eq!(sums, expected);
    }

    #[test]
    fn launches_of_stacks_without_a_row_are_summed_together() {
        let times = LaunchTimes { api_ns: 5, queue_ns: 0, kernel_ns: 2, total_ns: 7 };
        let mut stacks = LaunchStacks::default();
        (0..STACKS_MAX as u32 + 3).for_each(|stack| stacks.add(1, stack, times));
        // A stack that has a row keeps it.
        stacks.add(1, 0, LaunchTimes { queue_ns: u64::MAX, total_ns: u64::MAX, ..times });
        let sorted = stacks.sorted();
        assert_eq!((sorted.len(), stacks.beyond().calls, stacks.beyond().shorter), (STACKS_MAX, 3, 3));
        let (key, first) = sorted[0];
        assert_eq!((key, first.calls, first.queued, first.api_ns), ((1, 0), 2, 1, 10));
        // Sums of damaged times end at the most that a number holds.
        assert_eq!((first.queue_ns, first.total_ns), (u64::MAX, u64::MAX));
    }
}
