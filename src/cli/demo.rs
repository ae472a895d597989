//! `gputrace demo`: the bundled workload through the real preload path, on a real device if there
//! is one, else on the simulated one.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgMatches, Command};

use crate::cli::failure::{Failure, reason};
use crate::cli::recording::{self, RunRequest};
use crate::cli::settings::{Limits, Settings};
use crate::cli::talk::say;
use crate::cli::{exit_code, output_argument, run, stdout, variables};
use crate::workload::driver::Driver;
use crate::workload::training;

/// The name under which the program runs itself as the demo's workload.
const WORKLOAD: &str = "demo-workload";

pub fn command() -> Command {
    Command::new("demo")
        .about("Trace a bundled workload, on the GPU if there is one, else simulated")
        .arg(output_argument::folder("The folder to write to [default: gputrace-out/demo-<pid>]"))
        .arg(run::verbose())
        .arg(run::json())
}

pub fn main(matches: &ArgMatches) -> Result<u8, Failure> {
    variables::warn_about_unknown();
    let program = std::env::current_exe().map_err(|error| {
        Failure::new(format!("cannot find the program itself: {}", reason(&error)))
            .code(exit_code::NOT_STARTED)
    })?;
    let simulate = match real_device() {
        Ok(name) => {
            say(format_args!("gputrace: the demo runs on a real device: {name}"));
            false
        }
        Err(why) => {
            say(format_args!("gputrace: the demo runs on a simulated device: {why}"));
            true
        }
    };
    recording::record(RunRequest {
        name: "demo".into(),
        command: vec![program.into(), OsString::from(WORKLOAD)],
        settings: Settings {
            output: matches.get_one::<PathBuf>("output").cloned(),
            ..Settings::new(matches, Limits::default())
        },
        simulate,
        is_live: false,
        verbose: matches.get_flag("verbose"),
        untraceable: None,
        json: matches.get_one::<PathBuf>("json").cloned(),
    })
}

/// The first device's name, or why there is no real one.
fn real_device() -> Result<String, String> {
    let driver = Driver::open().map_err(|error| error.to_string())?;
    if driver.is_simulated() {
        return Err("the libcuda.so.1 in LD_LIBRARY_PATH is a simulated one".into());
    }
    match driver.initialise() {
        Ok(0) => Err("the CUDA driver has no device".into()),
        Ok(_) => driver.name(0).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

pub fn workload_command() -> Command {
    Command::new(WORKLOAD).about("The demo's workload, by itself").hide(true)
}

pub fn workload_main(_: &ArgMatches) -> Result<u8, Failure> {
    let line =
        training::run().map_err(|error| Failure::new(format!("the demo's workload failed: {error}")))?;
    stdout::print(line.as_bytes())?;
    Ok(exit_code::SUCCESS)
}
