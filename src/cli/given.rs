//! The options that a command was given: each wins over its variable.

use std::any::Any;
use std::ffi::OsString;

use clap::ArgMatches;

use crate::cli::exit_code;
use crate::cli::failure::Failure;
use crate::cli::options::{Reader, SETTINGS, Setting};

/// The options of a command. One that the command does not have counts as not given.
pub struct Given<'a>(pub &'a ArgMatches);

impl Given<'_> {
    /// The option's value, in its kind's type.
    pub fn option<T: Any + Clone + Send + Sync>(&self, setting: &Setting) -> Option<T> {
        self.0.try_get_one::<T>(setting.option?).ok()?.cloned()
    }

    fn raw_option(&self, setting: &Setting) -> Option<OsString> {
        self.0.try_get_raw(setting.option?).ok()??.next().map(OsString::from)
    }

    /// The option's value as it was written, else the variable's.
    pub fn raw(&self, setting: &Setting) -> Option<OsString> {
        self.raw_option(setting).or_else(|| setting.variable_value())
    }

    /// What the setting was given by: its option, or its variable.
    pub fn name(&self, setting: &Setting) -> String {
        match setting.option {
            Some(option) if self.raw_option(setting).is_some() => format!("--{option}"),
            _ => setting.variable.to_owned(),
        }
    }

    /// The option's number, else the variable's.
    pub fn number(&self, setting: &Setting) -> Option<u32> {
        self.option(setting).or_else(|| setting.variable_text()?.trim().parse().ok())
    }

    /// The option's value, else the variable's; a variable that makes no sense is an error.
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

    /// The options that the preload library reads, as its variables.
    pub fn for_the_library(&self) -> Vec<(&'static str, OsString)> {
        let rows = SETTINGS.iter().filter(|setting| setting.reader == Reader::Library);
        rows.filter_map(|setting| Some((setting.variable, self.raw_option(setting)?))).collect()
    }
}
