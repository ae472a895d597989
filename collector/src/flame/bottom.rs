//! The bottom of a flamegraph: what its time is divided by before anything else.

use std::fmt;

use crate::aggregate::{Leaf, StackKey};
use crate::flame::frames::{Frame, FrameKind};
use crate::flame::labels::Labels;
use crate::flame::places::Places;

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

    pub(super) fn has(&self, part: Part) -> bool {
        self.0.contains(&part)
    }

    /// The frames of a stack's bottom.
    pub(super) fn frames(&self, key: &StackKey, labels: &Labels<'_>, places: &Places<'_>) -> Vec<Frame> {
        // What did not fit is known by its process only.
        let is_other = key.leaf == Leaf::Other;
        let frame = |part: &Part| {
            Some(match part {
                Part::Process => labels.process(key.process),
                Part::Rank => labels.rank(key.process),
                _ if is_other => return None,
                Part::Thread if !has_call(key) => no_call(),
                Part::Thread => labels.thread(key.process, key.thread),
                Part::Stream => places.stream(key.process, key.stream),
                Part::Device => places.device(key.process, key.device),
            })
        };
        let mut frames: Vec<Frame> = self.0.iter().filter_map(frame).collect();
        if !is_other && !has_call(key) && !self.has(Part::Thread) {
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
