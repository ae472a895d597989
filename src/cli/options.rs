//! The one table of settings: each row is a variable, and where it has one, an option of `run`.
//!
//! Options, their help, the variables that `run` sets for the program, the page
//! `gputrace help variables` and the warning about unknown variables all come from here. The
//! preload library and the simulator read the variables by the same names; a test compares.

/// Who acts on a setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reader {
    /// The preload library, inside the traced program.
    Library,
    /// This program.
    Program,
    /// The simulated device.
    Simulator,
    /// Set by gputrace for its own parts; nobody sets it by hand.
    Internal,
}

#[derive(Debug)]
pub struct Setting {
    pub variable: &'static str,
    /// The long option of `run`, without the dashes.
    pub option: Option<&'static str>,
    /// What stands for the value in help texts.
    pub value: &'static str,
    /// The values allowed; empty: anything, or any number where the value is [`NUMBER`].
    pub values: &'static [&'static str],
    pub default: &'static str,
    pub reader: Reader,
    pub help: &'static str,
}

pub const SESSION: &str = "GPUTRACE_SESSION";
pub const OUTPUT: &str = "GPUTRACE_OUT";
pub const CACHE: &str = "GPUTRACE_CACHE";
pub const DEVICE_TIMES: &str = "GPUTRACE_DEVICE_TIMES";
pub const CUPTI: &str = "GPUTRACE_CUPTI";
pub const REDACT: &str = "GPUTRACE_REDACT";
pub const TRACEPARENT: &str = "GPUTRACE_TRACEPARENT";

pub const NVTX_FRAMES: &str = "GPUTRACE_NVTX_FRAMES";
pub const GROUP_BY: &str = "GPUTRACE_GROUP_BY";
pub const OTLP: &str = "GPUTRACE_OTLP";
pub const THRESHOLD_US: &str = "GPUTRACE_THRESHOLD_US";
pub const ALL_SPANS: &str = "GPUTRACE_ALL";
pub const SPANS_PER_SECOND: &str = "GPUTRACE_SPANS_PER_SECOND";
pub const METRICS_KERNELS: &str = "GPUTRACE_METRICS_KERNELS";
pub const FLIGHT_RECORDER: &str = "GPUTRACE_FLIGHT_RECORDER";
pub const MAX_SIZE: &str = "GPUTRACE_MAX_SIZE";

/// Whether the library does anything at all, and the values with which it does not.
pub const SWITCH: &str = "GPUTRACE";
pub const OFF: [&str; 4] = ["off", "0", "no", "false"];

/// Stands for a length of time, or for none.
pub const SECONDS: &str = "SECONDS";

/// Stands for a number of bytes, or for no limit.
pub const SIZE: &str = "SIZE";

/// Stands for what a flamegraph's bottom is made of.
pub const PARTS: &str = "PART,…|none";

/// Stands for where spans are sent.
pub const DESTINATION: &str = "URL|env|off";

/// Whose frames may be asked for: each of the three, with any others, in any order.
const STACKS: &[&str] = &[
    "python",
    "native",
    "nvtx",
    "python,native",
    "native,python",
    "python,nvtx",
    "nvtx,python",
    "native,nvtx",
    "nvtx,native",
    "python,native,nvtx",
    "python,nvtx,native",
    "native,python,nvtx",
    "native,nvtx,python",
    "nvtx,python,native",
    "nvtx,native,python",
    "none",
];

/// Stands for a value that is a whole number.
pub const NUMBER: &str = "N";

pub const SETTINGS: &[Setting] = &[
    Setting {
        variable: OUTPUT,
        option: Some("output"),
        value: "DIR",
        values: &[],
        default: "gputrace-out/<program>-<pid>",
        reader: Reader::Program,
        help: "The folder to write to; in bare use a folder inside it, if it holds a trace already",
    },
    Setting {
        variable: SWITCH,
        option: None,
        value: "on|off",
        values: &["on", OFF[0], OFF[1], OFF[2], OFF[3]],
        default: "on",
        reader: Reader::Library,
        help: "off (0, no and false mean the same) makes the preload library do nothing at all",
    },
    Setting {
        variable: DEVICE_TIMES,
        option: Some("device-times"),
        value: "full|off",
        values: &["full", "off"],
        default: "full",
        reader: Reader::Library,
        help: "Times measured on the device by CUPTI; off leaves exact counts and host times",
    },
    Setting {
        variable: "GPUTRACE_GRAPH_TIMES",
        option: Some("graph-times"),
        value: "node|graph|auto",
        values: &["node", "graph", "auto"],
        default: "auto",
        reader: Reader::Library,
        help: "How CUDA graphs are timed: each of their nodes, each launch as a whole, which costs much less, or nodes \
               until they prove to be many and short, and again when they no longer are",
    },
    Setting {
        variable: "GPUTRACE_DELIVERY",
        option: None,
        value: "steady|full",
        values: &["steady", "full"],
        default: "steady",
        reader: Reader::Library,
        help: "When CUPTI delivers device times: twenty times a second, so that a killed process takes little \
               with it, or in full buffers only",
    },
    Setting {
        variable: CUPTI,
        option: Some("cupti"),
        value: "FILE",
        values: &[],
        default: "the libcupti that belongs to the program's CUDA",
        reader: Reader::Library,
        help: "The libcupti to take device times from",
    },
    Setting {
        variable: REDACT,
        option: Some("redact"),
        value: "on|off",
        values: &["on", "off"],
        default: "off",
        reader: Reader::Library,
        help: "on: of command lines only the program is kept; arguments that look like secrets never are",
    },
    Setting {
        variable: "GPUTRACE_ON_FULL",
        option: Some("on-full"),
        value: "drop|wait",
        values: &["drop", "wait"],
        default: "drop",
        reader: Reader::Library,
        help: "What a thread does whose events the collector is late to take: drop and count them, or wait, \
               200 ms an event at most and not at all for a collector that has not moved for a second",
    },
    Setting {
        variable: "GPUTRACE_STACKS",
        option: Some("stacks"),
        value: "python,native,nvtx|none",
        values: STACKS,
        default: "python,nvtx",
        reader: Reader::Library,
        help: "Whose frames are kept of each call: those of Python (CPython 3.8 to 3.14), native ones (C, C++, Rust: by the \
               tables for exceptions, 6 to 20 ns a frame more a call), the program's NVTX ranges, or none",
    },
    Setting {
        variable: "GPUTRACE_TORCH_OPS",
        option: Some("torch-ops"),
        value: "on|off",
        values: &["on", "off"],
        default: "off",
        reader: Reader::Library,
        help: "on: PyTorch's operators (aten::mm, the optimizer's step) are frames between Python's and the call; \
               costs some 0.2 µs an operator",
    },
    Setting {
        variable: TRACEPARENT,
        option: Some("traceparent"),
        value: "on|off",
        values: &["on", "off"],
        default: "on",
        reader: Reader::Program,
        help: "Whether run gives its command a TRACEPARENT, so that the command's own spans and those of export are one \
               trace; off leaves the variable as it is",
    },
    Setting {
        variable: NVTX_FRAMES,
        option: Some("nvtx-frames"),
        value: "above|below|instead|none",
        values: &["above", "below", "instead", "none"],
        default: "above",
        reader: Reader::Program,
        help: "Where NVTX ranges stand in the flamegraph: above the Python frames (nearer to the thread), below them \
               (nearer to the call), instead of those of whatever lies in a range, or nowhere",
    },
    Setting {
        variable: GROUP_BY,
        option: Some("group-by"),
        value: PARTS,
        values: &[],
        default: "process,thread",
        reader: Reader::Program,
        help: "What the flamegraph is divided by before anything else, from its bottom up: any of process, thread, \
               stream, device and rank in any order, with commas between; or none",
    },
    Setting {
        variable: FLIGHT_RECORDER,
        option: Some("flight-recorder"),
        value: SECONDS,
        values: &[],
        default: "off",
        reader: Reader::Program,
        help: "Keep the last SECONDS (0.1 to 86400) only, in 64 MiB of memory at most, and write them at the end; and \
               into folders of their own when a process crashes, on SIGUSR2 to gputrace and on gputrace ctl PID dump",
    },
    Setting {
        variable: MAX_SIZE,
        option: Some("max-size"),
        value: SIZE,
        values: &[],
        default: "off",
        reader: Reader::Program,
        help: "The most bytes that the trace file may have (64K or more; 500M, 2G): it holds the first part of the run then, \
               and what is left out is counted. The summary and the flamegraph cover everything all the same",
    },
    Setting {
        variable: OTLP,
        option: Some("otlp"),
        value: DESTINATION,
        values: &[],
        default: "off",
        reader: Reader::Program,
        help: "Send spans and metrics to an OpenTelemetry back end while the program runs: to that URL, or with env to where \
               OTEL_EXPORTER_OTLP_ENDPOINT says; the other OTEL_EXPORTER_OTLP_ variables hold for both",
    },
    Setting {
        variable: THRESHOLD_US,
        option: Some("threshold-us"),
        value: NUMBER,
        values: &[],
        default: "100",
        reader: Reader::Program,
        help: "How many microseconds something must take to become a span; failed calls and anomalies always do",
    },
    Setting {
        variable: ALL_SPANS,
        option: Some("all"),
        value: "on|off",
        values: &["on", "off"],
        default: "off",
        reader: Reader::Program,
        help: "on: everything becomes a span, however short and however many",
    },
    Setting {
        variable: SPANS_PER_SECOND,
        option: Some("spans-per-second"),
        value: NUMBER,
        values: &[],
        default: "10000",
        reader: Reader::Program,
        help: "The most spans that a process may have a second; the slowest win",
    },
    Setting {
        variable: METRICS_KERNELS,
        option: Some("metrics-kernels"),
        value: NUMBER,
        values: &[],
        default: "0",
        reader: Reader::Program,
        help: "So many kernels, 1000 at most, have metrics of their own: those that take the most time; the others share theirs",
    },
    Setting {
        variable: CACHE,
        option: None,
        value: "DIR",
        values: &[],
        default: "$XDG_CACHE_HOME/gputrace or ~/.cache/gputrace",
        reader: Reader::Program,
        help: "Where the preload library is kept for bare use",
    },
    Setting {
        variable: "GPUTRACE_COLLECTOR",
        option: None,
        value: "FILE",
        values: &[],
        default: "the gputrace beside the library",
        reader: Reader::Library,
        help: "The program that the library starts to collect in bare use",
    },
    Setting {
        variable: SESSION,
        option: None,
        value: "SOCKET",
        values: &[],
        default: "",
        reader: Reader::Internal,
        help: "The running session that a program joins",
    },
    Setting {
        variable: "GPUTRACE_PREBUILT_DIR",
        option: None,
        value: "DIR",
        values: &[],
        default: "",
        reader: Reader::Internal,
        help: "Ready-made libraries for build.rs to embed, instead of building them",
    },
    Setting {
        variable: "GPUTRACE_SIM_DEVICES",
        option: None,
        value: NUMBER,
        values: &[],
        default: "1",
        reader: Reader::Simulator,
        help: "How many devices the simulation has, 64 at most",
    },
    Setting {
        variable: "GPUTRACE_SIM_MEMORY_BYTES",
        option: None,
        value: NUMBER,
        values: &[],
        default: "85899345920",
        reader: Reader::Simulator,
        help: "Memory of each simulated device",
    },
    Setting {
        variable: "GPUTRACE_SIM_PACE",
        option: None,
        value: "on|off",
        values: &["on", "off"],
        default: "on",
        reader: Reader::Simulator,
        help: "Whether waiting for the simulated device takes real time",
    },
    Setting {
        variable: "GPUTRACE_SIM_CHANGES_RECORDS",
        option: None,
        value: "on|off",
        values: &["on", "off"],
        default: "off",
        reader: Reader::Simulator,
        help: "Whether the simulated CUPTI changes records that it has written",
    },
    Setting {
        variable: "GPUTRACE_SIM_FAIL",
        option: None,
        value: "FUNCTION:NTH=CODE,…",
        values: &[],
        default: "",
        reader: Reader::Simulator,
        help: "Calls of the simulated driver that fail: the Nth call of which function, and with which code",
    },
];

/// The setting of that variable.
pub fn by_variable(variable: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.variable == variable)
}

/// Variables with this prefix are ours; one that is not in the table is a mistake. `GPUTRACE`
/// alone is in the table.
pub const PREFIX: &str = "GPUTRACE_";

/// The known variable nearest to a misspelt one, if one is near: at most a third of its letters
/// differ.
pub fn nearest(unknown: &str) -> Option<&'static str> {
    let unknown = unknown.strip_prefix(PREFIX).unwrap_or(unknown);
    SETTINGS
        .iter()
        .filter(|setting| setting.reader != Reader::Internal)
        .filter_map(|setting| {
            let known = setting.variable.strip_prefix(PREFIX)?;
            let distance = strsim::levenshtein(unknown, known);
            let is_near = distance * 3 <= known.len().max(unknown.len());
            // OUTPUT and OUT: the one begins with the other.
            let begins = unknown.len().min(known.len()) >= 3
                && (unknown.starts_with(known) || known.starts_with(unknown));
            (is_near || begins).then_some((distance, setting.variable))
        })
        .min()
        .map(|(_, variable)| variable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_ours_and_distinct() {
        for (index, setting) in SETTINGS.iter().enumerate() {
            assert!(setting.variable.starts_with(PREFIX) || setting.variable == "GPUTRACE");
            assert!(!setting.help.is_empty() && !setting.help.ends_with('.'), "{}", setting.variable);
            assert!(SETTINGS[..index].iter().all(|other| other.variable != setting.variable));
        }
    }

    #[test]
    fn misspelt_variables_find_their_neighbour() {
        assert_eq!(nearest("GPUTRACE_DEVICE_TIME"), Some(DEVICE_TIMES));
        assert_eq!(nearest("GPUTRACE_OUTPUT"), Some(OUTPUT));
        assert_eq!(nearest("GPUTRACE_SOMETHING_ELSE_ENTIRELY"), None);
        // As long as the other, and not one letter in its place.
        assert_eq!(nearest("GPUTRACE_FOO"), None);
    }
}
