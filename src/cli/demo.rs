//! `gputrace demo`: the bundled workload through the real preload path.

use clap::{ArgMatches, Command};

use crate::cli::exit_code;
use crate::cli::failure::Failure;
use crate::workload::training;

/// The name under which the program runs itself as the demo's workload.
pub const WORKLOAD: &str = "demo-workload";

pub fn workload_command() -> Command {
    Command::new(WORKLOAD).about("The demo's workload, by itself").hide(true)
}

pub fn workload_main(_: &ArgMatches) -> Result<u8, Failure> {
    training::run().map_err(|error| Failure::new(format!("the demo's workload failed: {error}")))?;
    Ok(exit_code::SUCCESS)
}
