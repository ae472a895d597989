//! Source files and lines of kernels, from the line tables of their modules.
//!
//! The path is the one that the compiler was given, the line is the kernel's first. Tables are untrusted:
//! invalid parts are skipped. Each table is decoded once, and the sum of decoded bytes is at most that of all
//! definitions. A table longer than [`KERNEL_LINES_MAX`] is not decoded, since decoding takes some hundred
//! times its bytes. The result is a name and a line for each kernel, and paths of at most [`paths_max`]
//! bytes.

use std::sync::Arc;

use gimli::{
    AttributeValue, DebugLine, DebugLineOffset, DebugLineStr, EndianSlice, IncompleteLineProgram, LineRows,
    LittleEndian,
};
use gputrace_wire::definition::{KERNEL_LINES_MAX, KernelLines};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::model::definitions::Definitions;
use crate::names::readable;

/// Before decoding, each kernel's start address is set to its number shifted by this, far above any kernel's
/// size.
const NUMBER_SHIFT: u32 = 40;
const ADDRESS_BYTES: u8 = 8;
/// The most sources of one name.
const SOURCES_MAX: usize = 16;
/// Longer paths are skipped.
const PATH_MAX: usize = 4096;

/// The source file and line of a kernel.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct KernelSource {
    /// The path that the compiler was given.
    pub path: Arc<str>,
    pub line: u32,
}

/// The sources of all launched functions of one name.
#[derive(Clone, Default, Debug)]
pub struct NamedSources {
    /// In order of the first launch, at most [`SOURCES_MAX`].
    known: Vec<KernelSource>,
    is_some_unknown: bool,
}

/// For a name without a known function.
pub(crate) static UNKNOWN: NamedSources = NamedSources { known: Vec::new(), is_some_unknown: true };

impl NamedSources {
    pub fn known(&self) -> &[KernelSource] {
        &self.known
    }

    /// Whether the source of some function of that name is unknown.
    pub fn is_some_unknown(&self) -> bool {
        self.is_some_unknown
    }

    /// The one source of all functions of that name.
    pub fn only(&self) -> Option<&KernelSource> {
        match &self.known[..] {
            [source] if !self.is_some_unknown => Some(source),
            _ => None,
        }
    }

    /// Adds the sources that another process has for the same name.
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
    /// The kernels of each table, by the table's first piece.
    tables: FxHashMap<u32, FxHashMap<String, KernelSource>>,
    decoded_bytes: usize,
    /// Sources by name, of the first `functions` functions. Several modules may have kernels of one name.
    by_name: FxHashMap<Box<str>, NamedSources>,
    functions: usize,
}

impl KernelSources {
    /// The source of a launched function.
    pub fn of_function(&mut self, definitions: &Definitions, function: u32) -> Option<KernelSource> {
        let function = definitions.function(function)?;
        let (first, length) = definitions.module_lines(function.module)?;
        let KernelSources { tables, decoded_bytes, .. } = self;
        let read = || {
            // Only hostile tables share pieces. They are decoded until their sum is that of all definitions.
            let left = definitions.code_bytes().saturating_sub(*decoded_bytes).min(KERNEL_LINES_MAX);
            let length = usize::try_from(length).ok().filter(|length| *length <= left).unwrap_or(0);
            *decoded_bytes += length;
            let joined = definitions.joined_lines(first, length).unwrap_or_default();
            sources(&joined)
        };
        tables.entry(first).or_insert_with(read).get(function.name).cloned()
    }

    /// The sources of kernels of that name.
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

/// The most bytes of paths that are kept from a table of that length.
fn paths_max(table_bytes: usize) -> usize {
    table_bytes.saturating_mul(4).saturating_add(64 << 10)
}

/// The row of a sequence's lowest address.
#[derive(Clone, Copy)]
struct First {
    at: u64,
    line: u32,
    /// The line program's index in the table and the file's index in that program.
    program: usize,
    file: u64,
}

/// The sources of the kernels in a module's line table, by name.
fn sources(joined: &[u8]) -> FxHashMap<String, KernelSource> {
    let Some(lines) = KernelLines::read(joined) else { return FxHashMap::default() };
    let mut table = lines.table.to_vec();
    let mut first: Vec<Option<First>> = Vec::new();
    for (number, sequence) in (1u64..).zip(lines.sequences()) {
        first.push(None);
        let offset = sequence.offset as usize;
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
        // Lossy, as the texts of definitions are.
        Some((String::from_utf8_lossy(name).into_owned(), source))
    };
    found.into_iter().filter_map(source).collect()
}

/// Finds the row with the lowest address of each sequence. Returns the programs of these rows.
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

/// The paths of a table's files, each built once.
struct Paths<'t> {
    programs: Vec<Rows<'t>>,
    strings: DebugLineStr<Slice<'t>>,
    known: FxHashMap<(usize, u64), Option<Arc<str>>>,
    /// Shared texts: several programs often have the same file.
    texts: FxHashSet<Arc<str>>,
    /// Bytes that may still be used. Rejected paths count too, which bounds the work.
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

    /// Builds the path of a file, with its folder if it has one.
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
        // Escapes make invalid UTF-8 longer.
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
