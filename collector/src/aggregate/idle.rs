//! Why a device was idle: the time of its gaps by cause, and by the stacks around them.
//!
//! A gap ends with an operation, and is explained by what the thread that launched it did before. So every
//! interval of busy time keeps [`Lead`], what is known of its first operation, until it is clear that no
//! earlier operation comes. The gap is then cut into pieces of one cause each, whose sum is the gap.

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::model::before::{Before, BlockedBy};
use crate::model::operation::{Operation, Timing, What};

/// Places kept of a device; the time at others has a cause and no line.
const IDLE_LINES_MAX: usize = 1 << 16;

/// An operation that starts so long after its call has ended was waiting in a queue; a device that is free
/// starts one within some microseconds.
pub(crate) const QUEUED_NS: u64 = 20_000;

/// Why a device did nothing. A piece of time gets the first that holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Cause {
    /// The launching thread was in a synchronisation.
    Sync,
    /// The launching thread was in the call of a copy or memset that the device had ended.
    Copy,
    /// The operation was launched into a stream that waited for an event or a value.
    Event,
    /// The operation is a node of a graph that was launched before the device became idle.
    Graph,
    /// The operation was launched long before, and the device took its time between two operations.
    Queue,
    /// The operation was being launched: from the begin of its call to its start.
    Launch,
    /// Nothing was launched: the thread did something else.
    Host,
    /// The call of the operation is not known.
    Unknown,
    /// The time before the first operation.
    Begin,
    /// The time after the last.
    End,
}

impl Cause {
    pub const ALL: [Cause; 10] = [
        Cause::Sync,
        Cause::Copy,
        Cause::Event,
        Cause::Graph,
        Cause::Queue,
        Cause::Launch,
        Cause::Host,
        Cause::Unknown,
        Cause::Begin,
        Cause::End,
    ];

    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Cause::Sync => "sync",
            Cause::Copy => "copy",
            Cause::Event => "event",
            Cause::Graph => "graph",
            Cause::Queue => "queue",
            Cause::Launch => "launch",
            Cause::Host => "host",
            Cause::Unknown => "unknown",
            Cause::Begin => "begin",
            Cause::End => "end",
        }
    }

    /// Whether its time is known by line.
    pub const fn has_lines(self) -> bool {
        !matches!(self, Cause::Unknown | Cause::Begin | Cause::End)
    }

    /// For people, after "idle".
    pub const fn text(self) -> &'static str {
        match self {
            Cause::Sync => "in synchronisations",
            Cause::Copy => "in calls of copies",
            Cause::Event => "waiting for events",
            Cause::Graph => "between nodes of graphs",
            Cause::Queue => "between queued operations",
            Cause::Launch => "launching",
            Cause::Host => "in host code",
            Cause::Unknown => "for unknown reasons",
            Cause::Begin => "before the first operation",
            Cause::End => "after the last",
        }
    }
}

/// A time before an operation's start: exact below 2.1 seconds, to the microsecond up to 36 minutes, and at
/// most that. A gap's pieces are cut at such times; their sum is exact.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
struct Ago(u32);

impl Ago {
    const COARSE: u32 = 1 << 31;

    #[inline]
    fn new(ns: u64) -> Ago {
        match u32::try_from(ns) {
            Ok(ns) if ns < Ago::COARSE => Ago(ns),
            _ => Ago(Ago::COARSE | (ns >> 10).min(u64::from(Ago::COARSE - 1)) as u32),
        }
    }

    #[inline]
    fn ns(self) -> u64 {
        if self.0 < Ago::COARSE { self.0.into() } else { u64::from(self.0 & !Ago::COARSE) << 10 }
    }
}

/// What explains the time before an operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Lead {
    /// Begin of the launching call, and begin and end of the call that blocked the thread, as times before
    /// the operation's start.
    launch: Ago,
    blocked_from: Ago,
    blocked_to: Ago,
    process: u32,
    /// Of the launching call.
    stack: u32,
    from: u32,
    to: u32,
    blocked_stack: u32,
    blocked_by: BlockedBy,
    /// The cause of the time after the launch.
    after: Cause,
}

impl Lead {
    /// Of an operation whose call is not known.
    pub(super) const UNKNOWN: Lead = Lead {
        launch: Ago(0),
        blocked_from: Ago(0),
        blocked_to: Ago(0),
        process: 0,
        stack: 0,
        from: 0,
        to: 0,
        blocked_stack: 0,
        blocked_by: BlockedBy::Nothing,
        after: Cause::Unknown,
    };

    #[inline]
    pub fn new(operation: &Operation, timing: Timing) -> Lead {
        let Some(call) = &operation.call else { return Lead::UNKNOWN };
        let ago = |ns: u64| Ago::new(timing.start_ns.saturating_sub(ns));
        let Before { from, to, blocked, awaits } = call.before;
        let is_node = operation.graph.is_some() && operation.what != What::Graph;
        let called_ns = call.start_ns.saturating_add(call.duration_ns);
        let is_queued = timing.start_ns.saturating_sub(called_ns) > QUEUED_NS;
        Lead {
            launch: ago(call.start_ns),
            blocked_from: ago(blocked.start_ns),
            blocked_to: ago(blocked.end_ns),
            process: operation.process,
            stack: call.stack,
            from,
            to,
            blocked_stack: blocked.stack,
            blocked_by: blocked.by,
            after: match (awaits, is_node, is_queued) {
                (true, ..) => Cause::Event,
                (_, true, _) => Cause::Graph,
                (_, _, true) => Cause::Queue,
                _ => Cause::Launch,
            },
        }
    }
}

/// Where the thread was: at one stack, or between two.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Between {
    pub process: u32,
    pub cause: Cause,
    pub from: u32,
    pub to: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pieces {
    pub ns: u64,
    pub count: u64,
}

/// The gaps of a device that are explained.
#[derive(Clone, Debug, Default)]
pub struct Idle {
    causes: [Pieces; Cause::ALL.len()],
    lines: FxHashMap<Between, Pieces>,
    /// The lines of the last piece after a launch, and of the last one before it, whose times are not in
    /// `lines` yet.
    last: [Option<(Between, Pieces)>; 2],
}

impl Idle {
    /// Explains the gap of that length before an operation's start.
    #[inline]
    pub(super) fn gap(&mut self, gap_ns: u64, lead: &Lead) {
        if lead.after == Cause::Unknown {
            return self.piece(Cause::Unknown, gap_ns);
        }
        let after_ns = lead.launch.ns().min(gap_ns);
        let before_ns = gap_ns - after_ns;
        // What was launched while the device was idle did not wait for another operation.
        let after = match lead.after {
            Cause::Graph | Cause::Queue if before_ns > 0 => Cause::Launch,
            after => after,
        };
        self.piece(after, after_ns);
        let Lead { process, stack, from, to, .. } = *lead;
        if after_ns > 0 {
            self.line::<0>(Between { process, cause: after, from: stack, to: stack }, after_ns);
        }
        if before_ns == 0 {
            return;
        }
        let blocked_ns = match lead.blocked_by {
            BlockedBy::Nothing => 0,
            _ => lead.blocked_from.ns().min(gap_ns).saturating_sub(lead.blocked_to.ns().max(after_ns)),
        };
        if blocked_ns > 0 {
            let cause = if lead.blocked_by == BlockedBy::Sync { Cause::Sync } else { Cause::Copy };
            self.piece(cause, blocked_ns);
            let stack = lead.blocked_stack;
            self.line::<1>(Between { process, cause, from: stack, to: stack }, blocked_ns);
        }
        let host_ns = before_ns - blocked_ns;
        if host_ns > 0 {
            self.piece(Cause::Host, host_ns);
            self.line::<1>(Between { process, cause: Cause::Host, from, to }, host_ns);
        }
    }

    #[inline]
    fn piece(&mut self, cause: Cause, ns: u64) {
        if ns > 0
            && let Some(pieces) = self.causes.get_mut(cause as usize)
        {
            pieces.ns = pieces.ns.saturating_add(ns);
            pieces.count += 1;
        }
    }

    #[inline]
    fn line<const LAST: usize>(&mut self, line: Between, ns: u64) {
        match &mut self.last[LAST] {
            Some((last, pieces)) if *last == line => {
                pieces.ns = pieces.ns.saturating_add(ns);
                pieces.count += 1;
            }
            last => {
                let before = last.replace((line, Pieces { ns, count: 1 }));
                if let Some((line, pieces)) = before {
                    self.keep(line, pieces);
                }
            }
        }
    }

    fn keep(&mut self, line: Between, more: Pieces) {
        let kept = self.lines.len();
        let pieces = match self.lines.get_mut(&line) {
            Some(pieces) => pieces,
            None if kept < IDLE_LINES_MAX => self.lines.entry(line).or_default(),
            None => return,
        };
        pieces.ns = pieces.ns.saturating_add(more.ns);
        pieces.count += more.count;
    }

    /// The time of a cause at all lines.
    pub fn of(&self, cause: Cause) -> Pieces {
        self.causes.get(cause as usize).copied().unwrap_or_default()
    }

    /// The time of all causes.
    pub fn total_ns(&self) -> u64 {
        self.causes.iter().fold(0, |sum, pieces| sum.saturating_add(pieces.ns))
    }

    /// Of a device that was idle for `idle_ns` in all, `end_ns` of them after its last operation: the rest
    /// was before its first.
    pub fn of_run(mut self, idle_ns: u64, end_ns: u64) -> Idle {
        // Of sessions that overlap or are cut short, less time than the gaps may be known.
        let mut left_ns = idle_ns;
        for pieces in &mut self.causes {
            pieces.ns = pieces.ns.min(left_ns);
            left_ns -= pieces.ns;
        }
        let end_ns = end_ns.min(left_ns);
        self.piece(Cause::End, end_ns);
        self.piece(Cause::Begin, left_ns - end_ns);
        self
    }

    /// By line, sorted. What has no line here is in its cause only.
    pub fn lines(mut self) -> Vec<(Between, Pieces)> {
        for (line, pieces) in std::mem::take(&mut self.last).into_iter().flatten() {
            self.keep(line, pieces);
        }
        let mut all: Vec<_> = self.lines.into_iter().collect();
        all.sort_unstable_by_key(|(line, _)| *line);
        all
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::before::Blocked;
    use crate::model::operation::{GraphNode, HostCall, Verdict};

    fn lead(call_at: u64, start_ns: u64, before: Before, node: bool) -> Lead {
        let call = HostCall {
            process: 3,
            start_ns: call_at,
            duration_ns: 5,
            stack: 8,
            before,
            ..HostCall::default()
        };
        let timing = Timing { start_ns, duration_ns: 7 };
        let operation = Operation {
            process: 3,
            what: What::Fill { bytes: 1 },
            call: Some(call),
            timing: Some(timing),
            device: 0,
            context: 0,
            stream: 0,
            graph: node.then_some(GraphNode { graph: 1, node: 2, nodes: 0, made: None }),
            verdict: Verdict::None,
        };
        Lead::new(&operation, timing)
    }

    fn causes(idle: &Idle) -> Vec<(Cause, u64)> {
        let all = Cause::ALL.into_iter().map(|cause| (cause, idle.of(cause).ns));
        all.filter(|(_, ns)| *ns > 0).collect()
    }

    fn explained(gap_ns: u64, lead: Lead) -> Vec<(Cause, u64)> {
        let mut idle = Idle::default();
        idle.gap(gap_ns, &lead);
        causes(&idle)
    }

    #[test]
    fn gap_is_cut_where_a_cause_begins_or_ends() {
        let blocked = |by| Blocked { by, start_ns: 1_000, end_ns: 1_500, stack: 9 };
        let before = |by| Before { from: 4, to: 5, blocked: blocked(by), awaits: false };
        let sync = lead(1_800, 2_000, before(BlockedBy::Sync), false);
        let (sync_ns, host, launch) = (Cause::Sync, Cause::Host, Cause::Launch);
        assert_eq!(explained(2_000, sync), [(sync_ns, 500), (launch, 200), (host, 1_300)]);
        assert_eq!(explained(700, sync), [(sync_ns, 200), (launch, 200), (host, 300)]);
        assert_eq!(explained(400, sync), [(launch, 200), (host, 200)]);
        assert_eq!(explained(150, sync), [(launch, 150)]);
        let copy = lead(1_800, 2_000, before(BlockedBy::Copy), false);
        assert_eq!(explained(700, copy), [(Cause::Copy, 200), (launch, 200), (host, 300)]);
        let mut idle = Idle::default();
        idle.gap(700, &sync);
        idle.gap(300, &sync);
        let line = |cause, from, to| Between { process: 3, cause, from, to };
        assert_eq!(idle.total_ns(), 1_000);
        assert_eq!(
            idle.lines(),
            [
                (line(sync_ns, 9, 9), Pieces { ns: 200, count: 1 }),
                (line(launch, 8, 8), Pieces { ns: 400, count: 2 }),
                (line(host, 4, 5), Pieces { ns: 400, count: 2 }),
            ]
        );
    }

    #[test]
    fn time_after_the_launch_has_the_reason_why_the_operation_waited() {
        let awaits = Before { awaits: true, ..Before::default() };
        assert_eq!(
            explained(500, lead(1_800, 2_000, awaits, false)),
            [(Cause::Event, 200), (Cause::Host, 300)]
        );
        let queued = lead(1_000, 30_000, Before::default(), false);
        assert_eq!(explained(100, queued), [(Cause::Queue, 100)]);
        assert_eq!(explained(29_500, queued), [(Cause::Launch, 29_000), (Cause::Host, 500)]);
        let node = lead(1_800, 2_000, Before::default(), true);
        assert_eq!(explained(100, node), [(Cause::Graph, 100)]);
        assert_eq!(explained(500, node), [(Cause::Launch, 200), (Cause::Host, 300)]);
        assert_eq!(explained(500, Lead::UNKNOWN), [(Cause::Unknown, 500)]);
    }

    #[test]
    fn lines_beyond_the_bound_keep_their_cause() {
        let mut idle = Idle::default();
        for stack in 0..IDLE_LINES_MAX as u32 + 9 {
            idle.gap(10, &lead(50, 50, Before { from: stack, ..Before::default() }, false));
        }
        assert_eq!(idle.of(Cause::Host), Pieces { ns: 10 * (IDLE_LINES_MAX as u64 + 9), count: 65_545 });
        // One of them is the launches'.
        assert_eq!(idle.lines().len(), IDLE_LINES_MAX);
    }

    proptest! {
        #[test]
        fn pieces_add_up_to_the_gap(
            gap_ns in 0u64..1 << 45,
            call_at in 0u64..1 << 45,
            start_ns in 0u64..1 << 45,
            (start, end) in (0u64..1 << 45, 0u64..1 << 45),
            by in 0..3,
            node in any::<bool>(),
        ) {
            let by = [BlockedBy::Nothing, BlockedBy::Sync, BlockedBy::Copy][by as usize];
            let blocked = Blocked { by, start_ns: start, end_ns: end, stack: 1 };
            let before = Before { blocked, ..Before::default() };
            let mut idle = Idle::default();
            idle.gap(gap_ns, &lead(call_at, start_ns, before, node));
            prop_assert_eq!(idle.total_ns(), gap_ns);
        }

        #[test]
        fn time_before_is_exact_or_off_by_a_microsecond(ns in 0u64..1 << 41) {
            let error_max = if ns < 1 << 31 { 0 } else { 1_023 };
            prop_assert!(ns - Ago::new(ns).ns() <= error_max);
        }
    }
}
