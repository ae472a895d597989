//! The file's first 64 bytes: magic and versions.
//!
//! ```text
//!   0  "gputrace"           20  version of the gputrace that wrote it, text, NUL-padded
//!   8  version u32          44  reserved, zero
//!  12  header bytes u32     60  crc32 of bytes 0 to 59, u32
//!  16  wire version u32
//! ```
//!
//! A reader that is too old for the rest names the writer's version as the one that is needed. The writer's
//! version stays at this offset in every format version.

/// First bytes of every trace file.
pub const MAGIC: [u8; 8] = *b"gputrace";
pub const HEADER_BYTES: usize = 64;
/// Increased when an older reader would misread the file. It rejects a file with a higher number.
pub const VERSION_MAJOR: u16 = 1;
/// Increased when something is added that an older reader can skip.
pub const VERSION_MINOR: u16 = 4;
/// The writer's version: offset and length.
const WRITER: usize = 20;
const WRITER_BYTES: usize = 24;

pub fn to_bytes() -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    let version = u32::from(VERSION_MAJOR) << 16 | u32::from(VERSION_MINOR);
    put(&mut bytes, 0, &MAGIC);
    put(&mut bytes, 8, &version.to_le_bytes());
    put(&mut bytes, 12, &(HEADER_BYTES as u32).to_le_bytes());
    put(&mut bytes, 16, &gputrace_wire::VERSION.to_le_bytes());
    let writer = env!("CARGO_PKG_VERSION").as_bytes();
    put(&mut bytes, WRITER, writer.get(..WRITER_BYTES).unwrap_or(writer));
    let checksum = crc32fast::hash(bytes.get(..60).unwrap_or(&[]));
    put(&mut bytes, 60, &checksum.to_le_bytes());
    bytes
}

/// Writes `from` at an offset of a fixed array.
pub fn put(bytes: &mut [u8], at: usize, from: &[u8]) {
    for (to, from) in bytes.iter_mut().skip(at).zip(from) {
        *to = *from;
    }
}

/// Four bytes at an offset, little endian; 0 beyond the end.
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |chunk| u32::from_le_bytes(*chunk))
}

/// The result of checking a header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Header {
    Good,
    NotATrace,
    /// A format version that this reader does not know.
    Unknown {
        major: u16,
        minor: u16,
        /// The version of the gputrace that wrote the file; `None` for formats before 1.3.
        writer: Option<String>,
    },
    /// The magic is right, but the header is damaged.
    Damaged,
}

pub fn check(bytes: &[u8; HEADER_BYTES]) -> Header {
    if !bytes.starts_with(&MAGIC) {
        return Header::NotATrace;
    }
    // The version is checked before the checksum, since a newer version may have the checksum elsewhere.
    let (version, wire) = (u32_at(bytes, 8), u32_at(bytes, 16));
    let (major, minor) = ((version >> 16) as u16, version as u16);
    if crc32fast::hash(bytes.get(..60).unwrap_or(&[])) == u32_at(bytes, 60) {
        if major == VERSION_MAJOR && gputrace_wire::major_of(wire) == gputrace_wire::VERSION_MAJOR {
            return Header::Good;
        }
        return Header::Unknown { major, minor, writer: writer(bytes) };
    }
    if major > VERSION_MAJOR {
        Header::Unknown { major, minor, writer: writer(bytes) }
    } else {
        Header::Damaged
    }
}

/// The writer's version, if the bytes look like one: it will be printed.
fn writer(bytes: &[u8; HEADER_BYTES]) -> Option<String> {
    let field = bytes.get(WRITER..WRITER + WRITER_BYTES)?;
    let text = field.split(|byte| *byte == 0).next()?;
    let is_version = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'+');
    let is_whole = text.first().is_some_and(u8::is_ascii_digit) && text.iter().all(is_version);
    is_whole.then(|| String::from_utf8_lossy(text).into_owned())
}
