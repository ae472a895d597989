//! What a flamegraph's time is divided by first: the frames next to the root (`--group-by`).

use std::fmt;

use crate::aggregate::{Aggregates, Leaf, StackKey};
use crate::flame::frames::{Frame, FrameKind};
use crate::label::{DeviceNames, ProcessNames, StreamNames, ThreadNames};

/// One thing that time is divided by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupKey {
    Process,
    Thread,
    Stream,
    Device,
    Rank,
    /// PyTorch's modules, a frame for each that is inside of another.
    Module,
}

impl GroupKey {
    pub const ALL: [GroupKey; 6] = [
        GroupKey::Process,
        GroupKey::Thread,
        GroupKey::Stream,
        GroupKey::Device,
        GroupKey::Rank,
        GroupKey::Module,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            GroupKey::Process => "process",
            GroupKey::Thread => "thread",
            GroupKey::Stream => "stream",
            GroupKey::Device => "device",
            GroupKey::Rank => "rank",
            GroupKey::Module => "module",
        }
    }
}

/// Keys from the root on, each at most once. An empty list divides by none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupBy(Vec<GroupKey>);

impl Default for GroupBy {
    fn default() -> GroupBy {
        GroupBy(vec![GroupKey::Process, GroupKey::Thread])
    }
}

impl fmt::Display for GroupBy {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [] => to.write_str("none"),
            keys => to.write_str(&keys.iter().map(|key| key.name()).collect::<Vec<_>>().join(",")),
        }
    }
}

impl GroupBy {
    /// Reads `process,stream`, or `none`.
    ///
    /// # Errors
    /// Names the word that is no key or stands twice, and lists the keys.
    pub fn parse(text: &str) -> Result<GroupBy, String> {
        if text.trim() == "none" {
            return Ok(GroupBy(Vec::new()));
        }
        let mut keys = Vec::new();
        for word in text.split(',').map(str::trim) {
            match GroupKey::ALL.into_iter().find(|key| key.name() == word) {
                Some(key) if keys.contains(&key) => return Err(format!("{word} is there twice")),
                Some(key) => keys.push(key),
                None if word == "none" => return Err("none stands alone".to_owned()),
                None => {
                    let words = GroupKey::ALL.map(GroupKey::name).join(", ");
                    return Err(format!("'{word}' is none of {words}; or none, alone"));
                }
            }
        }
        Ok(GroupBy(keys))
    }

    pub(super) fn has(&self, key: GroupKey) -> bool {
        self.0.contains(&key)
    }
}

/// A [`GroupBy`] with the names of what appears in one flamegraph.
#[derive(Debug)]
pub(super) struct GroupFrames<'l, 'a> {
    group_by: &'l GroupBy,
    processes: &'l ProcessNames<'a>,
    threads: ThreadNames<'l, 'a>,
    streams: StreamNames,
    devices: DeviceNames,
}

impl<'l, 'a> GroupFrames<'l, 'a> {
    /// `keys` are all stacks of the flamegraph.
    pub fn new<'k>(
        group_by: &'l GroupBy,
        processes: &'l ProcessNames<'a>,
        aggregates: &Aggregates,
        keys: impl Iterator<Item = &'k StackKey> + Clone,
    ) -> GroupFrames<'l, 'a> {
        let streams = keys.clone().map(|key| (key.process, key.stream)).collect();
        let devices = keys.clone().map(|key| (key.process, key.device)).collect();
        GroupFrames {
            group_by,
            processes,
            threads: ThreadNames::new(processes, keys.map(|key| (key.process, key.thread))),
            streams: StreamNames::new(processes, aggregates, &streams),
            devices: DeviceNames::new(processes, &devices),
        }
    }

    /// The frames next to the root for a stack, which is inside of these modules.
    pub fn of(&self, key: &StackKey, modules: &[Frame]) -> Vec<Frame> {
        // Stacks beyond the capacity are summed by process: thread, stream and device are unknown.
        let is_other = key.leaf == Leaf::Other;
        let frame = |by: &GroupKey| {
            vec![match by {
                GroupKey::Module => return modules.to_vec(),
                GroupKey::Process => Frame::new(FrameKind::Process, &self.threads.process(key.process)),
                GroupKey::Rank => Frame::new(FrameKind::Rank, &self.processes.rank(key.process)),
                _ if is_other => return Vec::new(),
                GroupKey::Thread if !has_call(key) => no_call(),
                GroupKey::Thread => {
                    Frame::new(FrameKind::Thread, &self.threads.thread(key.process, key.thread))
                }
                GroupKey::Stream => {
                    Frame::new(FrameKind::Stream, self.streams.stream(key.process, key.stream))
                }
                GroupKey::Device => {
                    Frame::new(FrameKind::Device, self.devices.device(key.process, key.device))
                }
            }]
        };
        let mut frames: Vec<Frame> = self.group_by.0.iter().flat_map(frame).collect();
        if !is_other && !has_call(key) && !self.group_by.has(GroupKey::Thread) {
            frames.push(no_call());
        }
        frames
    }
}

/// Whether the host call that caused the operation is known.
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
    fn keys_are_read_in_any_order() {
        for text in ["process,thread", "rank,device,stream,thread,process", "stream", "none"] {
            assert_eq!(GroupBy::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(GroupBy::parse("process,thread"), Ok(GroupBy::default()));
        assert_eq!(GroupBy::parse(" device , rank ").unwrap().to_string(), "device,rank");
    }

    #[test]
    fn unknown_and_repeated_keys_are_named_in_the_error() {
        for (text, named) in [
            ("proces", "'proces'"),
            ("process,,thread", "''"),
            ("", "''"),
            ("stream,stream", "stream is there twice"),
            ("none,rank", "none stands alone"),
            ("Process", "'Process'"),
        ] {
            let why = GroupBy::parse(text).unwrap_err();
            assert!(why.contains(named), "{text}: {why}");
        }
    }
}
