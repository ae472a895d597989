//! `gputrace completions`: what a shell reads to complete our command line. Packages install it.

use clap::{Arg, ArgMatches, Command, value_parser};
use clap_complete::Shell;

use crate::cli::failure::Failure;
use crate::cli::{exit_code, stdout};

pub fn command() -> Command {
    Command::new("completions")
        .hide(true)
        .about("Print the completions for a shell")
        .after_help("To try it in bash: source <(gputrace completions bash)")
        .arg(
            Arg::new("shell")
                .value_name("SHELL")
                .required(true)
                .value_parser(value_parser!(Shell))
                .help("The shell that reads them"),
        )
}

/// `tool`: all that is to be completed.
pub fn main(mut tool: Command, matches: &ArgMatches) -> Result<u8, Failure> {
    if let Some(shell) = matches.get_one::<Shell>("shell") {
        let mut script = Vec::new();
        clap_complete::generate(*shell, &mut tool, "gputrace", &mut script);
        stdout::print(&script)?;
    }
    Ok(exit_code::SUCCESS)
}
