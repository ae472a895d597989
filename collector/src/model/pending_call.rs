//! A host call that device records are waited for, and the form in which a graph launch has them.

use crate::model::operation::{HostCall, Operation, What};

/// A call that is kept until its records are there.
#[derive(Debug)]
pub struct PendingCall {
    pub call: HostCall,
    /// Whether a record has met it; then it is kept only in case more come.
    pub matched: bool,
    /// Whether many records are expected, so that it is worth its slot even when matched.
    pub many: bool,
    pub form: Form,
    /// The time that nodes had which were told before the launch's record as a whole.
    pub nodes_ns: u64,
}

/// In which form a graph launch was recorded. Where that is switched, one launch may have both.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Form {
    #[default]
    Unknown,
    ByNode,
    Whole,
}

impl Form {
    /// Takes a record's form, if it is the first; false if it is the other one.
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

    /// Whether a record may be told. A whole launch that comes after some of its nodes, as where the form is switched
    /// meanwhile, stands for the others: it has the time that they leave.
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
    /// A record of it is there: the record with its call, unless it stands for what is told already.
    #[inline]
    pub fn meet(&mut self, mut record: Operation) -> Option<Operation> {
        if self.many && !self.form.admits(&mut record, &mut self.nodes_ns) {
            return None;
        }
        self.matched = true;
        record.call = Some(self.call.clone());
        Some(record)
    }

    /// Whether it is worth its slot.
    pub fn is_live(&self) -> bool {
        !self.matched || self.many
    }
}
