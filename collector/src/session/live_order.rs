//! Orders to the session's processes while they run: to record or to pause, and settings.

use gputrace_wire::atomic::Ordering;
use gputrace_wire::control::Control;
use gputrace_wire::reported::{Reported, Why};
use gputrace_wire::run_settings::RunSettings;
use serde::Serialize;

/// An order that every process gets, those that join later too, and who has not followed it yet.
#[derive(Clone, Debug, Default)]
pub(super) struct LiveOrder {
    /// The word in the control block; 0 until the first order.
    pub wanted: u32,
    /// The order that `processes` and `waiting` are about.
    pub applied: u32,
    /// How many processes have the order in effect.
    pub processes: usize,
    /// Process ids of those that have not.
    pub waiting: Vec<u32>,
}

impl LiveOrder {
    /// Whether nothing is left to be passed on to so many processes.
    pub fn is_settled(&self, processes: usize) -> bool {
        self.wanted == 0
            || self.applied == self.wanted && self.waiting.is_empty() && processes == self.processes
    }
}

/// Who ordered a session to record or to pause.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OrderedBy {
    /// `gputrace ctl`.
    #[default]
    Ctl,
    /// `--delay`, which is not over.
    Delay,
    /// `--delay`, which is over.
    DelayOver,
    /// `--duration`, which is over.
    Duration,
}

/// What a running process reports of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct ReportedState {
    pub pid: u32,
    /// `None` until the process has reported it.
    pub recording: Option<bool>,
    /// Why it records or is paused: a word of [`why`], or `None` if it does as it was started.
    pub why: Option<&'static str>,
    #[serde(skip)]
    pub settings: RunSettings,
}

impl ReportedState {
    pub(super) fn read(pid: u32, control: &Control) -> ReportedState {
        let reported = Reported::from_word(control.recording_now.load(Ordering::Relaxed));
        ReportedState {
            pid,
            recording: reported.map(|reported| reported.is_recording),
            why: reported.and_then(|reported| why(reported.why)),
            settings: RunSettings::from_word(control.settings_now.load(Ordering::Relaxed)),
        }
    }
}

fn why(why: Why) -> Option<&'static str> {
    Some(match why {
        Why::Started => return None,
        Why::Order => "order",
        Why::StartPaused => "start-paused",
        Why::Delay => "own-delay",
        Why::RangeAwaited => "capture-range-awaited",
        Why::RangeOpen => "capture-range-open",
        Why::RangesOver => "capture-ranges-over",
    })
}
