//! How graph launches are timed: node-level (one record per node) or graph-level (one record per launch).
//!
//! Owns the decision about `GRAPH_TRACE`, the activity kind that replaces the nodes' records. Node-level
//! timing shows each kernel and costs about 0.2 µs a node (measured on an H200: a graph of 300 nodes in
//! 0.85 ms took 1.074 times as long with node-level timing, 1.011 times with graph-level timing). So if a
//! program's nodes are many and short, graphs get graph-level timing from then on, unless the user chose
//! one of the two. Graph-level records do not show when nodes become few or long again. A re-probe
//! therefore switches to node-level timing for as long as the decision takes: some milliseconds if nothing
//! has changed. Each interval between re-probes is twice the one before, so switches stay rare however long
//! a program runs.
//!
//! While the kind is on, a graph's nodes have no records and its launch has one. A launch keeps the form
//! that was in effect when it was requested (measured, driver 580). `graph_state` has the state of the
//! decision, `whole_kind` decides when the kind may change, and `instantiation` tracks which graphs allow it.
//! The collector takes the first form that arrives of a launch and counts the other, so that no time is
//! counted twice. The service thread switches the kind between two turns; if it never finds a moment without
//! a launch, a launch switches it. A guest that wants nodes switches it in its own call.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use cupti_sys::cupti::{ApiVersion, CUpti_ActivityKind as Kind, CUptiResult, result_name};
use gputrace_producer::clock;
use gputrace_producer::session::{self, Session};
use gputrace_wire::definition::{graph_mode, graph_reason, kind};
use gputrace_wire::device::Execution;

use super::graph_state::{self, Asked, State, Timing};
use super::kinds::bit;
use super::root::Root;
use super::whole_kind;
use crate::process::settings;

/// Kinds whose records are replaced by the graph-level record.
const OF_NODES: u64 = bit(Kind::CUPTI_ACTIVITY_KIND_KERNEL.0)
    | bit(Kind::CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL.0)
    | bit(Kind::CUPTI_ACTIVITY_KIND_MEMCPY.0)
    | bit(Kind::CUPTI_ACTIVITY_KIND_MEMCPY2.0)
    | bit(Kind::CUPTI_ACTIVITY_KIND_MEMSET.0);

/// Node records needed for a decision, and the longest time over which they are gathered.
const NODES_MIN: u64 = 4096;
const WINDOW_NS: u64 = 1_000_000_000;
/// Nodes are many from so many a launch and a second on: their records then cost a hundredth of the time.
const NODES_A_LAUNCH: u64 = 32;
const NODES_A_SECOND: u64 = 50_000;
/// Nodes are short up to this average duration: a record then costs a twenty-fifth of a node's time.
const NODE_NS: u64 = 5_000;

/// From this budget on graphs are timed by node at first, as without a budget.
const BUDGET_FOR_NODES_PPM: u32 = 50_000;

/// Graph-level timing lasts this long before the first re-probe.
const FIRST_REPROBE_NS: u64 = 15_000_000_000;

/// From this version on a graph may be made with the kind on and first launched with it off (measured; no
/// version between 11.8 and 12.8 was tried).
const PREPARES: ApiVersion = ApiVersion::CUDA_12_8;
/// The longest wait of a guest's call, or of the end, for a moment without a graph launch.
const PATIENCE: Duration = Duration::from_millis(100);

/// When the window of counts began, or graph-level timing did.
static SINCE_NS: AtomicU64 = AtomicU64::new(0);
/// What was delivered in the window.
static LAUNCHES: AtomicU64 = AtomicU64::new(0);
static NODES: AtomicU64 = AtomicU64::new(0);
static NODES_NS: AtomicU64 = AtomicU64::new(0);
/// The latest launches, by the low bits of their ids: records of concurrent launches come interleaved.
static LATEST: [AtomicU32; 64] = [const { AtomicU32::new(0) }; 64];

/// Counts of the node records in one delivery.
#[derive(Default)]
pub struct Delivered {
    launches: u64,
    nodes: u64,
    nodes_ns: u64,
}

impl Delivered {
    /// Counts a record if it is a node's.
    #[inline]
    pub fn note(&mut self, execution: &Execution) {
        if execution.graph_node == 0 || !execution.has_timing() {
            return;
        }
        self.nodes += 1;
        self.nodes_ns = self.nodes_ns.saturating_add(execution.end_ns - execution.start_ns);
        if let Some(latest) = LATEST.get(execution.correlation as usize % LATEST.len())
            && latest.load(Ordering::Relaxed) != execution.correlation
        {
            latest.store(execution.correlation, Ordering::Relaxed);
            self.launches += 1;
        }
    }

    /// Adds the counts to the window.
    pub fn add(self) {
        if self.nodes > 0 {
            LAUNCHES.fetch_add(self.launches, Ordering::Relaxed);
            NODES_NS.fetch_add(self.nodes_ns, Ordering::Relaxed);
            NODES.fetch_add(self.nodes, Ordering::Relaxed);
        }
    }
}

/// The counts of one window.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Window {
    length_ns: u64,
    launches: u64,
    nodes: u64,
    nodes_ns: u64,
}

impl Window {
    /// The counts since the window began.
    fn at(now_ns: u64) -> Window {
        Window {
            length_ns: now_ns.saturating_sub(SINCE_NS.load(Ordering::Relaxed)),
            launches: LAUNCHES.load(Ordering::Relaxed),
            nodes: NODES.load(Ordering::Relaxed),
            nodes_ns: NODES_NS.load(Ordering::Relaxed),
        }
    }

    /// Whether the nodes are many and short.
    fn has_many_short_nodes(&self) -> bool {
        let a_second = u128::from(self.nodes) * 1_000_000_000 / u128::from(self.length_ns.max(1));
        self.nodes >= NODES_MIN
            && a_second >= u128::from(NODES_A_SECOND)
            && self.nodes >= self.launches.max(1).saturating_mul(NODES_A_LAUNCH)
            && self.nodes_ns / self.nodes.max(1) <= NODE_NS
    }
}

/// Starts at the beginning of a session, after the kinds of node records are on.
pub fn start(session: &Session, root: &Root) {
    let asked = match settings::get(settings::GRAPH_TIMES).map(core::ffi::CStr::to_bytes) {
        Some(b"node") => Asked::Node,
        Some(b"graph") => Asked::Graph,
        // A record for each node is the first thing that a small budget gives up. Later is too late: the kind
        // is never switched while graphs exist that were made without it.
        _ if settings::budget().is_some_and(|budget| budget.ppm < BUDGET_FOR_NODES_PPM) => Asked::Graph,
        _ => Asked::Automatic,
    };
    let (can_prepare, is_kind_on) = (root.version() >= PREPARES, whole_kind::is_on());
    let (_, state) = graph_state::update(|state| state.begin(asked, can_prepare, is_kind_on));
    begin_window(root.now_ns());
    let nothing = Window::default();
    match state.timing {
        Timing::Node => define(session, graph_mode::NODE, graph_reason::ASKED, &nothing),
        Timing::Graph | Timing::Reprobing => {
            define(session, graph_mode::GRAPH, reason_of_choice(state), &nothing);
        }
        Timing::Chosen => choose(session, root, graph_reason::ASKED, &nothing),
        Timing::Observed | Timing::Suspended | Timing::Refused => {}
    }
}

fn reason_of_choice(state: State) -> u64 {
    if state.is_asked { graph_reason::ASKED } else { graph_reason::MANY_SHORT }
}

/// Runs on the service thread: decides, and restores the decision after a guest has left.
pub fn turn(session: &Session, root: &Root) {
    // A switch may be due: a graph was made or a guest came while launches prevented it.
    whole_kind::apply(root, Duration::ZERO);
    let (state, window) = (graph_state::now(), Window::at(root.now_ns()));
    match state.timing {
        Timing::Graph | Timing::Reprobing if state.is_unprepared => {
            node_level_from_now_on(session, root, graph_reason::UNPREPARED, &Window::default());
        }
        Timing::Graph if state.is_asked || window.length_ns < reprobe_after_ns(state.reprobes) => {}
        Timing::Graph | Timing::Reprobing => reprobe(session, root),
        Timing::Suspended if !state.guest_wants_nodes => {
            choose(session, root, graph_reason::OTHER_CLIENT_LEFT, &Window::default());
        }
        Timing::Chosen => choose(session, root, reason_of_choice(state), &window),
        Timing::Observed if window.has_many_short_nodes() => {
            choose(session, root, reason_of_choice(state), &window);
        }
        Timing::Observed if window.length_ns >= WINDOW_NS => begin_window(root.now_ns()),
        Timing::Refused => report_refusal(session, root, &window),
        Timing::Node | Timing::Observed | Timing::Suspended => {}
    }
}

fn begin_window(now_ns: u64) {
    for count in [&LAUNCHES, &NODES, &NODES_NS] {
        count.store(0, Ordering::Relaxed);
    }
    SINCE_NS.store(now_ns, Ordering::Relaxed);
}

/// How long graph-level timing lasts until the next re-probe: after each one twice as long.
fn reprobe_after_ns(reprobes: u8) -> u64 {
    FIRST_REPROBE_NS.saturating_mul(2u64.saturating_pow(reprobes.into()))
}

/// Switches to node-level timing for a re-probe, once no launch prevents it, and reports the switch.
fn reprobe(session: &Session, root: &Root) {
    graph_state::update(State::reprobe);
    whole_kind::apply(root, Duration::ZERO);
    if whole_kind::is_on() {
        // A launch prevented it. The next launch or a later turn switches the kind.
        return;
    }
    begin_window(root.now_ns());
    // A guest's call may have changed the state first.
    let (before, after) = graph_state::update(State::observe);
    if before != after {
        define(session, graph_mode::NODE, graph_reason::LOOKS_AGAIN, &Window::default());
    }
}

/// Switches to node-level timing for the rest of the session, and reports the switch.
fn node_level_from_now_on(session: &Session, root: &Root, reason: u64, seen: &Window) {
    graph_state::update(State::finish);
    whole_kind::apply(root, Duration::ZERO);
    define(session, graph_mode::NODE, reason, seen);
}

/// Switches to graph-level timing, once no launch prevents it, and reports the switch or why it is not made.
fn choose(session: &Session, root: &Root, reason: u64, seen: &Window) {
    let (before, chosen) = graph_state::update(State::choose);
    match chosen.timing {
        Timing::Node => return define(session, graph_mode::NODE, graph_reason::UNPREPARED, seen),
        Timing::Suspended if chosen.guest_wants_nodes => {
            if before.timing != Timing::Suspended {
                define(session, graph_mode::NODE, graph_reason::OTHER_CLIENT, seen);
            }
            return;
        }
        _ => {}
    }
    whole_kind::apply(root, Duration::ZERO);
    let is_on = whole_kind::is_on();
    let (before, after) = graph_state::update(|state| if is_on { state.arrive() } else { state });
    if after.timing == Timing::Refused {
        report_refusal(session, root, seen);
    } else if before != after {
        SINCE_NS.store(root.now_ns(), Ordering::Relaxed);
        define(session, graph_mode::GRAPH, reason, seen);
    }
}

/// Reports that CUPTI refused the kind, to the user too if the user asked for it.
fn report_refusal(session: &Session, root: &Root, seen: &Window) {
    let state = graph_state::now();
    node_level_from_now_on(session, root, graph_reason::REFUSED, seen);
    if state.is_asked {
        let why = format!(
            "graphs are timed by node: {} gives no records of whole graphs ({})",
            root.path.display(),
            result_name(CUptiResult(state.refusal.into()))
        );
        session.notice(1, 0, why.as_bytes());
    }
}

/// The guest is about to have these kinds on, one bit each. If it wants the records of nodes, it gets those
/// that it would get without us.
pub fn guest_changes(root: &Root, kinds: u64) {
    let wants_nodes = kinds & OF_NODES != 0 && kinds & bit(Kind::CUPTI_ACTIVITY_KIND_GRAPH_TRACE.0) == 0;
    graph_state::update(|state| state.guest_changes(wants_nodes));
    if !wants_nodes {
        return;
    }
    whole_kind::apply(root, PATIENCE);
    let (before, after) = graph_state::update(State::suspend);
    if before != after
        && let Some(session) = session::current()
    {
        define(session, graph_mode::NODE, graph_reason::OTHER_CLIENT, &Window::default());
    }
}

/// To be called before CUPTI is left, which switches every kind off.
pub fn ends(root: &Root) {
    graph_state::update(State::finish);
    whole_kind::apply(root, PATIENCE);
}

fn define(session: &Session, mode: u64, reason: u64, seen: &Window) {
    let fields = [mode, reason, clock::now(), seen.launches, seen.nodes, seen.nodes_ns];
    session.define(kind::GRAPH_TIMES, &fields, b"");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_many_and_short_only_if_they_are_both() {
        let decode = Window { length_ns: 50_000_000, launches: 20, nodes: 6_000, nodes_ns: 18_000_000 };
        assert!(decode.has_many_short_nodes());
        for other in [
            Window { nodes: 4_000, launches: 10, ..decode },
            Window { length_ns: 1_000_000_000, ..decode },
            Window { nodes_ns: 6_000 * 6_000, ..decode },
            Window { launches: 600, ..decode },
            Window::default(),
        ] {
            assert!(!other.has_many_short_nodes(), "{other:?}");
        }
    }

    #[test]
    fn reprobe_intervals_double() {
        let (mut reprobes, mut second) = (Vec::new(), 7);
        loop {
            // Each re-probe takes a second here.
            second +=
                reprobe_after_ns(reprobes.len() as u8) / 1_000_000_000 + u64::from(!reprobes.is_empty());
            if second > 24 * 3_600 {
                break;
            }
            reprobes.push(second);
        }
        assert_eq!(reprobes[..4], [7 + 15, 23 + 30, 54 + 60, 115 + 120]);
        assert_eq!(reprobes.len(), 12, "a day");
        assert_eq!(reprobe_after_ns(u8::MAX), u64::MAX);
    }

    #[test]
    fn launches_with_interleaved_records_are_counted() {
        let mut delivered = Delivered::default();
        let node = |correlation, graph_node| Execution {
            correlation,
            start_ns: 100,
            end_ns: 103,
            graph_node,
            ..Execution::default()
        };
        for at in 0..10 {
            for launch in [70, 71, 72] {
                delivered.note(&node(launch, 5 << 32 | at));
            }
        }
        delivered.note(&node(73, 0));
        delivered.note(&Execution { end_ns: 0, ..node(74, 1) });
        assert_eq!((delivered.launches, delivered.nodes, delivered.nodes_ns), (3, 30, 90));
    }
}
