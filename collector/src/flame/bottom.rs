//! The bottom of a flamegraph: what its time is divided by before anything else.

use std::fmt;

use crate::aggregate::{Aggregates, Leaf, StackKey};
use crate::flame::frames::{Frame, FrameKind};
use crate::label::{DeviceNames, ProcessNames, StreamNames, ThreadNames};

/// One of the things that time is divided by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    Process,
    Thread,
    Stream,
    Device,
    Rank,
}

impl Part {
    pub const ALL: [Part; 5] = [Part::Process, Part::Thread, Part::Stream, Part::Device, Part::Rank];

    pub const fn name(self) -> &'static str {
        match self {
            Part::Process => "process",
            Part::Thread => "thread",
            Part::Stream => "stream",
            Part::Device => "device",
            Part::Rank => "rank",
        }
    }
}

/// Parts from the root on, each at most once; none at all is possible.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bottom(Vec<Part>);

impl Default for Bottom {
    fn default() -> Bottom {
        Bottom(vec![Part::Process, Part::Thread])
    }
}

impl fmt::Display for Bottom {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [] => to.write_str("none"),
            parts => to.write_str(&parts.iter().map(|part| part.name()).collect::<Vec<_>>().join(",")),
        }
    }
}

impl Bottom {
    /// Reads `process,stream`, or `none`.
    ///
    /// # Errors
    /// Says which word makes no sense, and which would.
    pub fn parse(text: &str) -> Result<Bottom, String> {
        if text.trim() == "none" {
            return Ok(Bottom(Vec::new()));
        }
        let mut parts = Vec::new();
        for word in text.split(',').map(str::trim) {
            match Part::ALL.into_iter().find(|part| part.name() == word) {
                Some(part) if parts.contains(&part) => return Err(format!("{word} is there twice")),
                Some(part) => parts.push(part),
                None if word == "none" => return Err("none stands alone".to_owned()),
                None => {
                    let words = Part::ALL.map(Part::name).join(", ");
                    return Err(format!("'{word}' is none of {words}; or none, alone"));
                }
            }
        }
        Ok(Bottom(parts))
    }

    fn has(&self, part: Part) -> bool {
        self.0.contains(&part)
    }
}

/// A bottom with the names of what appears in it.
#[derive(Debug)]
pub(super) struct BottomFrames<'l, 'a> {
    bottom: &'l Bottom,
    processes: &'l ProcessNames<'a>,
    threads: ThreadNames<'l, 'a>,
    streams: StreamNames,
    devices: DeviceNames,
}

impl<'l, 'a> BottomFrames<'l, 'a> {
    /// For the stacks of one flamegraph.
    pub fn new<'k>(
        bottom: &'l Bottom,
        processes: &'l ProcessNames<'a>,
        aggregates: &Aggregates,
        keys: impl Iterator<Item = &'k StackKey> + Clone,
    ) -> BottomFrames<'l, 'a> {
        let streams = keys.clone().map(|key| (key.process, key.stream)).collect();
        let devices = keys.clone().map(|key| (key.process, key.device)).collect();
        BottomFrames {
            bottom,
            processes,
            threads: ThreadNames::new(processes, keys.map(|key| (key.process, key.thread))),
            streams: StreamNames::new(processes, aggregates, &streams),
            devices: DeviceNames::new(processes, &devices),
        }
    }

    /// The frames of a stack's bottom.
    pub fn of(&self, key: &StackKey) -> Vec<Frame> {
        // What did not fit is known by its process only.
        let is_other = key.leaf == Leaf::Other;
        let frame = |part: &Part| {
            Some(match part {
                Part::Process => Frame::new(FrameKind::Process, &self.threads.process(key.process)),
                Part::Rank => Frame::new(FrameKind::Rank, &self.processes.rank(key.process)),
                _ if is_other => return None,
                Part::Thread if !has_call(key) => no_call(),
                Part::Thread => Frame::new(FrameKind::Thread, &self.threads.thread(key.process, key.thread)),
                Part::Stream => Frame::new(FrameKind::Stream, self.streams.stream(key.process, key.stream)),
                Part::Device => Frame::new(FrameKind::Device, self.devices.device(key.process, key.device)),
            })
        };
        let mut frames: Vec<Frame> = self.bottom.0.iter().filter_map(frame).collect();
        if !is_other && !has_call(key) && !self.bottom.has(Part::Thread) {
            frames.push(no_call());
        }
        frames
    }
}

/// Whether a host call is known that asked for it.
pub(super) fn has_call(key: &StackKey) -> bool {
    key.api != 0 || key.thread != 0
}

fn no_call() -> Frame {
    Frame::new(FrameKind::Thread, "(no host call)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_parts_in_any_order() {
        for text in ["process,thread", "rank,device,stream,thread,process", "stream", "none"] {
            assert_eq!(Bottom::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Bottom::parse("process,thread"), Ok(Bottom::default()));
        assert_eq!(Bottom::parse(" device , rank ").unwrap().to_string(), "device,rank");
    }

    #[test]
    fn senseless_parts_are_named() {
        for (text, part) in [
            ("proces", "'proces'"),
            ("process,,thread", "''"),
            ("", "''"),
            ("stream,stream", "stream is there twice"),
            ("none,rank", "none stands alone"),
            ("Process", "'Process'"),
        ] {
            let why = Bottom::parse(text).unwrap_err();
            assert!(why.contains(part), "{text}: {why}");
        }
    }
}
