//! The command line: one file a subcommand, and what they share.

pub mod demo;
pub mod doctor;
pub mod entry;
pub mod exit_code;
pub mod failure;
pub mod library;
pub mod options;
pub mod output_folder;
pub mod stdout;
pub mod variables;
