//! The state of graph timing, and its transitions.
//!
//! Owns one atomic. Several threads change it: the service thread decides, threads that make graphs count
//! themselves, CUPTI's callbacks report graphs that were made without the kind, and a guest's calls take
//! node records. Each transition is a function of the state alone; where it does not apply, the state stays
//! as it is. Whether the kind of graph-level timing (`GRAPH_TRACE`) should be on follows from the state
//! ([`State::wants_kind`]); [`super::whole_kind`] switches it.
//!
//! ```text
//!            choose          arrive (kind is on)       reprobe              observe (kind is off)
//!  Observed ───────► Chosen ────────────────────► Graph ───────► Reprobing ───────────────────────► Observed
//!      │ choose, with a guest: │ choose                │ suspend     │ suspend
//!      └───────────────────────┴───► Suspended ◄───────┴─────────────┘
//!                                        └── arrive, once the guest left ──► Graph
//!  all ─ choose (a graph was made without the kind) or finish ─► Node
//!  all ─ refuse ─► Refused ─ finish ─► Node
//! ```

use core::sync::atomic::{AtomicU64, Ordering};

use cupti_sys::cupti::CUptiResult;

/// How graph launches are timed, and what is to come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Timing {
    /// Node-level for the rest of the session: asked for, or graph-level timing is impossible.
    #[default]
    Node,
    /// Node-level. The nodes are counted, to decide.
    Observed,
    /// Node-level. Graph-level timing begins at a moment without a graph launch.
    Chosen,
    Graph,
    /// Graph-level. Node-level timing begins at a moment without a graph launch, as a re-probe.
    Reprobing,
    /// Node-level because a guest wants node records. Graph-level timing begins when it no longer does.
    Suspended,
    /// Node-level, because CUPTI refused the kind. The service thread has yet to report that.
    Refused,
}

const TIMINGS: [Timing; 7] = [
    Timing::Node,
    Timing::Observed,
    Timing::Chosen,
    Timing::Graph,
    Timing::Reprobing,
    Timing::Suspended,
    Timing::Refused,
];

/// The user's choice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked {
    Automatic,
    Node,
    Graph,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct State {
    pub timing: Timing,
    /// Whether the user asked for graph-level timing.
    pub is_asked: bool,
    /// Whether this CUPTI lets a graph be made with the kind on and first launched with it off.
    pub can_prepare: bool,
    /// Whether a guest has kinds of node records on.
    pub guest_wants_nodes: bool,
    /// Whether some executable graph was, or may have been, made without the kind: CUPTI would crash if the
    /// kind were switched on. Stays set for the rest of the process.
    pub is_unprepared: bool,
    /// Number of re-probes in this session.
    pub reprobes: u8,
    /// CUPTI's result when it refused the kind; otherwise 0.
    pub refusal: u16,
    /// Number of graphs being made that need the kind on.
    pub graphs_being_made: u32,
}

static STATE: AtomicU64 = AtomicU64::new(0);

pub fn now() -> State {
    State::unpack(STATE.load(Ordering::SeqCst))
}

/// Applies a transition. Returns the states before and after it.
pub fn update(transition: impl Fn(State) -> State) -> (State, State) {
    let mut found = STATE.load(Ordering::SeqCst);
    loop {
        let (before, after) = (State::unpack(found), transition(State::unpack(found)));
        match STATE.compare_exchange_weak(found, after.pack(), Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => return (before, after),
            Err(other) => found = other,
        }
    }
}

impl State {
    fn pack(self) -> u64 {
        let flags = [self.is_asked, self.can_prepare, self.guest_wants_nodes, self.is_unprepared]
            .iter()
            .rev()
            .fold(0, |flags, flag| flags << 1 | u8::from(*flag));
        let [low, high] = self.refusal.to_le_bytes();
        let small = u32::from_le_bytes([self.timing as u8 | flags << 4, self.reprobes, low, high]);
        u64::from(small) | u64::from(self.graphs_being_made) << 32
    }

    fn unpack(word: u64) -> State {
        let [first, reprobes, low, high] = (word as u32).to_le_bytes();
        let flag = |at: u8| first >> (4 + at) & 1 != 0;
        State {
            timing: TIMINGS.get(usize::from(first & 0xf)).copied().unwrap_or_default(),
            is_asked: flag(0),
            can_prepare: flag(1),
            guest_wants_nodes: flag(2),
            is_unprepared: flag(3),
            reprobes,
            refusal: u16::from_le_bytes([low, high]),
            graphs_being_made: (word >> 32) as u32,
        }
    }

    /// Whether a graph that is being made may get graph-level timing, now or later.
    fn may_become_graph_level(self) -> bool {
        !matches!(self.timing, Timing::Node | Timing::Refused)
            && (self.is_asked || self.can_prepare)
            && !self.guest_wants_nodes
            && !self.is_unprepared
    }

    /// Whether the kind of graph-level timing should be on now.
    pub fn wants_kind(self) -> bool {
        let is_wanted = matches!(self.timing, Timing::Chosen | Timing::Graph | Timing::Suspended);
        self.may_become_graph_level() && (is_wanted || self.graphs_being_made > 0)
    }

    /// A session begins. If a guest kept CUPTI in use since the previous session of this process, the kind
    /// may still be on.
    #[must_use]
    pub fn begin(self, asked: Asked, can_prepare: bool, is_kind_on: bool) -> State {
        let timing = match (asked, self.timing) {
            (Asked::Node, _) => Timing::Node,
            (_, kept @ (Timing::Graph | Timing::Reprobing)) if is_kind_on => kept,
            (Asked::Graph, _) => Timing::Chosen,
            (Asked::Automatic, Timing::Suspended) => Timing::Suspended,
            (Asked::Automatic, _) => Timing::Observed,
        };
        State { timing, is_asked: asked == Asked::Graph, can_prepare, reprobes: 0, refusal: 0, ..self }
    }

    /// Graph-level timing is chosen, or may begin again.
    #[must_use]
    pub fn choose(self) -> State {
        let timing = match self.timing {
            kept @ (Timing::Node | Timing::Graph | Timing::Reprobing | Timing::Refused) => kept,
            _ if self.guest_wants_nodes => Timing::Suspended,
            _ if self.is_unprepared => Timing::Node,
            Timing::Suspended => Timing::Suspended,
            Timing::Observed | Timing::Chosen => Timing::Chosen,
        };
        State { timing, ..self }
    }

    /// The same state with another timing, if it has one of these.
    fn move_to(self, to: Timing, from: &[Timing]) -> State {
        let timing = if from.contains(&self.timing) { to } else { self.timing };
        State { timing, ..self }
    }

    /// The chosen kind is on.
    #[must_use]
    pub fn arrive(self) -> State {
        if self.guest_wants_nodes {
            self
        } else {
            self.move_to(Timing::Graph, &[Timing::Chosen, Timing::Suspended])
        }
    }

    /// A re-probe is due.
    #[must_use]
    pub fn reprobe(self) -> State {
        let is_due = self.timing == Timing::Graph;
        let reprobes = self.reprobes.saturating_add(is_due.into());
        State { reprobes, ..self }.move_to(Timing::Reprobing, &[Timing::Graph])
    }

    /// The kind is off for the re-probe.
    #[must_use]
    pub fn observe(self) -> State {
        self.move_to(Timing::Observed, &[Timing::Reprobing])
    }

    /// A guest changes its kinds. If it wants node records, graphs being made now lose the kind before they
    /// are complete.
    #[must_use]
    pub fn guest_changes(self, wants_nodes: bool) -> State {
        let loses_kind = wants_nodes && self.graphs_being_made > 0;
        State { guest_wants_nodes: wants_nodes, is_unprepared: self.is_unprepared || loses_kind, ..self }
    }

    /// The kind is off for the guest.
    #[must_use]
    pub fn suspend(self) -> State {
        self.move_to(Timing::Suspended, &[Timing::Graph, Timing::Reprobing])
    }

    /// CUPTI refused to switch the kind. It is never requested again in this session: CUPTI before 11.7 lacks
    /// these records and always will. While nothing was chosen, nothing has to be reported.
    #[must_use]
    pub fn refuse(self, result: CUptiResult) -> State {
        let timing = match self.timing {
            Timing::Node | Timing::Observed => Timing::Node,
            _ => Timing::Refused,
        };
        State { timing, refusal: result.0 as u16, ..self }
    }

    /// Node-level timing for the rest of the session.
    #[must_use]
    pub fn finish(self) -> State {
        State { timing: Timing::Node, ..self }
    }

    /// A graph was made without the kind, or may be one that CUPTI crashes over.
    #[must_use]
    pub fn forbid_graph_level(self) -> State {
        State { is_unprepared: true, ..self }
    }

    /// A graph is being made. It needs the kind on if it may get graph-level timing.
    #[must_use]
    pub fn begin_graph(self) -> State {
        let needs_kind = self.may_become_graph_level();
        State { graphs_being_made: self.graphs_being_made + u32::from(needs_kind), ..self }
    }

    /// A graph that needed the kind on is made.
    #[must_use]
    pub fn end_graph(self) -> State {
        State { graphs_being_made: self.graphs_being_made.saturating_sub(1), ..self }
    }
}

#[cfg(test)]
mod tests;
