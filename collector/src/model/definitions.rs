//! A process's definitions: ids to names, functions, threads, devices and the rest.
//!
//! Owns what the process wrote once and refers to by id from then on, and knows the meaning of the
//! fields. Ids come from the process and may be invalid, so every look-up can fail. Bounded: definitions
//! beyond the limit are counted in [`Definitions::refused`].

mod devices;
mod entry;
mod images;
mod modules;
mod names;
mod process;
mod things;

use gputrace_wire::definition::{self, Code, kind};
use rustc_hash::FxHashMap;

use crate::batch::Definition;
use crate::model::recording::RecordingIntervals;
use entry::{DefinitionEntry, Text};
pub use images::Image;
use names::ThreadNameTable;
pub use things::{
    Context, Device, Function, GraphInfo, GraphTimes, LEGACY_STREAM, Library, Notice, PER_THREAD_STREAM,
    ProcessInfo, StreamInfo, StreamOrder, Thread,
};

/// The most definitions kept of one process.
const DEFINITIONS_MAX: usize = 4 << 20;
/// Processes give consecutive ids, so an id this far beyond the number of definitions seen is invalid.
const ID_SLACK: usize = 1 << 16;
const NOTICES_MAX: usize = 1024;
/// More than the format has. Further ones are invalid and would make look-ups slow.
const ORIGINS_MAX: usize = 64;

/// The name of a driver entry without a definition.
pub const UNKNOWN_CALL: &str = "(unknown call)";

#[derive(Debug, Default)]
pub struct Definitions {
    entries: Vec<Option<DefinitionEntry>>,
    count: usize,
    /// Ids of the kinds that are listed, in order of arrival.
    threads: Vec<u32>,
    thread_names: ThreadNameTable,
    /// Labels by the definition that the program labelled, the latest ones.
    labels: FxHashMap<u32, u32>,
    /// The command line or title that the collector saw last.
    title: Option<Box<str>>,
    devices: Vec<u32>,
    libraries: Vec<u32>,
    codes: Vec<u32>,
    functions: Vec<u32>,
    graph_times: Vec<u32>,
    origins: Vec<u32>,
    /// The bytes of all codes' texts and of their line tables' pieces.
    code_bytes: usize,
    /// Graph definitions by their number in device records.
    graphs: FxHashMap<u32, u32>,
    process: Option<u32>,
    notices: Vec<Notice>,
    /// When the process recorded, which all that is made of it covers.
    pub recorded: RecordingIntervals,
    /// When it took device times.
    pub timed: RecordingIntervals,
    /// The number of definitions that did not fit or had an invalid id.
    pub refused: u64,
}

impl Definitions {
    /// Frees memory reserved for further definitions.
    pub fn shrink(&mut self) {
        self.entries.shrink_to_fit();
    }

    /// About how many bytes of memory they take.
    pub fn held_bytes(&self) -> usize {
        let said: usize = self.entries.iter().flatten().map(DefinitionEntry::held_bytes).sum();
        let notices: usize = self.notices.iter().map(|notice| size_of::<Notice>() + notice.text.len()).sum();
        let lists = [&self.threads, &self.devices, &self.libraries, &self.codes, &self.functions];
        let lists =
            lists.into_iter().chain([&self.graph_times, &self.origins]).map(Vec::capacity).sum::<usize>();
        // A pair of numbers, and its byte of a hash table.
        let maps = (self.labels.capacity() + self.graphs.capacity()) * (2 * size_of::<u32>() + 1);
        let names = self.thread_names.held_bytes() + self.title.as_ref().map_or(0, |title| title.len());
        self.entries.capacity() * size_of::<Option<DefinitionEntry>>()
            + lists * size_of::<u32>()
            + (said + notices + maps + names)
    }

    /// Whether the same definition was added before.
    pub fn is_known(&self, record: &Definition) -> bool {
        if record.kind == kind::SEEN {
            return false;
        }
        if record.kind != kind::NOTICE {
            return matches!(self.entries.get(record.id as usize), Some(Some(_)));
        }
        let text = String::from_utf8_lossy(&record.text);
        self.notices.iter().any(|notice| {
            notice.severity == record.field(definition::notice::SEVERITY)
                && notice.rung == record.field(definition::notice::RUNG)
                && notice.text == text
        })
    }

    /// Adds a definition. A known id keeps its first meaning.
    pub fn add(&mut self, record: &Definition) {
        if record.kind == kind::SEEN {
            return self.seen(record);
        }
        if record.kind == kind::NOTICE {
            let text = String::from_utf8_lossy(&record.text);
            let notice = Notice {
                severity: record.field(definition::notice::SEVERITY),
                rung: record.field(definition::notice::RUNG),
                text: text.into_owned(),
            };
            match self.notices.len() {
                0..NOTICES_MAX => self.notices.push(notice),
                _ => self.refused += 1,
            }
            return;
        }
        let at = record.id as usize;
        if at == 0 || self.count >= DEFINITIONS_MAX || at > self.count.saturating_mul(2) + ID_SLACK {
            self.refused += 1;
            return;
        }
        if self.entries.len() <= at {
            self.entries.resize_with(at + 1, || None);
        }
        let Some(slot) = self.entries.get_mut(at) else { return };
        if slot.is_some() {
            return;
        }
        *slot = Some(DefinitionEntry {
            kind: record.kind,
            fields: record.fields.as_slice().into(),
            text: match record.kind {
                kind::CODE | kind::LINES | kind::IMAGE => Text::Raw(record.text.as_slice().into()),
                _ => Text::Utf8(String::from_utf8_lossy(&record.text).into()),
            },
        });
        self.count += 1;
        match record.kind {
            kind::THREAD => {
                self.threads.push(record.id);
                let tid = record.field(definition::thread::TID);
                self.thread_names.began(u32::try_from(tid).unwrap_or(u32::MAX), record.id);
            }
            kind::LABEL => {
                use definition::label as field;
                let small = |index| u32::try_from(record.field(index)).unwrap_or(0);
                match (small(field::OF), small(field::TID)) {
                    (0, tid) => self.thread_names.labelled(tid, record.id),
                    (of, _) => _ = self.labels.insert(of, record.id),
                }
            }
            kind::GRAPH => {
                let number = record.field(definition::graph::RECORD_ID);
                self.graphs
                    .extend(u32::try_from(number).ok().filter(|number| *number != 0).zip(Some(record.id)));
            }
            kind::FUNCTION => self.functions.push(record.id),
            kind::DEVICE => self.devices.push(record.id),
            kind::LIBRARY => self.libraries.push(record.id),
            kind::GRAPH_TIMES => self.graph_times.push(record.id),
            kind::ORIGIN if self.origins.len() < ORIGINS_MAX => self.origins.push(record.id),
            kind::PROCESS => self.process = Some(record.id),
            kind::CODE => {
                self.codes.push(record.id);
                self.code_bytes += record.text.len();
            }
            kind::LINES => self.code_bytes += record.text.len(),
            _ => {}
        }
    }

    /// Notes the name of a thread or the title of the process that the collector saw in the system.
    fn seen(&mut self, record: &Definition) {
        let text = String::from_utf8_lossy(&record.text);
        match u32::try_from(record.field(definition::seen::THREAD)).unwrap_or(u32::MAX) {
            0 => self.title = Some(text.into()),
            thread if self.of_kind(thread, kind::THREAD).is_some() => self.thread_names.saw(thread, &text),
            _ => self.refused += 1,
        }
    }

    fn entry(&self, id: u32) -> Option<&DefinitionEntry> {
        self.entries.get(id as usize)?.as_ref()
    }

    fn of_kind(&self, id: u32, kind: u16) -> Option<&DefinitionEntry> {
        self.entry(id).filter(|entry| entry.kind == kind)
    }

    /// How many definitions there are.
    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The kind of a definition, one of [`definition::kind`].
    pub fn kind(&self, id: u32) -> Option<u16> {
        self.entry(id).map(|entry| entry.kind)
    }

    /// The text of a definition of any kind; empty if there is none.
    pub fn text(&self, id: u32) -> &str {
        self.entry(id).map_or("", DefinitionEntry::text)
    }

    /// The name of an operation's `name` id, which is a NAME or a FUNCTION: the vendor's name, mangled if
    /// it is C++.
    pub fn name(&self, id: u32) -> Option<&str> {
        match self.entry(id)? {
            entry if entry.kind == kind::FUNCTION => self.function(id).map(|f| f.name),
            entry => Some(entry.text()),
        }
        .filter(|name| !name.is_empty())
    }

    /// The driver entry's symbol.
    pub fn api(&self, id: u32) -> Option<&str> {
        self.of_kind(id, kind::API).map(DefinitionEntry::text)
    }

    /// The driver entry's name in outputs.
    pub fn call_name(&self, api: u32) -> &str {
        self.api(api).unwrap_or(UNKNOWN_CALL)
    }

    pub fn function(&self, id: u32) -> Option<Function<'_>> {
        use definition::function as field;
        let entry = self.of_kind(id, kind::FUNCTION)?;
        let (name_id, name) = match self.of_kind(entry.id(field::NAME), kind::NAME) {
            Some(name) => (entry.id(field::NAME), name.text()),
            None => (id, entry.text()),
        };
        Some(Function {
            handle: entry.field(field::HANDLE),
            name_id,
            name,
            module: entry.id(field::MODULE),
            registers: entry.small(field::REGISTERS),
            static_shared_bytes: entry.small(field::STATIC_SHARED_BYTES),
            local_bytes_per_thread: entry.small(field::LOCAL_BYTES_PER_THREAD),
            max_threads_per_block: entry.small(field::MAX_THREADS_PER_BLOCK),
        })
    }

    pub fn thread(&self, id: u32) -> Option<Thread<'_>> {
        let entry = self.of_kind(id, kind::THREAD)?;
        let tid = entry.small(definition::thread::TID);
        let seen = || self.thread_names.seen(id).unwrap_or(entry.text());
        let name = match self.thread_names.label(tid, id) {
            Some(label) => self.text(label),
            None => seen(),
        };
        Some(Thread { tid, role: entry.field(definition::thread::ROLE), name })
    }

    /// Thread definitions in order of arrival. Threads that follow each other may have one number.
    pub fn threads(&self) -> impl Iterator<Item = (u32, Thread<'_>)> {
        self.threads.iter().filter_map(|id| Some((*id, self.thread(*id)?)))
    }

    /// The program's label for a definition; empty if there is none.
    pub fn label(&self, of: u32) -> &str {
        self.labels.get(&of).map_or("", |label| self.text(*label))
    }

    /// A range's domain, empty for the one without a name, and its name.
    pub fn range(&self, id: u32) -> Option<(&str, &str)> {
        let entry = self.of_kind(id, kind::RANGE)?;
        let domain = self.of_kind(entry.id(definition::range::DOMAIN), kind::DOMAIN);
        Some((domain.map_or("", DefinitionEntry::text), entry.text()))
    }

    pub fn graph(&self, id: u32) -> Option<GraphInfo> {
        use definition::graph as field;
        let entry = self.of_kind(id, kind::GRAPH)?;
        Some(GraphInfo {
            handle: entry.field(field::HANDLE),
            executable: entry.field(field::FORM) == 1,
            source: entry.id(field::SOURCE),
            record_id: entry.small(field::RECORD_ID),
        })
    }

    /// The first source of a graph, both by their numbers in device records.
    pub fn source_of_graph(&self, number: u32) -> Option<u32> {
        let source = self.graph(self.graph(*self.graphs.get(&number)?)?.source)?.record_id;
        Some(source).filter(|source| *source != 0)
    }

    /// A stack's frames, outermost first: (definition of the code, position in it).
    pub fn stack(&self, id: u32) -> impl Iterator<Item = (u32, u64)> {
        let fields = self.of_kind(id, kind::STACK).map_or(&[][..], |entry| &entry.fields);
        fields.as_chunks::<2>().0.iter().map(|[code, at]| (u32::try_from(*code).unwrap_or(0), *at))
    }

    pub fn code(&self, id: u32) -> Option<Code<'_>> {
        let entry = self.of_kind(id, kind::CODE)?;
        Some(Code::read(&entry.fields, entry.raw()))
    }

    /// Code definitions in order of arrival.
    pub fn codes(&self) -> impl Iterator<Item = (u32, Code<'_>)> {
        self.codes.iter().filter_map(|id| Some((*id, self.code(*id)?)))
    }

    /// The bytes of all codes and pieces of line tables together.
    pub fn code_bytes(&self) -> usize {
        self.code_bytes
    }

    /// A piece of a line table, and the id of the next one, 0 after the last.
    pub fn lines(&self, id: u32) -> Option<(&[u8], u32)> {
        let entry = self.of_kind(id, kind::LINES)?;
        Some((entry.raw(), entry.id(definition::lines::MORE)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u16, id: u32, fields: &[u64], text: &str) -> Definition {
        Definition { kind, id, fields: fields.to_vec(), text: text.into() }
    }

    #[test]
    fn functions_name_themselves_or_by_a_name() {
        let mut definitions = Definitions::default();
        definitions.add(&record(kind::NAME, 1, &[], "apart"));
        definitions.add(&record(kind::FUNCTION, 2, &[7, 1, 0, 32], ""));
        definitions.add(&record(kind::FUNCTION, 3, &[8], "itself"));
        let apart = definitions.function(2).unwrap();
        assert_eq!((apart.name, apart.name_id, apart.registers), ("apart", 1, 32));
        let itself = definitions.function(3).unwrap();
        assert_eq!((itself.name, itself.name_id, itself.registers), ("itself", 3, 0));
        assert_eq!(definitions.name(itself.name_id), Some("itself"));
        assert_eq!(definitions.name(1), Some("apart"));
        assert_eq!(definitions.name(9), None);
        assert_eq!(definitions.function(1), None);
    }

    #[test]
    fn invalid_ids_are_rejected_without_growing() {
        let mut definitions = Definitions::default();
        for id in [0, u32::MAX, 1 << 30] {
            definitions.add(&record(kind::NAME, id, &[], "x"));
        }
        assert_eq!((definitions.refused, definitions.len()), (3, 0));
        assert!(definitions.entries.is_empty());
    }

    #[test]
    fn context_leads_to_its_device() {
        let mut definitions = Definitions::default();
        definitions.add(&record(kind::DEVICE, 1, &[3], "GPU"));
        definitions.add(&record(kind::CONTEXT, 2, &[0xabc, 1], ""));
        assert_eq!(definitions.ordinal_of_context(2), Some(3));
        assert_eq!(definitions.ordinal_of_context(1), None);
        assert_eq!(definitions.device_by_ordinal(3).unwrap().name, "GPU");
    }

    #[test]
    fn commands_notices_and_stacks_are_read() {
        let mut definitions = Definitions::default();
        definitions.add(&record(kind::PROCESS, 1, &[10, 9, 13000, 1], "python\0train.py\0"));
        definitions.add(&record(kind::NOTICE, 2, &[1, definition::rung::HOOKS], "no CUPTI"));
        definitions.add(&record(kind::STACK, 3, &[5, 40, 6, 22], ""));
        assert_eq!(definitions.process().unwrap().command, ["python", "train.py"]);
        assert!(definitions.simulated());
        assert_eq!(definitions.rung(), definition::rung::HOOKS);
        assert_eq!(definitions.stack(3).collect::<Vec<_>>(), [(5, 40), (6, 22)]);
        assert_eq!(definitions.stack(1).count(), 0);
    }
}
