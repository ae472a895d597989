//! The flamegraph of idle time: why the GPU did nothing, and where the program was meanwhile.

use std::collections::BTreeMap;

use crate::aggregate::{Aggregates, Between, Cause, DeviceTime, Pieces};
use crate::flame::code::CodeFrames;
use crate::flame::frames::{Frame, FrameKind};
use crate::flame::graph::recorded_part;
use crate::flame::{Flame, FlameLine, FlameWeight};
use crate::label::Labels;
use crate::model::Totals;
use crate::model::recording::is_without_gaps;
use crate::names::short_command;

impl Flame {
    /// Times in which a device did nothing: device, process, the frames of the thread that launched the next
    /// operation, and why. Of time in host code these are the frames that the calls before and after it
    /// share, and then the lines that it lies between. The time before the first operation and after the
    /// last is not in it: mostly it is far longer than the rest. All else adds up to the idle time of the
    /// report. Of a session that was paused, or whose device times were switched, nothing is known.
    pub fn of_idle(totals: &Totals, aggregates: &Aggregates, labels: &mut Labels<'_>) -> Flame {
        let Labels { processes, stacks, .. } = labels;
        let mut code = CodeFrames::new(stacks);
        let mut lines: BTreeMap<Vec<Frame>, Pieces> = BTreeMap::new();
        let mut outside_ns: u64 = 0;
        let are_known = is_without_gaps(totals);
        for entry in aggregates.devices.iter().filter(|_| are_known) {
            let Some(DeviceTime { idle, .. }) = entry.time(totals) else { continue };
            let device = match entry.device.name.as_str() {
                "" => format!("GPU {}", entry.device.ordinal),
                name => format!("GPU {} {name}", entry.device.ordinal),
            };
            let device = Frame::new(FrameKind::Device, &device);
            let mut left = Cause::ALL.map(|cause| (cause, idle.of(cause)));
            for (between, mut pieces) in idle.lines() {
                let Some((_, left)) = left.iter_mut().find(|(cause, _)| *cause == between.cause) else {
                    continue;
                };
                // Of sessions that overlap, the lines may have more time than there is.
                pieces.ns = pieces.ns.min(left.ns);
                left.ns -= pieces.ns;
                left.count -= pieces.count.min(left.count);
                let mut frames = vec![device.clone()];
                let process = processes.command(between.process);
                if !process.is_empty() {
                    frames.push(Frame::new(FrameKind::Process, process));
                }
                frames.extend(thread_frames(&mut code, &between));
                frames.push(why(between.cause));
                add(&mut lines, frames, pieces);
            }
            for (cause, pieces) in left {
                match cause {
                    Cause::Begin | Cause::End => outside_ns = pieces.ns.saturating_add(outside_ns),
                    _ => add(&mut lines, vec![device.clone(), why(cause)], pieces),
                }
            }
        }
        let command = totals.sessions.first().map_or(&[][..], |session| &session.begin.command);
        Flame {
            program: short_command(command),
            simulated: totals.simulated,
            weight: FlameWeight::Idle { outside_ns },
            coverage: totals.counts.device_time_coverage(),
            estimate: None,
            recorded: recorded_part(totals),
            is_part: false,
            lines: lines
                .into_iter()
                .map(|(frames, Pieces { ns, count })| FlameLine { frames, ns, calls: count })
                .collect(),
        }
    }
}

fn add(lines: &mut BTreeMap<Vec<Frame>, Pieces>, frames: Vec<Frame>, more: Pieces) {
    if more.ns > 0 {
        let pieces = lines.entry(frames).or_default();
        pieces.ns = pieces.ns.saturating_add(more.ns);
        pieces.count += more.count;
    }
}

fn why(cause: Cause) -> Frame {
    Frame::new(FrameKind::Idle, &format!("[{}]", cause.text()))
}

/// The frames that both stacks begin with, and where they part.
fn thread_frames(code: &mut CodeFrames<'_, '_>, between: &Between) -> Vec<Frame> {
    let Between { process, from, to, .. } = *between;
    let mut after = code.of(process, to).to_vec();
    if from == to || from == 0 {
        return after;
    }
    let before = code.of(process, from);
    if after.is_empty() {
        return before.to_vec();
    }
    let shared = before.iter().zip(&after).take_while(|(one, other)| one == other).count();
    let at = |frames: &[Frame]| frames.get(shared).or(frames.last()).cloned();
    if let (Some(one), Some(other)) = (at(before), at(&after)) {
        after.truncate(shared);
        if one != other {
            after.push(Frame::new(other.kind, &format!("between {} and {}", one.text, other.text)));
        }
    }
    after
}
