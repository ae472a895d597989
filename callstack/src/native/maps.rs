//! `/proc/self/maps`: which file is mapped at an address, where the loader does not report it, and the
//! first thread's stack.

use core::ffi::CStr;

use gputrace_producer::system;

/// The longest line that is read: a path and 100 bytes.
const LINE_MAX: usize = 4096 + 100;
pub type LinesBuffer = [u8; LINE_MAX];
pub const NO_LINES: LinesBuffer = [0; LINE_MAX];

/// From the lowest address that may be touched to the end above it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    pub low: u64,
    pub end: u64,
}

impl Bounds {
    #[inline(always)]
    pub fn hold(self, at: u64) -> bool {
        self.low <= at && at < self.end
    }
}

/// A line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapping<'t> {
    pub start: u64,
    pub end: u64,
    /// From the beginning of the file.
    pub offset: u64,
    pub is_executable: bool,
    /// Empty for memory without a file. A deleted file has ` (deleted)` after its path.
    pub path: &'t [u8],
}

/// The start of the image that is mapped at `address`, and the image's file, in `lines`.
pub fn image_at(address: u64, lines: &mut LinesBuffer) -> Option<(u64, &[u8])> {
    let file = File::open(c"/proc/self/maps")?;
    // An image's first mapping precedes its others and contains its beginning.
    let (mut first, mut first_path) = (None, 0);
    let mut found = false;
    file.lines(lines, |mapping| {
        if mapping.offset == 0 && !mapping.path.is_empty() {
            (first, first_path) = (Some(mapping.start), gputrace_producer::handles::key_of(mapping.path));
        }
        found = (mapping.start..mapping.end).contains(&address)
            && first.is_some()
            && first_path == gputrace_producer::handles::key_of(mapping.path);
        found
    })?;
    let length = lines.iter().position(|byte| *byte == b'\n')?;
    let path = parse(lines.get(..length)?)?.path.len();
    Some((first.filter(|_| found)?, lines.get(length - path..length)?))
}

/// The first thread's stack, if `address` is on it. The kernel merges that mapping with no other one,
/// because only it grows down.
pub fn stack_at(address: u64, lines: &mut LinesBuffer) -> Option<Bounds> {
    let mut found = None;
    File::open(c"/proc/self/maps")?.lines(lines, |mapping| {
        if (mapping.start..mapping.end).contains(&address) && mapping.path == b"[stack]" {
            found = Some(Bounds { low: mapping.start, end: mapping.end });
        }
        found.is_some()
    })?;
    found
}

/// Calls `is_last` with every line, up to one for which it returns true.
pub fn each(lines: &mut LinesBuffer, is_last: impl FnMut(Mapping<'_>) -> bool) {
    if let Some(file) = File::open(c"/proc/self/maps") {
        // Without such a line the end of the file is `None`, as an error is.
        let _ = file.lines(lines, is_last);
    }
}

struct File(i32);

impl File {
    fn open(path: &CStr) -> Option<File> {
        let file = system::open_to_read(path);
        (file >= 0).then(|| File(file))
    }

    /// Calls `is_wanted` with every line, up to the first one for which it returns true; that line is then
    /// at the beginning of `lines`.
    fn lines(&self, lines: &mut LinesBuffer, mut is_wanted: impl FnMut(Mapping<'_>) -> bool) -> Option<()> {
        let mut filled = 0;
        loop {
            let rest = lines.get_mut(filled..)?;
            let count = usize::try_from(system::read(self.0, rest)).ok().filter(|count| *count > 0)?;
            filled += count;
            let mut from = 0;
            while let Some(length) = lines.get(from..filled)?.iter().position(|byte| *byte == b'\n') {
                let line = lines.get(from..from + length)?;
                if parse(line).is_some_and(&mut is_wanted) {
                    lines.copy_within(from..from + length + 1, 0);
                    return Some(());
                }
                from += length + 1;
            }
            lines.copy_within(from..filled, 0);
            filled -= from;
        }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: a descriptor that this value opened.
        unsafe { system::close(self.0) };
    }
}

/// `7f00-7f10 r-xp 00001000 08:01 1234   /usr/lib/libc.so.6`.
fn parse(line: &[u8]) -> Option<Mapping<'_>> {
    let (start, rest) = hex(line)?;
    let (end, rest) = hex(rest.strip_prefix(b"-")?)?;
    let is_executable = *rest.get(3)? == b'x';
    let (offset, rest) = hex(rest.get(6..)?)?;
    // The device and the inode; then, after some spaces, the path.
    let mut words = rest.splitn(4, |byte| *byte == b' ').skip(3);
    let path = words.next().unwrap_or_default();
    Some(Mapping { start, end, offset, is_executable, path: path.trim_ascii_start() })
}

fn hex(text: &[u8]) -> Option<(u64, &[u8])> {
    let length = text.iter().position(|byte| !byte.is_ascii_hexdigit()).unwrap_or(text.len());
    let (digits, rest) =
        text.split_at_checked(length).filter(|(digits, _)| (1..=16).contains(&digits.len()))?;
    let digit = |byte: &u8| char::from(*byte).to_digit(16).unwrap_or(0);
    Some((digits.iter().fold(0, |value, byte| value << 4 | u64::from(digit(byte))), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let line = b"7f12a000-7f12b000 r-xp 0002f000 08:01 7341   /a folder/lib x.so (deleted)";
        let expected = Mapping {
            start: 0x7f12_a000,
            end: 0x7f12_b000,
            offset: 0x2_f000,
            is_executable: true,
            path: b"/a folder/lib x.so (deleted)",
        };
        assert_eq!(parse(line), Some(expected));
        let none = parse(b"7ffc0000-7ffc1000 rw-p 00000000 00:00 0 ").unwrap();
        assert_eq!((none.start, none.path, none.is_executable), (0x7ffc_0000, &b""[..], false));
        for bad in [&b""[..], b"-", b"7f00", b"7f00-7f01", b"7f00-7f01 r", b"x-y r-xp 0 0 0 /z"] {
            assert_eq!(parse(bad), None);
        }
    }

    #[test]
    fn this_program_is_found_where_it_is_mapped() {
        let own = std::env::current_exe().unwrap();
        let mut lines = [0; LINE_MAX];
        let address = this_program_is_found_where_it_is_mapped as *const () as u64;
        let (start, path) = image_at(address, &mut lines).unwrap();
        assert!(start <= address);
        assert_eq!(path, own.as_os_str().as_encoded_bytes());
        // SAFETY: an image begins with its header.
        assert_eq!(unsafe { *(start as *const [u8; 4]) }, *b"\x7fELF");
        let (local, mut lines) = (0u8, [0; LINE_MAX]);
        assert_eq!(image_at((&raw const local).addr() as u64, &mut lines), None, "a stack is of no file");
        assert_eq!(image_at(8, &mut lines), None);
    }
}
