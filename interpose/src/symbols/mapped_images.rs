//! Functions of mapped libraries, found without the loader, for code that runs under a lock of the program's:
//! another thread may hold the loader's lock and wait for that one. `/proc/self/maps` says what is mapped,
//! and the libraries' own tables have their symbols. Nothing here locks or allocates.

use core::ffi::{CStr, c_void};

use gputrace_callstack::native::maps::{self, LinesBuffer, NO_LINES};
use gputrace_producer::handles::key_of;

use crate::symbols::libc_symbols;

/// The size of an ELF file's header and of a program header; more program headers than linkers write.
const HEADER_BYTES: u64 = 64;
const PROGRAM_HEADER_BYTES: u16 = 56;
const PROGRAM_HEADERS_MAX: u16 = 64;
/// What is read of an image before its size is known: its first mapping has a page at least.
const FIRST_PAGE: u64 = 4096;

/// The function of that name that the library of `caller` means: its own, or else that of a library beside
/// it whose file name `is_wanted` accepts, or else that of the only such library in the process. Null if it
/// is not certain.
///
/// # Safety
/// The loader mapped these libraries, and they stay mapped: `caller` is a return address of the calling
/// thread, and its library depends on the others.
pub unsafe fn function_behind(
    caller: *const c_void,
    name: &CStr,
    is_wanted: fn(&[u8]) -> bool,
) -> *mut c_void {
    let name = name.to_bytes_with_nul();
    let mut lines = NO_LINES;
    let folder = match maps::image_at(caller as u64, &mut lines) {
        Some((start, path)) => {
            // SAFETY: the image that contains the caller's code.
            let own = unsafe { symbol(start, name) };
            if !own.is_null() {
                return own;
            }
            key_of(folder_of(path))
        }
        None => return core::ptr::null_mut(),
    };
    let candidates = candidates(&mut lines, folder, is_wanted);
    // SAFETY: the caller guarantees it; each has code that is mapped as such, so it is not a file that
    // somebody reads.
    let of = |start: u64| unsafe { symbol(start, name) };
    match candidates {
        Candidates { beside: Some(start), .. } if !of(start).is_null() => of(start),
        Candidates { first: Some(start), count: 1, .. } => of(start),
        _ => core::ptr::null_mut(),
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Candidates {
    /// The one in the caller's folder.
    beside: Option<u64>,
    first: Option<u64>,
    count: usize,
}

fn candidates(lines: &mut LinesBuffer, folder: u64, is_wanted: fn(&[u8]) -> bool) -> Candidates {
    let mut found = Candidates::default();
    // The file whose beginning was mapped last, and where, until its code comes.
    let mut image = None;
    maps::each(lines, |mapping| {
        let file = mapping.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        if mapping.offset == 0 && !mapping.path.is_empty() {
            image = is_wanted(file).then_some((mapping.start, key_of(mapping.path)));
        }
        if let Some((start, path)) = image
            && mapping.is_executable
            && path == key_of(mapping.path)
        {
            image = None;
            found.first = found.first.or(Some(start));
            found.count += 1;
            if key_of(folder_of(mapping.path)) == folder {
                found.beside = found.beside.or(Some(start));
            }
        }
        false
    });
    found
}

fn folder_of(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    path.get(..end).unwrap_or_default()
}

/// A symbol, named with its NUL, of the image whose first page is at `start`; null if it has none.
///
/// # Safety
/// The loader mapped the image, and it stays mapped.
unsafe fn symbol(start: u64, name: &[u8]) -> *mut c_void {
    let none = core::ptr::null_mut();
    // SAFETY: an image begins with its file's header, in a page that is readable.
    let header = unsafe { (start as *const libc::Elf64_Ehdr).read() };
    let headers_end =
        header.e_phoff.saturating_add(u64::from(header.e_phnum) * u64::from(PROGRAM_HEADER_BYTES));
    let is_known = header.e_ident.first_chunk() == Some(b"\x7fELF\x02\x01")
        && header.e_phentsize == PROGRAM_HEADER_BYTES
        && header.e_phnum <= PROGRAM_HEADERS_MAX
        && header.e_phoff >= HEADER_BYTES
        && headers_end <= FIRST_PAGE;
    if !is_known {
        return none;
    }
    let first = start.wrapping_add(header.e_phoff) as *const libc::Elf64_Phdr;
    // SAFETY: they end within the first page.
    let headers = unsafe { core::slice::from_raw_parts(first, header.e_phnum.into()) };
    let loaded = headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
    let Some(lowest) = loaded.map(|header| header.p_vaddr & !(FIRST_PAGE - 1)).min() else { return none };
    let Some(dynamic) = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC) else { return none };
    let base = start.wrapping_sub(lowest);
    // SAFETY: the loader mapped the image as its headers say.
    unsafe { libc_symbols::symbol(base, base.wrapping_add(dynamic.p_vaddr) as *const _, name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_libc(file: &[u8]) -> bool {
        file.starts_with(b"libc.so.")
    }

    #[test]
    fn function_is_found_in_the_callers_library_or_in_the_only_other_one() {
        // SAFETY: libc stays mapped, and so does this program.
        let [own, other, none] = unsafe {
            [
                function_behind(libc::getpid as *const c_void, c"getppid", |_| false),
                function_behind(is_libc as *const c_void, c"getpid", is_libc),
                function_behind(is_libc as *const c_void, c"no_such_function", is_libc),
            ]
        };
        assert_eq!(own, libc::getppid as *mut c_void);
        assert_eq!(other, libc::getpid as *mut c_void);
        assert!(none.is_null());
        let local = 0u8;
        // SAFETY: an address of no library.
        assert!(unsafe { function_behind((&raw const local).cast(), c"getpid", is_libc) }.is_null());
    }

    #[test]
    fn file_that_is_mapped_to_be_read_is_no_library() {
        let path = std::env::temp_dir().join(format!("libto_read.so.{}", std::process::id()));
        std::fs::copy("/proc/self/exe", &path).unwrap();
        let file = std::fs::File::open(&path).unwrap();
        // SAFETY: a new mapping, which is never touched.
        let mapped = unsafe {
            use std::os::fd::AsRawFd;
            libc::mmap(core::ptr::null_mut(), 4096, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd(), 0)
        };
        assert_ne!(mapped, libc::MAP_FAILED);
        std::fs::remove_file(&path).unwrap();
        let mut lines = NO_LINES;
        assert_eq!(candidates(&mut lines, 0, |file| file.starts_with(b"libto_read.so")).count, 0);
        let found = candidates(&mut lines, 0, is_libc);
        assert_eq!((found.count, found.beside), (1, None));
    }
}
