//! What a mapped object needs of others, by name: the undefined symbols of its dynamic table.
//!
//! Whoever loaded the object read these names to bind them, so they are in memory: some thousands
//! in a library of PyTorch's, some microseconds. Nothing else of the object is touched.

/// An entry of the dynamic section.
#[repr(C)]
#[derive(Clone, Copy)]
struct Dynamic {
    tag: i64,
    value: u64,
}

const DT_NULL: i64 = 0;
const DT_HASH: i64 = 4;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_STRSZ: i64 = 10;
const DT_GNU_HASH: i64 = 0x6fff_fef5;
/// The other tables that a section may have behind that of its symbols: PLTGOT, RELA, INIT, FINI, JMPREL,
/// INIT_ARRAY, FINI_ARRAY, VERSYM, VERDEF, VERNEED.
const OTHER_TABLES: [i64; 10] = [3, 7, 12, 13, 23, 25, 26, 0x6fff_fff0, 0x6fff_fffc, 0x6fff_fffe];

/// More symbols than any object needs: no walk is longer.
const MOST: usize = 1 << 18;

#[derive(Default)]
struct Tables {
    strings: u64,
    string_bytes: u64,
    symbols: u64,
    hashes: u64,
    old_hashes: u64,
    /// Where the nearest table behind the symbols begins; 0 for none.
    behind_symbols: u64,
}

/// Whether the object needs every one of these names, each given with its NUL.
///
/// # Safety
/// The object is mapped whole during the call, and these are its program headers.
pub unsafe fn all_of<const N: usize>(base: u64, headers: &[libc::Elf64_Phdr], names: &[&[u8]; N]) -> bool {
    let Some(dynamic) = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC) else { return false };
    // SAFETY: the caller's word.
    let tables = unsafe { tables(base, base.wrapping_add(dynamic.p_vaddr) as *const Dynamic) };
    if tables.strings == 0 || tables.symbols == 0 {
        return false;
    }
    // The nearest table may lie in another segment, and nothing between the two.
    let ends = headers.iter().filter(|header| header.p_type == libc::PT_LOAD).filter_map(|header| {
        let begin = base.wrapping_add(header.p_vaddr);
        let end = begin.saturating_add(header.p_filesz);
        (begin..end).contains(&tables.symbols).then_some(end)
    });
    let room = ends.max().map_or(0, |end| (end - tables.symbols) as usize / size_of::<libc::Elf64_Sym>());
    // SAFETY: the tables are the object's.
    let count = unsafe { count(&tables) }.min(room).min(MOST);
    let mut is_needed = [false; N];
    // The first entry is no symbol.
    for index in 1..count {
        // SAFETY: the index is below the count.
        let symbol = unsafe { (tables.symbols as *const libc::Elf64_Sym).add(index).read() };
        if symbol.st_shndx != 0 || u64::from(symbol.st_name) >= tables.string_bytes {
            continue;
        }
        let text = tables.strings.wrapping_add(symbol.st_name.into()) as *const u8;
        for (name, is_needed) in names.iter().zip(&mut is_needed) {
            // SAFETY: the table's strings end with a NUL, as the name does: a difference is met first.
            *is_needed |= name.iter().enumerate().all(|(at, byte)| unsafe { text.add(at).read() } == *byte);
        }
        if is_needed.iter().all(|is_needed| *is_needed) {
            return true;
        }
    }
    false
}

/// # Safety
/// The dynamic section of a mapped object.
unsafe fn tables(base: u64, dynamic: *const Dynamic) -> Tables {
    let mut found = Tables::default();
    // glibc relocates addresses in place; other loaders do not, nor is it done in the vDSO.
    let address = |value: u64| if value < base { base.wrapping_add(value) } else { value };
    let entries = || {
        let mut next = dynamic;
        core::iter::from_fn(move || {
            // SAFETY: the section ends with DT_NULL, and nothing is read behind it.
            let entry = unsafe { next.read() };
            next = next.wrapping_add(1);
            (entry.tag != DT_NULL).then_some(entry)
        })
    };
    for Dynamic { tag, value } in entries() {
        match tag {
            DT_STRTAB => found.strings = address(value),
            DT_STRSZ => found.string_bytes = value,
            DT_SYMTAB => found.symbols = address(value),
            DT_HASH => found.old_hashes = address(value),
            DT_GNU_HASH => found.hashes = address(value),
            _ => {}
        }
    }
    let others =
        entries().filter(|entry| OTHER_TABLES.contains(&entry.tag)).map(|entry| address(entry.value));
    found.behind_symbols = [found.strings, found.hashes, found.old_hashes]
        .into_iter()
        .chain(others)
        .filter(|table| *table > found.symbols)
        .min()
        .unwrap_or(0);
    found
}

/// How many symbols are to be looked at from the first on.
///
/// # Safety
/// Tables of a mapped object.
unsafe fn count(tables: &Tables) -> usize {
    let word = |table: u64, at: usize| {
        // SAFETY: both kinds of hash tables begin with at least two words.
        unsafe { (table as *const u32).add(at).read() as usize }
    };
    if tables.hashes != 0 {
        // Symbols that are defined are hashed, and come last. Where there are none the word is 1,
        // whatever is needed.
        let first_hashed = word(tables.hashes, 1);
        if first_hashed > 1 {
            return first_hashed;
        }
    } else if tables.old_hashes != 0 {
        return word(tables.old_hashes, 1);
    }
    tables.behind_symbols.saturating_sub(tables.symbols) as usize / size_of::<libc::Elf64_Sym>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ffi::{c_int, c_void};
    use gputrace_producer::loader;

    unsafe extern "C" fn ask(object: *mut libc::dl_phdr_info, _: usize, answers: *mut c_void) -> c_int {
        // SAFETY: the loader's description; the test's own answers.
        unsafe {
            let object = &*object;
            let headers = core::slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into());
            let has = |names: &[&[u8]; 2]| all_of(object.dlpi_addr, headers, names);
            (*answers.cast::<Vec<[bool; 3]>>()).push([
                has(&[b"dlsym\0", b"dl_iterate_phdr\0"]),
                has(&[b"dlsym\0", b"no_such_function\0"]),
                has(&[b"dlsy\0", b"dl_iterate_phdr\0"]),
            ]);
        }
        0
    }

    /// This test program exports nothing and needs both; other objects, the vDSO among them, do not.
    #[test]
    fn what_an_object_needs_is_known() {
        let mut answers: Vec<[bool; 3]> = Vec::new();
        // SAFETY: the callback gets a pointer to the answers, which outlive the call.
        unsafe { loader::each_object(ask, (&raw mut answers).cast()) };
        assert_eq!(answers.first(), Some(&[true, false, false]));
        assert!(
            answers.len() > 3 && answers.iter().skip(1).all(|answer| *answer == [false; 3]),
            "{answers:?}"
        );
    }
}
