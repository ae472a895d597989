//! `-o`, a folder or a file.

use std::path::PathBuf;

use clap::{Arg, value_parser};

pub fn folder(help: &'static str) -> Arg {
    argument("DIR", help)
}

pub fn file() -> Arg {
    argument("FILE", "The file to write [default: stdout]")
}

fn argument(value: &'static str, help: &'static str) -> Arg {
    Arg::new("output")
        .short('o')
        .long("output")
        .value_name(value)
        .value_parser(value_parser!(PathBuf))
        .help(help)
}
