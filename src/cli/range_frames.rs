//! Where NVTX ranges stand in flamegraphs: asked for once, held for every flamegraph that is made.

use std::sync::OnceLock;

use clap::ArgMatches;
use gputrace_collector::flame::RangePlace;

use crate::cli::options::{self, NVTX_FRAMES};
use crate::cli::variables;

static CHOSEN: OnceLock<RangePlace> = OnceLock::new();

/// Takes what the options say, if they do.
pub fn choose(matches: &ArgMatches) {
    let option = options::by_variable(NVTX_FRAMES).and_then(|setting| setting.option);
    let asked = option.and_then(|option| matches.get_one::<String>(option));
    if let Some(place) = asked.and_then(|value| parse(value)) {
        let _ = CHOSEN.set(place);
    }
}

/// What an option or the variable says; a variable that makes no sense was warned about.
pub fn chosen() -> RangePlace {
    *CHOSEN.get_or_init(|| {
        let value = variables::value(NVTX_FRAMES).and_then(|value| value.into_string().ok());
        value.and_then(|value| parse(&value)).unwrap_or_default()
    })
}

fn parse(value: &str) -> Option<RangePlace> {
    Some(match value {
        "above" => RangePlace::Above,
        "below" => RangePlace::Below,
        "instead" => RangePlace::Instead,
        "none" => RangePlace::None,
        _ => return None,
    })
}
