//! Host calls by driver entry: how often each was called and how long it took.

use rustc_hash::FxHashMap;

use gputrace_wire::call::{Detail, operation, wait};
use gputrace_wire::cell::kind;

use crate::aggregate::Durations;
use crate::aggregate::room::Room;
use crate::model::namesakes::Renumbering;
use crate::model::operation::HostCall;

const KEYS_MAX: usize = 1 << 14;
/// Keys from which on processes that ended are told together, whenever there are so many more again.
const TOGETHER_FROM: usize = KEYS_MAX / 4 * 3;
const TOGETHER_STEP: usize = KEYS_MAX / 32;

/// What a call is for, as reports group them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CallClass {
    Launch,
    GraphLaunch,
    Copy,
    Fill,
    /// The host waits for the device.
    Wait,
    /// A stream is told to wait; the host is not.
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
    entries: FxHashMap<CallKey, CallAggregate>,
    other: CallAggregate,
    room: Room,
}

impl Calls {
    #[inline]
    pub fn add(&mut self, call: &HostCall) {
        let key = CallKey { process: call.process, api: call.api, class: CallClass::of(call) };
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.add(call);
        } else if self.entries.len() < KEYS_MAX {
            self.entries.entry(key).or_default().add(call);
        } else {
            self.room.turn_away();
            self.other.add(call);
        }
    }

    /// Whether calls of processes that ended should be told together.
    pub fn is_short_of_room(&self) -> bool {
        self.room.is_short(self.entries.len(), TOGETHER_FROM, TOGETHER_STEP)
    }

    pub fn tell_together(&mut self, together: &mut Renumbering<'_>) {
        let mut moved: Vec<_> = self.entries.extract_if(|key, _| together.has(key.process)).collect();
        // In an order that does not depend on the table's.
        moved.sort_unstable_by_key(|(key, _)| *key);
        for (key, entry) in moved {
            let to = together.process(key.process).zip(together.definition(key.process, key.api));
            let to = to.map(|(process, api)| CallKey { process, api, ..key });
            match to {
                Some(key) => self.entries.entry(key).or_default().merge(&entry),
                None => self.other.merge(&entry),
            }
        }
        self.room.told(self.entries.len());
    }

    /// In no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (&CallKey, &CallAggregate)> {
        self.entries.iter()
    }

    /// Calls of entries that did not fit, together.
    pub fn other(&self) -> &CallAggregate {
        &self.other
    }
}
