//! Reading a trace: batches up to the end or the first damage.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use crate::batch::Batch;
use crate::error::Error;
use crate::trace_file::block::{self, BlockHeader, PAYLOAD_MAX, encoding, kind};
use crate::trace_file::bytes::Bytes;
use crate::trace_file::damage::{Damage, DamageReason};
use crate::trace_file::encode::Encoded;
use crate::trace_file::header::{self, Header};
use crate::trace_file::{columns, device_samples, payload};

/// An iterator over a trace's batches. After it has ended, [`TraceReader::damage`] is `None` if the whole
/// trace was read.
pub struct TraceReader<R> {
    input: R,
    decoder: BlockDecoder,
    total_bytes: u64,
    offset: u64,
    blocks_read: u64,
    skipped_blocks: u64,
    state: ReaderState,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum ReaderState {
    Reading,
    Closed,
    Damaged(Damage),
}

impl TraceReader<BufReader<File>> {
    /// Opens a trace file and checks its header.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let unreadable = |source| Error::TraceRead { path: path.to_owned(), source };
        let file = File::open(path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => Error::TraceMissing { path: path.to_owned() },
            _ => unreadable(source),
        })?;
        let about = file.metadata().map_err(unreadable)?;
        if about.is_dir() {
            return Err(unreadable(io::ErrorKind::IsADirectory.into()));
        }
        TraceReader::new(BufReader::with_capacity(1 << 18, file), about.len(), path)
    }
}

impl<R: Read> TraceReader<R> {
    /// Reads a trace of `total_bytes` from any input; `path` is its name in errors.
    pub fn new(mut input: R, total_bytes: u64, path: &Path) -> Result<Self, Error> {
        let mut first = [0; header::HEADER_BYTES];
        let unreadable = |source| Error::TraceRead { path: path.to_owned(), source };
        let got = read_full(&mut input, &mut first).map_err(unreadable)?;
        let magic = header::MAGIC.get(..got.min(8)).unwrap_or(&[]);
        if got < first.len() && first.starts_with(magic) {
            return Err(Error::TraceEmpty { path: path.to_owned(), bytes: got as u64 });
        }
        let state = match header::check(&first) {
            Header::Good => ReaderState::Reading,
            Header::NotATrace => return Err(Error::NotATrace { path: path.to_owned() }),
            Header::Unknown { major, minor, writer } => {
                // A file with only a higher minor version is read. An unknown wire version is a newer one.
                let needed = match (writer, major < header::VERSION_MAJOR) {
                    (Some(writer), true) => format!("gputrace {writer}"),
                    (Some(writer), false) => format!("gputrace {writer} or newer"),
                    (None, true) => "an older gputrace".to_owned(),
                    (None, false) => "a newer gputrace".to_owned(),
                };
                let readable = header::VERSION_MAJOR;
                return Err(Error::TraceVersion { path: path.to_owned(), major, minor, readable, needed });
            }
            Header::Damaged => {
                ReaderState::Damaged(Damage { offset: 0, blocks_read: 0, reason: DamageReason::Checksum })
            }
        };
        Ok(TraceReader {
            input,
            decoder: BlockDecoder::new().map_err(unreadable)?,
            total_bytes,
            offset: first.len() as u64,
            blocks_read: 0,
            skipped_blocks: 0,
            state,
        })
    }

    /// Why reading stopped before the end; `None` after a whole trace, and while reading.
    pub fn damage(&self) -> Option<&Damage> {
        match &self.state {
            ReaderState::Damaged(damage) => Some(damage),
            ReaderState::Reading | ReaderState::Closed => None,
        }
    }

    /// Bytes read, and bytes in all.
    pub fn progress(&self) -> (u64, u64) {
        (self.offset, self.total_bytes)
    }

    /// Blocks of types that this version does not know.
    pub fn skipped_blocks(&self) -> u64 {
        self.skipped_blocks
    }

    /// Reads the next block that is a batch; `None` at the end.
    fn read(&mut self) -> Result<Option<Batch>, DamageReason> {
        loop {
            let mut head = [0; block::HEADER_BYTES];
            match read_full(&mut self.input, &mut head).map_err(read_error)? {
                0 if self.state == ReaderState::Closed => return Ok(None),
                _ if self.state == ReaderState::Closed => return Err(DamageReason::Trailing),
                0 => return Err(DamageReason::NotClosed),
                got if got < head.len() => return Err(DamageReason::Truncated),
                _ => {}
            }
            let about = BlockHeader::parse(&head).ok_or(DamageReason::NotABlock)?;
            let (stored_bytes, raw_bytes) = (about.stored_bytes as usize, about.raw_bytes as usize);
            if stored_bytes > PAYLOAD_MAX || raw_bytes > PAYLOAD_MAX {
                return Err(DamageReason::TooLarge);
            }
            // Grows with the bytes that exist, so a short file cannot claim memory.
            let mut stored = Vec::new();
            let limit = u64::from(about.stored_bytes);
            self.input.by_ref().take(limit).read_to_end(&mut stored).map_err(read_error)?;
            if stored.len() < stored_bytes {
                return Err(DamageReason::Truncated);
            }
            if block::checksum(&head, &stored) != about.checksum {
                return Err(DamageReason::Checksum);
            }
            if about.sequence != self.blocks_read {
                return Err(DamageReason::Missing);
            }
            let encoded = Encoded {
                kind: about.kind,
                encoding: about.encoding,
                process: about.process,
                ring: about.ring,
                raw_bytes: about.raw_bytes,
                stored: &stored,
            };
            let batch = self.decoder.decode(&encoded)?;
            self.offset += (block::HEADER_BYTES + stored_bytes) as u64;
            self.blocks_read += 1;
            match batch {
                Some(batch) => {
                    if let Batch::SessionEnd { .. } = batch {
                        self.state = ReaderState::Closed;
                    }
                    return Ok(Some(batch));
                }
                None => self.skipped_blocks += 1,
            }
        }
    }
}

impl<R: Read> Iterator for TraceReader<R> {
    type Item = Batch;

    fn next(&mut self) -> Option<Batch> {
        if let ReaderState::Damaged(_) = self.state {
            return None;
        }
        match self.read() {
            Ok(batch) => batch,
            Err(reason) => {
                let damage = Damage { offset: self.offset, blocks_read: self.blocks_read, reason };
                self.state = ReaderState::Damaged(damage);
                None
            }
        }
    }
}

fn read_error(error: io::Error) -> DamageReason {
    DamageReason::Read(error.to_string())
}

/// Decodes blocks into batches.
pub(crate) struct BlockDecoder(zstd::bulk::Decompressor<'static>);

impl BlockDecoder {
    pub fn new() -> io::Result<BlockDecoder> {
        Ok(BlockDecoder(zstd::bulk::Decompressor::new()?))
    }

    /// The batch, or `None` for a block of an unknown type.
    pub fn decode(&mut self, block: &Encoded) -> Result<Option<Batch>, DamageReason> {
        let raw_bytes = block.raw_bytes as usize;
        let inflated;
        let raw = match block.encoding {
            encoding::RAW => block.stored,
            encoding::ZSTD => {
                inflated = self.0.decompress(block.stored, raw_bytes).map_err(|_| DamageReason::Contents)?;
                inflated.as_slice()
            }
            _ => return Err(DamageReason::Contents),
        };
        if raw.len() != raw_bytes {
            return Err(DamageReason::Contents);
        }
        match block.kind {
            kind::SESSION_BEGIN..=kind::DEVICE_SAMPLES => {
                to_batch(block, raw).map(Some).ok_or(DamageReason::Contents)
            }
            _ => Ok(None),
        }
    }
}

fn to_batch(about: &Encoded, raw: &[u8]) -> Option<Batch> {
    let process = about.process;
    Some(match about.kind {
        kind::SESSION_BEGIN => Batch::SessionBegin(payload::session_begin(raw)?),
        kind::PROCESS_BEGIN => Batch::ProcessBegin(payload::process_begin(process, raw)?),
        kind::DEFINITIONS => Batch::Definitions { process, records: payload::definitions(raw)? },
        kind::CELLS => Batch::Cells { process, ring: about.ring, cells: columns::decode(raw)? },
        kind::COUNTERS => Batch::Counters(payload::counters(process, raw)?),
        kind::PROCESS_END => {
            let (end, monotonic_ns) = payload::process_end(raw)?;
            Batch::ProcessEnd { process, end, monotonic_ns }
        }
        kind::SESSION_END => Batch::SessionEnd { wall_ns: Bytes::new(raw).varint()? },
        kind::EXCERPT => Batch::Excerpt(payload::excerpt(raw)?),
        kind::UNRECORDED => Batch::Unrecorded(payload::unrecorded(raw)?),
        kind::SIZE_LIMIT => Batch::SizeLimit(payload::size_limit(raw)?),
        kind::SERIES_FILE => Batch::SeriesFile(payload::series_file(raw)?),
        kind::DEVICE_SAMPLES => Batch::DeviceSamples(device_samples::take(raw)?),
        _ => return None,
    })
}

/// Reads until the buffer is full or the input ends. Returns the number of bytes.
fn read_full(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while let Some(rest) = buffer.get_mut(got..).filter(|rest| !rest.is_empty()) {
        match input.read(rest) {
            Ok(0) => break,
            Ok(count) => got += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}
