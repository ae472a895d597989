//! The file's first 64 bytes: what it is and which version wrote it.
//!
//! ```text
//!   0  "gputrace"           16  wire version u32
//!   8  version u32          20  reserved, zero
//!  12  header bytes u32     60  crc32 of bytes 0 to 59, u32
//! ```

/// First bytes of every trace file.
pub const MAGIC: [u8; 8] = *b"gputrace";
pub const HEADER_BYTES: usize = 64;
/// Raised when an older reader would misread the file; it refuses such a file.
pub const VERSION_MAJOR: u16 = 1;
/// Raised when something is added that an older reader can skip.
pub const VERSION_MINOR: u16 = 3;

pub fn to_bytes() -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    let version = u32::from(VERSION_MAJOR) << 16 | u32::from(VERSION_MINOR);
    put(&mut bytes, 0, &MAGIC);
    put(&mut bytes, 8, &version.to_le_bytes());
    put(&mut bytes, 12, &(HEADER_BYTES as u32).to_le_bytes());
    put(&mut bytes, 16, &gputrace_wire::VERSION.to_le_bytes());
    let checksum = crc32fast::hash(bytes.get(..60).unwrap_or(&[]));
    put(&mut bytes, 60, &checksum.to_le_bytes());
    bytes
}

/// Writes `from` at a place of a fixed array.
pub fn put(bytes: &mut [u8], at: usize, from: &[u8]) {
    for (to, from) in bytes.iter_mut().skip(at).zip(from) {
        *to = *from;
    }
}

/// Four bytes at a place, little endian; 0 past the end.
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |chunk| u32::from_le_bytes(*chunk))
}

/// What a file's first bytes are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Header {
    Good,
    NotATrace,
    Newer {
        major: u16,
        minor: u16,
    },
    /// It begins as a trace, and its header is damaged.
    Damaged,
}

pub fn check(bytes: &[u8; HEADER_BYTES]) -> Header {
    if !bytes.starts_with(&MAGIC) {
        return Header::NotATrace;
    }
    // The version is looked at before the checksum, which a newer version may keep elsewhere.
    let (version, wire) = (u32_at(bytes, 8), u32_at(bytes, 16));
    let (major, minor) = ((version >> 16) as u16, version as u16);
    if crc32fast::hash(bytes.get(..60).unwrap_or(&[])) == u32_at(bytes, 60) {
        if major == VERSION_MAJOR && gputrace_wire::major_of(wire) == gputrace_wire::VERSION_MAJOR {
            return Header::Good;
        }
        return Header::Newer { major, minor };
    }
    if major > VERSION_MAJOR { Header::Newer { major, minor } } else { Header::Damaged }
}
