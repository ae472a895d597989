//! Tests with line tables from compilers and with invalid ones.

use std::process::Command;

use gputrace_wire::definition::kernel_lines::{Sequence, Writer};
use gputrace_wire::definition::kind;
use object::read::elf::{ElfFile64, FileHeader, Rela, SectionHeader};
use object::{Endianness, Object, ObjectSection};
use proptest::prelude::*;

use super::*;
use crate::batch::Definition;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/cubins/");
/// A kernel, its file and its line.
type ExpectedKernel = (&'static str, &'static str, u32);
const CUBINS: [(&str, &[ExpectedKernel]); 3] = [
    ("add_one.cubin", &[("add_one", "/tmp/example/kernels.py", 7)]),
    ("row_sums.cubin", &[("row_sums", "/tmp/example/kernels.py", 19)]),
    (
        "two.cubin",
        &[("first", "/tmp/example/first.cu", 12), ("second", "/tmp/example/include/second.cuh", 140)],
    ),
];

/// Builds the line table that the traced process would write for an image, with another library.
pub(crate) fn joined(name: &str) -> Vec<u8> {
    let mut image: Vec<u64> = Vec::new();
    for chunk in std::fs::read(format!("{FIXTURES}{name}")).unwrap().chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        image.push(u64::from_ne_bytes(word));
    }
    let image = object::pod::bytes_of_slice(&image);
    let file = ElfFile64::<Endianness>::parse(image).unwrap();
    let endian = file.endian();
    let sections = file.elf_header().sections(endian, image).unwrap();
    let symbols = sections.symbols(endian, image, object::elf::SHT_SYMTAB).unwrap();
    let (_, open) = sections.section_by_name(endian, b".rela.debug_line").unwrap();
    let (entries, _) = open.rela(endian, image).unwrap().unwrap();
    let mut buffer = vec![0; 1 << 16];
    let mut writer = Writer::new(&mut buffer);
    for entry in entries {
        let symbol = symbols.symbol(object::SymbolIndex(entry.r_sym(endian, false) as usize)).unwrap();
        let section =
            sections.section(object::SectionIndex(usize::from(symbol.st_shndx.get(endian).0))).unwrap();
        let name = sections.section_name(endian, section).unwrap().strip_prefix(b".text.").unwrap();
        let offset = u32::try_from(entry.r_offset(endian)).unwrap();
        let address = entry.r_addend(endian).cast_unsigned();
        writer.sequence(Sequence { offset, address, name }).unwrap();
    }
    let table = file.section_by_name(".debug_line").unwrap().data().unwrap();
    let (length, rest) = writer.rest(table.len(), 0).unwrap();
    rest.copy_from_slice(table);
    buffer.truncate(length);
    buffer
}

fn source(path: &str, line: u32) -> KernelSource {
    KernelSource { path: path.into(), line }
}

#[test]
fn kernels_of_triton_and_of_ptxas_are_known_with_their_first_lines() {
    for (name, kernels) in CUBINS {
        let expected = kernels.iter().map(|(kernel, path, line)| (kernel.to_string(), source(path, *line)));
        assert_eq!(sources(&joined(name)), expected.collect(), "{name}");
    }
}

/// The line number of a Python kernel is that of its `def`.
#[test]
fn a_kernel_s_first_line_is_that_of_its_def() {
    let text = std::fs::read_to_string(format!("{FIXTURES}kernels.py")).unwrap();
    for (name, kernels) in &CUBINS[..2] {
        let (kernel, _, line) = kernels[0];
        let first = text.lines().nth(line as usize - 1).unwrap();
        assert!(first.starts_with(&format!("def {kernel}(")), "{name}: {first}");
    }
}

/// Compares with readelf's first row of each kernel.
#[test]
fn lines_are_those_that_readelf_says() {
    for (name, kernels) in CUBINS {
        let said =
            Command::new("readelf").arg("--debug-dump=decodedline").arg(format!("{FIXTURES}{name}")).output();
        let Ok(said) = said else { return eprintln!("skipped: there is no readelf") };
        let said = String::from_utf8_lossy(&said.stdout);
        let rows = said.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let begins = rows.filter(|row| row.len() == 4 && row[2] == "0" && row[3] == "x");
        let mut read: Vec<(String, u32)> =
            begins.map(|row| (row[0].to_owned(), row[1].parse().unwrap())).collect();
        let file = |path: &str| path.rsplit('/').next().unwrap().to_owned();
        let mut expected: Vec<_> = kernels.iter().map(|(_, path, line)| (file(path), *line)).collect();
        read.sort_unstable();
        expected.sort_unstable();
        assert_eq!(read, expected, "{name}: {said}");
    }
}

/// A table of DWARF 5, whose texts are in another section.
#[test]
fn a_table_of_dwarf_5_is_read_too() {
    let strings = b"/model\0layers.py\0";
    let mut header = vec![4, 1, 1, 0xfb, 14, 13, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1];
    header.extend([1, 1, 0x1f, 1, 0, 0, 0, 0]);
    header.extend([2, 1, 0x1f, 2, 0x0f, 1, 7, 0, 0, 0, 0]);
    let mut table = vec![5, 0, 8, 0];
    table.extend(u32::try_from(header.len()).unwrap().to_le_bytes());
    table.extend(header);
    // File 0, the address, line 1 + 41, a row, and the end.
    table.extend([4, 0, 0, 9, 2]);
    let offset = 4 + table.len();
    table.extend([0; 8]);
    table.extend([3, 41, 1, 2, 4, 0, 1, 1]);
    let table = [&u32::try_from(table.len()).unwrap().to_le_bytes()[..], &table].concat();
    let mut buffer = vec![0; 512];
    let mut writer = Writer::new(&mut buffer);
    let offset = u32::try_from(offset).unwrap();
    writer.sequence(Sequence { offset, address: 0, name: b"layer" }).unwrap();
    let (length, rest) = writer.rest(table.len(), strings.len()).unwrap();
    rest.copy_from_slice(&[&table[..], strings].concat());
    let expected = FxHashMap::from_iter([("layer".to_owned(), source("/model/layers.py", 42))]);
    assert_eq!(sources(&buffer[..length]), expected);
}

#[test]
fn tables_that_are_cut_or_changed_are_read_to_an_end() {
    for (name, _) in CUBINS {
        let whole = joined(name);
        for length in 0..whole.len() {
            let _ = sources(&whole[..length]);
            // Also with correct lengths.
            let lines = KernelLines::read(&whole).unwrap();
            let mut buffer = vec![0; whole.len()];
            let mut writer = Writer::new(&mut buffer);
            for sequence in lines.sequences() {
                writer.sequence(sequence).unwrap();
            }
            let kept = length.min(lines.table.len());
            let (written, rest) = writer.rest(kept, 0).unwrap();
            rest.copy_from_slice(&lines.table[..kept]);
            let _ = sources(&buffer[..written]);
        }
        for at in 0..whole.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut changed = whole.clone();
                changed[at] = value;
                let _ = sources(&changed);
            }
        }
    }
}

/// The same lines with another kernel name.
pub(crate) fn called(lines: &[u8], kernel: &str) -> Vec<u8> {
    let lines = KernelLines::read(lines).unwrap();
    let mut buffer = vec![0; 1 << 16];
    let mut writer = Writer::new(&mut buffer);
    for sequence in lines.sequences() {
        writer.sequence(Sequence { name: kernel.as_bytes(), ..sequence }).unwrap();
    }
    let (length, rest) = writer.rest(lines.table.len(), 0).unwrap();
    rest.copy_from_slice(lines.table);
    buffer.truncate(length);
    buffer
}

/// Defines modules, each with a function of that name, in pieces of `piece` bytes.
fn define_modules(definitions: &mut Definitions, modules: &[(Vec<u8>, &str)], piece: usize) {
    let mut define = |kind, fields: &[u64], text: &[u8]| {
        let id = u32::try_from(definitions.len()).unwrap() + 1;
        definitions.add(&Definition { kind, id, fields: fields.to_vec(), text: text.to_vec() });
        u64::from(id)
    };
    for (lines, kernel) in modules {
        let more = lines.chunks(piece).rev().fold(0, |more, bytes| define(kind::LINES, &[more], bytes));
        let module = define(kind::MODULE, &[0x10, 0, more, lines.len() as u64], b"");
        let name = define(kind::NAME, &[], kernel.as_bytes());
        define(kind::FUNCTION, &[0x20, name, module], b"");
    }
}

#[test]
fn functions_and_names_lead_to_sources() {
    for piece in [1 << 14, 100, 7] {
        let mut definitions = Definitions::default();
        let modules = [("two.cubin", "second"), ("add_one.cubin", "add_one"), ("add_one.cubin", "other")];
        define_modules(&mut definitions, &modules.map(|(cubin, kernel)| (joined(cubin), kernel)), piece);
        let mut kernels = KernelSources::default();
        let functions = definitions.functions();
        let second = source("/tmp/example/include/second.cuh", 140);
        assert_eq!(kernels.of_function(&definitions, functions[0]), Some(second.clone()));
        assert_eq!(kernels.of_function(&definitions, functions[2]), None, "a kernel that the module has not");
        assert_eq!(kernels.of_function(&definitions, 1), None);
        assert_eq!(kernels.of_name(&definitions, "second").known(), [second]);
        assert_eq!(kernels.of_name(&definitions, "add_one").known(), [source("/tmp/example/kernels.py", 7)]);
        assert_eq!(kernels.of_name(&definitions, "first").known(), [], "never launched");
    }
}

#[test]
fn kernels_that_are_called_alike_have_all_their_sources() {
    let mut definitions = Definitions::default();
    let mut kernels = KernelSources::default();
    let add = source("/tmp/example/kernels.py", 7);
    define_modules(&mut definitions, &[(called(&joined("add_one.cubin"), "fused"), "fused")], 1 << 14);
    assert_eq!(kernels.of_name(&definitions, "fused").known(), std::slice::from_ref(&add));
    // Functions that are launched later are added, and a repeated source is not.
    let again = ["row_sums.cubin", "add_one.cubin"].map(|cubin| (called(&joined(cubin), "fused"), "fused"));
    define_modules(&mut definitions, &again, 1 << 14);
    assert_eq!(
        kernels.of_name(&definitions, "fused").known(),
        [add.clone(), source("/tmp/example/kernels.py", 19)]
    );
    let function = *definitions.functions().last().unwrap();
    assert_eq!(kernels.of_function(&definitions, function), Some(add));
}

#[test]
fn a_name_with_a_function_of_unknown_lines_is_not_all_another_s() {
    let add = source("/tmp/example/kernels.py", 7);
    let with = || (called(&joined("add_one.cubin"), "fused"), "fused");
    for modules in [[(Vec::new(), "fused"), with()], [with(), (Vec::new(), "fused")]] {
        let mut definitions = Definitions::default();
        define_modules(&mut definitions, &modules, 1 << 14);
        let mut kernels = KernelSources::default();
        let named = kernels.of_name(&definitions, "fused");
        assert_eq!((named.known(), named.only()), (std::slice::from_ref(&add), None));
        assert!(named.is_some_unknown());
    }
    let mut definitions = Definitions::default();
    define_modules(&mut definitions, &[with(), with()], 1 << 14);
    let mut kernels = KernelSources::default();
    assert_eq!(kernels.of_name(&definitions, "fused").only(), Some(&add));
    assert_eq!(kernels.of_name(&definitions, "other").only(), None);
    // A function without a source is launched later.
    define_modules(&mut definitions, &[(Vec::new(), "fused")], 1 << 14);
    assert_eq!(kernels.of_name(&definitions, "fused").only(), None);
}

#[path = "kernels_bounds_tests.rs"]
mod bounds;
