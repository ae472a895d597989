//! The transitions one by one, and a model of three threads.

use std::collections::HashSet;

use super::Timing::*;
use super::*;

/// A state in the middle of an automatic session.
fn at(timing: Timing) -> State {
    State { timing, can_prepare: true, ..State::default() }
}

fn with_guest(timing: Timing) -> State {
    State { guest_wants_nodes: true, ..at(timing) }
}

fn unprepared(timing: Timing) -> State {
    State { is_unprepared: true, ..at(timing) }
}

/// The timing that follows from each timing, in the order of `TIMINGS`.
fn after(from: fn(Timing) -> State, transition: fn(State) -> State) -> [Timing; 7] {
    TIMINGS.map(|timing| transition(from(timing)).timing)
}

#[test]
fn state_survives_packing() {
    for timing in TIMINGS {
        for flags in 0..16 {
            let flag = |at: u32| flags >> at & 1 != 0;
            let state = State {
                timing,
                is_asked: flag(0),
                can_prepare: flag(1),
                guest_wants_nodes: flag(2),
                is_unprepared: flag(3),
                reprobes: 200,
                refusal: 999,
                graphs_being_made: u32::MAX,
            };
            assert_eq!(State::unpack(state.pack()), state);
        }
    }
    assert_eq!(State::unpack(0), State::default());
}

#[test]
fn transitions_lead_to_these_timings() {
    let refuse = |state: State| state.refuse(CUptiResult::CUPTI_ERROR_INVALID_KIND);
    for (name, found, expected) in [
        ("from", TIMINGS, [Node, Observed, Chosen, Graph, Reprobing, Suspended, Refused]),
        ("choose", after(at, State::choose), [Node, Chosen, Chosen, Graph, Reprobing, Suspended, Refused]),
        (
            "choose, with a guest",
            after(with_guest, State::choose),
            [Node, Suspended, Suspended, Graph, Reprobing, Suspended, Refused],
        ),
        (
            "choose, after a graph without the kind",
            after(unprepared, State::choose),
            [Node, Node, Node, Graph, Reprobing, Node, Refused],
        ),
        ("arrive", after(at, State::arrive), [Node, Observed, Graph, Graph, Reprobing, Graph, Refused]),
        (
            "arrive, with a guest",
            after(with_guest, State::arrive),
            [Node, Observed, Chosen, Graph, Reprobing, Suspended, Refused],
        ),
        (
            "reprobe",
            after(at, State::reprobe),
            [Node, Observed, Chosen, Reprobing, Reprobing, Suspended, Refused],
        ),
        ("observe", after(at, State::observe), [Node, Observed, Chosen, Graph, Observed, Suspended, Refused]),
        (
            "suspend",
            after(with_guest, State::suspend),
            [Node, Observed, Chosen, Suspended, Suspended, Suspended, Refused],
        ),
        ("refuse", after(at, refuse), [Node, Node, Refused, Refused, Refused, Refused, Refused]),
        ("finish", after(at, State::finish), [Node; 7]),
    ] {
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn session_begins_with_what_was_asked_or_what_a_guest_kept_on() {
    let begun = |asked, is_kind_on| TIMINGS.map(|timing| at(timing).begin(asked, true, is_kind_on).timing);
    assert_eq!(begun(Asked::Node, true), [Node; 7]);
    assert_eq!(begun(Asked::Graph, false), [Chosen; 7]);
    let expected = [Observed, Observed, Observed, Observed, Observed, Suspended, Observed];
    assert_eq!(begun(Asked::Automatic, false), expected);
    let expected = [Observed, Observed, Observed, Graph, Reprobing, Suspended, Observed];
    assert_eq!(begun(Asked::Automatic, true), expected);
    let old = State { is_unprepared: true, reprobes: 3, refusal: 7, graphs_being_made: 1, ..at(Refused) };
    let expected = State { is_asked: true, is_unprepared: true, graphs_being_made: 1, ..at(Chosen) };
    assert_eq!(old.begin(Asked::Graph, true, false), expected);
}

#[test]
fn kind_is_wanted_while_graph_level_timing_is_chosen_or_a_graph_is_made() {
    let wanting = |from: fn(Timing) -> State| TIMINGS.map(|timing| from(timing).wants_kind());
    assert_eq!(wanting(at), [false, false, true, true, false, true, false]);
    let being_made = |timing| at(timing).begin_graph();
    assert_eq!(wanting(being_made), [false, true, true, true, true, true, false]);
    assert_eq!(wanting(|timing| at(timing).begin_graph().end_graph()), wanting(at));
    // Never with a graph that CUPTI crashes over, and never against a guest.
    assert_eq!(wanting(|timing| at(timing).begin_graph().forbid_graph_level()), [false; 7]);
    assert_eq!(wanting(|timing| at(timing).begin_graph().guest_changes(true)), [false; 7]);
    // A CUPTI that cannot prepare graphs gets the kind only if the user asked for it.
    let old = State { can_prepare: false, ..at(Chosen) };
    assert!(!old.wants_kind() && State { is_asked: true, ..old }.wants_kind());
}

#[test]
fn graph_being_made_needs_the_kind_only_where_it_can_be_on() {
    assert_eq!(at(Observed).begin_graph().graphs_being_made, 1);
    for other in [at(Node), at(Refused), with_guest(Observed), unprepared(Observed)] {
        assert_eq!(other.begin_graph(), other);
    }
}

#[test]
fn graph_that_loses_the_kind_to_a_guest_forbids_graph_level_timing() {
    let made = at(Graph).begin_graph();
    for (state, wants_nodes, expected) in
        [(made, true, true), (made, false, false), (at(Graph), true, false), (unprepared(Graph), false, true)]
    {
        assert_eq!(state.guest_changes(wants_nodes).is_unprepared, expected, "{state:?}");
    }
}

/// One step of a thread in the model below. `Apply` is `whole_kind::apply`, the rest of a maker's steps are
/// `instantiation::begins` and the driver's call.
#[derive(Clone, Copy)]
enum Step {
    Change(fn(State) -> State),
    ChangeIf { is_requested: bool, change: fn(State) -> State },
    BeginGraph,
    Apply,
    ForbidUnlessApplied,
    BeginMaking,
    EndMaking,
    EndGraph,
}
use Step::*;

const MAKER: &[Step] = &[BeginGraph, Apply, ForbidUnlessApplied, BeginMaking, EndMaking, EndGraph, Apply];
const GUEST: &[Step] = &[
    Change(|state| state.guest_changes(true)),
    Apply,
    Change(State::suspend),
    Change(|state| state.guest_changes(false)),
];
const SERVICE: &[Step] = &[
    Change(State::choose),
    Apply,
    ChangeIf { is_requested: true, change: State::arrive },
    Change(State::reprobe),
    Apply,
    ChangeIf { is_requested: false, change: State::observe },
];

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Thread {
    step: usize,
    /// Inside `Apply`: the position there.
    inner: u8,
    /// A switch that was decided and is under way.
    switches_to: bool,
    needs_kind: bool,
    is_applied: bool,
    /// Whether the kind has been on all the time while this thread makes a graph.
    makes_prepared: Option<bool>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Model {
    state: u64,
    is_requested: bool,
    is_on: bool,
    switching: Option<usize>,
    has_unprepared: bool,
    threads: [Thread; 3],
}

impl Model {
    fn change(&mut self, change: fn(State) -> State) {
        self.state = change(State::unpack(self.state)).pack();
    }

    fn is_as_wanted(&self) -> bool {
        State::unpack(self.state).wants_kind() == self.is_requested
    }

    /// All states that a step of that thread may lead to.
    fn after(&self, at: usize, program: &[Step]) -> Vec<Model> {
        let Some(step) = program.get(self.threads[at].step) else { return Vec::new() };
        let mut next = self.clone();
        if let Apply = step
            && (self.threads[at].needs_kind || !core::ptr::eq(program, MAKER))
        {
            return self.apply(at);
        }
        next.threads[at].step += 1;
        match *step {
            Change(change) => next.change(change),
            ChangeIf { is_requested, change } if is_requested == self.is_requested => next.change(change),
            BeginGraph => {
                next.change(State::begin_graph);
                next.threads[at].needs_kind = next.state != self.state;
            }
            ForbidUnlessApplied if !(self.threads[at].is_applied && self.is_requested) => {
                next.change(State::forbid_graph_level);
            }
            BeginMaking => next.threads[at].makes_prepared = Some(self.is_on),
            EndMaking => {
                next.has_unprepared |= next.threads[at].makes_prepared.take() == Some(false);
            }
            EndGraph if self.threads[at].needs_kind => next.change(State::end_graph),
            _ => {}
        }
        vec![next]
    }

    fn apply(&self, at: usize) -> Vec<Model> {
        let thread = self.threads[at];
        let with = |change: &dyn Fn(&mut Model, &mut Thread)| {
            let (mut next, mut thread) = (self.clone(), thread);
            change(&mut next, &mut thread);
            next.threads[at] = thread;
            next
        };
        let leave = |is_applied: bool| {
            with(&|_, thread| *thread = Thread { step: thread.step + 1, inner: 0, is_applied, ..*thread })
        };
        match thread.inner {
            // A launch that is under way all the time closes the gate to this thread.
            0 => {
                let mut all = vec![leave(self.is_as_wanted() && self.switching.is_none())];
                if self.switching.is_none() {
                    all.push(with(&|next, thread| (next.switching, thread.inner) = (Some(at), 1)));
                }
                all
            }
            1 if self.is_as_wanted() => {
                vec![with(&|next, thread| (next.switching, thread.inner) = (None, 4))]
            }
            1 => vec![with(&|_, thread| (thread.switches_to, thread.inner) = (!self.is_requested, 2))],
            2 => vec![with(&|next, thread| (next.is_requested, thread.inner) = (thread.switches_to, 3))],
            3 => {
                let mut next = with(&|next, thread| (next.is_on, thread.inner) = (thread.switches_to, 1));
                for other in &mut next.threads {
                    other.makes_prepared = other.makes_prepared.map(|on| on && thread.switches_to);
                }
                vec![next]
            }
            _ if self.is_as_wanted() => vec![leave(true)],
            _ => vec![with(&|_, thread| thread.inner = 0)],
        }
    }
}

/// Tries all orders of the steps of three threads. A launch may begin whenever no thread switches.
#[test]
fn launch_never_finds_the_kind_on_beside_a_graph_made_without_it() {
    for programs in [[MAKER, GUEST, SERVICE], [MAKER, MAKER, SERVICE], [MAKER, MAKER, GUEST]] {
        for (timing, is_on) in [(Observed, false), (Suspended, false), (Graph, true)] {
            let first = Model {
                state: at(timing).pack(),
                is_requested: is_on,
                is_on,
                switching: None,
                has_unprepared: false,
                threads: [Thread::default(); 3],
            };
            let mut seen = HashSet::from([first.clone()]);
            let mut open = vec![first];
            while let Some(model) = open.pop() {
                let crashes = model.has_unprepared && model.is_on && model.switching.is_none();
                assert!(!crashes, "{timing:?} {:?}", State::unpack(model.state));
                for (at, program) in programs.iter().enumerate() {
                    open.extend(
                        model.after(at, program).into_iter().filter(|next| seen.insert(next.clone())),
                    );
                }
            }
            assert!(seen.len() > 1_000, "{}", seen.len());
        }
    }
}
