//! Line tables of images that compilers made, and of damaged ones.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use gputrace_wire::definition::KernelLines;

use super::*;

const NAMES: [&str; 3] = ["add_one.cubin", "row_sums.cubin", "two.cubin"];

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/cubins").join(name)
}

fn bytes(name: &str) -> Vec<u8> {
    std::fs::read(path(name)).unwrap()
}

impl Image for &[u8] {
    fn read(&self, at: u64, into: &mut [u8]) -> bool {
        let Ok(at) = usize::try_from(at) else { return false };
        let Some(from) = at.checked_add(into.len()).and_then(|end| self.get(at..end)) else { return false };
        into.copy_from_slice(from);
        true
    }
}

fn lines_of<'r>(image: &impl Image, scratch: &'r mut Scratch) -> Option<Lines<'r>> {
    Cubin::of(image)?.lines(scratch)
}

fn found(image: &impl Image) -> Option<(Vec<u8>, u64)> {
    let mut scratch = Scratch::new().unwrap();
    lines_of(image, &mut scratch).map(|lines| (lines.bytes.to_vec(), lines.length))
}

/// Where a section's header is, and the section.
fn section(image: &[u8], wanted: &str) -> (usize, Section) {
    let header = Header::read(&image).unwrap();
    let at = |number: usize| header.sections_at as usize + number * SECTION_BYTES;
    let read = |number: usize| Section::read(&image[at(number)..]).unwrap();
    let names = read(header.names).at as usize;
    let is_it = |number: &usize| {
        let name = &image[names + read(*number).name as usize..];
        name.starts_with(wanted.as_bytes()) && name[wanted.len()] == 0
    };
    let number = (1..header.sections).find(is_it).unwrap();
    (at(number), read(number))
}

#[test]
fn cubin_s_line_table_is_handed_over_with_its_kernels() {
    for (name, expected) in [
        ("add_one.cubin", &["add_one"][..]),
        ("row_sums.cubin", &["row_sums"]),
        ("two.cubin", &["second", "first"]),
    ] {
        let image = bytes(name);
        let (bytes, length) = found(&&image[..]).unwrap();
        assert_eq!(bytes.len() as u64, length);
        let lines = KernelLines::read(&bytes).unwrap();
        let kernels: Vec<_> =
            lines.sequences().map(|s| String::from_utf8(s.name.to_vec()).unwrap()).collect();
        assert_eq!(kernels, expected);
        let (_, table) = section(&image, ".debug_line");
        let (at, end) = (table.at as usize, (table.at + table.bytes) as usize);
        assert_eq!((lines.table, lines.strings), (&image[at..end], &b""[..]));
        for sequence in lines.sequences() {
            // An open address follows the opcode that sets it.
            let offset = sequence.offset as usize;
            assert_eq!(lines.table[offset - 3..offset + 8], [0, 9, 2, 0, 0, 0, 0, 0, 0, 0, 0]);
        }
    }
}

#[test]
fn memory_and_files_are_read_alike() {
    for name in NAMES {
        let image = bytes(name);
        let expected = found(&&image[..]);
        assert!(expected.is_some());
        assert_eq!(found(&InMemory::at(image.as_ptr().cast()).unwrap()), expected);
        let path = CString::new(path(name).as_os_str().as_bytes()).unwrap();
        assert_eq!(found(&InFile::open(&path).unwrap()), expected);
    }
    assert!(InMemory::at(core::ptr::null()).is_none());
    for (image, is_elf) in [(b"\x7fELF", true), (b"\x50\xed\x55\xba", false), (b"//\n.", false)] {
        // SAFETY: four bytes, which is all that is read.
        assert_eq!(unsafe { InMemory::of_elf(image.as_ptr().cast()) }.is_some(), is_elf, "{image:?}");
    }
    // SAFETY: null is not read.
    assert!(unsafe { InMemory::of_elf(core::ptr::null()) }.is_none());
    assert!(InFile::open(c"/dev/null").is_none());
    assert!(InFile::open(c"/nowhere").is_none());
}

#[test]
fn image_that_is_no_cubin_is_rejected_by_its_header() {
    let program = std::fs::read("/proc/self/exe").unwrap();
    let wrapped = [0xb1u8, 0x43, 0x62, 0x46, 1, 0, 0, 0];
    let compressed = [0x50u8, 0xed, 0x55, 0xba, 1, 0, 16, 0];
    for image in [&program[..], &wrapped, &compressed, b".version 8.0\n.target sm_90\n\0", b""] {
        let mut long = image.to_vec();
        long.resize(image.len().max(4096), 0);
        assert!(Cubin::of(&&long[..]).is_none() && found(&&long[..]).is_none());
        assert!(Cubin::of(&&image[..image.len().min(63)]).is_none());
    }
    // Readable memory may end where the image ends.
    assert!(Cubin::of(&InMemory::at(core::ptr::without_provenance(4096)).unwrap()).is_none());
    assert!(Cubin::of(&InMemory::at(core::ptr::without_provenance(usize::MAX - 8)).unwrap()).is_none());
}

#[test]
fn image_without_a_table_has_no_lines() {
    for gone in [".debug_line", ".rela.debug_line"] {
        let mut image = bytes("add_one.cubin");
        let (header, _) = section(&image, gone);
        image[header + 32..header + 40].fill(0);
        assert!(Cubin::of(&&image[..]).is_some());
        assert_eq!(found(&&image[..]), None);
    }
}

/// The image ends at the end of readable memory, at every length.
#[test]
fn image_that_is_cut_anywhere_is_read_without_a_fault() {
    const PAGES: usize = 3 * 4096;
    // SAFETY: a mapping of our own, whose last page cannot be read.
    let start = unsafe {
        let start = libc::mmap(
            core::ptr::null_mut(),
            PAGES + 4096,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        assert_ne!(start, libc::MAP_FAILED);
        assert_eq!(libc::mprotect(start.byte_add(PAGES), 4096, libc::PROT_NONE), 0);
        start.cast::<u8>()
    };
    let mut scratch = Scratch::new().unwrap();
    for name in NAMES {
        let whole = bytes(name);
        let expected = found(&&whole[..]);
        assert!(expected.is_some());
        for length in 0..=whole.len() {
            // SAFETY: the mapping is longer than the image and ours alone.
            let image = unsafe {
                let image = start.add(PAGES - length);
                core::ptr::copy_nonoverlapping(whole.as_ptr(), image, length);
                InMemory::at(image.cast()).unwrap()
            };
            let lines = lines_of(&image, &mut scratch).map(|lines| (lines.bytes.to_vec(), lines.length));
            // Sections that are read may all lie before the cut.
            assert!(lines.is_none() || lines == expected, "{name} cut at {length}");
            assert!(length < whole.len() || lines == expected, "{name}");
        }
    }
}

#[test]
fn image_with_any_byte_changed_is_read_without_a_fault() {
    let mut scratch = Scratch::new().unwrap();
    for name in NAMES {
        let mut image = bytes(name);
        for at in 0..image.len() {
            let was = image[at];
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                image[at] = value;
                if let Some(lines) = lines_of(&&image[..], &mut scratch) {
                    assert!(lines.bytes.len() <= LINES_MAX);
                    if let Some(lines) = KernelLines::read(lines.bytes) {
                        assert!(lines.sequences().count() <= RELOCATIONS_MAX);
                    }
                }
            }
            image[at] = was;
        }
    }
}

#[test]
fn table_that_is_too_long_is_reported_by_its_length_alone() {
    let mut image = bytes("add_one.cubin");
    let (header, _) = section(&image, ".debug_line");
    let bytes = LINES_MAX as u64;
    image[header + 32..header + 40].copy_from_slice(&bytes.to_le_bytes());
    assert_eq!(found(&&image[..]), Some((Vec::new(), bytes)));
    // Neither is one with more kernels than the limit.
    let mut image = self::bytes("add_one.cubin");
    let (header, _) = section(&image, ".rela.debug_line");
    let relocations = (RELOCATIONS_MAX as u64 + 1) * RELOCATION_BYTES as u64;
    image[header + 32..header + 40].copy_from_slice(&relocations.to_le_bytes());
    let (_, table) = section(&image, ".debug_line");
    assert_eq!(found(&&image[..]), Some((Vec::new(), table.bytes)));
}

/// The added cost of a load: `cargo test --release -p gputrace-interpose a_look -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn look_at_an_image_costs_microseconds() {
    let mut text = b".version 8.0\n".to_vec();
    text.resize(50_000, b' ');
    let mut padded = bytes("row_sums.cubin");
    padded.resize(50_000, 0);
    for (name, image) in [("PTX", text), ("cubin of 50 kB", padded)] {
        let image = InMemory::at(image.as_ptr().cast()).unwrap();
        let start = std::time::Instant::now();
        for _ in 0..10_000 {
            if Cubin::of(&image).is_some() {
                let mut scratch = Scratch::new().unwrap();
                assert!(lines_of(&image, &mut scratch).is_some());
            }
        }
        println!("{name}: {:.2} µs", start.elapsed().as_secs_f64() * 1e6 / 1e4);
    }
    let start = std::time::Instant::now();
    for _ in 0..10_000 {
        let path = CString::new(path("row_sums.cubin").as_os_str().as_bytes()).unwrap();
        let file = InFile::open(&path).unwrap();
        assert!(lines_of(&file, &mut Scratch::new().unwrap()).is_some());
    }
    println!("file: {:.2} µs", start.elapsed().as_secs_f64() * 1e6 / 1e4);
}
