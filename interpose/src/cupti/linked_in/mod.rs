//! A CUPTI that the program, or a library of its, was linked to statically.
//!
//! Its calls stay inside the object that holds it, so it can be no guest; and where ours has the
//! driver it is refused, for good with CUPTI 13.0 or later. PyTorch's wheels up to 1.13 have one,
//! in libtorch_cpu.so. Owned here: how it is known, by a text that every libcupti from 11.7 to 13.5
//! holds, and the two moments at which it is looked for.
//!
//! - At `cuInit`, before ours is taken into use: in all that is loaded. It takes some microseconds in
//!   a small program, 0.2 ms with PyTorch 1.13, which has one, and 0.6 ms with 2.15, which has none.
//! - Later, of a library that was loaded since: when it begins to use the driver. A libcupti looks
//!   `cuGetExportTable` up by `dlsym` then (11.7 to 13.5 do), before it asks for the driver; a CUDA
//!   runtime, which is linked statically more often, looks up `cuGetProcAddress` alone.
//!
//! What is searched is bounded; one that is missed at `cuInit` is met at the second moment.

mod constants;
mod imports;
mod sections;

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicU64, Ordering};

use gputrace_producer::{loader, thread};
use memchr::memmem::Finder;

use super::client;
use crate::detour;
use crate::loaded;
use crate::resolve::failed_look_up::KeepError;
use crate::settings;

/// The name of a kernel of CUPTI's own, from its end to its beginning: this library must not hold
/// the text, as a program might hold this library.
const MARK_REVERSED: &[u8] = b"yrtnEpnCitpuC__";

/// What a libcupti needs of the C library. The second comes of a layer that NVIDIA's libraries have
/// beneath them; of all that PyTorch 2.9 loads nothing large needs it.
const NEEDED: [&[u8]; 2] = [b"dlsym\0", b"pthread_rwlock_timedwrlock\0"];

/// How the files of NVIDIA's own libraries begin, which hold no CUPTI for the program's use and have
/// gigabytes of constants; libcupti itself may be a guest.
const NOT_LOOKED_AT: [&[u8]; 20] = [
    b"libcupti",
    b"libcuda.so",
    b"libcudart",
    b"libcublas",
    b"libcudnn",
    b"libcufft",
    b"libcufile",
    b"libcurand",
    b"libcusolver",
    b"libcusparse",
    b"libcudss",
    b"libnccl",
    b"libnvidia-",
    b"libnvinfer",
    b"libnvJitLink",
    b"libnvjpeg",
    b"libnvperf",
    b"libnvrtc",
    b"libnvshmem",
    b"libgputrace",
];

/// What a libcupti looks up before it asks for the driver.
const LOOKED_UP_FIRST: &CStr = c"cuGetExportTable";

/// Who holds a CUPTI, of all that is loaded: words for the user.
pub fn holder() -> Option<String> {
    find(Which::All)
}

/// Who looked that name up, from that address: if it is a CUPTI that was linked in, ours goes out of
/// its way, or it is said that it cannot.
#[inline]
pub fn heed_look_up(name: *const c_char, caller: *const c_void) {
    // SAFETY: the C string of a look-up that has succeeded.
    let is_first = unsafe { CStr::from_ptr(name) } == LOOKED_UP_FIRST;
    if is_first && !settings::is_turned_off() && client::has_what_another_may_want() {
        heed(caller as u64);
    }
}

#[cold]
fn heed(caller: u64) {
    thread::with(|slot| {
        // Inside, it is our own use of CUPTI that looks something up.
        if let Some(_inside) = slot.enter() {
            // Before the search: what is loaded during it is searched the next time.
            let asks = Asker::new(caller, loaded::counts().loaded);
            if asks.is_known() {
                return;
            }
            detour::run(|| {
                let found = {
                    let _error = KeepError::new();
                    find(Which::At(caller))
                };
                match found {
                    Some(holder) => client::give_way_to_linked_in(&holder),
                    None => asks.remember(),
                }
            });
        }
    });
}

/// A place that looked that name up, to within a page, as long as nothing more is loaded: until then no
/// other object can lie there. Libraries that are no CUPTI may look it up again and again.
#[derive(Clone, Copy)]
struct Asker(u64);

/// Places whose objects hold none, each where its page says.
static ASKED: [AtomicU64; 16] = [const { AtomicU64::new(u64::MAX) }; 16];

impl Asker {
    fn new(caller: u64, loaded: u64) -> Self {
        Self(stamp(caller, loaded))
    }

    fn is_known(self) -> bool {
        self.place().load(Ordering::Relaxed) == self.0
    }

    fn remember(self) {
        self.place().store(self.0, Ordering::Relaxed);
    }

    fn place(self) -> &'static AtomicU64 {
        let [first, ..] = &ASKED;
        ASKED.get(self.0 as usize % ASKED.len()).unwrap_or(first)
    }
}

/// A page and how many objects had been loaded then, in one word.
fn stamp(address: u64, loaded: u64) -> u64 {
    address >> 12 | loaded << 36
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    /// Each object that needs what a CUPTI needs.
    All,
    /// The one that this address is in, whatever it needs.
    At(u64),
}

struct Search<'m> {
    which: Which,
    constants: constants::Search<'m>,
    is_found: bool,
    /// The beginning of its file's name, empty for the program: nothing is allocated while the loader is
    /// locked, as an allocator may wait for that lock.
    file: [u8; MOST_NAME_BYTES],
}

const MOST_NAME_BYTES: usize = 128;

fn find(which: Which) -> Option<String> {
    let mark: Vec<u8> = MARK_REVERSED.iter().rev().copied().collect();
    // Not by libc's memmem: a sanitizer in the program would take us for it.
    let constants = constants::Search::new(Finder::new(&mark));
    let mut search = Search { which, constants, is_found: false, file: [0; MOST_NAME_BYTES] };
    // SAFETY: the callback gets a pointer to `search`, which outlives the call.
    unsafe { loader::each_object(look_at, (&raw mut search).cast()) };
    let file = search.file.split(|byte| *byte == 0).next().unwrap_or_default();
    search.is_found.then(|| match file {
        b"" => "the program".into(),
        file => String::from_utf8_lossy(file).into_owned(),
    })
}

/// The last object that was searched from an address of its own and holds none: where it begins and
/// how many had been loaded then, as another may lie there later.
static HOLDS_NONE: AtomicU64 = AtomicU64::new(u64::MAX);

unsafe extern "C" fn look_at(object: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
    // SAFETY: the loader passes a valid description with its program headers; `search` is `find`'s.
    let (object, search) = unsafe { (&*object, &mut *search.cast::<Search<'_>>()) };
    if object.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: as above.
    let headers = unsafe { core::slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into()) };
    let path = if object.dlpi_name.is_null() {
        &b""[..]
    } else {
        // SAFETY: the loader's C string.
        unsafe { CStr::from_ptr(object.dlpi_name) }.to_bytes()
    };
    let file = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let known = stamp(object.dlpi_addr, object.dlpi_adds);
    let is_meant = match search.which {
        // SAFETY: the object is mapped, with the tables its dynamic section names, as long as the
        // loader shows it to us.
        Which::All => unsafe { imports::all_of(object.dlpi_addr, headers, &NEEDED) },
        Which::At(address) if !is_in(address, object.dlpi_addr, headers) => return 0,
        Which::At(_) => known != HOLDS_NONE.load(Ordering::Relaxed) && !is_in_use(path),
    };
    let is_known = NOT_LOOKED_AT.iter().any(|begin| file.starts_with(begin));
    // SAFETY: as above; nobody changes segments that cannot be written.
    if is_meant && !is_known && unsafe { search.constants.is_in(path, object.dlpi_addr, headers) } {
        search.is_found = true;
        search.file.iter_mut().zip(file).for_each(|(to, byte)| *to = *byte);
        return 1;
    }
    if search.which == Which::All {
        return 0;
    }
    HOLDS_NONE.store(known, Ordering::Relaxed);
    1
}

/// Whether that is the libcupti in use, whatever its file is called.
fn is_in_use(path: &[u8]) -> bool {
    client::in_use().is_some_and(|root| root.path.as_os_str().as_encoded_bytes() == path)
}

fn is_in(address: u64, base: u64, headers: &[libc::Elf64_Phdr]) -> bool {
    headers.iter().filter(|header| header.p_type == libc::PT_LOAD).any(|header| {
        let begin = base.wrapping_add(header.p_vaddr);
        (begin..begin.saturating_add(header.p_memsz)).contains(&address)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_without_one_has_none_and_is_not_searched_again() {
        assert!(MARK_REVERSED.iter().rev().eq(["__Cupti", "CnpEntry"].concat().as_bytes()));
        assert_eq!(holder(), None);
        assert_eq!(find(Which::At(holder as *const c_void as u64)), None);
        let known = HOLDS_NONE.load(Ordering::Relaxed);
        assert_ne!(known, u64::MAX);
        assert_eq!(find(Which::At(libc::getpid as *const c_void as u64)), None);
        assert_ne!(HOLDS_NONE.load(Ordering::Relaxed), known, "the C library lies elsewhere");
    }

    #[test]
    fn who_asked_is_known_until_something_is_loaded() {
        let caller = 0x7f12_3456_7890;
        let asks = Asker::new(caller, 40);
        assert!(!asks.is_known());
        asks.remember();
        assert!(asks.is_known() && Asker::new(caller ^ 0x76f, 40).is_known(), "the page is known");
        assert!(!Asker::new(caller, 41).is_known() && !Asker::new(caller + 4096, 40).is_known());
        // Another page takes its place, and none of the others.
        let (next, same) = (Asker::new(caller + 4096, 40), Asker::new(caller + (16 << 12), 40));
        next.remember();
        assert!(next.is_known() && asks.is_known());
        same.remember();
        assert!(same.is_known() && next.is_known() && !asks.is_known());
    }
}
