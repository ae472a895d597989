//! A host call that waits for its device records, and the form of a graph launch's records.

use crate::model::operation::{HostCall, Operation, What};

/// A call that waits for its records.
#[derive(Debug)]
pub struct PendingCall {
    pub call: HostCall,
    /// Whether a record was joined with it. The call is then kept only for further records.
    pub matched: bool,
    /// Whether several records are expected, so that it needs its slot after the first one too.
    pub many: bool,
    pub form: Form,
    /// The time of the nodes that were emitted before the record of the whole launch.
    pub nodes_ns: u64,
}

/// Whether a graph launch was recorded as a whole or by node. A launch during a switch may have both.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Form {
    #[default]
    Unknown,
    ByNode,
    Whole,
}

impl Form {
    /// Sets the form by the first record. Returns false for a record of the other form.
    #[inline]
    fn takes(&mut self, record: &Operation) -> bool {
        let form = match (record.what, record.graph) {
            (What::Graph, _) => Form::Whole,
            (_, Some(_)) => Form::ByNode,
            _ => return true,
        };
        if *self == Form::Unknown {
            *self = form;
        }
        *self == form
    }

    /// Whether a record is emitted. A whole-launch record that comes after some of its nodes, since the form
    /// was switched meanwhile, counts for the other nodes: it keeps the time that the emitted nodes leave.
    #[inline]
    pub fn admits(&mut self, record: &mut Operation, nodes_ns: &mut u64) -> bool {
        if self.takes(record) {
            if *self == Form::ByNode {
                let duration_ns = record.timing.map_or(0, |timing| timing.duration_ns);
                *nodes_ns = nodes_ns.saturating_add(duration_ns);
            }
            return true;
        }
        match &mut record.timing {
            Some(timing) if record.what == What::Graph && timing.duration_ns > *nodes_ns => {
                timing.start_ns = timing.start_ns.saturating_add(*nodes_ns);
                timing.duration_ns -= *nodes_ns;
                *self = Form::Whole;
                true
            }
            _ => false,
        }
    }
}

impl PendingCall {
    /// Joins a record with the call; false if the record only repeats what was already emitted.
    #[inline]
    pub fn join(&mut self, record: &mut Operation) -> bool {
        if self.many && !self.form.admits(record, &mut self.nodes_ns) {
            return false;
        }
        self.matched = true;
        record.call = Some(self.call.clone());
        true
    }

    /// Whether it still needs its slot.
    pub fn is_live(&self) -> bool {
        !self.matched || self.many
    }
}
