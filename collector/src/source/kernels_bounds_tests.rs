//! Tests of the cost of hostile tables with valid structure.

use std::collections::HashMap;

use super::*;

/// The usual header fields after the version and the header's length.
const ROWS: [u8; 18] = [1, 1, 1, 0xfb, 14, 13, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1];
const PATH: u8 = 1;
const FOLDER: u8 = 2;
const STRING: u8 = 0x08;
const UDATA: u8 = 0x0f;

fn leb(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let last = value < 0x80;
        bytes.push(value as u8 & 0x7f | if last { 0 } else { 0x80 });
        value >>= 7;
        if last {
            return bytes;
        }
    }
}

/// A step of a line program: a kernel's rows in that file, or arbitrary bytes.
#[derive(Clone, Debug)]
enum ProgramStep {
    Kernel { file: u64 },
    Bytes(Vec<u8>),
}

/// Consecutive line tables, and the offsets of the kernels' addresses in them.
#[derive(Default)]
struct LineTables {
    bytes: Vec<u8>,
    offsets: Vec<u32>,
}

impl LineTables {
    /// Adds a table of DWARF 4 or 5. Its kernels are at line 42.
    fn add(&mut self, version: u16, folders: &[Vec<u8>], files: &[(Vec<u8>, u64)], steps: &[ProgramStep]) {
        let mut header = ROWS.to_vec();
        let is_new = version >= 5;
        if is_new {
            header.extend([1, PATH, STRING]);
            header.extend(leb(folders.len() as u64));
        }
        for folder in folders {
            header.extend([folder, &b"\0"[..]].concat());
        }
        header.extend(if is_new { &[2, PATH, STRING, FOLDER, UDATA][..] } else { &[0] });
        header.extend(if is_new { leb(files.len() as u64) } else { Vec::new() });
        for (name, folder) in files {
            header.extend([&name[..], b"\0", &leb(*folder)].concat());
            header.extend(if is_new { &[][..] } else { &[0, 0] });
        }
        header.extend(if is_new { &[][..] } else { &[0] });
        let start = self.bytes.len();
        self.bytes.extend([0; 4]);
        self.bytes.extend(version.to_le_bytes());
        self.bytes.extend(if is_new { &[8, 0][..] } else { &[] });
        self.bytes.extend(u32::try_from(header.len()).unwrap().to_le_bytes());
        self.bytes.extend(header);
        for step in steps {
            match step {
                ProgramStep::Bytes(bytes) => self.bytes.extend(bytes),
                ProgramStep::Kernel { file } => {
                    self.bytes.push(4);
                    self.bytes.extend(leb(*file));
                    self.bytes.extend([0, 9, 2]);
                    self.offsets.push(u32::try_from(self.bytes.len()).unwrap());
                    self.bytes.extend([0; 8]);
                    self.bytes.extend([3, 41, 1, 2, 4, 0, 1, 1]);
                }
            }
        }
        let length = u32::try_from(self.bytes.len() - start - 4).unwrap();
        self.bytes[start..start + 4].copy_from_slice(&length.to_le_bytes());
    }

    /// The tables in the collector's format. Kernels are named by their numbers.
    fn joined(&self, strings: &[u8]) -> Vec<u8> {
        let mut buffer = vec![0; self.bytes.len() + strings.len() + 32 * self.offsets.len() + 64];
        let mut writer = Writer::new(&mut buffer);
        for (number, offset) in self.offsets.iter().enumerate() {
            let name = number.to_string();
            writer.sequence(Sequence { offset: *offset, address: 0, name: name.as_bytes() }).unwrap();
        }
        let (length, rest) = writer.rest(self.bytes.len(), strings.len()).unwrap();
        rest.copy_from_slice(&[&self.bytes[..], strings].concat());
        buffer.truncate(length);
        buffer
    }
}

/// The bytes of all paths, each counted once.
fn held(found: &FxHashMap<String, KernelSource>) -> usize {
    let paths = found.values().map(|source| (source.path.as_ptr().addr(), source.path.len()));
    paths.collect::<HashMap<_, _>>().into_values().sum()
}

fn kernels(files: u64, first: u64) -> Vec<ProgramStep> {
    (first..first + files).map(|file| ProgramStep::Kernel { file }).collect()
}

#[test]
fn a_long_folder_of_thousands_of_files_costs_no_more_than_its_table() {
    const FILES: u64 = 3000;
    for (version, first, folder) in [(4, 1, 1), (5, 0, 0)] {
        for (letter, folder_bytes) in [(b'f', 3000), (0xff, 3000), (b'f', PATH_MAX), (b'f', 100_000)] {
            let files: Vec<_> = (0..FILES).map(|file| (file.to_string().into_bytes(), folder)).collect();
            let mut table = LineTables::default();
            table.add(version, &[vec![letter; folder_bytes]], &files, &kernels(FILES, first));
            let joined = table.joined(b"");
            let found = sources(&joined);
            let held = held(&found);
            assert!(joined.len() <= KERNEL_LINES_MAX && held <= paths_max(joined.len()), "{held}");
            // Paths that fit are there, and no path that is too long.
            if folder_bytes < PATH_MAX {
                let longest = if letter == 0xff { 4 * folder_bytes } else { folder_bytes } + 5;
                assert!(held + longest >= paths_max(joined.len()), "{held} of {}", joined.len());
                assert!(found.values().all(|source| source.line == 42));
            } else {
                assert!(found.is_empty());
            }
        }
    }
}

#[test]
fn thousands_of_kernels_of_few_files_share_their_paths() {
    const KERNELS: usize = 3000;
    let file = (b"a.py".to_vec(), 1);
    let mut table = LineTables::default();
    let steps: Vec<_> =
        (0..KERNELS).map(|kernel| ProgramStep::Kernel { file: 1 + kernel as u64 % 2 }).collect();
    table.add(4, &[b"/model".to_vec()], &[file.clone(), file], &steps);
    let found = sources(&table.joined(b""));
    assert_eq!((found.len(), held(&found)), (KERNELS, "/model/a.py".len()));
    assert!(found.values().all(|kernel| *kernel == source("/model/a.py", 42)));
}

#[test]
fn a_table_that_is_longer_than_a_module_s_may_be_is_not_decoded() {
    let mut table = LineTables::default();
    table.add(4, &[b"/model".to_vec()], &[(b"a.py".to_vec(), 1)], &kernels(1, 1));
    let rest = KERNEL_LINES_MAX - table.joined(b"").len();
    for (strings, expected) in [(rest, Some(source("/model/a.py", 42))), (rest + 1, None)] {
        let mut definitions = Definitions::default();
        define_modules(&mut definitions, &[(table.joined(&vec![0; strings]), "0")], 1 << 14);
        let function = definitions.functions()[0];
        assert_eq!(KernelSources::default().of_function(&definitions, function), expected);
    }
}

fn bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..most)
}

/// A text within a header. It has no zero byte, which would end the header.
fn name(least: usize, most: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(1u8.., least..most)
}

fn steps() -> impl Strategy<Value = Vec<ProgramStep>> {
    let kernel = prop_oneof![0..9u64, any::<u64>()].prop_map(|file| ProgramStep::Kernel { file });
    prop::collection::vec(prop_oneof![kernel, bytes(40).prop_map(ProgramStep::Bytes)], 0..12)
}

type TablePart = (u16, Vec<Vec<u8>>, Vec<(Vec<u8>, u64)>, Vec<ProgramStep>);

fn part() -> impl Strategy<Value = TablePart> {
    let folders = prop::collection::vec(name(1, 200), 0..6);
    let file = (name(1, 40), prop_oneof![0..7u64, any::<u64>()]);
    (4..6u16, folders, prop::collection::vec(file, 1..9), steps())
}

proptest! {
    #[test]
    fn invalid_kernel_lines_are_read_to_an_end(bytes: Vec<u8>) {
        let _ = sources(&bytes);
    }

    /// Only what stands behind a true beginning is read by the decoder.
    #[test]
    fn invalid_line_programs_are_decoded_to_an_end(
        parts in prop::collection::vec(part(), 1..4),
        behind in bytes(100), offsets in bytes(4), strings in bytes(100),
    ) {
        let mut table = LineTables::default();
        for (version, folders, files, steps) in &parts {
            let own = ProgramStep::Kernel { file: u64::from(*version < 5) };
            table.add(*version, folders, files, &[&[own], &steps[..]].concat());
        }
        table.bytes.extend(behind);
        // Addresses may be at any offset, even inside a header.
        table.offsets.extend(offsets.iter().map(|offset| u32::from(*offset)));
        let joined = table.joined(&strings);
        let found = sources(&joined);
        prop_assert!(held(&found) <= paths_max(joined.len()));
        prop_assert!(found.len() <= table.offsets.len());
        prop_assert!(found.values().all(|source| source.path.len() <= 4 * PATH_MAX));
        if offsets.is_empty() {
            let first = found.get("0").map(|source| source.line);
            prop_assert_eq!(first, Some(42), "the first file's kernel");
        }
    }
}
