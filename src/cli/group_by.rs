//! What the flamegraphs' bottom is: asked for once, held for every flamegraph that is made.

use std::sync::OnceLock;

use clap::ArgMatches;
use gputrace_collector::flame::Bottom;

use crate::cli::options::{self, GROUP_BY};
use crate::cli::variables;

static CHOSEN: OnceLock<Bottom> = OnceLock::new();

/// A value of the option or the variable.
pub fn parse(text: &str) -> Result<Bottom, String> {
    Bottom::parse(text)
}

/// Takes what the options say, if they do.
pub fn choose(matches: &ArgMatches) {
    let option = options::by_variable(GROUP_BY).and_then(|setting| setting.option);
    if let Some(bottom) = option.and_then(|option| matches.get_one::<Bottom>(option)) {
        let _ = CHOSEN.set(bottom.clone());
    }
}

/// What an option or the variable says; a variable that makes no sense was warned about.
pub fn chosen() -> &'static Bottom {
    CHOSEN.get_or_init(|| {
        let value = variables::value(GROUP_BY).and_then(|value| value.into_string().ok());
        value.and_then(|value| parse(&value).ok()).unwrap_or_default()
    })
}
