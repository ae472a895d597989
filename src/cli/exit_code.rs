//! Exit codes, all of them. `gputrace help exit-codes` prints this table.
//!
//! Under `run` and `demo` the code is the command's own; the codes from 125 to 127 mean the same
//! as those of env, timeout and nohup. The codes from 65 to 74 are the collector's, which takes
//! them from sysexits(3).

pub use gputrace_collector::error::exit_code as collector;

/// All went well.
pub const SUCCESS: u8 = 0;
/// `doctor`: tracing cannot work here; `devices`, `monitor`: no GPU can be read; `top --once`: there is
/// nothing to show. Otherwise: a failure with no
/// code of its own.
pub const FAILED: u8 = 1;
/// The command line, or the length of a flight recorder, is wrong; attaching to a running process is asked
/// for; no format was named to `export`, or to `report` a table that does not exist; or a folder of several
/// traces was named where one is needed.
pub const USAGE: u8 = 2;
/// A trace was damaged or cut off: what could be read was used, and the loss was stated.
pub const PARTIAL: u8 = 3;
/// `report`, `diff`: a condition of `--fail-on` is true, or its figure is not known.
pub const CONDITION: u8 = 4;
/// `run`, `demo`: gputrace itself failed before the command was started.
pub const NOT_STARTED: u8 = 125;
/// `run`: the command was found and could not be executed.
pub const NOT_EXECUTABLE: u8 = 126;
/// `run`: no such command.
pub const NOT_FOUND: u8 = 127;

/// The table for people, in the order of the codes.
pub const TABLE: [(u8, &str); 15] = [
    (SUCCESS, "all went well"),
    (
        FAILED,
        "failed; doctor: tracing cannot work here; demo: the workload failed; ctl: nothing was dumped;\n\
         devices, monitor: no GPU can be read; top --once: there is no GPU and no traced program;\n\
         flamegraph --weight idle: the trace has no device times, or not of the whole time",
    ),
    (
        USAGE,
        "the command line or a variable is wrong, or asks to attach to a running process;\n\
         export: no format was named; flamegraph, export, report --json: a folder of several traces\n\
         was named, which report lists (0)",
    ),
    (PARTIAL, "a trace was damaged or cut off: what could be read was used, and the loss was stated"),
    (
        CONDITION,
        "report, diff: a condition of --fail-on is true, or its figure is not known; stderr names both",
    ),
    (
        collector::BAD_INPUT,
        "an input is no trace, or has a newer format; stderr names it; the other inputs were read",
    ),
    (
        collector::NO_INPUT,
        "an input is not there or cannot be read; the others were read; ctl: there is no such session",
    ),
    (collector::UNDELIVERED, "export: the OTLP back end did not take everything"),
    (collector::DEFECT, "a defect of gputrace"),
    (collector::SYSTEM, "the system refused something that gputrace needs"),
    (collector::CANNOT_CREATE, "an output cannot be created"),
    (
        collector::WRITE_FAILED,
        "an output, stdout too, cannot be written to its end; a reader that went away is no error",
    ),
    (NOT_STARTED, "run, demo: gputrace itself failed before the command was started"),
    (NOT_EXECUTABLE, "run: the command was found and could not be executed"),
    (NOT_FOUND, "run: no such command"),
];
