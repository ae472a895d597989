//! A process of the current session, for whoever looks at it while it runs.

use crate::batch::{Counters, ProcessBegin};
use crate::model::counts::Counts;

pub(crate) struct RunningProcess<'a> {
    pub begin: &'a ProcessBegin,
    pub counters: &'a Counters,
    pub counts: &'a Counts,
    pub has_ended: bool,
}
