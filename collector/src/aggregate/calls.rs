//! Host calls by driver entry: how often each was called and how long it took.

use std::collections::BTreeMap;

use gputrace_wire::call::{Detail, operation, wait};
use gputrace_wire::cell::kind;

use crate::aggregate::Durations;
use crate::aggregate::bounded::Bounded;
use crate::model::operation::HostCall;

const KEYS_MAX: usize = 1 << 14;
/// Processes whose loads of modules are followed.
const PROCESSES_MAX: usize = 1 << 12;

/// What a call does, as reports group calls.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CallClass {
    Launch,
    GraphLaunch,
    Copy,
    Fill,
    /// The host waits for the device.
    Wait,
    /// A stream waits; the host does not.
    StreamWait,
    ModuleLoad,
    Alloc,
    Free,
    Graph,
    Other,
}

impl CallClass {
    pub const fn name(self) -> &'static str {
        match self {
            CallClass::Launch => "launch",
            CallClass::GraphLaunch => "graph_launch",
            CallClass::Copy => "copy",
            CallClass::Fill => "fill",
            CallClass::Wait => "wait",
            CallClass::StreamWait => "stream_wait",
            CallClass::ModuleLoad => "module_load",
            CallClass::Alloc => "alloc",
            CallClass::Free => "free",
            CallClass::Graph => "graph",
            CallClass::Other => "other",
        }
    }

    #[inline]
    pub fn of(call: &HostCall) -> CallClass {
        match (call.kind, &call.detail) {
            (kind::LAUNCH, _) => CallClass::Launch,
            (kind::GRAPH_LAUNCH, _) => CallClass::GraphLaunch,
            (kind::COPY, _) => CallClass::Copy,
            (kind::FILL, _) => CallClass::Fill,
            (kind::ALLOC, _) => CallClass::Alloc,
            (kind::FREE, _) => CallClass::Free,
            (kind::WAIT, Detail::Wait { what: wait::STREAM_ON_EVENT | wait::STREAM_ON_VALUE, .. }) => {
                CallClass::StreamWait
            }
            (kind::WAIT, _) => CallClass::Wait,
            (kind::MODULE, Detail::Module { operation: operation::LOAD, .. }) => CallClass::ModuleLoad,
            (kind::GRAPH, _) => CallClass::Graph,
            _ => CallClass::Other,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CallKey {
    pub process: u32,
    /// API definition.
    pub api: u32,
    pub class: CallClass,
}

#[derive(Clone, Debug, Default)]
pub struct CallAggregate {
    pub durations: Durations,
    /// Calls that did not return success; they are among the durations.
    pub failed: u64,
}

impl CallAggregate {
    #[inline]
    fn add(&mut self, call: &HostCall) {
        self.durations.add(call.duration_ns);
        self.failed += u64::from(call.status != 0);
    }

    pub fn merge(&mut self, other: &CallAggregate) {
        self.durations.merge(&other.durations);
        self.failed += other.failed;
    }
}

#[derive(Clone, Debug, Default)]
pub struct Calls {
    entries: Bounded<CallKey, CallAggregate, KEYS_MAX>,
    /// Calls of entries that did not fit.
    other: BTreeMap<CallClass, CallAggregate>,
    /// By process: each begins with loads of its own.
    loads: Bounded<u32, ModuleLoads, PROCESSES_MAX>,
}

/// How many launches a process had made when it loaded modules: loads late in its run are of code that is
/// compiled again.
#[derive(Clone, Debug, Default)]
struct ModuleLoads {
    launches: u64,
    /// Calls and their time, by the launches before them, rounded down to three binary digits.
    after: BTreeMap<u64, (u64, u64)>,
}

impl ModuleLoads {
    #[inline]
    fn add(&mut self, class: CallClass, call: &HostCall) {
        match class {
            CallClass::Launch | CallClass::GraphLaunch => self.launches += 1,
            CallClass::ModuleLoad => {
                let digits = self.launches.checked_ilog2().map_or(0, |log| log.saturating_sub(2));
                let (calls, ns) = self.after.entry(self.launches >> digits << digits).or_default();
                *calls += 1;
                *ns = ns.saturating_add(call.duration_ns);
            }
            _ => {}
        }
    }

    /// Loads after three quarters of all launches, and how long they took.
    fn late(&self) -> (u64, u64) {
        let late = self.after.range((self.launches / 4 * 3).max(1)..).map(|(_, late)| *late);
        late.fold((0, 0), |(calls, ns), (more, more_ns)| (calls + more, more_ns.saturating_add(ns)))
    }
}

impl Calls {
    #[inline]
    pub fn add(&mut self, call: &HostCall) {
        let class = CallClass::of(call);
        let counts = matches!(class, CallClass::Launch | CallClass::GraphLaunch | CallClass::ModuleLoad);
        if counts && let Some(loads) = self.loads.row(call.process, ModuleLoads::default) {
            loads.add(class, call);
        }
        let key = CallKey { process: call.process, api: call.api, class };
        match self.entries.row(key, CallAggregate::default) {
            Some(entry) => entry.add(call),
            None => self.other.entry(class).or_default().add(call),
        }
    }

    /// Loads after three quarters of their process's launches, and how long they took. Processes beyond the
    /// capacity are left out.
    pub fn late_loads(&self) -> (u64, u64) {
        let late = self.loads.iter().map(|(_, loads)| loads.late());
        late.fold((0, 0), |(calls, ns), (more, more_ns)| (calls + more, ns.saturating_add(more_ns)))
    }

    /// In no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (&CallKey, &CallAggregate)> {
        self.entries.iter()
    }

    /// Calls of entries that did not fit, by class.
    pub fn other(&self) -> impl Iterator<Item = (&CallClass, &CallAggregate)> {
        self.other.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_in_the_last_quarter_of_all_launches_are_late() {
        let mut loads = ModuleLoads::default();
        let load = HostCall { duration_ns: 7, ..HostCall::default() };
        for launch in 0..100 {
            if matches!(launch, 0 | 3 | 40 | 60 | 90) {
                loads.add(CallClass::ModuleLoad, &load);
            }
            loads.add(CallClass::Launch, &HostCall::default());
        }
        assert_eq!(loads.late(), (1, 7));
        let mut only = ModuleLoads::default();
        only.add(CallClass::ModuleLoad, &load);
        assert_eq!(only.late(), (0, 0));
    }

    #[test]
    fn loads_at_the_begin_of_a_process_are_not_late_though_other_processes_came_before() {
        let mut calls = Calls::default();
        for process in 0..4 {
            for kind in [kind::MODULE, kind::LAUNCH, kind::LAUNCH, kind::LAUNCH, kind::LAUNCH] {
                let detail = match kind {
                    kind::MODULE => Detail::Module { operation: operation::LOAD, module: 1 },
                    _ => Detail::default(),
                };
                calls.add(&HostCall { process, kind, detail, duration_ns: 7, ..HostCall::default() });
            }
        }
        assert_eq!(calls.late_loads(), (0, 0));
        let detail = Detail::Module { operation: operation::LOAD, module: 2 };
        calls.add(&HostCall {
            process: 2,
            kind: kind::MODULE,
            detail,
            duration_ns: 9,
            ..HostCall::default()
        });
        assert_eq!(calls.late_loads(), (1, 9));
    }

    #[test]
    fn calls_of_entries_that_do_not_fit_are_counted_by_class() {
        let mut calls = Calls::default();
        for api in 0..KEYS_MAX as u32 + 3 {
            calls.add(&HostCall {
                api,
                kind: kind::ALLOC,
                duration_ns: 10,
                status: 2,
                ..HostCall::default()
            });
        }
        let other: Vec<_> = calls.other().collect();
        let [(CallClass::Alloc, other)] = other[..] else { panic!("{other:?}") };
        assert_eq!((calls.iter().count(), other.durations.total_ns(), other.failed), (KEYS_MAX, 30, 3));
    }
}
