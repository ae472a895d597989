//! The flamegraph of memory: bytes by the stack that allocated them.

use std::collections::BTreeMap;

use crate::aggregate::Aggregates;
use crate::flame::code::CodeFrames;
use crate::flame::frames::{Frame, FrameKind, entry_name};
use crate::flame::{Flame, FlameLine, FlameWeight};
use crate::label::Labels;
use crate::memory::{BLOCK, HeldMemory, LeakedSites, MemoryOf, Moment, NAMES, is_of_host};
use crate::model::Totals;
use crate::names::short_command;

/// What the bytes of a flamegraph are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemoryWeight {
    /// Live at that moment: at the peak only memory of the device, else of all kinds.
    Live(Moment),
    /// All that was allocated and freed again before the process made two more allocations.
    Temporary,
    /// All that was ever allocated.
    Allocated,
    /// Live at the end, of lines whose memory counts as leaked.
    Leaked,
}

impl MemoryWeight {
    pub(super) fn words(self) -> &'static str {
        match self {
            MemoryWeight::Live(Moment::Peak) => "of device memory at the peak",
            MemoryWeight::Live(Moment::End) => "of memory at the end",
            MemoryWeight::Live(Moment::Asked) => "of memory at the time asked for",
            MemoryWeight::Temporary => "of memory that was freed at once",
            MemoryWeight::Allocated => "of memory allocated in all",
            MemoryWeight::Leaked => "of leaked memory",
        }
    }
}

impl Flame {
    /// The flamegraph of memory.
    pub fn of_memory(
        of: MemoryOf,
        totals: &Totals,
        aggregates: &Aggregates,
        labels: &mut Labels<'_>,
        weight: MemoryWeight,
        leaked: &LeakedSites,
    ) -> Flame {
        let Labels { processes, stacks, .. } = labels;
        let mut code = CodeFrames::new(stacks);
        let mut lines: BTreeMap<Vec<Frame>, HeldMemory> = BTreeMap::new();
        let several = aggregates.memory.of(of).nth(1).is_some();
        for (number, memory) in aggregates.memory.of(of) {
            let Some(definitions) = processes.definitions(number) else { continue };
            let pid = processes.process(number).map(|process| format!(" ({})", process.begin.pid));
            let process = processes.command(number).to_owned() + &pid.filter(|_| several).unwrap_or_default();
            for site in memory.sites() {
                let held = match weight {
                    MemoryWeight::Live(Moment::Peak) if is_of_host(site.kind) => HeldMemory::default(),
                    MemoryWeight::Live(moment) => memory.held(site, moment),
                    MemoryWeight::Temporary => site.temporary,
                    MemoryWeight::Allocated => site.allocated,
                    MemoryWeight::Leaked if leaked.contains(&(number, site.stack, site.kind)) => {
                        memory.held(site, Moment::End)
                    }
                    MemoryWeight::Leaked => HeldMemory::default(),
                };
                if held.bytes == 0 {
                    continue;
                }
                let mut frames = vec![Frame::new(FrameKind::Process, &process)];
                frames.extend_from_slice(code.of(number, site.stack));
                if site.kind != BLOCK {
                    frames.push(Frame::new(FrameKind::Call, entry_name(definitions.call_name(site.api))));
                }
                frames
                    .push(Frame::new(FrameKind::Memory, NAMES.get(site.kind).copied().unwrap_or("unknown")));
                lines.entry(frames).or_default().add(held);
            }
        }
        let command = totals.sessions.first().map_or(&[][..], |session| &session.begin.command);
        Flame {
            program: short_command(command),
            simulated: totals.simulated,
            weight: FlameWeight::Memory(weight),
            coverage: 1.0,
            estimate: None,
            recorded: None,
            is_part: false,
            lines: lines
                .into_iter()
                .map(|(frames, HeldMemory { count, bytes })| FlameLine { frames, ns: bytes, calls: count })
                .collect(),
        }
    }
}
