//! What a command was asked for: its options, else the variables. Read once, and handed on from there.

use std::any::Any;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::ArgMatches;
use gputrace_collector::flame::{Bottom, RangePlace};

use crate::cli::failure::Failure;
use crate::cli::kind::OFF;
use crate::cli::options::{self, Reader, SETTINGS, Setting};
use crate::cli::{exit_code, max_size, otlp, seconds, variables};

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
    pub otlp: otlp::Request,
}

/// How much is kept.
#[derive(Clone, Copy, Default, Debug)]
pub struct Limits {
    /// How much a flight recorder keeps; `None`: everything.
    pub flight: Option<Duration>,
    /// How long the trace file may be; `None`: as long as it gets.
    pub max_bytes: Option<u64>,
}

/// What flamegraphs are made of.
#[derive(Clone, Default, Debug)]
pub struct Flames {
    pub ranges: RangePlace,
    pub bottom: Bottom,
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
            otlp: otlp::Request::new(&given),
        }
    }
}

impl Limits {
    pub fn new(matches: &ArgMatches) -> Result<Limits, Failure> {
        let given = Given(matches);
        let flight = given.or_fail(&options::FLIGHT_RECORDER, seconds::parse)?;
        let max_bytes = given.or_fail(&options::MAX_SIZE, max_size::parse)?;
        // A flight recorder keeps the last part of a session in memory of its own limit, where the other
        // would keep the first.
        if flight.is_some() && max_bytes.is_some() {
            let failure = Failure::new("--max-size and --flight-recorder do not go together").hint(
                "a flight recorder keeps the last seconds, in 64 MiB at most; --max-size keeps the first part of a \
                 whole recording",
            );
            return Err(failure.code(exit_code::USAGE));
        }
        Ok(Limits { flight, max_bytes })
    }
}

impl Flames {
    pub fn new(matches: &ArgMatches) -> Flames {
        let given = Given(matches);
        let ranges = given.option(&options::NVTX_FRAMES).or_else(|| options::NVTX_FRAMES.variable_text());
        let ranges = ranges.and_then(|text: String| {
            Some(match text.as_str() {
                "above" => RangePlace::Above,
                "below" => RangePlace::Below,
                "instead" => RangePlace::Instead,
                "none" => RangePlace::None,
                _ => return None,
            })
        });
        let bottom = given.option(&options::GROUP_BY);
        let bottom = bottom.or_else(|| Bottom::parse(&options::GROUP_BY.variable_text()?).ok());
        Flames { ranges: ranges.unwrap_or_default(), bottom: bottom.unwrap_or_default() }
    }
}

/// The options of a command, each of which goes before its variable. One that the command does not have was
/// not given.
pub struct Given<'a>(pub &'a ArgMatches);

impl Given<'_> {
    /// What the option says, in its kind's type.
    pub fn option<T: Any + Clone + Send + Sync>(&self, setting: &Setting) -> Option<T> {
        self.0.try_get_one::<T>(setting.option?).ok()?.cloned()
    }

    fn raw_option(&self, setting: &Setting) -> Option<OsString> {
        self.0.try_get_raw(setting.option?).ok()??.next().map(OsString::from)
    }

    fn raw(&self, setting: &Setting) -> Option<OsString> {
        self.raw_option(setting).or_else(|| setting.variable_value())
    }

    pub fn number(&self, setting: &Setting) -> Option<u32> {
        self.option(setting).or_else(|| setting.variable_text()?.trim().parse().ok())
    }

    /// What the option says; a variable that makes no sense is an error.
    pub fn or_fail<T: Any + Clone + Send + Sync>(
        &self,
        setting: &Setting,
        parse: fn(&str) -> Result<Option<T>, String>,
    ) -> Result<Option<T>, Failure> {
        if let Some(asked) = self.option::<Option<T>>(setting) {
            return Ok(asked);
        }
        let Some(value) = setting.variable_value() else { return Ok(None) };
        let value = value.to_string_lossy();
        parse(value.trim()).map_err(|why| {
            Failure::new(format!("{}={value}: {why}", setting.variable)).code(exit_code::USAGE)
        })
    }

    fn for_the_library(&self) -> Vec<(&'static str, OsString)> {
        let rows = SETTINGS.iter().filter(|setting| setting.reader == Reader::Library);
        rows.filter_map(|setting| Some((setting.variable, self.raw_option(setting)?))).collect()
    }
}
