//! What the numbers of processes that are told together become.

use gputrace_wire::call::{Detail, Launch, operation};
use gputrace_wire::definition::stack::FRAMES_MAX;
use gputrace_wire::definition::{code, function, image, kind, module};
use rustc_hash::FxHashMap;

use super::group::Group;
use crate::model::definitions::Definitions;
use crate::model::operation::HostCall;
use crate::model::process_totals::Process;
use crate::names::short_command;

/// Pieces of one line table that are told.
const PIECES_MAX: usize = 64;
/// Stands for what a process referred to and never defined: nobody defines it here either.
const UNDEFINED: u32 = u32::MAX;
/// A thread that nobody named is one with its likes.
const UNNAMED: &str = "(unnamed threads)";

/// The numbers of some processes' definitions and ranges, as those of the groups that they belong to from now on.
#[derive(Debug)]
pub struct Renumbering<'a> {
    members: FxHashMap<u32, Member<'a>>,
    groups: &'a mut [Group],
    room_bytes: &'a mut usize,
}

#[derive(Debug)]
struct Member<'a> {
    process: &'a Process,
    definitions: &'a Definitions,
    /// The place of its group.
    group: usize,
    /// As it calls itself, and the names that its threads have unless somebody gives them others.
    own_pid: u32,
    inherited: Vec<String>,
    nodes: Vec<u32>,
    /// What was asked for before.
    known: FxHashMap<u32, Option<u32>>,
    /// Of pieces of line tables, what each begins: any number of codes may share them.
    lines: FxHashMap<u32, Option<u32>>,
}

impl<'a> Renumbering<'a> {
    pub(super) fn new(
        taken: Vec<(&'a Process, usize, Vec<u32>)>,
        groups: &'a mut [Group],
        room_bytes: &'a mut usize,
    ) -> Renumbering<'a> {
        let members = taken
            .into_iter()
            .map(|(process, group, nodes)| (process.number, Member::new(process, group, nodes)));
        Renumbering { members: members.collect(), groups, room_bytes }
    }

    /// Whether that process is one of them.
    #[inline]
    pub fn has(&self, process: u32) -> bool {
        self.members.contains_key(&process)
    }

    /// The number of its group.
    pub fn process(&self, process: u32) -> Option<u32> {
        let member = self.members.get(&process)?;
        self.groups.get(member.group).map(Group::number)
    }

    /// The group's definition of the same; 0 stays 0. `None` where there is no room for it.
    pub fn definition(&mut self, process: u32, id: u32) -> Option<u32> {
        if id == 0 {
            return Some(0);
        }
        let member = self.members.get_mut(&process)?;
        let group = self.groups.get_mut(member.group)?;
        member.tell(id, group, self.room_bytes)
    }

    /// That call as one of the group's. `None` where there is no room for what it was or where it was made.
    pub fn call(&mut self, call: &HostCall) -> Option<HostCall> {
        let process = call.process;
        let detail = match call.detail {
            Detail::Launch(launch) => {
                Detail::Launch(Launch { function: self.definition(process, launch.function)?, ..launch })
            }
            Detail::GraphLaunch { .. } => Detail::GraphLaunch { graph: 0 },
            Detail::Graph { operation, .. } => Detail::Graph { graph: 0, source: 0, operation },
            Detail::Module { operation, .. } => Detail::Module { module: 0, operation },
            // A failure keeps the name among its arguments.
            Detail::Other { operation: operation @ operation::LOOK_UP_FAILED, .. } => {
                Detail::Other { operation, value: 0 }
            }
            other => other,
        };
        Some(HostCall {
            process: self.process(process)?,
            thread: self.definition(process, call.thread)?,
            api: self.definition(process, call.api)?,
            stack: self.definition(process, call.stack)?,
            ranges: self.ranges(process, call.ranges),
            // These are not told apart.
            range: 0,
            caller: 0,
            stream: 0,
            detail,
            ..call.clone()
        })
    }

    /// One of those processes, as it was by itself.
    pub fn member(&self, process: u32) -> Option<&'a Process> {
        self.members.get(&process).map(|member| member.process)
    }

    /// The group's node of the same ranges, or of those of them for which there was room.
    pub fn ranges(&self, process: u32, node: u32) -> u32 {
        let member = self.members.get(&process);
        member.and_then(|member| member.nodes.get(node as usize)).copied().unwrap_or(0)
    }
}

impl<'a> Member<'a> {
    fn new(process: &'a Process, group: usize, nodes: Vec<u32>) -> Member<'a> {
        let definitions = &process.definitions;
        let info = definitions.process().unwrap_or_default();
        let own_pid = if info.pid == 0 { process.begin.pid } else { info.pid };
        let main = definitions.threads().filter(|(_, thread)| thread.tid == own_pid);
        let names = main.flat_map(|(id, thread)| [thread.name.to_owned(), definitions.text(id).to_owned()]);
        let program = short_command(&info.command).split(' ').next().unwrap_or_default().to_owned();
        let inherited = names.chain([program]).collect();
        let (known, lines) = (FxHashMap::default(), FxHashMap::default());
        Member { process, definitions, group, own_pid, inherited, nodes, known, lines }
    }

    fn tell(&mut self, id: u32, group: &mut Group, room_bytes: &mut usize) -> Option<u32> {
        if let Some(known) = self.known.get(&id) {
            return *known;
        }
        let told = match self.definitions.kind(id) {
            Some(kind::STACK) => self.stack(id, group, room_bytes),
            Some(kind::THREAD) => self.thread(id, group, room_bytes),
            Some(kind::FUNCTION) => self.function(id, group, room_bytes),
            Some(kind::MODULE) => self.module(id, group, room_bytes),
            Some(of) => self.plain(id, of, group, room_bytes),
            None => Some(UNDEFINED),
        };
        self.known.insert(id, told);
        told
    }

    fn plain(&mut self, id: u32, of: u16, group: &mut Group, room_bytes: &mut usize) -> Option<u32> {
        let said = self.definitions.said(id)?;
        let mut fields = said.fields.to_vec();
        let mut set = |index: usize, value: u64| fields.get_mut(index).map(|field| *field = value);
        match of {
            kind::CODE => {
                let more = self.definitions.code(id).map_or(0, |code| code.more);
                set(code::MORE, self.pieces(more, group, room_bytes)?.into());
            }
            // Where it lay is another place in each process.
            kind::IMAGE => [image::START, image::END, image::BIAS].into_iter().for_each(|at| _ = set(at, 0)),
            // What has a name and nothing else.
            _ => fields.clear(),
        }
        group.define(of, &fields, said.text, room_bytes)
    }

    /// A line table from that piece on.
    fn pieces(&mut self, first: u32, group: &mut Group, room_bytes: &mut usize) -> Option<u32> {
        let (mut untold, mut next, mut told) = (Vec::new(), first, Some(0));
        while untold.len() < PIECES_MAX
            && let Some((piece, more)) = self.definitions.lines(next)
        {
            if let Some(known) = self.lines.get(&next) {
                told = *known;
                break;
            }
            untold.push((next, piece));
            next = more;
        }
        for (id, piece) in untold.into_iter().rev() {
            told = told.and_then(|more| group.define(kind::LINES, &[more.into()], piece, room_bytes));
            self.lines.insert(id, told);
        }
        told
    }

    fn module(&mut self, id: u32, group: &mut Group, room_bytes: &mut usize) -> Option<u32> {
        let Some((first, length)) = self.definitions.module_lines(id) else { return Some(UNDEFINED) };
        let lines = self.pieces(first, group, room_bytes)?;
        let mut fields = [0; module::LINES_BYTES + 1];
        (fields[module::LINES], fields[module::LINES_BYTES]) = (lines.into(), length);
        group.define(kind::MODULE, &fields, b"", room_bytes)
    }

    fn function(&mut self, id: u32, group: &mut Group, room_bytes: &mut usize) -> Option<u32> {
        let Some(known) = self.definitions.function(id) else { return Some(UNDEFINED) };
        let name = group.define(kind::NAME, &[], known.name.as_bytes(), room_bytes)?;
        // Nothing but a module, so that this ends whatever it names.
        let written = match self.definitions.kind(known.module) {
            Some(kind::MODULE) => self.tell(known.module, group, room_bytes)?,
            _ => 0,
        };
        let mut fields = [0; function::MODULE + 1];
        (fields[function::NAME], fields[function::MODULE]) = (name.into(), written.into());
        group.define(kind::FUNCTION, &fields, b"", room_bytes)
    }

    /// By its name: main threads are one, those of one name are one, and those without a name.
    fn thread(&self, id: u32, group: &mut Group, room_bytes: &mut usize) -> Option<u32> {
        let Some(thread) = self.definitions.thread(id) else { return Some(UNDEFINED) };
        // The kernel keeps the first 15 bytes of a program's name.
        let is_of =
            |name: &String| name == thread.name || thread.name.len() == 15 && name.starts_with(thread.name);
        let (tid, name) = match thread.name {
            _ if thread.tid == self.own_pid => (0, ""),
            name if name.is_empty() || self.inherited.iter().any(is_of) => (1, UNNAMED),
            name => (1, name),
        };
        group.define(kind::THREAD, &[tid, thread.role], name.as_bytes(), room_bytes)
    }

    /// A stack, and those that it begins with: the outermost first, since a stack has a greater number than what it
    /// begins with.
    fn stack(&mut self, id: u32, group: &mut Group, room_bytes: &mut usize) -> Option<u32> {
        let (mut parts, mut next, mut outer) = (Vec::new(), id, None);
        // What they begin with beyond that nobody is shown.
        while next != 0 && parts.len() <= FRAMES_MAX {
            // Any number of stacks may begin with the same.
            if let Some(known) = self.known.get(&next) {
                outer = Some((*known)?);
                break;
            }
            let pairs: Vec<(u32, u64)> = self.definitions.stack(next).collect();
            let first = pairs.first().map_or(0, |(first, _)| *first);
            let around =
                if first < next && self.definitions.kind(first) == Some(kind::STACK) { first } else { 0 };
            parts.push((next, around != 0, pairs));
            next = around;
        }
        for (part, has_outer, pairs) in parts.into_iter().rev() {
            let mut fields = Vec::with_capacity(2 * pairs.len());
            for (place, (of, at)) in pairs.into_iter().enumerate() {
                let told = match (of, place) {
                    (_, 0) if has_outer => outer.unwrap_or(0),
                    (0, _) => 0,
                    (of, _) => self.tell_frame(of, group, room_bytes)?,
                };
                fields.extend([u64::from(told), at]);
            }
            let told = group.define(kind::STACK, &fields, b"", room_bytes)?;
            self.known.insert(part, Some(told));
            outer = Some(told);
        }
        outer
    }

    /// What a frame names: never a stack, of which there is one at most, the first.
    fn tell_frame(&mut self, id: u32, group: &mut Group, room_bytes: &mut usize) -> Option<u32> {
        match self.definitions.kind(id) {
            Some(kind::STACK) => Some(UNDEFINED),
            _ => self.tell(id, group, room_bytes),
        }
    }
}
