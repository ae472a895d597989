//! Where kernels are written: from the line tables of the modules that they were loaded from.
//!
//! The file is as the compiler was told it, the line is the kernel's first. A table may be nonsense: what of it makes no sense is left
//! out. Each is decoded once, and all that are decoded are together no longer than what was said. One that is longer than
//! [`KERNEL_LINES_MAX`] is not decoded: while it is, its files take some hundred times its bytes. What is kept of it is a name and a line of
//! each kernel and paths, of so many bytes at most as [`paths_max`] says.

use std::sync::Arc;

use gimli::{
    AttributeValue, DebugLine, DebugLineOffset, DebugLineStr, EndianSlice, IncompleteLineProgram, LineRows,
    LittleEndian,
};
use gputrace_wire::definition::{KERNEL_LINES_MAX, KernelLines};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::model::definitions::Definitions;
use crate::names::readable;

/// A kernel's addresses in a table begin at its number, so high that no kernel reaches the next one's.
const NUMBER_SHIFT: u32 = 40;
const ADDRESS_BYTES: u8 = 8;
/// Sources kept of one name.
const SOURCES_MAX: usize = 16;
/// A longer path is no source.
const PATH_MAX: usize = 4096;

/// Where a kernel is written.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct KernelSource {
    /// As the compiler was told it.
    pub path: Arc<str>,
    pub line: u32,
}

/// Where the functions of one name are written that were launched.
#[derive(Clone, Default, Debug)]
pub struct NamedSources {
    /// In order of their first launch, so many at most as [`SOURCES_MAX`].
    known: Vec<KernelSource>,
    is_some_unknown: bool,
}

/// Of a name of which no function is known.
pub(crate) static UNKNOWN: NamedSources = NamedSources { known: Vec::new(), is_some_unknown: true };

impl NamedSources {
    pub fn known(&self) -> &[KernelSource] {
        &self.known
    }

    /// Whether a function of that name is written nobody knows where.
    pub fn is_some_unknown(&self) -> bool {
        self.is_some_unknown
    }

    /// Where all of them are written.
    pub fn only(&self) -> Option<&KernelSource> {
        match &self.known[..] {
            [source] if !self.is_some_unknown => Some(source),
            _ => None,
        }
    }

    /// Those of another process, which has kernels of that name too.
    pub fn merge(&mut self, other: &NamedSources) {
        other.known.iter().for_each(|source| self.add(Some(source.clone())));
        self.is_some_unknown |= other.is_some_unknown;
    }

    fn add(&mut self, source: Option<KernelSource>) {
        match source {
            None => self.is_some_unknown = true,
            Some(source) if self.known.len() < SOURCES_MAX && !self.known.contains(&source) => {
                self.known.push(source);
            }
            Some(_) => {}
        }
    }
}

type Slice<'a> = EndianSlice<'a, LittleEndian>;
type Rows<'a> = LineRows<Slice<'a>, IncompleteLineProgram<Slice<'a>>>;

/// The sources of a process's kernels.
#[derive(Debug, Default)]
pub struct KernelSources {
    /// By the first piece of a table: the kernels in it.
    tables: FxHashMap<u32, FxHashMap<String, KernelSource>>,
    decoded_bytes: usize,
    /// By name, of the functions that were looked at. Kernels of several modules may be called alike.
    by_name: FxHashMap<Box<str>, NamedSources>,
    functions: usize,
}

impl KernelSources {
    /// Where the function is written that was launched.
    pub fn of_function(&mut self, definitions: &Definitions, function: u32) -> Option<KernelSource> {
        let function = definitions.function(function)?;
        let (first, length) = definitions.module_lines(function.module)?;
        let KernelSources { tables, decoded_bytes, .. } = self;
        let read = || {
            // Tables that share their pieces, as no program's do, are decoded until all are as long as what was said.
            let left = definitions.code_bytes().saturating_sub(*decoded_bytes).min(KERNEL_LINES_MAX);
            let length = usize::try_from(length).ok().filter(|length| *length <= left).unwrap_or(0);
            *decoded_bytes += length;
            let joined = definitions.joined_lines(first, length).unwrap_or_default();
            sources(&joined)
        };
        tables.entry(first).or_insert_with(read).get(function.name).cloned()
    }

    /// Where kernels of that name are written.
    pub fn of_name(&mut self, definitions: &Definitions, name: &str) -> &NamedSources {
        let functions = definitions.functions();
        for function in functions.get(self.functions..).unwrap_or_default() {
            let source = self.of_function(definitions, *function);
            let Some(function) = definitions.function(*function) else { continue };
            match self.by_name.get_mut(function.name) {
                Some(known) => known.add(source),
                None => self.by_name.entry(function.name.into()).or_default().add(source),
            }
        }
        self.functions = functions.len();
        self.by_name.get(name).unwrap_or(&UNKNOWN)
    }
}

/// How many bytes the paths have at most that are kept of a table of so many bytes.
fn paths_max(table_bytes: usize) -> usize {
    table_bytes.saturating_mul(4).saturating_add(64 << 10)
}

/// The row of a sequence's lowest address.
#[derive(Clone, Copy)]
struct First {
    at: u64,
    line: u32,
    /// Of the table's programs, and the file as it counts them: paths are made of those that are kept.
    program: usize,
    file: u64,
}

/// The kernels that a module's lines are of, by name.
fn sources(joined: &[u8]) -> FxHashMap<String, KernelSource> {
    let Some(lines) = KernelLines::read(joined) else { return FxHashMap::default() };
    let mut table = lines.table.to_vec();
    let mut first: Vec<Option<First>> = Vec::new();
    for (number, sequence) in (1u64..).zip(lines.sequences()) {
        first.push(None);
        let offset = sequence.place as usize;
        if let Some(address) = offset.checked_add(8).and_then(|end| table.get_mut(offset..end))
            && sequence.address >> NUMBER_SHIFT == 0
        {
            address.copy_from_slice(&(number << NUMBER_SHIFT | sequence.address).to_le_bytes());
        }
    }
    let programs = first_rows(&table, &mut first);
    let mut found: FxHashMap<&[u8], First> = FxHashMap::default();
    for (sequence, first) in lines.sequences().zip(first) {
        let Some(first) = first else { continue };
        let known = found.entry(sequence.name).or_insert(first);
        if first.at < known.at {
            *known = first;
        }
    }
    let mut paths = Paths::new(programs, lines.strings, paths_max(joined.len()));
    let source = |(name, first): (&[u8], First)| {
        let source = KernelSource { path: paths.of(&first)?, line: first.line };
        // As definitions have their texts.
        Some((String::from_utf8_lossy(name).into_owned(), source))
    };
    found.into_iter().filter_map(source).collect()
}

/// Finds the row of the lowest address of each sequence. The programs that such rows are of, each where it ended.
fn first_rows<'t>(table: &'t [u8], first: &mut [Option<First>]) -> Vec<Rows<'t>> {
    let all = DebugLine::new(table, LittleEndian);
    let mut programs = Vec::new();
    let mut offset = 0;
    while offset < table.len()
        && let Ok(program) = all.program(DebugLineOffset(offset), ADDRESS_BYTES, None, None)
    {
        let header = program.header();
        let bytes = header.unit_length().saturating_add(header.format().initial_length_size().into());
        let mut rows = program.rows();
        let mut is_of_any = false;
        while let Ok(Some((_, row))) = rows.next_row() {
            let number = usize::try_from(row.address() >> NUMBER_SHIFT).unwrap_or(0);
            let at = row.address() & ((1 << NUMBER_SHIFT) - 1);
            let Some(known) = number.checked_sub(1).and_then(|index| first.get_mut(index)) else { continue };
            let Some(line) = row.line().filter(|_| !row.end_sequence()) else { continue };
            if known.as_ref().is_none_or(|known| at < known.at)
                && let Ok(line) = u32::try_from(line.get())
            {
                *known = Some(First { at, line, program: programs.len(), file: row.file_index() });
                is_of_any = true;
            }
        }
        if is_of_any {
            programs.push(rows);
        }
        offset = offset.saturating_add(bytes);
    }
    programs
}

/// Paths of a table's files, each made once.
struct Paths<'t> {
    programs: Vec<Rows<'t>>,
    strings: DebugLineStr<Slice<'t>>,
    known: FxHashMap<(usize, u64), Option<Arc<str>>>,
    /// Files of several programs are often the same.
    texts: FxHashSet<Arc<str>>,
    /// So many bytes may still be made: what is refused counts too, which bounds the work.
    left: usize,
}

impl<'t> Paths<'t> {
    fn new(programs: Vec<Rows<'t>>, strings: &'t [u8], bytes_max: usize) -> Paths<'t> {
        let strings = DebugLineStr::from(EndianSlice::new(strings, LittleEndian));
        let (known, texts) = (FxHashMap::default(), FxHashSet::default());
        Paths { programs, strings, known, texts, left: bytes_max }
    }

    /// The file of a row.
    fn of(&mut self, first: &First) -> Option<Arc<str>> {
        let file = (first.program, first.file);
        if let Some(known) = self.known.get(&file) {
            return known.clone();
        }
        let made = self.make(file);
        self.known.insert(file, made.clone());
        made
    }

    /// The path of a file, in its folder if it says one.
    fn make(&mut self, (program, file): (usize, u64)) -> Option<Arc<str>> {
        let header = self.programs.get(program)?.header();
        let file = header.file(file)?;
        let name = self.text(file.path_name()).filter(|name| !name.is_empty())?;
        let folder = header.directory(file.directory_index()).filter(|_| !name.starts_with(b"/"));
        let folder = folder.and_then(|folder| self.text(folder)).unwrap_or_default();
        let between: &[u8] = if folder.is_empty() { b"" } else { b"/" };
        let bytes = folder.len() + between.len() + name.len();
        if bytes > PATH_MAX || bytes > self.left {
            self.left = self.left.saturating_sub(bytes);
            return None;
        }
        let text = readable(&[folder, between, name].concat());
        // What is no UTF-8 is longer in writing.
        let rest = self.left.checked_sub(text.len());
        self.left = rest.unwrap_or(0);
        rest?;
        if let Some(known) = self.texts.get(&text) {
            return Some(known.clone());
        }
        self.texts.insert(text.clone());
        Some(text)
    }

    fn text(&self, value: AttributeValue<Slice<'t>>) -> Option<&'t [u8]> {
        match value {
            AttributeValue::String(text) => Some(text.slice()),
            AttributeValue::DebugLineStrRef(at) => Some(self.strings.get_str(at).ok()?.slice()),
            _ => None,
        }
    }
}

#[cfg(test)]
#[path = "kernels_tests.rs"]
pub(crate) mod tests;
