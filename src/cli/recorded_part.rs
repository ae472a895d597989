//! Which part of a session is recorded: `--start-paused`, `--delay`, `--duration`, `--capture-range` and
//! `--capture-range-end`, and which of them contradict each other.

use gputrace_collector::session::Handle;
use gputrace_wire::capture_range::{CaptureRange, CaptureRangeEnd};

use crate::cli::failure::{Failure, reason};
use crate::cli::given::Given;
use crate::cli::kind::{self, OFF};
use crate::cli::options::{self, Setting};
use crate::cli::{exit_code, seconds};
use crate::launch::schedule::{Schedule, Timers};

#[derive(Clone, Copy, Default, Debug)]
pub struct RecordedPart {
    pub schedule: Schedule,
    /// Whether the command is to end with the first range.
    pub shuts_down: bool,
}

impl RecordedPart {
    pub fn new(given: &Given<'_>) -> Result<RecordedPart, Failure> {
        let starts_paused =
            given.raw(&options::START_PAUSED).is_some_and(|value| !OFF.iter().any(|off| value == *off));
        let schedule = Schedule {
            delay: given.or_fail(&options::DELAY, seconds::parse)?,
            duration: given.or_fail(&options::DURATION, seconds::parse)?,
            starts_paused,
        };
        let [range, end] = [&options::CAPTURE_RANGE, &options::CAPTURE_RANGE_END]
            .map(|setting| given.raw(setting).map(|value| value.to_string_lossy().into_owned()));
        if starts_paused && schedule.delay.is_some() {
            let hint =
                "--delay begins paused and starts by itself; --start-paused waits for gputrace ctl PID start";
            return Err(contradiction(given, &options::START_PAUSED, &options::DELAY).hint(hint));
        }
        let Some(range) = range.filter(|range| range != "off") else {
            if end.is_some() {
                let end = given.name(&options::CAPTURE_RANGE_END);
                let message = format!("{end} is of no use without --capture-range");
                return Err(Failure::new(message).code(exit_code::USAGE));
            }
            return Ok(RecordedPart { schedule, shuts_down: false });
        };
        let range =
            CaptureRange::parse(&range).map_err(|why| senseless(&options::CAPTURE_RANGE, &range, why))?;
        let end = end.as_deref().unwrap_or(options::CAPTURE_RANGE_END.default);
        let end =
            CaptureRangeEnd::parse(end).map_err(|why| senseless(&options::CAPTURE_RANGE_END, end, why))?;
        let others = [
            (starts_paused, &options::START_PAUSED),
            (schedule.delay.is_some(), &options::DELAY),
            (schedule.duration.is_some(), &options::DURATION),
        ];
        if let Some((_, other)) = others.into_iter().find(|(is_given, _)| *is_given) {
            let hint = "the ranges alone say when a program records";
            return Err(contradiction(given, &options::CAPTURE_RANGE, other).hint(hint));
        }
        if let (CaptureRange::Launches { .. }, CaptureRangeEnd::Repeat(_)) = (range, end) {
            let setting = given.name(&options::CAPTURE_RANGE);
            let failure = Failure::new(format!("{setting} launches:FROM-TO and repeat:N do not go together"));
            return Err(failure.hint("a process has one such range").code(exit_code::USAGE));
        }
        let stacks = given.raw(&options::STACKS).map(|value| value.to_string_lossy().into_owned());
        if let (CaptureRange::Nvtx { .. }, Some(stacks)) = (range, stacks)
            // Of one that makes no sense the default holds, which has nvtx.
            && kind::stacks(&stacks).is_ok_and(|words| !words.split(',').any(|word| word == "nvtx"))
        {
            let names = [&options::CAPTURE_RANGE, &options::STACKS].map(|setting| given.name(setting));
            let [range, of_stacks] = names;
            let failure = Failure::new(format!("{range} nvtx: and {of_stacks} {stacks} do not go together"));
            let hint = format!("add nvtx to {of_stacks}, so that ranges are seen");
            return Err(failure.hint(hint).code(exit_code::USAGE));
        }
        Ok(RecordedPart { schedule, shuts_down: end == CaptureRangeEnd::StopShutdown })
    }

    /// Only `run` has a command to end.
    pub fn refuse_shutdown(&self) -> Result<(), Failure> {
        if !self.shuts_down {
            return Ok(());
        }
        let failure = Failure::new("--capture-range-end stop-shutdown is for gputrace run only");
        Err(failure
            .hint("with stop the program runs on, and nothing more is recorded")
            .code(exit_code::USAGE))
    }

    /// The timers of the session, if there are any.
    pub fn timers(&self, handle: Handle) -> Result<Option<Timers>, Failure> {
        Timers::start(self.schedule, handle).map_err(|error| {
            Failure::new(format!("cannot start the timers of --delay and --duration: {}", reason(&error)))
                .code(exit_code::collector::SYSTEM)
        })
    }
}

fn contradiction(given: &Given<'_>, one: &Setting, other: &Setting) -> Failure {
    let [one, other] = [one, other].map(|setting| given.name(setting));
    Failure::new(format!("{one} and {other} do not go together")).code(exit_code::USAGE)
}

fn senseless(setting: &Setting, value: &str, why: &str) -> Failure {
    Failure::new(format!("{}={value}: {why}", setting.variable)).code(exit_code::USAGE)
}
