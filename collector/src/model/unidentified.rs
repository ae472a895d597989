//! Launches without a correlation id in a process with device records: joined by order.
//!
//! An old CUPTI on a newer driver has callbacks for copies and not for launches, so that a launch's hook
//! learns no id, and the kernel's record has the id of some later call. Kernels of one name mostly run in
//! the order of their launches, so a record is joined with the oldest launch of its name. Counts and totals
//! by name are exact. If two threads launch the same kernel at the same time, their executions may be
//! swapped.

use std::collections::{HashSet, VecDeque};

use gputrace_wire::call::Detail;
use gputrace_wire::cell::kind;
use gputrace_wire::definition::library_role;
use rustc_hash::FxHashMap;

use crate::model::definitions::Definitions;
use crate::model::operation::{HostCall, Operation, What};

/// The most launches that wait for their records.
const WAITING_MAX: usize = 1 << 17;

#[derive(Debug, Default)]
pub(super) struct Unidentified {
    /// By the kernel's name.
    launches: FxHashMap<u32, VecDeque<HostCall>>,
    /// Graph launches. Node records belong to the first.
    graphs: VecDeque<HostCall>,
    /// Nodes of the first graph launch that have come. A node that comes again belongs to the next launch.
    nodes: HashSet<u64>,
    waiting: usize,
}

impl Unidentified {
    /// Keeps a launch for its record. Returns the call if it is no launch or there are too many.
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

    /// The launch of a record that the join has no fitting call for.
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

    /// The launches that still wait at the end, in order of time.
    pub fn finish(&mut self) -> Vec<HostCall> {
        let mut left: Vec<_> = self.launches.drain().flat_map(|(_, calls)| calls).collect();
        // The first graph launch had records if any of its nodes came.
        left.extend(self.graphs.drain(..).skip(usize::from(!self.nodes.is_empty())));
        left.sort_by_key(|call| (call.start_ns, call.thread));
        self.waiting = 0;
        left
    }
}

/// Whether a call of this kind can have such a record. A graph launch can have any, and only a graph launch
/// has node records.
#[inline]
pub(super) fn fits(record: &Operation, call: &HostCall) -> bool {
    match call.kind {
        kind::GRAPH_LAUNCH => true,
        kind::COPY | kind::FILL => record.graph.is_none() && !matches!(record.what, What::Kernel(_)),
        _ => record.graph.is_none(),
    }
}

/// Whether the correlation ids of launches are wrong: with CUPTI 11 on a driver of a later CUDA (measured
/// with 11.8 on driver 580). Found by the library's name, since CUPTI 12.0 and 12.1 report the version of 11.
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
