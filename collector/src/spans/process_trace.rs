//! The trace that a process's spans belong to: that of its TRACEPARENT, its parent process's, or the
//! session's.

use std::collections::VecDeque;
use std::sync::Arc;

use gputrace_wire::definition::origin_of;
use rustc_hash::FxHashMap;

use crate::batch::SessionBegin;
use crate::model::definitions::Definitions;
use crate::spans::ids::SessionSeed;
use crate::spans::run::RunContext;
use crate::spans::trace_context::{
    Malformed, SAMPLED, TraceParent, baggage, resource_attributes, trace_state,
};

/// Complaints that are kept; equal ones are kept once.
const COMPLAINTS_MAX: usize = 16;
/// Exited processes that are remembered. A child of a forgotten one is placed under the run, or is a root.
const ENDED_MAX: usize = 4096;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcessTrace {
    pub trace_id: u128,
    /// The parent of the process's own span; 0 for none.
    pub parent: u64,
    pub parent_is_remote: bool,
    pub flags: u8,
    pub state: Arc<str>,
    pub baggage: Vec<(String, String)>,
    /// TRACEPARENT of the process's environment.
    given: Option<TraceParent>,
}

impl ProcessTrace {
    fn without_baggage(&self) -> ProcessTrace {
        let ProcessTrace { trace_id, parent, parent_is_remote, flags, ref state, given, baggage: _ } = *self;
        ProcessTrace {
            trace_id,
            parent,
            parent_is_remote,
            flags,
            state: Arc::clone(state),
            given,
            baggage: Vec::new(),
        }
    }
}

/// What children inherit from the processes and runs of all sessions.
#[derive(Debug, Default)]
pub struct Family {
    members: FxHashMap<(SessionSeed, u32), FamilyMember>,
    /// Exited processes with their root spans, the oldest first.
    ended: VecDeque<((SessionSeed, u32), u64)>,
    /// The contexts that sessions gave to their commands: of the current session, and of earlier ones with
    /// processes that still run.
    runs: FxHashMap<SessionSeed, SessionRun>,
    /// The current session.
    latest: Option<SessionSeed>,
    /// Messages for the user about malformed variables.
    complaints: Vec<String>,
}

#[derive(Debug)]
struct SessionRun {
    handed: RunContext,
    /// How many processes of the session run.
    running: usize,
}

#[derive(Debug)]
struct FamilyMember {
    root: u64,
    /// Known once [`Family::join`] was called; without baggage, which no child inherits.
    joined: Option<ProcessTrace>,
}

/// Identifies a process and its parent.
#[derive(Clone, Copy, Debug)]
pub struct Who {
    pub session: SessionSeed,
    pub pid: u32,
    pub parent_pid: u32,
}

impl Family {
    /// Begins a session. Returns the trace context that it gave to its command, if it gave one. Complains if
    /// the session's own TRACEPARENT is malformed.
    pub fn begin(&mut self, session: &SessionBegin) -> Option<RunContext> {
        let seed = SessionSeed::new(session);
        if self.latest.replace(seed) != Some(seed) {
            self.runs.retain(|known, run| *known == seed || run.running > 0);
        }
        if let Some(known) = self.runs.get(&seed) {
            return Some(known.handed);
        }
        let handed = RunContext::of(session)?;
        if let Some(Err(why)) = RunContext::caller(session) {
            self.complain(why.to_string());
        }
        self.runs.insert(seed, SessionRun { handed, running: 0 });
        Some(handed)
    }

    /// A process began. An earlier process of the same pid has ended.
    pub fn add(&mut self, who: Who, root: u64) {
        self.members.insert((who.session, who.pid), FamilyMember { root, joined: None });
        if let Some(run) = self.runs.get_mut(&who.session) {
            run.running += 1;
        }
    }

    /// A process ended; `root` distinguishes it from a later process of its pid. Only the latest are
    /// remembered, since a session may last for years.
    pub fn end(&mut self, who: Who, root: u64) {
        if let Some(run) = self.runs.get_mut(&who.session) {
            run.running = run.running.saturating_sub(1);
            if run.running == 0 && self.latest != Some(who.session) {
                self.runs.remove(&who.session);
            }
        }
        self.ended.push_back(((who.session, who.pid), root));
        while self.ended.len() > ENDED_MAX {
            let Some((member, root)) = self.ended.pop_front() else { return };
            if self.members.get(&member).is_some_and(|known| known.root == root) {
                self.members.remove(&member);
            }
        }
    }

    /// Decides which trace a process belongs to, from its environment and its parent process.
    pub fn join(&mut self, who: Who, definitions: &Definitions) -> ProcessTrace {
        let given = self.read(definitions, origin_of::TRACEPARENT, TraceParent::parse);
        let run = self.runs.get(&who.session).map(|run| run.handed);
        // A process with the run's own context is in another tracer's trace only if the run is.
        let run_given = run.filter(|run| given == Some(run.context));
        let state = match (given, run_given) {
            (Some(_), None | Some(RunContext { caller: Some(_), .. })) => {
                self.read(definitions, origin_of::TRACESTATE, trace_state).unwrap_or_default()
            }
            _ => String::new(),
        };
        let baggage = self.read(definitions, origin_of::BAGGAGE, baggage).unwrap_or_default();
        // Read only to report malformed attributes; `resource` uses them.
        self.read(definitions, origin_of::RESOURCE_ATTRIBUTES, resource_attributes);
        let parent =
            self.members.get(&(who.session, who.parent_pid)).and_then(|parent| parent.joined.as_ref());
        // A process that lost its environment still belongs to the run.
        let joined = match (given.or(run.map(|run| run.context).filter(|_| parent.is_none())), parent) {
            (Some(given), _) => ProcessTrace {
                trace_id: given.trace_id,
                parent: given.span_id,
                parent_is_remote: run.is_none_or(|run| run.context != given),
                flags: given.flags & SAMPLED,
                state: state.into(),
                baggage,
                given: Some(given),
            },
            (None, Some(parent)) => {
                ProcessTrace { parent: 0, parent_is_remote: false, baggage, ..parent.clone() }
            }
            (None, None) => ProcessTrace {
                trace_id: who.session.trace(),
                parent: 0,
                parent_is_remote: false,
                flags: SAMPLED,
                state: Arc::default(),
                baggage,
                given: None,
            },
        };
        if let Some(member) = self.members.get_mut(&(who.session, who.pid)) {
            member.joined = Some(joined.without_baggage());
        }
        joined
    }

    /// Makes the parent process's span the parent of the process's span, if both have the same TRACEPARENT.
    pub fn under_parent(&self, who: Who, joined: ProcessTrace) -> ProcessTrace {
        let parent = self.members.get(&(who.session, who.parent_pid)).filter(|_| who.parent_pid != who.pid);
        let is_same_trace = |parent: &&FamilyMember| {
            let known = parent.joined.as_ref();
            known.is_some_and(|known| known.trace_id == joined.trace_id && known.given == joined.given)
        };
        match parent.filter(is_same_trace) {
            Some(parent) => ProcessTrace { parent: parent.root, parent_is_remote: false, ..joined },
            None => joined,
        }
    }

    pub fn complaints(&self) -> &[String] {
        &self.complaints
    }

    fn read<T>(
        &mut self,
        definitions: &Definitions,
        of: u64,
        parse: impl FnOnce(&str) -> Result<T, Malformed>,
    ) -> Option<T> {
        let parsed = parse(definitions.origin(of)?);
        parsed.map_err(|why| self.complain(why.to_string())).ok()
    }

    fn complain(&mut self, why: String) {
        if self.complaints.len() < COMPLAINTS_MAX && !self.complaints.contains(&why) {
            self.complaints.push(why);
        }
    }
}

#[cfg(test)]
mod tests {
    use gputrace_wire::definition::kind;

    use super::*;
    use crate::batch::Definition;

    fn who(pid: u32, parent_pid: u32) -> Who {
        Who { session: SessionSeed::new(&SessionBegin::default()), pid, parent_pid }
    }

    /// A pid that no process has in these tests.
    const NOBODY: u32 = u32::MAX;

    #[test]
    fn ended_processes_are_remembered_up_to_a_bound() {
        let (mut family, definitions) = (Family::default(), Definitions::default());
        let max = ENDED_MAX as u32;
        // One process runs all the time; the pid of another is used again.
        for pid in [1, 2] {
            family.add(who(pid, NOBODY), u64::from(pid));
            family.join(who(pid, NOBODY), &definitions);
        }
        family.end(who(2, NOBODY), 2);
        family.add(who(2, NOBODY), 20);
        family.join(who(2, NOBODY), &definitions);
        for pid in 10..10 + 2 * max {
            family.add(who(pid, 1), u64::from(pid));
            let joined = family.join(who(pid, 1), &definitions);
            assert_eq!(family.under_parent(who(pid, 1), joined).parent, 1);
            family.end(who(pid, 1), u64::from(pid));
            assert!(family.members.len() <= ENDED_MAX + 3 && family.ended.len() <= ENDED_MAX);
        }
        let mut parent_of = |parent: u32| {
            let child = who(5, parent);
            family.add(child, 5);
            let joined = family.join(child, &definitions);
            family.under_parent(child, joined).parent
        };
        assert_eq!(parent_of(2), 20, "the new process of that pid");
        let newest = 9 + 2 * max;
        assert_eq!(parent_of(newest), u64::from(newest));
        assert_eq!(parent_of(newest - max), 0, "a root");
    }

    /// A process that another collector takes over may outlive its session.
    #[test]
    fn runs_are_remembered_while_processes_of_theirs_run() {
        let (mut family, definitions) = (Family::default(), Definitions::default());
        let session =
            |number| SessionBegin { realtime_ns: number, hands_on: true, ..SessionBegin::default() };
        let of = |number, pid| Who { session: SessionSeed::new(&session(number)), ..who(pid, NOBODY) };
        let handed = family.begin(&session(0)).unwrap();
        family.add(of(0, 7), 7);
        for number in 1..1_000 {
            family.begin(&session(number)).unwrap();
            for pid in [1, 2] {
                family.add(of(number, pid), pid.into());
            }
            for pid in [1, 2] {
                let joined = family.join(of(number, pid), &definitions);
                assert_eq!(joined.parent, family.runs[&of(number, pid).session].handed.context.span_id);
                family.end(of(number, pid), pid.into());
            }
            assert_eq!(family.runs.len(), 2, "the current run, and the first");
        }
        assert_eq!(family.join(of(0, 7), &definitions).parent, handed.context.span_id);
        family.end(of(0, 7), 7);
        assert_eq!(family.runs.len(), 1);
    }

    #[test]
    fn baggage_is_not_kept_for_children() {
        let mut definitions = Definitions::default();
        definitions.add(&Definition {
            kind: kind::ORIGIN,
            id: 1,
            fields: vec![origin_of::BAGGAGE],
            text: "tenant=blue".into(),
        });
        let mut family = Family::default();
        family.add(who(1, NOBODY), 1);
        assert_eq!(family.join(who(1, NOBODY), &definitions).baggage.len(), 1);
        assert!(family.members.values().all(|member| member.joined.as_ref().unwrap().baggage.is_empty()));
    }
}
