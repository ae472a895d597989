//! Where kernels are written: from the line tables of the modules that they were loaded from.
//!
//! The file is as the compiler was told it, the line is the kernel's first. Each table is decoded once, and all together cost no
//! more than their bytes. A table may be nonsense: what of it makes no sense is left out.

use std::sync::Arc;

use gimli::{AttributeValue, DebugLine, DebugLineOffset, DebugLineStr, EndianSlice, LineRow, LittleEndian};
use gputrace_wire::definition::KernelLines;
use rustc_hash::FxHashMap;

use crate::model::definitions::Definitions;
use crate::source::frames::readable;

/// A kernel's addresses in a table begin at its number, so high that no kernel reaches the next one's.
const NUMBER_SHIFT: u32 = 40;
const ADDRESS_BYTES: u8 = 8;
/// Sources kept of one name.
const SOURCES_MAX: usize = 16;

/// Where a kernel is written.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct KernelSource {
    /// As the compiler was told it.
    pub path: Arc<str>,
    pub line: u32,
}

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// The sources of a process's kernels.
#[derive(Debug, Default)]
pub struct KernelSources {
    /// By the first piece of a table: the kernels in it.
    tables: FxHashMap<u32, FxHashMap<String, KernelSource>>,
    decoded_bytes: usize,
    /// By name, of the functions that were looked at. Kernels of several modules may be called alike.
    by_name: FxHashMap<Box<str>, Vec<KernelSource>>,
    functions: usize,
}

impl KernelSources {
    /// Where the function is written that was launched.
    pub fn of_function(&mut self, definitions: &Definitions, function: u32) -> Option<KernelSource> {
        let function = definitions.function(function)?;
        let (first, length) = definitions.module_lines(function.module)?;
        let KernelSources { tables, decoded_bytes, .. } = self;
        let read = || {
            // A piece is of one table only: all together are no longer than what was said.
            let left = definitions.code_bytes().saturating_sub(*decoded_bytes);
            let length = usize::try_from(length).ok().filter(|length| *length <= left).unwrap_or(0);
            *decoded_bytes += length;
            let joined = definitions.joined_lines(first, length).unwrap_or_default();
            sources(&joined)
        };
        tables.entry(first).or_insert_with(read).get(function.name).cloned()
    }

    /// Where kernels of that name are written, in order of their first launch.
    pub fn of_name(&mut self, definitions: &Definitions, name: &str) -> &[KernelSource] {
        let functions = definitions.functions();
        for function in functions.get(self.functions..).unwrap_or_default() {
            if let Some(source) = self.of_function(definitions, *function)
                && let Some(function) = definitions.function(*function)
            {
                let known = self.by_name.entry(function.name.into()).or_default();
                if known.len() < SOURCES_MAX && !known.contains(&source) {
                    known.push(source);
                }
            }
        }
        self.functions = functions.len();
        self.by_name.get(name).map_or(&[], Vec::as_slice)
    }
}

/// The kernels that a module's lines are of, by name.
fn sources(joined: &[u8]) -> FxHashMap<String, KernelSource> {
    let Some(lines) = KernelLines::read(joined) else { return FxHashMap::default() };
    let mut table = lines.table.to_vec();
    let mut first: Vec<Option<(u64, KernelSource)>> = Vec::new();
    for (number, sequence) in (1u64..).zip(lines.sequences()) {
        first.push(None);
        let place = sequence.place as usize;
        if let Some(address) = place.checked_add(8).and_then(|end| table.get_mut(place..end))
            && sequence.address >> NUMBER_SHIFT == 0
        {
            address.copy_from_slice(&(number << NUMBER_SHIFT | sequence.address).to_le_bytes());
        }
    }
    first_rows(&table, lines.strings, &mut first);
    let mut found: FxHashMap<String, (u64, KernelSource)> = FxHashMap::default();
    for (sequence, first) in lines.sequences().zip(first) {
        let Some((at, source)) = first else { continue };
        // As definitions have their texts.
        let name = String::from_utf8_lossy(sequence.name).into_owned();
        let known = found.entry(name).or_insert_with(|| (at, source.clone()));
        if at < known.0 {
            *known = (at, source);
        }
    }
    found.into_iter().map(|(name, (_, source))| (name, source)).collect()
}

/// The row of the lowest address of each sequence, with that address.
fn first_rows(table: &[u8], strings: &[u8], first: &mut [Option<(u64, KernelSource)>]) {
    let strings = DebugLineStr::from(EndianSlice::new(strings, LittleEndian));
    let all = DebugLine::new(table, LittleEndian);
    let mut offset = 0;
    while offset < table.len()
        && let Ok(program) = all.program(DebugLineOffset(offset), ADDRESS_BYTES, None, None)
    {
        let header = program.header();
        let bytes = header.unit_length().saturating_add(header.format().initial_length_size().into());
        let mut rows = program.rows();
        let mut paths: FxHashMap<u64, Option<Arc<str>>> = FxHashMap::default();
        while let Ok(Some((header, row))) = rows.next_row() {
            let number = usize::try_from(row.address() >> NUMBER_SHIFT).unwrap_or(0);
            let at = row.address() & ((1 << NUMBER_SHIFT) - 1);
            let Some(known) = number.checked_sub(1).and_then(|place| first.get_mut(place)) else { continue };
            let Some(line) = row.line().filter(|_| !row.end_sequence()) else { continue };
            if known.as_ref().is_some_and(|(lowest, _)| *lowest <= at) {
                continue;
            }
            let path = paths.entry(row.file_index()).or_insert_with(|| path(row, header, &strings));
            if let (Some(path), Ok(line)) = (path, u32::try_from(line.get())) {
                *known = Some((at, KernelSource { path: path.clone(), line }));
            }
        }
        offset = offset.saturating_add(bytes);
    }
}

/// The file of a row, in its folder if it says one.
fn path(
    row: &LineRow,
    header: &gimli::LineProgramHeader<Slice<'_>>,
    strings: &DebugLineStr<Slice<'_>>,
) -> Option<Arc<str>> {
    let text = |value: AttributeValue<Slice<'_>>| match value {
        AttributeValue::String(text) => Some(text.slice().to_vec()),
        AttributeValue::DebugLineStrRef(at) => Some(strings.get_str(at).ok()?.slice().to_vec()),
        _ => None,
    };
    let file = row.file(header)?;
    let name = text(file.path_name()).filter(|name| !name.is_empty())?;
    let folder = file.directory(header).and_then(text).filter(|folder| !folder.is_empty());
    Some(readable(&match folder {
        Some(folder) if !name.starts_with(b"/") => [&folder[..], b"/", &name].concat(),
        _ => name,
    }))
}

#[cfg(test)]
#[path = "kernels_tests.rs"]
pub(crate) mod tests;
