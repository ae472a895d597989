//! The environment as this program finds it: the warning about variables nobody reads, and the
//! pages that describe those that are read.

use std::env;
use std::fmt::Write as _;

use crate::cli::kind::OFF;
use crate::cli::options::{self, PREFIX, Reader, SETTINGS, Setting, by_variable, nearest};
use crate::cli::talk::say;

/// What the library is switched off with, if it is.
pub fn switched_off() -> Option<String> {
    options::SWITCH.variable_text().filter(|value| OFF.contains(&value.as_str()))
}

/// Warns on stderr about unknown `GPUTRACE_` variables and about values that are not valid.
pub fn warn_about_unknown() {
    for warning in warnings() {
        say(format_args!("{warning}"));
    }
}

/// Warns only about misspellings of that variable: for a command that reads no other. The command that
/// its user starts next warns about the rest.
pub fn warn_about_near(setting: &Setting) {
    let unknown = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for name in unknown.filter(|name| name.starts_with(PREFIX) && by_variable(name).is_none()) {
        if nearest(&name) == Some(setting.variable) {
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
        Some(setting) => {
            let complaint = setting.kind.complaint(value)?;
            Some(format!("{begin} {name}={value}{complaint}; the default, {}, holds", setting.default))
        }
    }
}

/// The page `gputrace help variables`.
pub fn page() -> String {
    let mut page = String::from(
        "Variables that the preload library and gputrace read. An option of `gputrace run` means the\n\
         same as the variable beside it and wins over it. With auto-collect there are only the variables.\n",
    );
    for setting in SETTINGS.iter().filter(|setting| setting.reader != Reader::Internal) {
        page = page + "\n" + &entry(setting);
    }
    page
}

/// The page `gputrace help OPTION`, and an entry of the other one.
pub fn entry(setting: &Setting) -> String {
    let mut entry = format!("{}={}", setting.variable, setting.kind.placeholder());
    if let Some(option) = setting.option {
        let command = if setting.reader == Reader::Daemon { "collect" } else { "run" };
        let _ = write!(entry, "    ({command} --{option})");
    }
    let _ = write!(entry, "\n    {}", setting.help);
    if !setting.default.is_empty() {
        let _ = write!(entry, " [default: {}]", setting.default);
    }
    entry.push('\n');
    for line in setting.details.lines() {
        let _ = writeln!(entry, "    {line}");
    }
    entry
}
