//! Reads the line table from a module's image and passes it on undecoded.
//!
//! Compilers that make one module per kernel (Triton, and Inductor through it) include a table of source
//! lines; others do if asked for line information. The table is found by the ELF headers and decoded in the
//! collector. An image is read after the driver has accepted it. Its length is not known and its contents
//! are not trusted: reads fail instead of faulting, the amount is limited, and an image is read only once.
//! Only its first four bytes are read as they are, since the driver has just read them.
//! Only module loads run this code; a load takes the driver hundreds of microseconds.

use core::ffi::{CStr, c_void};

use gputrace_callstack::python::memory::{Lent, Memory};
use gputrace_producer::descriptor::Descriptor;
use gputrace_producer::system;
use gputrace_wire::definition::kernel_lines::{Sequence, Writer};

/// Images with more sections, or longer section names, are skipped. Kernel templates have names of some KiB.
const SECTIONS_MAX: usize = 8192;
const NAMES_MAX: usize = 1 << 20;
/// Limit for relocations, the positions in a table that refer to a kernel. Most tables have one.
const RELOCATIONS_MAX: usize = 1024;
/// Limit for the table of one module in the trace.
const LINES_MAX: usize = gputrace_wire::definition::KERNEL_LINES_MAX;

const HEADER_BYTES: usize = 64;
const SECTION_BYTES: usize = 64;
const RELOCATION_BYTES: usize = 24;
const SYMBOL_BYTES: usize = 24;
const MAGIC: &[u8] = b"\x7fELF\x02\x01";
/// `EM_CUDA`.
const CUDA: u16 = 190;
/// `SHT_NOBITS` has no bytes; `SHT_REL` has no addends of its own.
const NO_BITS: u32 = 8;
const REL: u32 = 9;
/// A kernel's code, before its name.
const TEXT: &[u8] = b".text.";

/// Access to an image's bytes.
pub trait Image {
    /// Copies so many bytes at that offset; false if the image lacks them.
    fn read(&self, at: u64, into: &mut [u8]) -> bool;
}

/// An image in memory.
#[derive(Debug)]
pub struct InMemory(u64);

impl InMemory {
    /// `None` for a null pointer.
    pub fn at(image: *const c_void) -> Option<InMemory> {
        (!image.is_null()).then_some(InMemory(image as u64))
    }

    /// `None` if it is no ELF image. The CUDA runtime loads fat binaries, which are then not read by a system
    /// call.
    ///
    /// # Safety
    /// The driver has accepted the image, so that it has read the bytes by which it knows the format.
    pub unsafe fn of_elf(image: *const c_void) -> Option<InMemory> {
        // SAFETY: the caller's; null is not read.
        let begin = unsafe { image.cast::<[u8; 4]>().as_ref() };
        begin.filter(|begin| MAGIC.starts_with(*begin)).and_then(|_| InMemory::at(image))
    }
}

impl Image for InMemory {
    fn read(&self, at: u64, into: &mut [u8]) -> bool {
        self.0.checked_add(at).is_some_and(|_| Lent.read(self.0, at, into))
    }
}

/// An image in a file.
#[derive(Debug)]
pub struct InFile(Descriptor);

impl InFile {
    /// Opens the file that the original has just read, if it is a regular file: opening a pipe would unblock
    /// its writer.
    pub fn open(path: &CStr) -> Option<InFile> {
        // SAFETY: a C string, and a live stat; zero is a valid one.
        let is_regular = unsafe {
            let mut about: libc::stat = core::mem::zeroed();
            system::stat(path.as_ptr(), &mut about) == 0 && about.st_mode & libc::S_IFMT == libc::S_IFREG
        };
        if !is_regular {
            return None;
        }
        let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
        // SAFETY: a C string.
        let number = unsafe { system::open(path.as_ptr(), flags) };
        Some(InFile(Descriptor::from_raw(number)?))
    }
}

impl Drop for InFile {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Image for InFile {
    fn read(&self, at: u64, mut into: &mut [u8]) -> bool {
        let Ok(mut at) = i64::try_from(at).map(i64::cast_unsigned) else { return false };
        while let (false, Some(number)) = (into.is_empty(), self.0.number()) {
            let read = system::pread(number, into, at);
            match usize::try_from(read) {
                Ok(count @ 1..) => {
                    into = into.get_mut(count..).unwrap_or_default();
                    at = at.saturating_add(count as u64);
                }
                _ => return false,
            }
        }
        into.is_empty()
    }
}

/// Buffers for the image and the result, mapped while they are needed. Only touched pages use memory.
#[derive(Debug)]
pub struct Scratch(*mut Parts);

#[derive(Debug)]
struct Parts {
    headers: [u8; SECTIONS_MAX * SECTION_BYTES],
    names: [u8; NAMES_MAX],
    relocations: [u8; RELOCATIONS_MAX * RELOCATION_BYTES],
    lines: [u8; LINES_MAX],
}

impl Scratch {
    pub fn new() -> Option<Scratch> {
        let parts = gputrace_producer::memory::map_bytes(size_of::<Parts>())?;
        Some(Scratch(parts.cast()))
    }

    fn parts(&mut self) -> &mut Parts {
        // SAFETY: a page-aligned mapping of that size, ours alone until it is dropped; zeroed bytes are
        // valid.
        unsafe { &mut *self.0 }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // SAFETY: the mapping that was made, which nothing borrows any more.
        unsafe { system::munmap(self.0.cast(), size_of::<Parts>()) };
    }
}

/// The line table of an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lines<'r> {
    /// Empty if the table is too long to keep.
    pub bytes: &'r [u8],
    pub length: u64,
}

/// An image that may have a line table.
#[derive(Debug)]
pub struct Cubin<'i, I> {
    image: &'i I,
    header: Header,
}

impl<'i, I: Image> Cubin<'i, I> {
    /// `None` if this is no CUDA ELF image.
    pub fn of(image: &'i I) -> Option<Cubin<'i, I>> {
        Some(Cubin { image, header: Header::read(image)? })
    }

    /// The image's line table; `None` if there is none.
    pub fn lines<'r>(&self, scratch: &'r mut Scratch) -> Option<Lines<'r>> {
        let Cubin { image, header } = self;
        let Parts { headers, names, relocations, lines } = scratch.parts();
        let headers = headers.get_mut(..header.sections * SECTION_BYTES)?;
        image.read(header.sections_at, headers).then_some(())?;
        let section = |number: usize| Section::read(headers.get(number.checked_mul(SECTION_BYTES)?..)?);
        let of_names = section(header.names)?;
        let names = names.get_mut(..usize::try_from(of_names.bytes).ok()?)?;
        image.read(of_names.at, names).then_some(())?;
        let name = |section: &Section| {
            let text = names.get(usize::try_from(section.name).ok()?..)?;
            text.get(..text.iter().position(|byte| *byte == 0)?)
        };

        let (mut table, mut strings, mut open) = (None, None, None);
        for number in 1..header.sections {
            let found = section(number)?;
            match name(&found) {
                Some(b".debug_line") => table = Some(found),
                Some(b".debug_line_str") => strings = Some(found),
                Some(b".rela.debug_line" | b".rel.debug_line") => open = Some(found),
                _ => {}
            }
        }
        let is_there = |section: &Section| section.kind != NO_BITS && section.bytes > 0;
        let (table, open) = table.filter(is_there).zip(open.filter(is_there))?;
        let strings = strings.filter(is_there).unwrap_or_default();
        let length = table.bytes.checked_add(strings.bytes)?;

        let symbols = section(usize::try_from(open.link).ok()?)?;
        let entry_bytes = if open.kind == REL { 16 } else { RELOCATION_BYTES };
        let too_long = Some(Lines { bytes: &[], length });
        let open_bytes = usize::try_from(open.bytes).ok()?;
        let Some(relocations) = relocations.get_mut(..open_bytes) else { return too_long };
        image.read(open.at, relocations).then_some(())?;
        let mut writer = Writer::new(lines);
        for entry in relocations.chunks_exact(entry_bytes) {
            let symbol = u64::from(half(entry, 12)?);
            let mut of = [0; SYMBOL_BYTES];
            let at = symbols.at.checked_add(symbol * SYMBOL_BYTES as u64)?;
            if symbol >= symbols.bytes / SYMBOL_BYTES as u64 || !image.read(at, &mut of) {
                return None;
            }
            let of = section(usize::from(short(&of, 6)?))?;
            let Some(kernel) = name(&of).and_then(|name| name.strip_prefix(TEXT)) else { continue };
            let offset = u32::try_from(word(entry, 0)?).ok()?;
            let address = if open.kind == REL { 0 } else { word(entry, 16)? };
            let Some(()) = writer.sequence(Sequence { offset, address, name: kernel }) else {
                return too_long;
            };
        }
        let (table_bytes, string_bytes) = (usize::try_from(table.bytes), usize::try_from(strings.bytes));
        let (table_bytes, string_bytes) = (table_bytes.ok()?, string_bytes.ok()?);
        let Some((length, rest)) = writer.rest(table_bytes, string_bytes) else { return too_long };
        let (to, strings_to) = rest.split_at_mut_checked(table_bytes)?;
        if !image.read(table.at, to) || !(strings_to.is_empty() || image.read(strings.at, strings_to)) {
            return None;
        }
        Some(Lines { bytes: lines.get(..length)?, length: length as u64 })
    }
}

/// The location of an image's section headers.
#[derive(Debug)]
struct Header {
    sections_at: u64,
    sections: usize,
    names: usize,
}

impl Header {
    fn read(image: &impl Image) -> Option<Header> {
        let mut bytes = [0; HEADER_BYTES];
        if !image.read(0, &mut bytes) || !bytes.starts_with(MAGIC) || short(&bytes, 18)? != CUDA {
            return None;
        }
        let [section_bytes, sections, names] = [58, 60, 62].map(|at| short(&bytes, at).map(usize::from));
        let header = Header { sections_at: word(&bytes, 40)?, sections: sections?, names: names? };
        (section_bytes? == SECTION_BYTES && header.sections <= SECTIONS_MAX).then_some(header)
    }
}

#[derive(Clone, Copy, Default)]
struct Section {
    name: u32,
    kind: u32,
    at: u64,
    bytes: u64,
    link: u32,
}

impl Section {
    fn read(header: &[u8]) -> Option<Section> {
        Some(Section {
            name: half(header, 0)?,
            kind: half(header, 4)?,
            at: word(header, 24)?,
            bytes: word(header, 32)?,
            link: half(header, 40)?,
        })
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

#[cfg(test)]
#[path = "cubin_tests.rs"]
mod tests;
