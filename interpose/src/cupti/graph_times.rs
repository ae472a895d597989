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
//! that was in effect when it was requested (measured, driver 580). `whole_kind` decides when the kind may
//! change; `instantiation` tracks which graphs allow it. The collector takes the first form that arrives of
//! a launch and counts the other, so that no time is counted twice. The service thread switches the kind
//! between two turns; if it never finds a moment without a launch, a launch switches it. A guest that wants
//! nodes switches it in its own call.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use cupti_sys::cupti::{CUpti_ActivityKind as Kind, CUptiResult};
use gputrace_producer::clock;
use gputrace_producer::session::{self, Session};
use gputrace_wire::definition::{graph_mode, graph_reason, kind};
use gputrace_wire::device::Place;

use super::client::name_of;
use super::root::Root;
use super::{instantiation, whole_kind};
use crate::process::settings;

/// Kinds whose records are replaced by the graph-level record.
const OF_NODES: u64 = 1 << Kind::CUPTI_ACTIVITY_KIND_KERNEL.0
    | 1 << Kind::CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL.0
    | 1 << Kind::CUPTI_ACTIVITY_KIND_MEMCPY.0
    | 1 << Kind::CUPTI_ACTIVITY_KIND_MEMCPY2.0
    | 1 << Kind::CUPTI_ACTIVITY_KIND_MEMSET.0;

/// Node records needed for a decision, and the longest time over which they are gathered.
const NODES_MIN: u64 = 4096;
const WINDOW_NS: u64 = 1_000_000_000;
/// Nodes are many from so many a launch and a second on: their records then cost a hundredth of the time.
const NODES_A_LAUNCH: u64 = 32;
const NODES_A_SECOND: u64 = 50_000;
/// Nodes are short up to this average duration: a record then costs a twenty-fifth of a node's time.
const NODE_NS: u64 = 5_000;

/// Graph-level timing lasts this long before the first re-probe.
const FIRST_REPROBE_NS: u64 = 15_000_000_000;

/// The requested mode: one of [`graph_mode`], or 0 for automatic.
static ASKED: AtomicU32 = AtomicU32::new(0);
/// The current mode, one of [`graph_mode`].
static NOW: AtomicU32 = AtomicU32::new(graph_mode::NODE as u32);
/// Whether a guest has kinds of node records on.
static GUEST_WANTS_NODES: AtomicBool = AtomicBool::new(false);
/// Whether graph-level timing is wanted, as soon as the kind can be switched.
static IS_GRAPH_LEVEL_WANTED: AtomicBool = AtomicBool::new(false);
/// CUPTI's result of the last switch of the kind.
static RESULT: AtomicU32 = AtomicU32::new(0);
/// The longest wait of a guest's call, or of the end, for a moment without a graph launch.
const PATIENCE: Duration = Duration::from_millis(100);
/// Whether graph-level timing is chosen but suspended because of the guest.
static IS_SUSPENDED_BY_GUEST: AtomicBool = AtomicBool::new(false);

/// When graph-level timing began, and how long it lasts until the next re-probe.
static GRAPH_LEVEL_SINCE_NS: AtomicU64 = AtomicU64::new(0);
static REPROBE_AFTER_NS: AtomicU64 = AtomicU64::new(FIRST_REPROBE_NS);

/// Start of the window, and what was delivered in it.
static SINCE_NS: AtomicU64 = AtomicU64::new(0);
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
    pub fn note(&mut self, place: &Place) {
        if place.graph_node == 0 || !place.has_timing() {
            return;
        }
        self.nodes += 1;
        self.nodes_ns = self.nodes_ns.saturating_add(place.end_ns - place.start_ns);
        if let Some(latest) = LATEST.get(place.correlation as usize % LATEST.len())
            && latest.load(Ordering::Relaxed) != place.correlation
        {
            latest.store(place.correlation, Ordering::Relaxed);
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
        Some(b"node") => graph_mode::NODE,
        Some(b"graph") => graph_mode::GRAPH,
        _ => 0,
    };
    ASKED.store(asked as u32, Ordering::Relaxed);
    begin_window(root.now_ns());
    GRAPH_LEVEL_SINCE_NS.store(root.now_ns(), Ordering::Relaxed);
    REPROBE_AFTER_NS.store(FIRST_REPROBE_NS, Ordering::Relaxed);
    if is_graph_level() && whole_kind::is_on() {
        // The kind is still on from the previous session in the same process.
        return define(session, graph_mode::GRAPH, reason_of_choice(), &Window::default());
    }
    NOW.store(graph_mode::NODE as u32, Ordering::SeqCst);
    match asked {
        graph_mode::GRAPH => by_graph(session, root, graph_reason::ASKED, &Window::default()),
        graph_mode::NODE => define(session, graph_mode::NODE, graph_reason::ASKED, &Window::default()),
        _ => {}
    }
}

fn reason_of_choice() -> u64 {
    match u64::from(ASKED.load(Ordering::Relaxed)) {
        0 => graph_reason::MANY_SHORT,
        _ => graph_reason::ASKED,
    }
}

/// Runs on the service thread: decides, and restores the decision after a guest has left.
pub fn turn(session: &Session, root: &Root) {
    // A switch may be due: a graph was made or a guest came while launches prevented it.
    whole_kind::apply(root, Duration::ZERO);
    if is_graph_level() {
        if !instantiation::all_are_prepared() {
            by_node_permanently(session, root, graph_reason::UNPREPARED, &Window::default());
        } else if ASKED.load(Ordering::Relaxed) == 0
            && (!IS_GRAPH_LEVEL_WANTED.load(Ordering::SeqCst) || is_reprobe_due(root.now_ns()))
        {
            reprobe(session, root);
        }
        return;
    }
    if IS_SUSPENDED_BY_GUEST.load(Ordering::Relaxed) {
        if !GUEST_WANTS_NODES.load(Ordering::SeqCst) {
            by_graph(session, root, graph_reason::OTHER_CLIENT_LEFT, &Window::default());
        }
        return;
    }
    let is_wanted = IS_GRAPH_LEVEL_WANTED.load(Ordering::SeqCst);
    if ASKED.load(Ordering::Relaxed) != 0 && !is_wanted {
        return;
    }
    let window = Window {
        length_ns: root.now_ns().saturating_sub(SINCE_NS.load(Ordering::Relaxed)),
        launches: LAUNCHES.load(Ordering::Relaxed),
        nodes: NODES.load(Ordering::Relaxed),
        nodes_ns: NODES_NS.load(Ordering::Relaxed),
    };
    if is_wanted || window.has_many_short_nodes() {
        by_graph(session, root, reason_of_choice(), &window);
    } else if window.length_ns >= WINDOW_NS {
        begin_window(root.now_ns());
    }
}

fn begin_window(now_ns: u64) {
    for count in [&LAUNCHES, &NODES, &NODES_NS] {
        count.store(0, Ordering::Relaxed);
    }
    SINCE_NS.store(now_ns, Ordering::Relaxed);
}

fn now() -> u64 {
    NOW.load(Ordering::SeqCst).into()
}

/// Whether graph-level timing is in effect.
fn is_graph_level() -> bool {
    now() == graph_mode::GRAPH
}

/// Whether a graph that is being made may get graph-level timing, now or later.
pub(super) fn may_become_graph_level(root: &Root) -> bool {
    let asked = u64::from(ASKED.load(Ordering::Relaxed));
    let can_be = asked == graph_mode::GRAPH || asked == 0 && instantiation::can_prepare(root.version());
    can_be && !GUEST_WANTS_NODES.load(Ordering::SeqCst)
}

/// Whether the kind of graph-level timing should be on now.
pub(super) fn wants_graph_level(root: &Root) -> bool {
    may_become_graph_level(root)
        && instantiation::all_are_prepared()
        && (IS_GRAPH_LEVEL_WANTED.load(Ordering::SeqCst) || instantiation::are_under_way())
}

/// Stores CUPTI's result of a switch. After a refusal the kind is never requested again: CUPTI before 11.7
/// lacks these records and always will.
pub(super) fn note_result(result: CUptiResult) {
    RESULT.store(result.0, Ordering::SeqCst);
    if result != CUptiResult::CUPTI_SUCCESS {
        ASKED.store(graph_mode::NODE as u32, Ordering::Relaxed);
    }
}

/// Whether a re-probe is due. If so, the next interval is twice as long.
fn is_reprobe_due(now_ns: u64) -> bool {
    let after_ns = REPROBE_AFTER_NS.load(Ordering::Relaxed);
    let is_time = now_ns.saturating_sub(GRAPH_LEVEL_SINCE_NS.load(Ordering::Relaxed)) >= after_ns;
    if is_time {
        REPROBE_AFTER_NS.store(after_ns.saturating_mul(2), Ordering::Relaxed);
    }
    is_time
}

/// Switches to node-level timing for a re-probe, once no launch prevents it, and reports the switch.
fn reprobe(session: &Session, root: &Root) {
    IS_GRAPH_LEVEL_WANTED.store(false, Ordering::SeqCst);
    whole_kind::apply(root, Duration::ZERO);
    if whole_kind::is_on() {
        // A launch prevented it. The next launch or a later turn switches the kind.
        return;
    }
    begin_window(root.now_ns());
    // A guest's call may have changed the mode first.
    let (graph, node) = (graph_mode::GRAPH as u32, graph_mode::NODE as u32);
    if NOW.compare_exchange(graph, node, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
        define(session, graph_mode::NODE, graph_reason::LOOKS_AGAIN, &Window::default());
    }
}

/// Switches to node-level timing for the rest of the process.
fn by_node_permanently(session: &Session, root: &Root, reason: u64, seen: &Window) {
    IS_GRAPH_LEVEL_WANTED.store(false, Ordering::SeqCst);
    ASKED.store(graph_mode::NODE as u32, Ordering::Relaxed);
    whole_kind::apply(root, Duration::ZERO);
    NOW.store(graph_mode::NODE as u32, Ordering::SeqCst);
    define(session, graph_mode::NODE, reason, seen);
}

/// Switches to graph-level timing, once no launch prevents it, and reports the switch.
fn by_graph(session: &Session, root: &Root, reason: u64, seen: &Window) {
    if GUEST_WANTS_NODES.load(Ordering::SeqCst) {
        if !IS_SUSPENDED_BY_GUEST.swap(true, Ordering::SeqCst) {
            define(session, graph_mode::NODE, graph_reason::OTHER_CLIENT, seen);
        }
        return;
    }
    if !instantiation::all_are_prepared() {
        IS_SUSPENDED_BY_GUEST.store(false, Ordering::SeqCst);
        return by_node_permanently(session, root, graph_reason::UNPREPARED, seen);
    }
    let before = ASKED.load(Ordering::Relaxed);
    IS_GRAPH_LEVEL_WANTED.store(true, Ordering::SeqCst);
    whole_kind::apply(root, Duration::ZERO);
    let result = CUptiResult(RESULT.load(Ordering::SeqCst));
    if result != CUptiResult::CUPTI_SUCCESS {
        by_node_permanently(session, root, graph_reason::REFUSED, seen);
        if u64::from(before) == graph_mode::GRAPH {
            let why = format!(
                "graphs are timed by node: {} gives no records of whole graphs ({})",
                root.path.display(),
                name_of(result)
            );
            session.notice(1, 0, why.as_bytes());
        }
    } else if whole_kind::is_on() {
        IS_SUSPENDED_BY_GUEST.store(false, Ordering::SeqCst);
        GRAPH_LEVEL_SINCE_NS.store(root.now_ns(), Ordering::Relaxed);
        NOW.store(graph_mode::GRAPH as u32, Ordering::SeqCst);
        define(session, graph_mode::GRAPH, reason, seen);
        // The guest may have checked the mode before the store above.
        if GUEST_WANTS_NODES.load(Ordering::SeqCst) {
            yield_to_guest(root);
        }
    }
}

/// The guest is about to have these kinds on, one bit each.
pub fn guest_changes(root: &Root, kinds: u64) {
    let wants_nodes = kinds & OF_NODES != 0 && kinds >> Kind::CUPTI_ACTIVITY_KIND_GRAPH_TRACE.0 & 1 == 0;
    GUEST_WANTS_NODES.store(wants_nodes, Ordering::SeqCst);
    if wants_nodes {
        yield_to_guest(root);
    }
}

/// Gives a guest the node records that it would get without us.
fn yield_to_guest(root: &Root) {
    if whole_kind::is_on() && instantiation::are_under_way() {
        // Graphs being made now lose the kind before they are complete.
        instantiation::forbid_graph_level();
    }
    whole_kind::apply(root, PATIENCE);
    let (graph, node) = (graph_mode::GRAPH as u32, graph_mode::NODE as u32);
    if NOW.compare_exchange(graph, node, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
        IS_SUSPENDED_BY_GUEST.store(true, Ordering::SeqCst);
        if let Some(session) = session::current() {
            define(session, graph_mode::NODE, graph_reason::OTHER_CLIENT, &Window::default());
        }
    }
}

/// To be called before CUPTI is left, which switches every kind off.
pub fn ends(root: &Root) {
    IS_GRAPH_LEVEL_WANTED.store(false, Ordering::SeqCst);
    ASKED.store(graph_mode::NODE as u32, Ordering::Relaxed);
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
    fn nodes_are_looked_at_again_after_a_while_and_ever_more_seldom() {
        const SECOND_NS: u64 = 1_000_000_000;
        let mut reprobes = Vec::new();
        for second in 7..=24 * 3_600 {
            if second == 7 || reprobes.last() == Some(&(second - 1)) {
                GRAPH_LEVEL_SINCE_NS.store(second * SECOND_NS, Ordering::Relaxed);
            }
            if is_reprobe_due(second * SECOND_NS) {
                reprobes.push(second);
            }
        }
        assert_eq!(reprobes[..4], [7 + 15, 23 + 30, 54 + 60, 115 + 120]);
        assert_eq!(reprobes.len(), 12, "a day");
        GRAPH_LEVEL_SINCE_NS.store(0, Ordering::Relaxed);
        REPROBE_AFTER_NS.store(FIRST_REPROBE_NS, Ordering::Relaxed);
    }

    #[test]
    fn launches_with_interleaved_records_are_counted() {
        let mut delivered = Delivered::default();
        let node = |correlation, graph_node| Place {
            correlation,
            start_ns: 100,
            end_ns: 103,
            graph_node,
            ..Place::default()
        };
        for at in 0..10 {
            for launch in [70, 71, 72] {
                delivered.note(&node(launch, 5 << 32 | at));
            }
        }
        delivered.note(&node(73, 0));
        delivered.note(&Place { end_ns: 0, ..node(74, 1) });
        assert_eq!((delivered.launches, delivered.nodes, delivered.nodes_ns), (3, 30, 90));
    }
}
