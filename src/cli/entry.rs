//! Takes the command line apart and calls the subcommand.

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, Command};

use crate::cli::failure::Failure;
use crate::cli::talk::{say, say_text};
use crate::cli::{
    collect, completions, ctl, demo, devices, diff, doctor, exit_code, export, flamegraph, library, man,
    memory, monitor, no_subcommand, options, printable, report, run, stdout, top, variables,
};

type Run = fn(&ArgMatches) -> Result<u8, Failure>;

/// The subcommands: clap's description and the function of each.
const SUBCOMMANDS: [(fn() -> Command, Run); 16] = [
    (run::command, run::main),
    (demo::command, demo::main),
    (library::command, library::main),
    (collect::command, collect::main),
    (doctor::command, doctor::main),
    (devices::command, devices::main),
    (monitor::command, monitor::main),
    (report::command, report::main),
    (diff::command, diff::main),
    (flamegraph::command, flamegraph::main),
    (memory::command, memory::main),
    (export::command, export::main),
    (ctl::command, ctl::main),
    (top::command, top::main),
    (demo::workload_command, demo::workload_main),
    (devices::child_command, devices::child_main),
];

pub fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    if let [_, help, topic] = arguments.as_slice()
        && help == "help"
        && let Some(page) = page(topic.to_str().unwrap_or_default())
    {
        return finish(stdout::print(page.as_bytes()).map(|()| exit_code::SUCCESS));
    }
    let words: Vec<_> = arguments.iter().skip(1).cloned().collect();
    if words.is_empty() {
        say_text(no_subcommand::NEXT);
        return ExitCode::from(exit_code::USAGE);
    }
    let matches = match command().try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(error) => {
            if error.kind() == ErrorKind::InvalidSubcommand
                && let Some(failure) = no_subcommand::explain(&words)
            {
                return finish(Err(failure));
            }
            // Help and version are data, asked for; everything else is talk.
            let text = error.render().to_string();
            if error.use_stderr() {
                say_text(&printable::text(&text));
                return ExitCode::from(exit_code::USAGE);
            }
            return finish(stdout::print(text.as_bytes()).map(|()| exit_code::SUCCESS));
        }
    };
    let Some((name, matches)) = matches.subcommand() else { return ExitCode::from(exit_code::USAGE) };
    match name {
        "completions" => return finish(completions::main(tool(), matches)),
        "man" => return finish(man::main(tool(), &sections(), matches)),
        _ => {}
    }
    let subcommand = SUBCOMMANDS.iter().find(|(command, _)| command().get_name() == name);
    let Some((_, main)) = subcommand else { return ExitCode::from(exit_code::USAGE) };
    finish(main(matches))
}

fn finish(result: Result<u8, Failure>) -> ExitCode {
    match result {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            say(format_args!("{failure}"));
            ExitCode::from(failure.exit_code)
        }
    }
}

/// All subcommands, those for packages and for ourselves too.
fn command() -> Command {
    let hidden = SUBCOMMANDS.iter().map(|(command, _)| command()).filter(Command::is_hide_set);
    tool().subcommands(hidden).subcommands([completions::command(), man::command()])
}

/// What users are offered.
fn tool() -> Command {
    Command::new("gputrace")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Traces CUDA programs that nobody changed")
        .after_help("More: gputrace help OPTION, gputrace help variables, gputrace help exit-codes")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(
            SUBCOMMANDS.iter().map(|(command, _)| command()).filter(|command| !command.is_hide_set()),
        )
}

/// What the manual page has beside the options.
fn sections() -> [(&'static str, String); 2] {
    let text = |topic| page(topic).unwrap_or_default();
    [("ENVIRONMENT", text("variables")), ("EXIT STATUS", text("exit-codes"))]
}

/// Help pages that are no subcommand's.
fn page(topic: &str) -> Option<String> {
    match topic {
        "variables" => Some(variables::page()),
        "exit-codes" => {
            let rows = exit_code::TABLE
                .iter()
                .map(|(code, meaning)| format!("{code:>5}  {}\n", meaning.replace('\n', "\n       ")));
            let text = "Under run and demo the exit code is the command's own; if a signal kills the command,\n\
                        gputrace dies of the same signal. A signal to gputrace is passed on to the command, unless\n\
                        the terminal or the command itself sent it, or it stops, continues or reports a fault. One\n\
                        that is sent both to gputrace and to its process group (timeout does that) may arrive more\n\
                        than once. With a flight recorder, SIGUSR2 writes a dump instead. Other codes:\n\n";
            Some(text.to_string() + &rows.collect::<String>())
        }
        name => options::by_name(name).map(variables::entry).or_else(|| option(name)),
    }
}

/// An option that has no row in the table of settings.
fn option(name: &str) -> Option<String> {
    let name = name.strip_prefix("--").unwrap_or(name);
    let commands = SUBCOMMANDS.iter().map(|(command, _)| command()).filter(|command| !command.is_hide_set());
    let entries = commands.filter_map(|command| {
        let is_named = |argument: &&Arg| argument.get_long() == Some(name) && !argument.is_hide_set();
        let argument = command.get_arguments().find(is_named)?;
        Some(format!("gputrace {} --{name}\n    {}\n", command.get_name(), argument.get_help()?))
    });
    Some(entries.collect()).filter(|page: &String| !page.is_empty())
}

#[cfg(test)]
mod tests {
    #[test]
    fn command_line_is_sound() {
        super::command().debug_assert();
    }
}
