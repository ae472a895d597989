//! The one table of settings: each row is a variable, its type and, where it has one, its option of `run`.
//!
//! Options, their help, the variables that `run` sets for the program, the page
//! `gputrace help variables` and the warning about unknown variables all come from here. The
//! preload library and the simulator read the variables by the same names, which
//! `tests/end_to_end/variables.rs` compares.

use std::ffi::OsString;

use clap::Arg;
use gputrace_collector::metrics;

use crate::cli::kind::Kind;

/// Who acts on a setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reader {
    /// The preload library, inside the traced program.
    Library,
    /// This program.
    Program,
    /// `collect --listen`; `run` has no such option.
    Daemon,
    /// The simulated device.
    Simulator,
    /// Set by gputrace for its own parts; nobody sets it by hand.
    Internal,
}

#[derive(Debug)]
pub struct Setting {
    pub variable: &'static str,
    pub kind: Kind,
    pub reader: Reader,
    /// The long option of `run`, without the dashes.
    pub option: Option<&'static str>,
    pub short: Option<char>,
    /// The option that it conflicts with.
    pub excludes: Option<&'static str>,
    /// Whether hardly any other program has an option of that name: found after the command, it was probably
    /// meant for gputrace (`misplaced.rs`).
    pub is_unmistakable: bool,
    pub default: &'static str,
    /// One line, which fits a terminal with the default behind it.
    pub help: &'static str,
    /// The rest, in lines of at most 96 columns, which `gputrace help OPTION` shows.
    pub details: &'static str,
}

impl Setting {
    const fn new(variable: &'static str, kind: Kind, reader: Reader) -> Setting {
        Setting {
            variable,
            kind,
            reader,
            option: None,
            short: None,
            excludes: None,
            is_unmistakable: false,
            default: "",
            help: "",
            details: "",
        }
    }

    /// The variable's value; an empty one counts as unset.
    pub fn variable_value(&self) -> Option<OsString> {
        std::env::var_os(self.variable).filter(|value| !value.is_empty())
    }

    pub fn variable_text(&self) -> Option<String> {
        self.variable_value()?.into_string().ok()
    }

    /// The option, if there is one.
    pub fn argument(&self) -> Option<Arg> {
        let option = self.option?;
        let mut argument = Arg::new(option)
            .long(option)
            .value_name(self.kind.placeholder())
            .value_parser(self.kind.parser())
            .hide_possible_values(true)
            .help(format!("{} [default: {}]", self.help, self.default));
        if let Some(short) = self.short {
            argument = argument.short(short);
        }
        if let Some(other) = self.excludes {
            argument = argument.conflicts_with(other);
        }
        if self.kind == Kind::Flag {
            // A flag, which can be taken back where a variable sets it.
            argument = argument.num_args(0..=1).require_equals(true).default_missing_value("on");
        }
        Some(argument)
    }
}

/// In the order of the help pages.
pub static SETTINGS: [&Setting; 45] = [
    &OUTPUT,
    &SWITCH,
    &DEVICE_TIMES,
    &BUDGET,
    &GRAPH_TIMES,
    &DELIVERY,
    &CUPTI,
    &REDACT,
    &ON_FULL,
    &STACKS,
    &TORCH_OPS,
    &MEMORY,
    &START_PAUSED,
    &DELAY,
    &DURATION,
    &CAPTURE_RANGE,
    &CAPTURE_RANGE_END,
    &TRACEPARENT,
    &NVTX_FRAMES,
    &GROUP_BY,
    &FLIGHT_RECORDER,
    &MAX_SIZE,
    &ROTATE_SIZE,
    &ROTATE_EVERY,
    &KEEP,
    &DEVICE_METRICS,
    &OTLP,
    &THRESHOLD_US,
    &ALL_SPANS,
    &SPANS_PER_SECOND,
    &METRICS_KERNELS,
    &NVML,
    &SYSFS,
    &CACHE,
    &COLLECTOR,
    &SESSION,
    &PREBUILT_DIR,
    &SIM_DEVICES,
    &SIM_MEMORY_BYTES,
    &SIM_PACE,
    &SIM_CHANGES_RECORDS,
    &SIM_FLUSHES_ALONE,
    &SIM_FLUSH_MS,
    &SIM_FAIL,
    &SIM_NVML,
];

pub static OUTPUT: Setting = Setting {
    option: Some("output"),
    short: Some('o'),
    default: "gputrace-out/<program>-<pid>",
    help: "The folder to write to",
    details: "With auto-collect, a folder that holds a trace already gets a folder inside it.",
    ..Setting::new("GPUTRACE_OUT", Kind::Path("DIR"), Reader::Program)
};

pub static SWITCH: Setting = Setting {
    default: "on",
    help: "off, 0, no or false: the preload library does nothing at all",
    ..Setting::new("GPUTRACE", Kind::Switch, Reader::Library)
};

pub static DEVICE_TIMES: Setting = Setting {
    option: Some("device-times"),
    is_unmistakable: true,
    default: "full",
    help: "full: measure times on the device, with CUPTI; off: none",
    details: "windows: in samples, 10 ms on average every 100 ms; windows=ON/MEAN: such as 5ms/1s\n\
              Between windows, after gaps of random length, operations have no device times.\n\
              With windows and off, counts and host times are exact all the same.",
    ..Setting::new("GPUTRACE_DEVICE_TIMES", Kind::DeviceTimes, Reader::Library)
};

pub static BUDGET: Setting = Setting {
    option: Some("budget"),
    is_unmistakable: true,
    default: "off",
    help: "The most that tracing may cost, in percent of the time: 0.5 to 50",
    details: "Device times are taken in windows, as often as the cost allows that is measured meanwhile.\n\
              Below 5 %, launches of graphs are timed as a whole. Counts and host times are exact.",
    ..Setting::new("GPUTRACE_BUDGET", Kind::Budget, Reader::Library)
};

pub static GRAPH_TIMES: Setting = Setting {
    option: Some("graph-times"),
    is_unmistakable: true,
    default: "auto",
    help: "How CUDA graphs are timed",
    details: "node: each node by itself\n\
              graph: each launch as a whole, which costs much less\n\
              auto: by node until the nodes prove to be many and short, and again once they no longer are",
    ..Setting::new("GPUTRACE_GRAPH_TIMES", Kind::OneOf("node|graph|auto"), Reader::Library)
};

pub static DELIVERY: Setting = Setting {
    default: "steady",
    help: "When CUPTI delivers device times",
    details: "steady: up to twenty times a second, so that a killed process loses little\n\
              full: in full buffers only",
    ..Setting::new("GPUTRACE_DELIVERY", Kind::OneOf("steady|full"), Reader::Library)
};

pub static CUPTI: Setting = Setting {
    option: Some("cupti"),
    default: "the one of the program's CUDA",
    help: "The libcupti to take device times from",
    ..Setting::new("GPUTRACE_CUPTI", Kind::Path("FILE"), Reader::Library)
};

pub static REDACT: Setting = Setting {
    option: Some("redact"),
    default: "off",
    help: "on: of command lines, record the program only",
    details: "Arguments that look like secrets are never recorded.",
    ..Setting::new("GPUTRACE_REDACT", Kind::Flag, Reader::Library)
};

pub static ON_FULL: Setting = Setting {
    option: Some("on-full"),
    is_unmistakable: true,
    default: "drop",
    help: "If the collector takes a thread's events late: drop and count, or wait",
    details: "wait: 200 ms an event at most, and not at all for a collector without progress for a second",
    ..Setting::new("GPUTRACE_ON_FULL", Kind::OneOf("drop|wait"), Reader::Library)
};

pub static STACKS: Setting = Setting {
    option: Some("stacks"),
    is_unmistakable: true,
    default: "python,nvtx",
    help: "Whose frames are recorded with each call, or none",
    details: "python: CPython 3.8 to 3.14\n\
              native: C, C++ and Rust, by the tables for exceptions; costs 6 to 20 ns a frame of each call\n\
              nvtx: the program's NVTX ranges",
    ..Setting::new("GPUTRACE_STACKS", Kind::Stacks, Reader::Library)
};

pub static TORCH_OPS: Setting = Setting {
    option: Some("torch-ops"),
    is_unmistakable: true,
    default: "off",
    help: "on: show PyTorch's operators as frames; costs some 0.2 µs an operator",
    details: "Operators such as aten::mm or the optimizer's step are between Python's frames and the call.",
    ..Setting::new("GPUTRACE_TORCH_OPS", Kind::Flag, Reader::Library)
};

pub static MEMORY: Setting = Setting {
    option: Some("memory"),
    default: "on",
    help: "blocks: record what PyTorch's caching allocator does with the memory, too",
    details: "on: what the program asks the driver for, by line\n\
              blocks: also each block that PyTorch gives out of it, that is tensors: gputrace memory --blocks",
    ..Setting::new("GPUTRACE_MEMORY", Kind::OneOf("blocks|on"), Reader::Library)
};

pub static START_PAUSED: Setting = Setting {
    option: Some("start-paused"),
    is_unmistakable: true,
    default: "off",
    help: "Begin paused, and record from gputrace ctl PID start on",
    details: "Launches, copies, memsets and waits of a paused session are counted only.",
    ..Setting::new("GPUTRACE_START_PAUSED", Kind::Flag, Reader::Library)
};

pub static DELAY: Setting = Setting {
    option: Some("delay"),
    default: "off",
    help: "Begin paused, and record so many seconds after the first program's cuInit",
    details: "0.1 to 86400 seconds. They count from when the session's first program initialises CUDA,\n\
              not from the command's start.",
    ..Setting::new("GPUTRACE_DELAY", Kind::Seconds, Reader::Library)
};

pub static DURATION: Setting = Setting {
    option: Some("duration"),
    default: "off",
    help: "Pause once the session has recorded for so many seconds",
    details: "0.1 to 86400 seconds of wall time from the first start: the first program's cuInit, the end of\n\
              --delay, or with --start-paused the first gputrace ctl PID start. A gputrace ctl PID stop does\n\
              not halt the time. The program runs on.",
    ..Setting::new("GPUTRACE_DURATION", Kind::Seconds, Reader::Program)
};

pub static CAPTURE_RANGE: Setting = Setting {
    option: Some("capture-range"),
    is_unmistakable: true,
    default: "off",
    help: "Record only a range of each program",
    details: "cudaProfilerApi: from cudaProfilerStart or cuProfilerStart to the Stop of either\n\
              nvtx:NAME or nvtx:NAME@DOMAIN: an NVTX range of that name, on whichever thread\n\
              launches:FROM-TO: launches of kernels and graphs of these numbers, counted per process from 1",
    ..Setting::new("GPUTRACE_CAPTURE_RANGE", Kind::Range, Reader::Library)
};

pub static CAPTURE_RANGE_END: Setting = Setting {
    option: Some("capture-range-end"),
    is_unmistakable: true,
    default: "stop",
    help: "What follows the range: stop, stop-shutdown or repeat:N",
    details: "stop: nothing more is recorded, and the program runs on\n\
              stop-shutdown: the same, and run sends SIGTERM to its command\n\
              repeat:N: N ranges are recorded",
    ..Setting::new("GPUTRACE_CAPTURE_RANGE_END", Kind::RangeEnd, Reader::Library)
};

pub static TRACEPARENT: Setting = Setting {
    option: Some("traceparent"),
    default: "on",
    help: "Whether run gives its command a TRACEPARENT",
    details: "on: the command's own spans and those of export are one trace\n\
              off: the variable stays as it is",
    ..Setting::new("GPUTRACE_TRACEPARENT", Kind::Flag, Reader::Program)
};

pub static NVTX_FRAMES: Setting = Setting {
    option: Some("nvtx-frames"),
    is_unmistakable: true,
    default: "above",
    help: "Where NVTX ranges are in the flamegraph",
    details: "above: above the Python frames, nearer to the thread\n\
              below: below the Python frames, nearer to the call\n\
              instead: in place of the frames that are inside of a range\n\
              none: nowhere",
    ..Setting::new("GPUTRACE_NVTX_FRAMES", Kind::OneOf("above|below|instead|none"), Reader::Program)
};

pub static GROUP_BY: Setting = Setting {
    option: Some("group-by"),
    is_unmistakable: true,
    default: "process,thread",
    help: "What the flamegraph is divided by first, from its bottom up",
    details: "Any of process, thread, stream, device, rank and module (of PyTorch), in any order, with commas\n\
              between; or none.",
    ..Setting::new("GPUTRACE_GROUP_BY", Kind::Parts, Reader::Program)
};

pub static FLIGHT_RECORDER: Setting = Setting {
    option: Some("flight-recorder"),
    is_unmistakable: true,
    default: "off",
    help: "Keep the last SECONDS only; write them at the end, a crash, or on request",
    details: "0.1 to 86400 seconds, in 64 MiB of memory at most.\n\
              They are written at the end, and to folders of their own when a process crashes, on SIGUSR2\n\
              to gputrace, and on gputrace ctl PID dump.",
    ..Setting::new("GPUTRACE_FLIGHT_RECORDER", Kind::Seconds, Reader::Program)
};

pub static MAX_SIZE: Setting = Setting {
    option: Some("max-size"),
    is_unmistakable: true,
    default: "off",
    help: "The most bytes that the trace file may have, such as 500M or 2G",
    details: "64K or more. The trace file holds the first part of the run; what is left out is counted.\n\
              The summary and the flamegraph cover everything.",
    ..Setting::new("GPUTRACE_MAX_SIZE", Kind::Size, Reader::Program)
};

pub static ROTATE_SIZE: Setting = Setting {
    option: Some("rotate-size"),
    default: "off",
    help: "Begin a new trace file once one has about so many bytes (64K or more)",
    ..Setting::new("GPUTRACE_ROTATE_SIZE", Kind::Size, Reader::Daemon)
};

pub static ROTATE_EVERY: Setting = Setting {
    option: Some("rotate-every"),
    default: "off",
    help: "Begin a new trace file after so much time (90s, 10m, 1h, 1d)",
    ..Setting::new("GPUTRACE_ROTATE_EVERY", Kind::Time, Reader::Daemon)
};

pub static KEEP: Setting = Setting {
    option: Some("keep"),
    default: "unlimited",
    help: "How many closed trace files stay; older ones are deleted",
    ..Setting::new("GPUTRACE_KEEP", Kind::Files, Reader::Daemon)
};

pub static OTLP: Setting = Setting {
    option: Some("otlp"),
    is_unmistakable: true,
    default: "off",
    help: "Send spans and metrics to an OpenTelemetry back end while the program runs",
    details: "URL: the back end there\n\
              env: the back end that OTEL_EXPORTER_OTLP_ENDPOINT names\n\
              The other OTEL_EXPORTER_OTLP_ variables hold for both.",
    ..Setting::new("GPUTRACE_OTLP", Kind::Destination, Reader::Program)
};

pub static THRESHOLD_US: Setting = Setting {
    option: Some("threshold-us"),
    is_unmistakable: true,
    default: "100",
    help: "How many microseconds something must take to become a span",
    details: "Failed calls and anomalies always become spans.",
    ..Setting::new("GPUTRACE_THRESHOLD_US", Kind::Number, Reader::Program)
};

pub static DEVICE_METRICS: Setting = Setting {
    option: Some("device-metrics"),
    is_unmistakable: true,
    default: "100ms",
    help: "Sample clocks, power, memory of the devices used, this often; or off",
    details: "10ms to 1h. The collector samples, never the program, and only devices that its programs use.\n\
              100ms,slow: also PCIe throughput and throttle counters, each second, which take a driver 40 ms.",
    ..Setting::new("GPUTRACE_DEVICE_METRICS", Kind::Interval, Reader::Program)
};

pub static ALL_SPANS: Setting = Setting {
    option: Some("all"),
    excludes: Some("spans-per-second"),
    default: "off",
    help: "on: everything becomes a span, however short",
    ..Setting::new("GPUTRACE_ALL", Kind::Flag, Reader::Program)
};

pub static SPANS_PER_SECOND: Setting = Setting {
    option: Some("spans-per-second"),
    excludes: Some("all"),
    is_unmistakable: true,
    default: "10000",
    help: "The most spans a second of a process; the slowest win",
    ..Setting::new("GPUTRACE_SPANS_PER_SECOND", Kind::NumberIn(1, 1_000_000), Reader::Program)
};

pub static METRICS_KERNELS: Setting = Setting {
    option: Some("metrics-kernels"),
    default: "0",
    help: "How many kernels have metrics of their own: those that take the most time",
    details: "1000 at most. The other kernels share theirs.",
    ..Setting::new(
        "GPUTRACE_METRICS_KERNELS",
        Kind::NumberIn(0, metrics::KERNELS_MAX as i64),
        Reader::Program,
    )
};

pub static NVML: Setting = Setting {
    default: "the installed one",
    help: "The libnvidia-ml to read NVIDIA's devices by",
    details: "devices and monitor look for libnvidia-ml.so.1 where the loader, containers and WSL have it.",
    ..Setting::new("GPUTRACE_NVML", Kind::Path("FILE"), Reader::Program)
};

pub static SYSFS: Setting = Setting {
    default: "/sys",
    help: "The folder to read AMD's and Intel's devices from",
    ..Setting::new("GPUTRACE_SYSFS", Kind::Path("DIR"), Reader::Program)
};

pub static CACHE: Setting = Setting {
    default: "~/.cache/gputrace",
    help: "Where the preload library is kept for auto-collect",
    details: "The default is $XDG_CACHE_HOME/gputrace where that variable is set.",
    ..Setting::new("GPUTRACE_CACHE", Kind::Path("DIR"), Reader::Program)
};

pub static COLLECTOR: Setting = Setting {
    default: "the gputrace beside the library",
    help: "The program that the library starts for auto-collect",
    ..Setting::new("GPUTRACE_COLLECTOR", Kind::Path("FILE"), Reader::Library)
};

pub static SESSION: Setting = Setting {
    help: "The running session that a program joins",
    ..Setting::new("GPUTRACE_SESSION", Kind::Path("SOCKET"), Reader::Internal)
};

pub static PREBUILT_DIR: Setting = Setting {
    help: "Ready-made libraries for build.rs to embed, instead of building them",
    ..Setting::new("GPUTRACE_PREBUILT_DIR", Kind::Path("DIR"), Reader::Internal)
};

pub static SIM_DEVICES: Setting = Setting {
    default: "1",
    help: "How many devices the simulation has, 64 at most",
    ..Setting::new("GPUTRACE_SIM_DEVICES", Kind::Number, Reader::Simulator)
};

pub static SIM_MEMORY_BYTES: Setting = Setting {
    default: "85899345920",
    help: "Memory of each simulated device",
    ..Setting::new("GPUTRACE_SIM_MEMORY_BYTES", Kind::Number, Reader::Simulator)
};

pub static SIM_PACE: Setting = Setting {
    default: "on",
    help: "Whether waiting for the simulated device takes real time",
    ..Setting::new("GPUTRACE_SIM_PACE", Kind::Flag, Reader::Simulator)
};

pub static SIM_CHANGES_RECORDS: Setting = Setting {
    default: "off",
    help: "Whether the simulated CUPTI changes records that it has written",
    ..Setting::new("GPUTRACE_SIM_CHANGES_RECORDS", Kind::Flag, Reader::Simulator)
};

pub static SIM_FLUSHES_ALONE: Setting = Setting {
    default: "off",
    help: "Whether the simulated CUPTI ends the process where a flush meets a call",
    ..Setting::new("GPUTRACE_SIM_FLUSHES_ALONE", Kind::Flag, Reader::Simulator)
};

pub static SIM_FLUSH_MS: Setting = Setting {
    default: "0",
    help: "How much longer each flush of the simulated CUPTI takes",
    ..Setting::new("GPUTRACE_SIM_FLUSH_MS", Kind::Number, Reader::Simulator)
};

pub static SIM_FAIL: Setting = Setting {
    help: "Calls of the simulated driver that fail: the Nth call of which function, and with which code",
    ..Setting::new("GPUTRACE_SIM_FAIL", Kind::Text("FUNCTION:NTH=CODE,…"), Reader::Simulator)
};

pub static SIM_NVML: Setting = Setting {
    help: "The script that the simulated libnvidia-ml plays",
    ..Setting::new("GPUTRACE_SIM_NVML", Kind::Path("FILE"), Reader::Simulator)
};

/// The setting with that option, with or without its dashes, or that variable.
pub fn by_name(name: &str) -> Option<&'static Setting> {
    let option = name.strip_prefix("--").unwrap_or(name);
    by_variable(name).or_else(|| SETTINGS.into_iter().find(|setting| setting.option == Some(option)))
}

/// The setting of that variable.
pub fn by_variable(variable: &str) -> Option<&'static Setting> {
    SETTINGS.into_iter().find(|setting| setting.variable == variable)
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
    fn rows_are_ours_and_distinct() {
        for (index, setting) in SETTINGS.iter().enumerate() {
            assert!(setting.variable.starts_with(PREFIX) || setting.variable == "GPUTRACE");
            assert!(!setting.help.is_empty() && !setting.help.ends_with('.'), "{}", setting.variable);
            assert!(setting.details.lines().all(|line| line.len() <= 96), "{}", setting.variable);
            assert!(SETTINGS[..index].iter().all(|other| other.variable != setting.variable));
        }
    }

    #[test]
    fn misspelt_variables_find_their_neighbour() {
        assert_eq!(nearest("GPUTRACE_DEVICE_TIME"), Some(DEVICE_TIMES.variable));
        assert_eq!(nearest("GPUTRACE_OUTPUT"), Some(OUTPUT.variable));
        assert_eq!(nearest("GPUTRACE_SOMETHING_ELSE_ENTIRELY"), None);
        // As long as the other, and not one letter in its place.
        assert_eq!(nearest("GPUTRACE_FOO"), None);
    }
}
