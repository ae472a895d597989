//! A text among the constants of mapped objects.
//!
//! Some libraries have half a gigabyte of them, device code most of it, and to search all would be to
//! fetch all from disk. So of a large object its section of constants alone is searched; and where
//! that is large, or not known, two parts: what lies at its end, or before its unwind tables, since
//! archives are linked last, and what it begins with, before device code.
//! A file that was cut while it was mapped ends nobody: such pages are left out (Linux 5.14).

use gputrace_producer::system;
use memchr::memmem::Finder;

use super::sections;

/// What is looked at in one go.
const BLOCK_BYTES: usize = 1 << 20;
/// A larger object is worth a look into its file.
const SMALL_BYTES: usize = 2 << 20;
/// Of one object.
const LAST_BYTES: usize = 32 << 20;
const FIRST_BYTES: usize = 16 << 20;
/// Of all objects of one search: a dozen milliseconds where they are in memory.
const MOST_BYTES: usize = 96 << 20;
const PAGE_BYTES: usize = 4096;

pub struct Search<'m> {
    text: Finder<'m>,
    left_bytes: usize,
}

impl<'m> Search<'m> {
    pub fn new(text: Finder<'m>) -> Self {
        Self { text, left_bytes: MOST_BYTES }
    }

    /// Whether the object has the text among its constants, as far as it is looked for.
    ///
    /// # Safety
    /// The object is mapped whole during the call, and these are its program headers.
    pub unsafe fn is_in(&mut self, path: &[u8], base: u64, headers: &[libc::Elf64_Phdr]) -> bool {
        let at = |header: &libc::Elf64_Phdr| base.wrapping_add(header.p_vaddr) as usize;
        let unwind_tables = headers.iter().find(|header| header.p_type == libc::PT_GNU_EH_FRAME).map(at);
        let is_loaded = |header: &libc::Elf64_Phdr, flags| {
            header.p_type == libc::PT_LOAD && header.p_flags & (libc::PF_R | libc::PF_W | libc::PF_X) == flags
        };
        // Constants lie with the code where the linker was told to keep them together.
        let has_constants = headers.iter().any(|header| is_loaded(header, libc::PF_R));
        let flags = if has_constants { libc::PF_R } else { libc::PF_R | libc::PF_X };
        let segments = headers.iter().filter(|header| is_loaded(header, flags)).map(|header| {
            let begin = at(header);
            (begin, begin.saturating_add(header.p_filesz as usize))
        });
        let holds_tables =
            |(begin, end): &(usize, usize)| unwind_tables.is_some_and(|at| (*begin..*end).contains(&at));
        // Every linker puts these tables with the constants; other segments have symbols and the like.
        let is_one = segments.clone().any(|segment| holds_tables(&segment));
        for segment in segments.filter(|segment| !is_one || holds_tables(segment)) {
            let is_small = segment.1.saturating_sub(segment.0) <= SMALL_BYTES;
            let section = if is_small { None } else { sections::constants(path, headers) };
            let section = section.map(|(begin, end)| [begin, end].map(|at| base.wrapping_add(at) as usize));
            let windows = match section {
                Some([begin, end]) if segment.0 <= begin && begin <= end && end <= segment.1 => {
                    windows((begin, end), end)
                }
                _ => windows(segment, unwind_tables.filter(|_| is_one).unwrap_or(segment.1)),
            };
            for (begin, end) in windows {
                // SAFETY: a part of the segment, which is mapped and can be read.
                if unsafe { self.is_between(begin, end) } {
                    return true;
                }
            }
        }
        false
    }

    /// From the end backwards.
    ///
    /// # Safety
    /// The range is mapped, can be read, and nobody changes it; it may have pages that cannot be had.
    unsafe fn is_between(&mut self, begin: usize, end: usize) -> bool {
        let mut block_end = end;
        // The text may begin in one block and end in the next, if that can be read.
        let mut read_until = end;
        while block_end > begin && self.left_bytes > 0 {
            let block = begin.max(block_end.saturating_sub(BLOCK_BYTES));
            self.left_bytes = self.left_bytes.saturating_sub(block_end - block);
            if can_be_read(block, block_end) {
                let more = self.text.needle().len().saturating_sub(1);
                let until = read_until.min(block_end.saturating_add(more));
                // SAFETY: the caller's word, and its pages were had just now.
                let bytes = unsafe { core::slice::from_raw_parts(block as *const u8, until - block) };
                if self.text.find(bytes).is_some() {
                    return true;
                }
                read_until = end;
            } else {
                read_until = block;
            }
            block_end = block;
        }
        false
    }
}

/// The parts of a segment that are searched, the likeliest first. Its unwind tables are at `tables`.
fn windows((begin, end): (usize, usize), tables: usize) -> [(usize, usize); 2] {
    if end.saturating_sub(begin) <= FIRST_BYTES + LAST_BYTES {
        return [(begin, tables), (tables, end)];
    }
    let last = begin.max(tables.saturating_sub(LAST_BYTES));
    [(last, tables), (begin, last.min(begin.saturating_add(FIRST_BYTES)))]
}

/// Whether those pages can be had, which are fetched. Before Linux 5.14 nobody can tell.
fn can_be_read(begin: usize, end: usize) -> bool {
    let page = begin / PAGE_BYTES * PAGE_BYTES;
    // SAFETY: mapped by the caller's word; nothing but page tables is changed.
    let result = unsafe { system::madvise(page as *mut _, end - page, libc::MADV_POPULATE_READ) };
    !matches!(-result, libc::EFAULT | libc::EHWPOISON | libc::ENOMEM)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"the text";

    fn is_between(bytes: &[u8]) -> bool {
        let range = bytes.as_ptr_range();
        // SAFETY: the test's own bytes.
        unsafe { Search::new(Finder::new(TEXT)).is_between(range.start as usize, range.end as usize) }
    }

    #[test]
    fn it_is_found_wherever_it_lies() {
        let mut bytes = vec![0u8; 3 * BLOCK_BYTES + 5];
        assert!(!is_between(&bytes) && !is_between(&bytes[..3]) && !is_between(&[]));
        let last = bytes.len() - TEXT.len();
        for at in [0, 5, 6, BLOCK_BYTES, BLOCK_BYTES + 1, BLOCK_BYTES + 5, 2 * BLOCK_BYTES + 2, last] {
            bytes[at..at + TEXT.len()].copy_from_slice(TEXT);
            assert!(is_between(&bytes), "{at}");
            assert!(!is_between(&bytes[at + 1..]) && !is_between(&bytes[..at + TEXT.len() - 1]), "{at}");
            bytes[at..at + TEXT.len()].fill(0);
        }
    }

    #[test]
    fn of_a_large_segment_two_parts_are_searched() {
        const MIB: usize = 1 << 20;
        assert_eq!(windows((MIB, 40 * MIB), 30 * MIB), [(MIB, 30 * MIB), (30 * MIB, 40 * MIB)]);
        assert_eq!(windows((MIB, 900 * MIB), 800 * MIB), [(768 * MIB, 800 * MIB), (MIB, 17 * MIB)]);
        assert_eq!(windows((MIB, 900 * MIB), 40 * MIB), [(8 * MIB, 40 * MIB), (MIB, 8 * MIB)]);
        assert_eq!(windows((MIB, 900 * MIB), 2 * MIB), [(MIB, 2 * MIB), (MIB, MIB)]);
    }

    #[test]
    fn no_more_is_searched_than_is_allowed() {
        let mut bytes = vec![0u8; 3 * BLOCK_BYTES];
        bytes[..TEXT.len()].copy_from_slice(TEXT);
        let range = bytes.as_ptr_range();
        let mut search = Search::new(Finder::new(TEXT));
        search.left_bytes = 2 * BLOCK_BYTES;
        // SAFETY: the test's own bytes.
        assert!(!unsafe { search.is_between(range.start as usize, range.end as usize) });
        assert_eq!(search.left_bytes, 0);
    }

    /// Reading a page that the file no longer has would end this test by SIGBUS.
    #[test]
    fn a_file_that_was_cut_is_searched_as_far_as_it_is_there() {
        use std::os::fd::AsRawFd;
        const BYTES: usize = 4 * BLOCK_BYTES;
        let path = std::env::temp_dir().join(format!("gputrace-cut-{}", std::process::id()));
        let mut content = vec![0u8; BYTES];
        content[..TEXT.len()].copy_from_slice(TEXT);
        std::fs::write(&path, &content).unwrap();
        let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        // SAFETY: a new mapping of a file of that size.
        let mapped = unsafe {
            libc::mmap(core::ptr::null_mut(), BYTES, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd(), 0)
        };
        assert_ne!(mapped, libc::MAP_FAILED);
        file.set_len(BLOCK_BYTES as u64).unwrap();
        if can_be_read(mapped as usize, mapped as usize + BYTES) {
            // This kernel cannot tell.
            return;
        }
        let mut search = Search::new(Finder::new(TEXT));
        // SAFETY: the mapping made above.
        assert!(unsafe { search.is_between(mapped as usize, mapped as usize + BYTES) });
    }
}
