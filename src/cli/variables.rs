//! The environment as this program finds it: the warning about variables nobody reads, and the
//! page that describes those that are read.

use std::env;
use std::ffi::OsString;
use std::fmt::Write as _;

use crate::cli::group_by;
use crate::cli::options::{
    NUMBER, OFF, PARTS, PREFIX, REDACT, Reader, SETTINGS, SPANS_PER_SECOND, SWITCH, TRACEPARENT, by_variable,
    nearest,
};
use crate::cli::talk::say;

/// A variable's value; an empty one counts as unset.
pub fn value(variable: &str) -> Option<OsString> {
    debug_assert!(by_variable(variable).is_some(), "{variable} is not in the table");
    env::var_os(variable).filter(|value| !value.is_empty())
}

/// What the library is switched off with, if it is.
pub fn switched_off() -> Option<String> {
    value(SWITCH)?.into_string().ok().filter(|value| OFF.contains(&value.as_str()))
}

/// Whether command lines are kept without their arguments: as the options say, else as the
/// environment does. Everything but a no is a yes, as in the library.
pub fn redacts(options: &[(&str, OsString)]) -> bool {
    let asked = options.iter().find(|(name, _)| *name == REDACT).map(|(_, value)| value.clone());
    asked
        .or_else(|| value(REDACT))
        .is_some_and(|value| !value.is_empty() && !OFF.iter().any(|off| value == *off))
}

/// Whether the command is given a TRACEPARENT: as the option says, else as the environment does. What is not traced has
/// no span that it could name.
pub fn hands_on(asked: Option<&str>) -> bool {
    if switched_off().is_some() {
        return false;
    }
    let value = || value(TRACEPARENT).and_then(|value| value.into_string().ok());
    asked.map(str::to_owned).or_else(value).is_none_or(|value| !OFF.contains(&value.as_str()))
}

/// Says on stderr which `GPUTRACE_` variables mean nothing, or have a value that means nothing.
pub fn warn_about_unknown() {
    for warning in warnings() {
        say(format_args!("{warning}"));
    }
}

/// Says only of misspellings of that variable so: for a command that reads no other, and whose
/// caller hears of the rest from the next one.
pub fn warn_about_near(variable: &str) {
    let unknown = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for name in unknown.filter(|name| name.starts_with(PREFIX) && by_variable(name).is_none()) {
        if nearest(&name) == Some(variable) {
            warning(&name, "").into_iter().for_each(|line| say(format_args!("{line}")));
        }
    }
}

/// One line for each such variable.
pub fn warnings() -> Vec<String> {
    env::vars_os().filter_map(|(name, value)| warning(name.to_str()?, &value.to_string_lossy())).collect()
}

fn warning(name: &str, value: &str) -> Option<String> {
    let begin = "gputrace: warning:";
    match by_variable(name) {
        None if !name.starts_with(PREFIX) => None,
        None => Some(match nearest(name) {
            Some(known) => format!("{begin} {name} is not a variable of gputrace; did you mean {known}?"),
            None => format!("{begin} {name} is not a variable of gputrace; see gputrace help variables"),
        }),
        Some(setting) if setting.variable == SPANS_PER_SECOND && value.trim() == "0" => {
            Some(format!("{begin} {name}=0 is no rate; the default, {}, holds", setting.default))
        }
        Some(setting) if setting.value == NUMBER => {
            let senseless = !value.is_empty() && value.trim().parse::<u64>().is_err();
            senseless.then(|| {
                format!("{begin} {name}={value} is no whole number; the default, {}, holds", setting.default)
            })
        }
        Some(setting) if setting.value == PARTS && !value.is_empty() => {
            let why = group_by::parse(value).err()?;
            Some(format!("{begin} {name}={value}: {why}; the default, {}, holds", setting.default))
        }
        Some(setting) => {
            let senseless =
                !setting.values.is_empty() && !value.is_empty() && !setting.values.contains(&value);
            senseless.then(|| {
                let values = setting.values.join(", ");
                format!(
                    "{begin} {name}={value} is not one of {values}; the default, {}, holds",
                    setting.default
                )
            })
        }
    }
}

/// The page `gputrace help variables`.
pub fn page() -> String {
    let mut page = String::from(
        "Variables that the preload library and gputrace read. An option of `gputrace run` means the\n\
         same as the variable beside it and goes before it; in bare use there are the variables only.\n",
    );
    for setting in SETTINGS.iter().filter(|setting| setting.reader != Reader::Internal) {
        let _ = write!(page, "\n{}={}", setting.variable, setting.value);
        if let Some(option) = setting.option {
            let _ = write!(page, "    (run --{option})");
        }
        let _ = write!(page, "\n    {}", setting.help);
        if !setting.default.is_empty() {
            let _ = write!(page, " [default: {}]", setting.default);
        }
        page.push('\n');
    }
    page
}
