//! A CUPTI that the program was linked to statically.
//!
//! Its calls stay inside the program, so it can be no guest; and where ours has the driver it is
//! refused, for good with CUPTI 13.0 or later. It is known by a text that every libcupti from 11.8
//! to 13.5 holds. Only the program itself is searched, not its libraries, once, at `cuInit`:
//! about a millisecond for ten megabytes of constants.

use core::ffi::{c_int, c_void};

use gputrace_producer::loader;

/// The name of a kernel of CUPTI's own, from its end to its beginning: this library must not hold
/// the text, as a program might hold this library.
const MARK_REVERSED: &[u8] = b"yrtnEpnCitpuC__";

/// Whether the program has a CUPTI linked in.
pub fn is_there() -> bool {
    let mut found = false;
    // SAFETY: the callback gets a pointer to `found`, which outlives the call.
    unsafe { loader::each_object(look_at_program, (&raw mut found).cast()) };
    found
}

/// The first object that the loader names is the program.
unsafe extern "C" fn look_at_program(object: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
    let mark: Vec<u8> = MARK_REVERSED.iter().rev().copied().collect();
    // SAFETY: the loader passes a valid description with its program headers; segments that it
    // says are loaded and readable are, and nobody changes those that cannot be written.
    unsafe {
        let object = &*object;
        if object.dlpi_phdr.is_null() {
            return 1;
        }
        let headers = core::slice::from_raw_parts(object.dlpi_phdr, usize::from(object.dlpi_phnum));
        let is_loaded = |header: &&libc::Elf64_Phdr, flags| {
            header.p_type == libc::PT_LOAD && header.p_flags & (libc::PF_R | libc::PF_W | libc::PF_X) == flags
        };
        // Constants lie with the code where the linker was told to keep them together.
        let has_constants = headers.iter().any(|header| is_loaded(&header, libc::PF_R));
        let flags = if has_constants { libc::PF_R } else { libc::PF_R | libc::PF_X };
        for header in headers.iter().filter(|header| is_loaded(header, flags)) {
            let begin = (object.dlpi_addr + header.p_vaddr) as *const u8;
            let segment = core::slice::from_raw_parts(begin, header.p_filesz as usize);
            // Not by libc's memmem: a sanitizer in the program would take us for it.
            if memchr::memmem::find(segment, &mark).is_some() {
                *found.cast::<bool>() = true;
                break;
            }
        }
    }
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_without_one_has_none() {
        assert!(!is_there());
        assert!(MARK_REVERSED.iter().rev().eq(["__Cupti", "CnpEntry"].concat().as_bytes()));
    }
}
