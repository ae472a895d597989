//! The command line: one file a subcommand, and what they share.

pub mod analysis;
pub mod collect;
pub mod ctl;
pub mod demo;
pub mod doctor;
pub mod entry;
pub mod exit_code;
pub mod failure;
pub mod flamegraph;
pub mod flight_recorder;
pub mod library;
pub mod options;
pub mod output_folder;
pub mod outputs;
pub mod printable;
pub mod progress;
pub mod range_frames;
pub mod recording;
pub mod report;
pub mod run;
pub mod spare_folder;
pub mod standing;
pub mod stdout;
pub mod talk;
pub mod traces;
pub mod variables;
