//! Where a mapped object's constants lie, by the section headers of its file.
//!
//! These are not mapped: a few small reads of the file. That it still is the one that is mapped is
//! told by its program headers. Device code has a section of its own, so half a gigabyte is left out.
//! Nothing is allocated: whoever asks holds the loader's lock.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

const PROGRAM: &[u8] = b"/proc/self/exe";
const CONSTANTS: &[u8] = b".rodata";
const SHT_PROGBITS: u32 = 1;
const SHF_WRITE: u64 = 1;
const SHF_ALLOC: u64 = 2;
const SHF_EXECINSTR: u64 = 4;
/// The standard library allocates for a path that is longer than 383 bytes.
const MOST_PATH_BYTES: usize = 380;
/// More than any linker makes; with more than that nothing is known.
const MOST_HEADERS: usize = 64;
const MOST_SECTIONS: usize = 128;
const MOST_NAME_BYTES: usize = 8 << 10;

/// The addresses of the constants of the object at `path` (empty: the program), as in its file.
pub fn constants(path: &[u8], headers: &[libc::Elf64_Phdr]) -> Option<(u64, u64)> {
    let path = if path.is_empty() { PROGRAM } else { path };
    if path.len() > MOST_PATH_BYTES {
        return None;
    }
    // Another file may lie there by now: a pipe must keep nobody waiting.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(OsStr::from_bytes(path)).ok()?;
    let mut beginning = [0u8; size_of::<libc::Elf64_Ehdr>()];
    file.read_exact_at(&mut beginning, 0).ok()?;
    // SAFETY: as many bytes as the header has, of which all values are valid.
    let header = unsafe { beginning.as_ptr().cast::<libc::Elf64_Ehdr>().read_unaligned() };
    let is_elf = header.e_ident.starts_with(b"\x7fELF\x02")
        && usize::from(header.e_phentsize) == size_of::<libc::Elf64_Phdr>()
        && usize::from(header.e_shentsize) == size_of::<libc::Elf64_Shdr>();
    if !is_elf || usize::from(header.e_phnum) != headers.len() || headers.len() > MOST_HEADERS {
        return None;
    }
    // SAFETY: the bytes of plain numbers without gaps between them.
    let mapped = unsafe {
        core::slice::from_raw_parts(headers.as_ptr().cast::<u8>(), core::mem::size_of_val(headers))
    };
    let mut room = [0u8; MOST_HEADERS * size_of::<libc::Elf64_Phdr>()];
    if read(&file, header.e_phoff, room.get_mut(..mapped.len())?)? != mapped {
        return None;
    }
    let mut room = [0u8; MOST_SECTIONS * size_of::<libc::Elf64_Shdr>()];
    let bytes = usize::from(header.e_shnum) * size_of::<libc::Elf64_Shdr>();
    let table = read(&file, header.e_shoff, room.get_mut(..bytes)?)?;
    let sections = || {
        table.chunks_exact(size_of::<libc::Elf64_Shdr>()).map(|bytes| {
            // SAFETY: as many bytes as a section's header has, of which all values are valid.
            unsafe { bytes.as_ptr().cast::<libc::Elf64_Shdr>().read_unaligned() }
        })
    };
    let names = sections().nth(header.e_shstrndx.into())?;
    let mut room = [0u8; MOST_NAME_BYTES];
    let bytes = usize::try_from(names.sh_size).ok()?.min(MOST_NAME_BYTES);
    let names = read(&file, names.sh_offset, room.get_mut(..bytes)?)?;
    let is_constants = |section: &libc::Elf64_Shdr| {
        section.sh_type == SHT_PROGBITS
            && section.sh_flags & (SHF_ALLOC | SHF_WRITE | SHF_EXECINSTR) == SHF_ALLOC
            && names.get(section.sh_name as usize..).is_some_and(|name| name.starts_with(CONSTANTS))
    };
    // Some linkers make several of them, one after the other.
    sections()
        .filter(is_constants)
        .map(|section| (section.sh_addr, section.sh_addr.saturating_add(section.sh_size)))
        .reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))
}

fn read<'r>(file: &File, at: u64, room: &'r mut [u8]) -> Option<&'r [u8]> {
    file.read_exact_at(room, at).ok()?;
    Some(room)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ffi::{c_int, c_void};
    use gputrace_producer::loader;

    static CONSTANT: &str = "a constant of this program's";

    unsafe extern "C" fn ask(object: *mut libc::dl_phdr_info, _: usize, answer: *mut c_void) -> c_int {
        // SAFETY: the loader's description of the program; the test's own answer.
        unsafe {
            let object = &*object;
            let headers = core::slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into());
            let own = constants(b"", headers).map(|(begin, end)| {
                let address = CONSTANT.as_ptr() as u64 - object.dlpi_addr;
                (begin..end).contains(&address)
            });
            let of_another = constants(b"/proc/self/maps", headers).or(constants(b"/nowhere", headers));
            let of_an_other_length = constants(b"", headers.split_last().unwrap().1);
            *answer.cast::<(Option<bool>, bool)>() =
                (own, of_another.is_none() && of_an_other_length.is_none());
        }
        1
    }

    /// To open a pipe that nobody writes to would wait for ever, with the loader's lock held.
    #[test]
    fn a_pipe_in_a_library_s_place_keeps_nobody_waiting() {
        let path = std::env::temp_dir().join(format!("gputrace-pipe-{}\0", std::process::id()));
        let path = path.as_os_str().as_bytes();
        // SAFETY: a C string.
        assert_eq!(unsafe { libc::mkfifo(path.as_ptr().cast(), 0o600) }, 0);
        let (told, tells) = std::sync::mpsc::channel();
        let name = path[..path.len() - 1].to_vec();
        std::thread::spawn(move || told.send(constants(&name, &[])));
        let answer = tells.recv_timeout(std::time::Duration::from_secs(20));
        // SAFETY: a C string.
        unsafe { libc::unlink(path.as_ptr().cast()) };
        assert_eq!(answer, Ok(None));
    }

    #[test]
    fn a_program_knows_where_its_constants_are() {
        let mut answer = (None, false);
        // SAFETY: the callback gets a pointer to the answer, which outlives the call.
        unsafe { loader::each_object(ask, (&raw mut answer).cast()) };
        assert_eq!(answer, (Some(true), true));
    }
}
