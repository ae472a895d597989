//! libc's own `dlsym` and `dlvsym`, found without asking either.
//!
//! We export both names, so every ordinary way to ask for them, versioned or not, finds us. The
//! loader's list of mapped objects and libc's own symbol table answer without any look-up: the
//! table is read in place, as the loader reads it, and nothing is allocated or called.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::size_of;
use core::sync::atomic::{AtomicPtr, Ordering};

pub type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
pub type Dlvsym = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;

static DLSYM: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static NEXT_DLSYM: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static NEXT_DLVSYM: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// libc's own, for our own questions: another library's hook of it would answer with its own
/// functions, and count the question.
pub fn dlsym() -> Option<Dlsym> {
    let mut known = DLSYM.load(Ordering::Relaxed);
    if known.is_null() {
        known = in_libc(c"dlsym");
        DLSYM.store(known, Ordering::Relaxed);
    }
    // SAFETY: the address of libc's dlsym or null; null is `None` in this type.
    unsafe { core::mem::transmute::<*mut c_void, Option<Dlsym>>(known) }
}

/// The next `dlsym` after ours, for the program's questions: another preloaded library's, or
/// libc's.
pub fn next_dlsym() -> Option<Dlsym> {
    // SAFETY: `once` returns the address of a dlsym or null; null is `None` in this type.
    unsafe { core::mem::transmute::<*mut c_void, Option<Dlsym>>(once(&NEXT_DLSYM, c"dlsym")) }
}

/// The next `dlvsym` after ours.
pub fn next_dlvsym() -> Option<Dlvsym> {
    // SAFETY: as above.
    unsafe { core::mem::transmute::<*mut c_void, Option<Dlvsym>>(once(&NEXT_DLVSYM, c"dlvsym")) }
}

fn once(slot: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let known = slot.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    let mut found = in_libc(name);
    if let Some(dlsym) = dlsym() {
        // SAFETY: a pseudo-handle, asked from our own frame, and a C string.
        let next = unsafe { dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        if !next.is_null() && !is_ours(next) {
            found = next;
        }
    }
    slot.store(found, Ordering::Relaxed);
    found
}

fn is_ours(address: *mut c_void) -> bool {
    address == super::look_up::dlsym as *mut c_void || address == super::look_up::dlvsym as *mut c_void
}

/// The next definition of a libc function after ours: another library's, or libc's.
pub fn next(name: &CStr) -> *mut c_void {
    // SAFETY: a pseudo-handle, asked from our own frame, and a C string.
    dlsym().map_or(core::ptr::null_mut(), |dlsym| unsafe { dlsym(libc::RTLD_NEXT, name.as_ptr()) })
}

struct Search {
    name: *const c_char,
    found: *mut c_void,
    /// Whether the library of that file name may have it.
    is_wanted: fn(&[u8]) -> bool,
}

/// The name's default definition in libc (or libdl, where it lived before glibc 2.34).
pub fn in_libc(name: &CStr) -> *mut c_void {
    in_mapped(name, |file| {
        file.starts_with(b"libc.so.") || file.starts_with(b"libc-2.") || file.starts_with(b"libdl")
    })
}

/// The name's default definition in a mapped library that is wanted by its file name. The address
/// says where it was: of a library that may be unloaded, the caller sees to it that it is not, and
/// looks whether it still is there.
pub fn in_mapped(name: &CStr, is_wanted: fn(&[u8]) -> bool) -> *mut c_void {
    let mut search = Search { name: name.as_ptr(), found: core::ptr::null_mut(), is_wanted };
    // SAFETY: the callback gets a pointer to `search`, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(look_at), (&raw mut search).cast()) };
    search.found
}

unsafe extern "C" fn look_at(object: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
    // SAFETY: the loader passes a valid description; `search` is `in_mapped`'s.
    let (object, search) = unsafe { (&*object, &mut *search.cast::<Search>()) };
    if object.dlpi_name.is_null() {
        return 0;
    }
    // SAFETY: the loader's C string.
    let path = unsafe { CStr::from_ptr(object.dlpi_name) }.to_bytes();
    let file = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    if !(search.is_wanted)(file) {
        return 0;
    }
    // SAFETY: the object is mapped, with the tables its dynamic section names, as long as the
    // loader shows it to us, which unwinders rely on too. Nothing reads it after that.
    search.found = unsafe { symbol(object, search.name) };
    c_int::from(!search.found.is_null())
}

const DT_NULL: i64 = 0;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_GNU_HASH: i64 = 0x6fff_fef5;
const DT_VERSYM: i64 = 0x6fff_fff0;
const STT_GNU_IFUNC: u8 = 10;

#[repr(C)]
struct Dynamic {
    tag: i64,
    value: u64,
}

/// The default version of a symbol in a mapped object. None of what is found by calling a function
/// (IFUNC): the table has that function's address, not the symbol's.
///
/// # Safety
/// The object is mapped whole during the call; the name is a C string.
unsafe fn symbol(object: &libc::dl_phdr_info, name: *const c_char) -> *mut c_void {
    let none = core::ptr::null_mut();
    // All addresses below come from the object's own dynamic section, which the loader has
    // relocated; the tables are laid out as the ELF specification says.
    // SAFETY: the loader's own description of the object's program headers.
    let headers = unsafe { core::slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into()) };
    let Some(dynamic) = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC) else { return none };
    let base = object.dlpi_addr;
    let mut entry = base.wrapping_add(dynamic.p_vaddr) as *const Dynamic;
    let (mut strings, mut symbols, mut hashes, mut versions) = (0u64, 0u64, 0u64, 0u64);
    loop {
        // SAFETY: the dynamic section ends with DT_NULL, which ends the loop.
        let Dynamic { tag, value } = unsafe { entry.read() };
        // glibc relocates these in place; other loaders do not.
        let address = if value < base { base.wrapping_add(value) } else { value };
        match tag {
            DT_NULL => break,
            DT_STRTAB => strings = address,
            DT_SYMTAB => symbols = address,
            DT_GNU_HASH => hashes = address,
            DT_VERSYM => versions = address,
            _ => {}
        }
        entry = entry.wrapping_add(1);
    }
    if strings == 0 || symbols == 0 || hashes == 0 {
        return none;
    }
    // GNU hash: bucket count, first hashed symbol, bloom words, bloom shift; bloom; buckets; chain.
    let words = hashes as *const u32;
    // SAFETY: the section has at least this header.
    let [buckets, first, bloom_words] = [0, 1, 2].map(|at| unsafe { words.add(at).read() });
    if buckets == 0 {
        return none;
    }
    let bucket_table = words.wrapping_add(4 + bloom_words as usize * (size_of::<usize>() / 4));
    let chain = bucket_table.wrapping_add(buckets as usize);
    // SAFETY: a C string.
    let hash = gnu_hash(unsafe { CStr::from_ptr(name) }.to_bytes());
    // SAFETY: the bucket is below the count.
    let mut index = unsafe { bucket_table.add((hash % buckets) as usize).read() };
    if index < first {
        return none;
    }
    loop {
        // SAFETY: chains run until an entry with its low bit set.
        let found = unsafe { chain.add((index - first) as usize).read() };
        if found | 1 == hash | 1 {
            // SAFETY: the index is of a symbol in the table.
            let symbol = unsafe { (symbols as *const libc::Elf64_Sym).add(index as usize).read() };
            let own_name = strings.wrapping_add(symbol.st_name.into()) as *const c_char;
            // Bit 15 marks a version that is not the default one.
            // SAFETY: one version word a symbol.
            let hidden =
                versions != 0 && unsafe { (versions as *const u16).add(index as usize).read() } & 0x8000 != 0;
            let called_for = symbol.st_info & 15 == STT_GNU_IFUNC;
            // SAFETY: both are C strings.
            if symbol.st_shndx != 0 && !hidden && !called_for && unsafe { libc::strcmp(own_name, name) } == 0
            {
                return base.wrapping_add(symbol.st_value) as *mut c_void;
            }
        }
        if found & 1 != 0 {
            return none;
        }
        index += 1;
    }
}

fn gnu_hash(name: &[u8]) -> u32 {
    name.iter().fold(5381u32, |hash, byte| hash.wrapping_mul(33).wrapping_add((*byte).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libc_has_a_dlsym_that_works() {
        let dlsym = dlsym().unwrap();
        // SAFETY: a pseudo-handle and a C string.
        let found = unsafe { dlsym(libc::RTLD_DEFAULT, c"getpid".as_ptr()) };
        assert_eq!(found, libc::getpid as *mut c_void);
        assert!(next_dlsym().is_some() && next_dlvsym().is_some());
    }

    #[test]
    fn an_unknown_name_is_not_found() {
        assert!(in_libc(c"no_such_function_of_libc").is_null());
    }

    #[test]
    fn the_default_version_is_taken() {
        // realpath has an old hidden version beside its default one.
        let (dlsym, dlvsym) = (dlsym().unwrap(), next_dlvsym().unwrap());
        // SAFETY: a pseudo-handle and C strings.
        let (taken, old) = unsafe {
            let name = c"realpath".as_ptr();
            (dlsym(libc::RTLD_DEFAULT, name), dlvsym(libc::RTLD_DEFAULT, name, c"GLIBC_2.2.5".as_ptr()))
        };
        assert!(!old.is_null() && old != taken);
        assert_eq!(in_libc(c"realpath"), taken);
    }

    #[test]
    fn what_a_function_of_its_own_chooses_is_not_found() {
        assert!(in_libc(c"memcpy").is_null());
    }
}
