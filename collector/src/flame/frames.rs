//! Frames: one field of a folded line each, and how commands and entries are called in them.

use std::sync::Arc;

use crate::names::fold_safe;

/// What a frame stands for; it decides the colour.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FrameKind {
    Process,
    Thread,
    Stream,
    Device,
    Rank,
    /// A line of the program's own.
    Code,
    /// A line of a library.
    Library,
    /// What the program says it does.
    Range,
    /// A driver entry.
    Call,
    Kernel,
    Copy,
    Fill,
    Graph,
    Other,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Frame {
    /// One field of a folded line: no separator, no control character, not empty.
    pub text: Arc<str>,
    pub kind: FrameKind,
}

impl Frame {
    pub fn new(kind: FrameKind, text: &str) -> Frame {
        Frame { text: fold_safe(text).into(), kind }
    }
}

/// `python train.py` of `/usr/bin/python -u /home/me/train.py --lr 3`: the program and, for an
/// interpreter, what it runs.
pub fn short_command(command: &[String]) -> String {
    const INTERPRETERS: [&str; 9] = ["python", "pypy", "bash", "dash", "sh", "perl", "ruby", "node", "julia"];
    let Some((program, arguments)) = command.split_first() else { return String::new() };
    let program = file_name(program);
    let plain = program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    if !INTERPRETERS.contains(&plain) {
        return program.to_owned();
    }
    let mut rest = arguments.iter().map(String::as_str);
    while let Some(argument) = rest.next() {
        match argument {
            "-m" => return format!("{program} -m {}", rest.next().unwrap_or("")),
            "-c" | "-e" => return format!("{program} {argument}"),
            // Options that take the next argument along.
            "-W" | "-X" | "-Q" => _ = rest.next(),
            option if option.starts_with('-') => {}
            script => return format!("{program} {}", file_name(script)),
        }
    }
    program.to_owned()
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').find(|part| !part.is_empty()).unwrap_or(path)
}

/// The driver's entry without the marks of its ABI: `cuMemcpyHtoDAsync` of
/// `cuMemcpyHtoDAsync_v2_ptsz`.
pub fn entry_name(symbol: &str) -> &str {
    let symbol = symbol.strip_suffix("_ptsz").or(symbol.strip_suffix("_ptds")).unwrap_or(symbol);
    match symbol.rsplit_once("_v") {
        Some((entry, version)) if !version.is_empty() && version.bytes().all(|b| b.is_ascii_digit()) => entry,
        _ => symbol,
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn commands_are_named_by_what_they_run() {
        for (command, short) in [
            ("/usr/bin/python3 -u /home/me/train.py --lr 3", "python3 train.py"),
            ("python -W ignore -m torch.distributed.run x.py", "python -m torch.distributed.run"),
            ("python3.12 -c pass", "python3.12 -c"),
            ("./build/saxpy 1000", "saxpy"),
            ("bash ./go.sh", "bash go.sh"),
            ("python", "python"),
            ("", ""),
        ] {
            let command: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
            assert_eq!(short_command(&command), short);
        }
    }

    #[test]
    fn entries_lose_the_marks_of_their_abi() {
        assert_eq!(entry_name("cuMemcpyHtoDAsync_v2_ptsz"), "cuMemcpyHtoDAsync");
        assert_eq!(entry_name("cuLaunchKernel_ptsz"), "cuLaunchKernel");
        assert_eq!(entry_name("cuLaunchKernel"), "cuLaunchKernel");
        assert_eq!(entry_name("odd_value"), "odd_value");
    }
}
