//! How launches of graphs are timed: by node, a record for each, or by graph, one record a launch.
//!
//! Owns the one kind that takes the place of the nodes' records, `GRAPH_TRACE`. By node is the truth about
//! kernels and costs about 0.2 µs a node (measured on an H200: a graph of 300 nodes in 0.85 ms took 1.074 times as long by
//! node, 1.011 times by graph). So where a program's nodes are many and short, graphs are timed by graph from
//! then on, unless the user asked for one of the two.
//!
//! While the kind is on, a graph's nodes have no records, and its launch has one; a launch keeps the form that held when it
//! was asked for (measured, driver 580). On which graphs the kind may go on is `instantiation`'s. The collector takes whichever form of
//! a launch comes first and counts the other, so that no time is there twice. Kinds are switched by the service thread, between two
//! turns; only a guest that wants nodes switches at once, in its own call, which enables kinds anyway.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use cupti_sys::cupti::{CUpti_ActivityKind as Kind, CUptiResult};
use gputrace_producer::clock;
use gputrace_producer::session::{self, Session};
use gputrace_wire::definition::{graph_mode, graph_reason, kind};
use gputrace_wire::device::Place;

use super::client::name_of;
use super::instantiation::{self, Switch};
use super::root::{self, Root, Who};
use crate::settings;

pub(super) const WHOLE: Kind = Kind::CUPTI_ACTIVITY_KIND_GRAPH_TRACE;
/// Kinds whose records a whole graph's takes the place of.
const OF_NODES: u64 = 1 << Kind::CUPTI_ACTIVITY_KIND_KERNEL.0
    | 1 << Kind::CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL.0
    | 1 << Kind::CUPTI_ACTIVITY_KIND_MEMCPY.0
    | 1 << Kind::CUPTI_ACTIVITY_KIND_MEMCPY2.0
    | 1 << Kind::CUPTI_ACTIVITY_KIND_MEMSET.0;

/// Records of nodes before anything is decided, and how long they are gathered at most.
const NODES_MIN: u64 = 4096;
const WINDOW_NS: u64 = 1_000_000_000;
/// Many: so many nodes a launch and a second, at which their records cost a hundredth of the time.
const NODES_A_LAUNCH: u64 = 32;
const NODES_A_SECOND: u64 = 50_000;
/// Short: so long on average, at which a record costs a twenty-fifth of a node's time.
const NODE_NS: u64 = 5_000;

/// What is asked for; one of [`graph_mode`], or 0 for whichever fits.
static ASKED: AtomicU32 = AtomicU32::new(0);
/// What holds, one of [`graph_mode`].
static NOW: AtomicU32 = AtomicU32::new(graph_mode::NODE as u32);
/// A guest has kinds of nodes on.
static GUEST_WANTS_NODES: AtomicBool = AtomicBool::new(false);
/// By graph it would be, but for the guest.
static WAITS_FOR_GUEST: AtomicBool = AtomicBool::new(false);

/// What was delivered since the window began.
static SINCE_NS: AtomicU64 = AtomicU64::new(0);
static LAUNCHES: AtomicU64 = AtomicU64::new(0);
static NODES: AtomicU64 = AtomicU64::new(0);
static NODES_NS: AtomicU64 = AtomicU64::new(0);
/// Launches by the low bits of their ids: records of several that run at once come mixed.
static LATEST: [AtomicU32; 64] = [const { AtomicU32::new(0) }; 64];

/// Records of nodes that one delivery held.
#[derive(Default)]
pub struct Delivered {
    launches: u64,
    nodes: u64,
    nodes_ns: u64,
}

impl Delivered {
    /// Notes a record, if it is a node's.
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

    /// Adds it to the window.
    pub fn add(self) {
        if self.nodes > 0 {
            LAUNCHES.fetch_add(self.launches, Ordering::Relaxed);
            NODES_NS.fetch_add(self.nodes_ns, Ordering::Relaxed);
            NODES.fetch_add(self.nodes, Ordering::Relaxed);
        }
    }
}

/// What was seen in a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Window {
    length_ns: u64,
    launches: u64,
    nodes: u64,
    nodes_ns: u64,
}

impl Window {
    /// Whether the nodes are many and short.
    fn is_many_short(&self) -> bool {
        let a_second = u128::from(self.nodes) * 1_000_000_000 / u128::from(self.length_ns.max(1));
        self.nodes >= NODES_MIN
            && a_second >= u128::from(NODES_A_SECOND)
            && self.nodes >= self.launches.max(1).saturating_mul(NODES_A_LAUNCH)
            && self.nodes_ns / self.nodes.max(1) <= NODE_NS
    }
}

/// At a session's start, once the kinds of nodes are on.
pub fn start(session: &Session, root: &Root) {
    let asked = match settings::get(settings::GRAPH_TIMES).map(core::ffi::CStr::to_bytes) {
        Some(b"node") => graph_mode::NODE,
        Some(b"graph") => graph_mode::GRAPH,
        _ => 0,
    };
    ASKED.store(asked as u32, Ordering::Relaxed);
    begin_window(root.now_ns());
    if root::wants(Who::Tracer, WHOLE.0) {
        // Of the session before this one in the same process.
        return say(session, graph_mode::GRAPH, reason_of_choice(), &Window::default());
    }
    NOW.store(graph_mode::NODE as u32, Ordering::SeqCst);
    match asked {
        graph_mode::GRAPH => by_graph(session, root, graph_reason::ASKED, &Window::default()),
        graph_mode::NODE => say(session, graph_mode::NODE, graph_reason::ASKED, &Window::default()),
        _ => {}
    }
}

fn reason_of_choice() -> u64 {
    match u64::from(ASKED.load(Ordering::Relaxed)) {
        0 => graph_reason::MANY_SHORT,
        _ => graph_reason::ASKED,
    }
}

/// On the service thread: decides, and comes back to what was decided when a guest has left.
pub fn turn(session: &Session, root: &Root) {
    if is_whole() {
        return;
    }
    if WAITS_FOR_GUEST.load(Ordering::Relaxed) {
        if !GUEST_WANTS_NODES.load(Ordering::SeqCst) {
            by_graph(session, root, graph_reason::OTHER_CLIENT_LEFT, &Window::default());
        }
        return;
    }
    if ASKED.load(Ordering::Relaxed) != 0 {
        return;
    }
    let window = Window {
        length_ns: root.now_ns().saturating_sub(SINCE_NS.load(Ordering::Relaxed)),
        launches: LAUNCHES.load(Ordering::Relaxed),
        nodes: NODES.load(Ordering::Relaxed),
        nodes_ns: NODES_NS.load(Ordering::Relaxed),
    };
    if window.is_many_short() {
        by_graph(session, root, graph_reason::MANY_SHORT, &window);
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

/// Whether graphs are timed as a whole.
pub(super) fn is_whole() -> bool {
    now() == graph_mode::GRAPH
}

/// Whether a graph that is being made may yet come to be timed as a whole.
pub(super) fn may_become_whole(root: &Root) -> bool {
    let asked = u64::from(ASKED.load(Ordering::Relaxed));
    let can_be =
        is_whole() || asked == 0 && instantiation::can_prepare(root.version()) || asked == graph_mode::GRAPH;
    can_be && !GUEST_WANTS_NODES.load(Ordering::SeqCst)
}

/// Never by graph from here on.
fn by_node_for_good(session: &Session, reason: u64, seen: &Window) {
    ASKED.store(graph_mode::NODE as u32, Ordering::Relaxed);
    say(session, graph_mode::NODE, reason, seen);
}

fn by_graph(session: &Session, root: &Root, reason: u64, seen: &Window) {
    WAITS_FOR_GUEST.store(false, Ordering::SeqCst);
    if GUEST_WANTS_NODES.load(Ordering::SeqCst) {
        WAITS_FOR_GUEST.store(true, Ordering::SeqCst);
        return say(session, graph_mode::NODE, graph_reason::OTHER_CLIENT, seen);
    }
    let Some(switch) = Switch::take() else {
        // At the next turn, if it was the service thread that asked.
        return WAITS_FOR_GUEST.store(true, Ordering::SeqCst);
    };
    if !instantiation::all_are_prepared() {
        return by_node_for_good(session, graph_reason::UNPREPARED, seen);
    }
    match switch.on(root) {
        CUptiResult::CUPTI_SUCCESS => {
            // A thread that waited for us in vain made one in between.
            if !instantiation::all_are_prepared() {
                switch.off(root);
                return by_node_for_good(session, graph_reason::UNPREPARED, seen);
            }
            NOW.store(graph_mode::GRAPH as u32, Ordering::SeqCst);
            drop(switch);
            say(session, graph_mode::GRAPH, reason, seen);
            // The guest may have looked before that was stored.
            if GUEST_WANTS_NODES.load(Ordering::SeqCst) {
                yield_to_guest(root);
            }
        }
        error => {
            // Asked for once: CUPTI before 11.7 has no such records, and never will have.
            by_node_for_good(session, graph_reason::REFUSED, seen);
            if reason == graph_reason::ASKED {
                let why = format!(
                    "graphs are timed by node: {} gives no records of whole graphs ({})",
                    root.path.display(),
                    name_of(error)
                );
                session.notice(1, 0, why.as_bytes());
            }
        }
    }
}

/// The guest is about to have these kinds on, a bit each.
pub fn guest_changes(root: &Root, kinds: u64) {
    let wants_nodes = kinds & OF_NODES != 0 && kinds >> WHOLE.0 & 1 == 0;
    GUEST_WANTS_NODES.store(wants_nodes, Ordering::SeqCst);
    if wants_nodes {
        yield_to_guest(root);
    }
}

/// A guest gets the records that it would get without us: those of nodes.
fn yield_to_guest(root: &Root) {
    let (graph, node) = (graph_mode::GRAPH as u32, graph_mode::NODE as u32);
    let was_whole = NOW.compare_exchange(graph, node, Ordering::SeqCst, Ordering::SeqCst).is_ok();
    if !was_whole && !instantiation::is_under_way() {
        return;
    }
    match Switch::take() {
        Some(switch) => switch.off(root),
        None => {
            instantiation::give_up();
            root.want(Who::Tracer, WHOLE, false);
        }
    }
    if was_whole {
        WAITS_FOR_GUEST.store(true, Ordering::SeqCst);
        if let Some(session) = session::current() {
            say(session, graph_mode::NODE, graph_reason::OTHER_CLIENT, &Window::default());
        }
    }
}

fn say(session: &Session, mode: u64, reason: u64, seen: &Window) {
    let fields = [mode, reason, clock::now(), seen.launches, seen.nodes, seen.nodes_ns];
    session.define(kind::GRAPH_TIMES, &fields, b"");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_many_and_short_only_if_they_are_both() {
        let decode = Window { length_ns: 50_000_000, launches: 20, nodes: 6_000, nodes_ns: 18_000_000 };
        assert!(decode.is_many_short());
        for other in [
            Window { nodes: 4_000, launches: 10, ..decode },
            Window { length_ns: 1_000_000_000, ..decode },
            Window { nodes_ns: 6_000 * 6_000, ..decode },
            Window { launches: 600, ..decode },
            Window::default(),
        ] {
            assert!(!other.is_many_short(), "{other:?}");
        }
    }

    #[test]
    fn launches_are_counted_where_records_of_several_come_mixed() {
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
