//! The memory of all processes of an analysis.

use std::collections::BTreeMap;

use gputrace_wire::call::Detail;
use gputrace_wire::cell::{flag, kind};

use super::blocks::Blocks;
use super::change::{self, MemoryChange};
use super::followed::FollowedProcess;
use super::journal::JournalStep;
use super::process_memory::{Budget, ProcessMemory};
use super::reordering::{AskedMemory, FreeOutcome};
use crate::model::block::{BlockEvent, BlockWhat};
use crate::model::definitions::Definitions;
use crate::model::operation::HostCall;

/// Live allocations that are followed, of all processes together; each takes 40 to 50 bytes.
const LIVE_MAX: usize = 1 << 20;
/// Places that allocate, of all processes together.
const SITES_MAX: usize = 1 << 16;
/// Sites with their live bytes over time, of all processes together; each takes 300 bytes.
const TIMELINES_MAX: usize = 1 << 12;
/// Processes whose memory is followed.
const PROCESSES_MAX: usize = 1 << 12;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: u16 = 2;

/// Whose allocations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemoryOf {
    /// What the process asked the driver for.
    Driver,
    /// What a caching allocator gave out of it, of processes whose blocks are recorded.
    Blocks,
}

#[derive(Clone, Debug)]
pub struct MemoryLedger {
    processes: BTreeMap<u32, FollowedProcess>,
    budget: Budget,
    /// The time that was asked for, after the begin of each process.
    asked_after_ns: Option<u64>,
    /// When processes began, if a time was asked for.
    begun: BTreeMap<u32, u64>,
    /// The part of a session that is asked for, after its begin, and that of each process on its clock.
    part_ns: Option<[u64; 2]>,
    parts: BTreeMap<u32, [u64; 2]>,
    keeps_journals: bool,
    /// Calls of processes beyond the number that is followed.
    pub beyond: u64,
}

impl Default for MemoryLedger {
    fn default() -> Self {
        let budget = Budget { live: LIVE_MAX, sites: SITES_MAX, timelines: TIMELINES_MAX };
        MemoryLedger {
            processes: BTreeMap::new(),
            budget,
            asked_after_ns: None,
            begun: BTreeMap::new(),
            part_ns: None,
            parts: BTreeMap::new(),
            keeps_journals: false,
            beyond: 0,
        }
    }
}

impl MemoryLedger {
    /// Keeps what is live so long after tracing of each process began, beside the peak and the end.
    pub fn ask_at(&mut self, after_begin_ns: u64) {
        self.asked_after_ns = Some(after_begin_ns);
    }

    /// Finds the peak in a part of a session, and what was allocated in that part and is live at its end.
    pub fn ask_part(&mut self, from_ns: u64, to_ns: u64) {
        self.part_ns = Some([from_ns, to_ns]);
    }

    /// Keeps what changes, for [`MemoryLedger::take_journal`].
    pub fn keep_journals(&mut self) {
        self.keeps_journals = true;
    }

    /// What changed in a process's memory since this was last called.
    pub fn take_journal(&mut self, process: u32) -> Vec<JournalStep> {
        self.processes.get_mut(&process).map_or_else(Vec::new, |process| process.memory.take_journal())
    }

    /// Whether a part was asked for.
    pub fn is_part(&self) -> bool {
        self.part_ns.is_some()
    }

    /// Tracing of a process began at that time, in a session that began at the other.
    pub fn process_begins(&mut self, process: u32, at_ns: u64, session_ns: u64) {
        if let Some(part_ns) = self.part_ns {
            self.parts.insert(process, part_ns.map(|after_ns| session_ns.saturating_add(after_ns)));
        }
        if self.asked_after_ns.is_some() {
            self.begun.insert(process, at_ns);
        }
    }

    /// Whether a time was asked for.
    pub fn has_asked(&self) -> bool {
        self.asked_after_ns.is_some()
    }

    /// Follows any call.
    #[inline]
    pub fn add(&mut self, call: &HostCall, definitions: &Definitions) {
        if matches!(call.kind, kind::ALLOC | kind::FREE | kind::CALL | kind::MEMORY) {
            self.follow(call, definitions);
        }
    }

    #[inline(never)]
    fn follow(&mut self, call: &HostCall, definitions: &Definitions) {
        let (at_ns, what) = match (call.status, &call.detail) {
            (0, Detail::Memory(what)) if call.kind == kind::ALLOC && call.flags & flag::CAPTURED != 0 => {
                (call.start_ns, FreeOutcome::InGraph { address: what.address, bytes: what.bytes })
            }
            (0, _) => match MemoryChange::of(call, definitions) {
                Some((at_ns, change)) => (at_ns, FreeOutcome::Changed(change)),
                None => return,
            },
            (_, Detail::Memory(what)) if call.flags & flag::CAPTURED == 0 => {
                if call.kind == kind::FREE {
                    let process = self.processes.get_mut(&call.process);
                    process.into_iter().for_each(|process| process.memory.refuse_free(change::key(what)));
                    return;
                }
                if call.status != OUT_OF_MEMORY {
                    return;
                }
                let returned_ns = call.start_ns.saturating_add(call.duration_ns);
                (returned_ns, FreeOutcome::Refused { kind: change::kind_of(what), bytes: what.bytes })
            }
            _ => return,
        };
        let HostCall { thread, stack, api, duration_ns, .. } = *call;
        self.ask(call.process, AskedMemory { at_ns, thread, stack, api, duration_ns, what });
    }

    /// Follows what a caching allocator reports.
    pub fn block(&mut self, event: &BlockEvent) {
        let BlockEvent { process, thread, at_ns, what } = *event;
        let stack = if let BlockWhat::Changed(block) = what { block.stack } else { 0 };
        let what = FreeOutcome::Block(what);
        self.ask(process, AskedMemory { at_ns, thread, stack, api: 0, duration_ns: 0, what });
    }

    fn ask(&mut self, number: u32, asked: AskedMemory) {
        if self.processes.len() >= PROCESSES_MAX && !self.processes.contains_key(&number) {
            self.beyond += 1;
            return;
        }
        let begun_ns = || self.begun.get(&number).copied().unwrap_or(0);
        let asked_ns = self.asked_after_ns.map(|after_ns| begun_ns().saturating_add(after_ns));
        let part = self.parts.get(&number).copied();
        let keeps_journals = self.keeps_journals;
        let made = || {
            let mut made = FollowedProcess::new(asked_ns, part);
            if keeps_journals {
                made.memory.keep_journal();
            }
            made
        };
        self.processes.entry(number).or_insert_with(made).add(asked, &mut self.budget);
    }

    /// Follows what a process's threads did up to that time, though earlier calls may still arrive.
    pub fn catch_up(&mut self, process: u32, at_ns: u64) {
        if let Some(process) = self.processes.get_mut(&process) {
            process.catch_up(at_ns, &mut self.budget);
        }
    }

    /// The process was last seen at that time.
    pub fn process_ends(&mut self, process: u32, end_ns: u64) {
        if let Some(process) = self.processes.get_mut(&process) {
            process.end(end_ns, &mut self.budget);
        }
    }

    #[cfg(test)]
    pub(super) fn budget_left(&self) -> usize {
        self.budget.live
    }

    pub fn process(&self, number: u32) -> Option<&ProcessMemory> {
        self.processes.get(&number).map(|process| &process.memory)
    }

    /// What a caching allocator of the process gave out, where that is recorded.
    pub fn blocks(&self, number: u32) -> Option<&Blocks> {
        self.processes.get(&number)?.blocks.as_deref()
    }

    /// By number.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &ProcessMemory)> {
        self.processes.iter().map(|(number, process)| (*number, &process.memory))
    }

    /// The processes with allocations of that sort, by number.
    pub fn of(&self, of: MemoryOf) -> impl Iterator<Item = (u32, &ProcessMemory)> {
        self.processes.iter().filter_map(move |(number, process)| match of {
            MemoryOf::Driver => Some((*number, &process.memory)),
            MemoryOf::Blocks => Some((*number, &process.blocks.as_ref()?.memory)),
        })
    }
}
