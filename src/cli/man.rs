//! `gputrace man`: writes the manual pages, one for the tool and one for each subcommand. Packages install
//! them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches, Command, value_parser};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::cli::exit_code;
use crate::cli::failure::{Failure, reason};

pub fn command() -> Command {
    Command::new("man").hide(true).about("Write the manual pages").arg(
        Arg::new("dir")
            .value_name("DIR")
            .required(true)
            .value_parser(value_parser!(PathBuf))
            .help("The folder to write them to, which is made"),
    )
}

/// `sections`: what the tool's own page has beside clap's description, by heading.
pub fn main(mut tool: Command, sections: &[(&str, String)], matches: &ArgMatches) -> Result<u8, Failure> {
    let Some(folder) = matches.get_one::<PathBuf>("dir") else { return Ok(exit_code::USAGE) };
    tool = tool.disable_help_subcommand(true);
    tool.build();
    let written = fs::create_dir_all(folder).and_then(|()| write(folder, tool, sections));
    written.map_err(|error| {
        let message = format!("cannot write manual pages to {}: {}", folder.display(), reason(&error));
        Failure::new(message).code(exit_code::collector::CANNOT_CREATE)
    })?;
    Ok(exit_code::SUCCESS)
}

fn write(folder: &Path, tool: Command, sections: &[(&str, String)]) -> io::Result<()> {
    for subcommand in tool.get_subcommands() {
        Man::new(subcommand.clone()).generate_to(folder)?;
    }
    let man = Man::new(tool);
    let mut page = Vec::new();
    man.render(&mut page)?;
    for (heading, text) in sections {
        let mut roff = Roff::new();
        roff.control("SH", [*heading]).control("nf", []);
        for line in text.lines() {
            roff.text([roman(line)]);
        }
        roff.control("fi", []);
        roff.to_writer(&mut page)?;
    }
    fs::write(folder.join(man.get_filename()), page)
}
