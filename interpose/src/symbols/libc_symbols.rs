//! libc's own `dlsym` and `dlvsym`, found without calling either.
//!
//! We export both names, so every ordinary look-up of them, versioned or not, finds ours. Instead, the
//! loader's list of mapped objects and libc's symbol table are read in place, as debuggers and the loader do;
//! nothing is allocated or called. The reason is not speed: `dl_iterate_phdr`, `strlen` or `strcmp` may be
//! wrapped by the program or a sanitizer, and the wrapper looks up the real one with the same `dlsym` that
//! is being resolved here.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::size_of;
use core::sync::atomic::{AtomicPtr, Ordering};

use gputrace_producer::held_back::HeldBack;
use gputrace_producer::loader;

pub type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

static DLSYM: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// libc's own `dlsym`, for our own look-ups: another library's wrapper would return its own functions, and
/// count the look-up.
pub fn dlsym() -> Option<Dlsym> {
    let mut known = DLSYM.load(Ordering::Relaxed);
    if known.is_null() {
        known = in_libc(c"dlsym");
        DLSYM.store(known, Ordering::Relaxed);
    }
    // SAFETY: the address of libc's dlsym or null; null is `None` in this type.
    unsafe { core::mem::transmute::<*mut c_void, Option<Dlsym>>(known) }
}

/// The next definition of a libc function after ours: another library's, or libc's.
pub fn next(name: &CStr) -> *mut c_void {
    // A name that is not found is an error, and the error's message is allocated.
    let _held_back = HeldBack::new();
    // SAFETY: a pseudo-handle, asked from our own frame, and a C string.
    dlsym().map_or(core::ptr::null_mut(), |dlsym| unsafe { dlsym(libc::RTLD_NEXT, name.as_ptr()) })
}

/// The loader's description of an object for debuggers (`struct link_map` of <link.h>).
#[repr(C)]
struct Object {
    base: u64,
    path: *const c_char,
    dynamic: *const Dynamic,
    next: *const Object,
}

/// The head of the loader's list of objects (`struct r_debug`).
#[repr(C)]
struct Loader {
    version: c_int,
    first: *const Object,
    /// What the loader calls when it changes the list.
    breakpoint: u64,
    state: c_int,
}

/// The list is not being changed.
const CONSISTENT: c_int = 0;

unsafe extern "C" {
    static _r_debug: Loader;
}

/// The name's default definition in libc (or libdl, which had it before glibc 2.34).
pub fn in_libc(name: &CStr) -> *mut c_void {
    const FILES: [&[u8]; 3] = [b"libc.so.", b"libc-2.", b"libdl"];
    let name = name.to_bytes_with_nul();
    // SAFETY: the loader's own list, set before any code of the process runs. Objects are in the order of
    // loading: those before libc came with the program and are never unloaded, so no thread changes that part
    // of the list.
    let mut object = unsafe { _r_debug.first };
    while !object.is_null() {
        // SAFETY: as above; paths are C strings.
        let (known, file) = unsafe { (&*object, file_of((*object).path)) };
        if FILES.iter().any(|begin| file.get(..begin.len()) == Some(*begin)) {
            // SAFETY: libc is mapped whole and never unloaded.
            let found = unsafe { symbol(known.base, known.dynamic, name) };
            if !found.is_null() {
                return found;
            }
        }
        object = known.next;
    }
    core::ptr::null_mut()
}

/// The name's definition in the objects of the loader's list that `is_wanted` accepts by their file names:
/// how many have one, and the first. Takes no lock and no descriptor: for code that runs under a lock of the
/// program's, where nothing else is left. The list is not read while the loader is changing it; objects
/// that `is_wanted` accepts must never be unloaded.
pub fn in_listed(name: &CStr, is_wanted: fn(&[u8]) -> bool) -> (usize, *mut c_void) {
    let name = name.to_bytes_with_nul();
    let (mut count, mut first) = (0, core::ptr::null_mut());
    // SAFETY: the loader's own list, set before any code of the process runs; the state is one word, which
    // other threads change.
    let mut object = unsafe {
        if (&raw const _r_debug.state).read_volatile() != CONSISTENT {
            return (0, first);
        }
        _r_debug.first
    };
    while !object.is_null() {
        // SAFETY: an object of the list, as debuggers read it. Another thread could begin to unload an object
        // only in the microseconds since the state was read.
        let (known, file) = unsafe { (&*object, file_of((*object).path)) };
        if is_wanted(file) {
            // SAFETY: the caller guarantees that the object stays mapped.
            let found = unsafe { symbol(known.base, known.dynamic, name) };
            if !found.is_null() {
                first = if first.is_null() { found } else { first };
                count += 1;
            }
        }
        object = known.next;
    }
    (count, first)
}

/// The file name in a path; empty for null.
///
/// # Safety
/// Null or a C string that is never freed.
unsafe fn file_of(path: *const c_char) -> &'static [u8] {
    let path = if path.is_null() { c"".as_ptr() } else { path };
    // SAFETY: the caller's guarantee.
    let path = unsafe { bytes(path) };
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

/// A C string's bytes, without `strlen`.
///
/// # Safety
/// A C string that is never freed.
pub unsafe fn bytes(text: *const c_char) -> &'static [u8] {
    let mut length = 0;
    // SAFETY: the caller's guarantee. Volatile: otherwise the compiler might call `strlen` here.
    unsafe {
        while text.add(length).read_volatile() != 0 {
            length += 1;
        }
        core::slice::from_raw_parts(text.cast(), length)
    }
}

struct Search<'a> {
    name: &'a [u8],
    found: *mut c_void,
    /// Whether the library of that file name is searched.
    is_wanted: fn(&[u8]) -> bool,
}

/// The name's default definition in a mapped library that `is_wanted` accepts by its file name. If the
/// library may be unloaded, the caller must prevent that and then check that it is still mapped. To be
/// called only after `dlsym` is known, because this calls the loader.
pub fn in_mapped(name: &CStr, is_wanted: fn(&[u8]) -> bool) -> *mut c_void {
    let name = name.to_bytes_with_nul();
    let mut search = Search { name, found: core::ptr::null_mut(), is_wanted };
    // SAFETY: the callback gets a pointer to `search`, which outlives the call.
    unsafe { loader::each_object(look_at, (&raw mut search).cast()) };
    search.found
}

unsafe extern "C" fn look_at(object: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
    // SAFETY: the loader passes a valid description with its program headers and a C string for a
    // path; `search` is `in_mapped`'s.
    let (object, search, file, headers) = unsafe {
        let object = &*object;
        let headers = core::slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into());
        (object, &mut *search.cast::<Search<'_>>(), file_of(object.dlpi_name), headers)
    };
    if object.dlpi_name.is_null() || !(search.is_wanted)(file) {
        return 0;
    }
    let Some(dynamic) = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC) else { return 0 };
    let dynamic = object.dlpi_addr.wrapping_add(dynamic.p_vaddr) as *const Dynamic;
    // SAFETY: the object is mapped, with the tables named by its dynamic section, while the loader reports
    // it; unwinders rely on that too. Nothing reads it later.
    search.found = unsafe { symbol(object.dlpi_addr, dynamic, search.name) };
    c_int::from(!search.found.is_null())
}

const DT_NULL: i64 = 0;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_GNU_HASH: i64 = 0x6fff_fef5;
const DT_VERSYM: i64 = 0x6fff_fff0;
const STT_GNU_IFUNC: u8 = 10;

#[repr(C)]
pub struct Dynamic {
    tag: i64,
    value: u64,
}

/// The default version of a symbol, named with its NUL, in a mapped object.
///
/// # Safety
/// The object is mapped whole during the call, and has that dynamic section.
pub unsafe fn symbol(base: u64, dynamic: *const Dynamic, name: &[u8]) -> *mut c_void {
    let none = core::ptr::null_mut();
    if dynamic.is_null() {
        return none;
    }
    // All addresses below come from the object's own dynamic section, which the loader has relocated. The
    // tables have the layout of the ELF specification.
    let mut entry = dynamic;
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
    let hash = gnu_hash(name.strip_suffix(b"\0").unwrap_or(name));
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
            let own_name = strings.wrapping_add(symbol.st_name.into()) as *const u8;
            // Bit 15 marks a version that is not the default.
            // SAFETY: one version word a symbol.
            let hidden =
                versions != 0 && unsafe { (versions as *const u16).add(index as usize).read() } & 0x8000 != 0;
            // SAFETY: the table's strings end with a NUL, and so does the name: reading stops at a
            // difference.
            let byte_at = |at: usize| unsafe { own_name.add(at).read_volatile() };
            let is_same = || name.iter().enumerate().all(|(at, byte)| byte_at(at) == *byte);
            // The symbol's address is a resolver function, not the function that the resolver would choose.
            let is_chosen = symbol.st_info & 15 == STT_GNU_IFUNC;
            if symbol.st_shndx != 0 && !hidden && !is_chosen && is_same() {
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
    }

    #[test]
    fn unknown_name_is_not_found() {
        assert!(in_libc(c"no_such_function_of_libc").is_null());
    }

    #[test]
    fn listed_objects_are_searched_by_their_file_names() {
        let is_libc = |file: &[u8]| file.starts_with(b"libc.so.");
        assert_eq!(in_listed(c"getpid", is_libc), (1, libc::getpid as *mut c_void));
        assert_eq!(in_listed(c"no_such_function_of_libc", is_libc).0, 0);
        assert_eq!(in_listed(c"getpid", |_| false).0, 0);
    }

    #[test]
    fn default_version_is_taken() {
        // It has an old hidden version beside its default one, which behaves differently.
        let name = c"pthread_cond_wait";
        // SAFETY: a pseudo-handle and C strings.
        let [default, old] = unsafe {
            let old = libc::dlvsym(libc::RTLD_DEFAULT, name.as_ptr(), c"GLIBC_2.2.5".as_ptr());
            [libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()), old]
        };
        assert!(!old.is_null() && default != old);
        assert_eq!(in_libc(name), default);
        assert!(in_libc(c"memcpy").is_null(), "an indirect function's own address is its chooser's");
    }

    #[test]
    fn bytes_are_those_before_the_nul() {
        // SAFETY: C strings.
        unsafe { assert_eq!((bytes(c"".as_ptr()), bytes(c"abc".as_ptr())), (&b""[..], &b"abc"[..])) };
        // SAFETY: likewise.
        unsafe { assert_eq!(file_of(c"/lib/libc.so.6".as_ptr()), b"libc.so.6") };
    }
}
