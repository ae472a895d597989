//! The program `gputrace`: starts the command line and hands its exit code on.

mod cli;
mod embedded;
mod heap;
mod launch;
mod machine;
mod sampling;
mod stack;
mod telemetry;
mod workload;

fn main() -> std::process::ExitCode {
    heap::prepare();
    launch::signals::outlive_file_limits();
    stack::run(cli::entry::main)
}
