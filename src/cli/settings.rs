//! The settings of a command: its options, else the variables. Read once, and passed on from there.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::ArgMatches;
use gputrace_collector::flame::{GroupBy, RangePosition};
use gputrace_wire::budget::Budget;
use gputrace_wire::windows::DeviceTimesMode;

use crate::cli::failure::Failure;
use crate::cli::given::Given;
use crate::cli::kind::OFF;
use crate::cli::recorded_part::RecordedPart;
use crate::cli::{exit_code, max_size, options, otlp, seconds, variables};
use crate::sampling::DeviceMetricsRequest;

/// All that a recording needs to know.
#[derive(Debug)]
pub struct Settings {
    pub output: Option<PathBuf>,
    /// The variables by which the library learns of options.
    pub environment: Vec<(&'static str, OsString)>,
    /// Whether command lines are kept without their arguments.
    pub redacts: bool,
    /// Whether the command is given a TRACEPARENT.
    pub hands_on: bool,
    pub limits: Limits,
    pub flames: Flames,
    pub device_metrics: DeviceMetricsRequest,
    pub otlp: otlp::Request,
}

/// How much is kept.
#[derive(Clone, Copy, Default, Debug)]
pub struct Limits {
    /// How much a flight recorder keeps; `None`: everything.
    pub flight: Option<Duration>,
    /// How long the trace file may be; `None`: as long as it gets.
    pub max_bytes: Option<u64>,
    /// When the session records.
    pub part: RecordedPart,
}

/// What flamegraphs are made of.
#[derive(Clone, Default, Debug)]
pub struct Flames {
    pub ranges: RangePosition,
    pub group_by: GroupBy,
    /// Whether the one of idle time is made too.
    pub idle: bool,
}

impl Settings {
    /// Of a recording. A variable that makes no sense was warned about, and its default holds; a limit that
    /// makes no sense is an error.
    pub fn new(matches: &ArgMatches, limits: Limits) -> Settings {
        let given = Given(matches);
        // Everything but a no is a yes, as in the library.
        let is_no = |value: &OsString| OFF.iter().any(|off| value == off);
        let hands_on = given.raw(&options::TRACEPARENT).is_none_or(|value| !is_no(&value));
        Settings {
            output: given.raw(&options::OUTPUT).map(PathBuf::from),
            environment: given.for_the_library(),
            redacts: given.raw(&options::REDACT).is_some_and(|value| !is_no(&value)),
            // What is not traced has no span that could be named.
            hands_on: hands_on && variables::switched_off().is_none(),
            limits,
            flames: Flames::new(matches),
            device_metrics: device_metrics(&given),
            otlp: otlp::Request::new(&given),
        }
    }
}

/// The option's value, else the variable's; one that makes no sense was warned about.
fn device_metrics(given: &Given<'_>) -> DeviceMetricsRequest {
    let variable = || DeviceMetricsRequest::parse(options::DEVICE_METRICS.variable_text()?.trim()).ok();
    given.option(&options::DEVICE_METRICS).or_else(variable).unwrap_or(DeviceMetricsRequest::USUAL)
}

impl Limits {
    pub fn new(matches: &ArgMatches) -> Result<Limits, Failure> {
        let given = Given(matches);
        let flight = given.or_fail(&options::FLIGHT_RECORDER, seconds::parse)?;
        let max_bytes = given.or_fail(&options::MAX_SIZE, max_size::parse)?;
        refuse_what_a_budget_cannot_pay(&given)?;
        // A flight recorder keeps the last part of a session in memory of its own limit, where the other
        // would keep the first.
        if flight.is_some() && max_bytes.is_some() {
            let failure = Failure::new("--max-size and --flight-recorder do not go together").hint(
                "--flight-recorder keeps the last seconds; --max-size keeps the first part of a recording",
            );
            return Err(failure.code(exit_code::USAGE));
        }
        Ok(Limits { flight, max_bytes, part: RecordedPart::new(&given)? })
    }
}

/// A budget chooses by itself what has device times. A variable that makes no sense was warned about.
fn refuse_what_a_budget_cannot_pay(given: &Given<'_>) -> Result<(), Failure> {
    let text = |setting| given.raw(setting).map(|value| value.to_string_lossy().into_owned());
    let is_given = text(&options::BUDGET).is_some_and(|text| matches!(Budget::parse(&text), Ok(Some(_))));
    let contradicts = |setting, is_refused: fn(&str) -> bool| {
        text(setting).filter(|value| is_given && is_refused(value)).map(|value| (given.name(setting), value))
    };
    let times = || {
        let is_fixed =
            |value: &str| !matches!(DeviceTimesMode::parse(value), Ok(DeviceTimesMode::Windows(_)) | Err(_));
        contradicts(&options::DEVICE_TIMES, is_fixed)
    };
    let found = contradicts(&options::GRAPH_TIMES, |value| value == "node").or_else(times);
    let Some((name, value)) = found else { return Ok(()) };
    let budget = given.name(&options::BUDGET);
    let failure = Failure::new(format!("{budget} and {name}={value} do not go together"));
    let hint = "a budget decides what has device times; leave the other one out";
    Err(failure.hint(hint).code(exit_code::USAGE))
}

impl Flames {
    pub fn new(matches: &ArgMatches) -> Flames {
        let given = Given(matches);
        let ranges = given.option(&options::NVTX_FRAMES).or_else(|| options::NVTX_FRAMES.variable_text());
        let ranges = ranges.and_then(|text: String| {
            Some(match text.as_str() {
                "above" => RangePosition::Above,
                "below" => RangePosition::Below,
                "instead" => RangePosition::Instead,
                "none" => RangePosition::None,
                _ => return None,
            })
        });
        let group_by = given.option(&options::GROUP_BY);
        let group_by = group_by.or_else(|| GroupBy::parse(&options::GROUP_BY.variable_text()?).ok());
        Flames { ranges: ranges.unwrap_or_default(), group_by: group_by.unwrap_or_default(), idle: true }
    }
}
