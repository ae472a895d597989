//! The shared AddressSanitizer that a program needs, judged before it starts by its file alone.
//!
//! ASan's shared library ends the process with code 1 unless the loader lists it before every other
//! library, and preloaded libraries come before the program's own. So `run` preloads it before our
//! library, for that exec alone: children that do not need it must not get it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;

use crate::launch::traceable;

/// What the names begin with: gcc's, and clang's with `-shared-libasan`.
const BEGINNINGS: [&[u8]; 2] = [b"libasan.so", b"libclang_rt.asan"];

const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: u64 = 56;
/// As in `traceable`: more is nonsense.
const PROGRAM_HEADERS_MAX: u16 = 256;
const DYNAMIC_BYTES_MAX: u64 = 1 << 16;
const NAME_BYTES: usize = 256;

const ELF_CLASS_64_LITTLE_ENDIAN: &[u8] = b"\x7fELF\x02\x01";
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;

/// The name under which the program needs it, which the loader finds for a preload in the same
/// folders. `None` where the program needs none or cannot be read. Of a script, the interpreter's.
pub fn of(program: &OsStr) -> Option<OsString> {
    needed(&traceable::executed_file(program)?)
}

fn needed(file: &File) -> Option<OsString> {
    let mut header = [0; HEADER_BYTES];
    file.read_exact_at(&mut header, 0).ok()?;
    if !header.starts_with(ELF_CLASS_64_LITTLE_ENDIAN) {
        return None;
    }
    let headers = program_headers(file, &header)?;
    let dynamic = headers.iter().find(|header| header.kind == PT_DYNAMIC)?;
    let mut entries = vec![0; dynamic.bytes.min(DYNAMIC_BYTES_MAX) as usize];
    file.read_exact_at(&mut entries, dynamic.offset).ok()?;
    let entries: Vec<_> = entries.chunks_exact(16).map_while(|e| Some((word(e, 0)?, word(e, 8)?))).collect();
    let (_, strings) = *entries.iter().find(|(tag, _)| *tag == DT_STRTAB)?;
    let segment = headers.iter().find(|header| header.kind == PT_LOAD && header.has(strings))?;
    let strings = segment.offset.checked_add(strings - segment.address)?;
    let names = entries.iter().filter(|(tag, _)| *tag == DT_NEEDED);
    names
        .filter_map(|(_, at)| name(file, strings.checked_add(*at)?))
        .find(|name| BEGINNINGS.iter().any(|beginning| name.starts_with(beginning)))
        .map(OsString::from_vec)
}

struct ProgramHeader {
    kind: u32,
    offset: u64,
    address: u64,
    bytes: u64,
}

impl ProgramHeader {
    fn has(&self, address: u64) -> bool {
        address.checked_sub(self.address).is_some_and(|into| into < self.bytes)
    }
}

fn program_headers(file: &File, header: &[u8]) -> Option<Vec<ProgramHeader>> {
    let table = word(header, 32)?;
    let size = u16::from_le_bytes(*header.get(54..)?.first_chunk()?);
    let count = u16::from_le_bytes(*header.get(56..)?.first_chunk()?);
    if count > PROGRAM_HEADERS_MAX || u64::from(size) != PROGRAM_HEADER_BYTES {
        return None;
    }
    let mut bytes = vec![0; usize::from(count) * usize::from(size)];
    file.read_exact_at(&mut bytes, table).ok()?;
    let parse = |bytes: &[u8]| {
        let [first, offset, address, bytes] =
            [word(bytes, 0)?, word(bytes, 8)?, word(bytes, 16)?, word(bytes, 32)?];
        Some(ProgramHeader { kind: first as u32, offset, address, bytes })
    };
    bytes.chunks_exact(usize::from(size)).map(parse).collect()
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// A name that is too long for a file's is cut, and then matches none.
fn name(file: &File, at: u64) -> Option<Vec<u8>> {
    let mut bytes = [0; NAME_BYTES];
    let count = file.read_at(&mut bytes, at).ok()?;
    let text = bytes.get(..count)?.split(|byte| *byte == 0).next()?;
    // The loader would take these for separators.
    (!text.contains(&b':') && !text.contains(&b' ')).then(|| text.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_without_a_sanitizer_needs_none() {
        let own = std::env::current_exe().unwrap();
        assert_eq!(of(own.as_os_str()), None);
        assert_eq!(of("sh".as_ref()), None);
        assert_eq!(of("/nonexistent/program".as_ref()), None);
        assert_eq!(of("/etc/passwd".as_ref()), None);
    }

    #[test]
    fn nonsense_needs_none() {
        let path = std::env::temp_dir().join(format!("gputrace-elf-{}", std::process::id()));
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        for byte in 16..HEADER_BYTES {
            let mut changed = own[..4096].to_vec();
            changed[byte] = 0xff;
            std::fs::write(&path, &changed).unwrap();
            assert_eq!(needed(&File::open(&path).unwrap()), None);
        }
        std::fs::remove_file(&path).unwrap();
    }
}
