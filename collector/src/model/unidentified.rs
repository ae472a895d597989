//! Launches that came without a correlation id while device records come: joined by order.
//!
//! An old CUPTI on a newer driver calls back for copies and not for launches, so that a launch's
//! hook learns no id, and the kernel's record bears that of some later call. Kernels of one name
//! run in the order of their launches, but for streams that overlap; so the oldest launch of that
//! name is the record's. Counts and totals by name are exact; which of two threads that launch the
//! same kernel at the same time gets which execution is not.

use std::collections::{HashSet, VecDeque};

use gputrace_wire::call::Detail;
use gputrace_wire::cell::kind;
use gputrace_wire::definition::library_role;
use rustc_hash::FxHashMap;

use crate::model::definitions::Definitions;
use crate::model::operation::{HostCall, Operation, What};

/// The most launches that wait.
const WAITING_MAX: usize = 1 << 17;

#[derive(Debug, Default)]
pub(super) struct Unidentified {
    /// By the kernel's name.
    launches: FxHashMap<u32, VecDeque<HostCall>>,
    /// Graph launches; the first is the one whose nodes are coming.
    graphs: VecDeque<HostCall>,
    /// Nodes of the first graph launch that have come: one that comes again is the next launch's.
    nodes: HashSet<u64>,
    waiting: usize,
}

impl Unidentified {
    /// Keeps a launch for its record; gives it back if it cannot be one, or there are too many.
    pub fn keep(&mut self, call: HostCall, definitions: &Definitions) -> Option<HostCall> {
        if self.waiting >= WAITING_MAX {
            return Some(call);
        }
        match call.detail {
            Detail::Launch(launch) => {
                let name = definitions.function(launch.function).map_or(0, |function| function.name_id);
                self.launches.entry(name).or_default().push_back(call);
            }
            Detail::GraphLaunch { .. } => self.graphs.push_back(call),
            _ => return Some(call),
        }
        self.waiting += 1;
        None
    }

    /// The launch of a record that met no call of its kind.
    #[inline]
    pub fn take(&mut self, record: &Operation) -> Option<HostCall> {
        if self.waiting == 0 {
            return None;
        }
        if let Some(node) = record.graph {
            if !self.nodes.insert(node.node) && self.graphs.len() > 1 {
                self.graphs.pop_front();
                self.waiting -= 1;
                self.nodes.clear();
                self.nodes.insert(node.node);
            }
            return self.graphs.front().cloned();
        }
        let What::Kernel(kernel) = record.what else { return None };
        let call = self.launches.get_mut(&kernel.name)?.pop_front()?;
        self.waiting -= 1;
        Some(call)
    }

    /// What still waits when nothing more comes, by time.
    pub fn finish(&mut self) -> Vec<HostCall> {
        let mut left: Vec<_> = self.launches.drain().flat_map(|(_, calls)| calls).collect();
        // The first graph launch has had records if any node of it was seen.
        left.extend(self.graphs.drain(..).skip(usize::from(!self.nodes.is_empty())));
        left.sort_by_key(|call| (call.start_ns, call.thread));
        self.waiting = 0;
        left
    }
}

/// Whether a record can be of what the call asked for. Anything can come of a graph launch, and a
/// graph's node of nothing else.
#[inline]
pub(super) fn fits(record: &Operation, call: &HostCall) -> bool {
    match call.kind {
        kind::GRAPH_LAUNCH => true,
        kind::COPY | kind::FILL => record.graph.is_none() && !matches!(record.what, What::Kernel(_)),
        _ => record.graph.is_none(),
    }
}

/// Whether the ids that launches learn are worth nothing: CUPTI 11 on a driver of a later CUDA
/// (measured with 11.8 on driver 580), by the library's name, since 12.0 and 12.1 report its version.
pub(super) fn ids_are_unreliable(definitions: &Definitions) -> bool {
    let is_later = definitions
        .libraries()
        .any(|library| library.role == library_role::DRIVER && library.version >= 12_000);
    is_later
        && definitions.libraries().any(|library| {
            let file = library.path.rsplit('/').next().unwrap_or_default();
            library.role == library_role::DEVICE_RECORDS && file.starts_with("libcupti.so.11")
        })
}
