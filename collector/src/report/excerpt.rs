//! What a flight recorder kept of a session, and what it left out.

use serde::Serialize;

use crate::batch::LeftOut;
use crate::model::Totals;
use crate::names::line_safe;
use crate::report::units::{count, duration};

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ExcerptReport {
    /// The length asked for.
    pub window_ns: u64,
    /// From the end of the first event that is there to that of the last.
    pub span_ns: u64,
    /// The length of the session that it is the end of.
    pub session_ns: u64,
    /// `exit`, `crash` with the signal's name if that is known, `signal` or `asked`.
    pub reason: String,
    pub left_out: LeftOut,
}

/// Of every session that is an excerpt.
pub(super) fn excerpts(totals: &Totals) -> Vec<ExcerptReport> {
    let sessions = totals.sessions.iter();
    let excerpts = sessions.filter_map(|session| Some((session, session.excerpt.as_ref()?)));
    excerpts
        .map(|(session, excerpt)| ExcerptReport {
            window_ns: excerpt.window_ns,
            span_ns: session.length_ns(),
            session_ns: session.whole_length_ns(),
            reason: excerpt.reason.clone(),
            left_out: excerpt.left_out,
        })
        .collect()
}

impl ExcerptReport {
    /// For people: what it is the end of, why it was written, and what went before it.
    pub(super) fn line(&self) -> String {
        let reason = line_safe(&self.reason);
        let mut line = format!(
            "the last {} of {}, reason: {reason}; {} launches before it are not in it",
            duration(self.window_ns),
            duration(self.session_ns),
            count(self.left_out.launches.saturating_add(self.left_out.graph_launches)),
        );
        if self.left_out.for_room > 0 {
            line +=
                &format!(", and {} newer entries for which there was no room", count(self.left_out.for_room));
        }
        match self.left_out.processes {
            0 => {}
            1 => line += "; 1 process that ended is not in it",
            many => line += &format!("; {} processes that ended are not in it", count(many)),
        }
        line
    }
}
