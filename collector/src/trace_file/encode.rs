//! Encodes batches as blocks, for the trace file and for the flight recorder's memory.

use std::io;

use crate::batch::{Batch, Definition};
use crate::trace_file::block::{BlockHeader, HEADER_BYTES, encoding, kind};
use crate::trace_file::bytes::put_varint;
use crate::trace_file::{columns, device_samples, payload};

/// zstd's default level: twice as fast as the next one, and within a few percent of its size on columns.
const LEVEL: i32 = 3;
/// Definitions are cut into blocks of about this many bytes.
const DEFINITIONS_BYTES: usize = 1 << 20;

/// A block without its number.
#[derive(Clone, Copy, Debug)]
pub struct Encoded<'a> {
    pub kind: u16,
    pub encoding: u16,
    pub process: u32,
    pub ring: u32,
    pub raw_bytes: u32,
    /// The stored payload.
    pub stored: &'a [u8],
}

impl Encoded<'_> {
    /// The header of the block with that number.
    pub fn header(&self, sequence: u64) -> [u8; HEADER_BYTES] {
        let head = BlockHeader {
            kind: self.kind,
            encoding: self.encoding,
            process: self.process,
            ring: self.ring,
            raw_bytes: self.raw_bytes,
            // `put` checked that it fits.
            stored_bytes: u32::try_from(self.stored.len()).unwrap_or(u32::MAX),
            sequence,
            checksum: 0,
        };
        head.to_bytes(self.stored)
    }
}

/// Receives each encoded block.
pub type Take<'t> = dyn FnMut(Encoded) -> io::Result<()> + 't;

pub struct BlockEncoder {
    compressor: zstd::bulk::Compressor<'static>,
    columns: columns::ColumnEncoder,
    raw: Vec<u8>,
}

impl BlockEncoder {
    pub fn new() -> io::Result<BlockEncoder> {
        let compressor = zstd::bulk::Compressor::new(LEVEL)?;
        Ok(BlockEncoder { compressor, columns: columns::ColumnEncoder::default(), raw: Vec::new() })
    }

    /// Encodes a batch as one block, or as several if it is large.
    pub fn encode(&mut self, batch: &Batch, take: &mut Take) -> io::Result<()> {
        self.raw.clear();
        match batch {
            Batch::SessionBegin(begin) => {
                payload::put_session_begin(&mut self.raw, begin);
                self.put(kind::SESSION_BEGIN, 0, 0, take)
            }
            Batch::Excerpt(excerpt) => {
                payload::put_excerpt(&mut self.raw, excerpt);
                self.put(kind::EXCERPT, 0, 0, take)
            }
            Batch::ProcessBegin(begin) => {
                payload::put_process_begin(&mut self.raw, begin);
                self.put(kind::PROCESS_BEGIN, begin.process, 0, take)
            }
            Batch::Definitions { process, records } => self.put_definitions(*process, records, take),
            Batch::Cells { process, ring, cells } => {
                let mut rest = cells.as_slice();
                while !rest.is_empty() {
                    let (now, later) = rest.split_at(whole_entries(rest));
                    self.raw.clear();
                    self.columns.encode(now, &mut self.raw);
                    self.put(kind::CELLS, *process, *ring, take)?;
                    rest = later;
                }
                Ok(())
            }
            Batch::Counters(counters) => {
                payload::put_counters(&mut self.raw, counters);
                self.put(kind::COUNTERS, counters.process, 0, take)
            }
            Batch::ProcessEnd { process, end, monotonic_ns } => {
                payload::put_process_end(&mut self.raw, *end, *monotonic_ns);
                self.put(kind::PROCESS_END, *process, 0, take)
            }
            Batch::Unrecorded(lines) => {
                payload::put_unrecorded(&mut self.raw, lines);
                self.put(kind::UNRECORDED, 0, 0, take)
            }
            Batch::SizeLimit(limit) => {
                payload::put_size_limit(&mut self.raw, limit);
                self.put(kind::SIZE_LIMIT, 0, 0, take)
            }
            Batch::SeriesFile(file) => {
                payload::put_series_file(&mut self.raw, file);
                self.put(kind::SERIES_FILE, 0, 0, take)
            }
            Batch::DeviceSamples(samples) => {
                device_samples::put(&mut self.raw, samples);
                self.put(kind::DEVICE_SAMPLES, 0, 0, take)
            }
            Batch::SessionEnd { wall_ns } => {
                put_varint(&mut self.raw, *wall_ns);
                self.put(kind::SESSION_END, 0, 0, take)
            }
        }
    }

    fn put_definitions(&mut self, process: u32, records: &[Definition], take: &mut Take) -> io::Result<()> {
        let mut rest = records;
        while !rest.is_empty() {
            let mut body = Vec::new();
            let mut count = 0;
            for record in rest {
                payload::put_definition(&mut body, record);
                count += 1;
                if body.len() >= DEFINITIONS_BYTES {
                    break;
                }
            }
            self.raw.clear();
            put_varint(&mut self.raw, count as u64);
            self.raw.extend_from_slice(&body);
            self.put(kind::DEFINITIONS, process, 0, take)?;
            rest = rest.get(count..).unwrap_or(&[]);
        }
        Ok(())
    }

    /// Emits the bytes in `raw` as one block.
    fn put(&mut self, kind: u16, process: u32, ring: u32, take: &mut Take) -> io::Result<()> {
        let compressed = self.compressor.compress(&self.raw)?;
        let (encoding, stored) = match compressed.len() < self.raw.len() {
            true => (encoding::ZSTD, compressed.as_slice()),
            false => (encoding::RAW, self.raw.as_slice()),
        };
        let raw_bytes = u32::try_from(self.raw.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
        take(Encoded { kind, encoding, process, ring, raw_bytes, stored })
    }
}

/// The number of first cells for one block: as many whole entries as fit.
fn whole_entries(cells: &[gputrace_wire::cell::Cell]) -> usize {
    if cells.len() <= columns::CELLS_MAX {
        return cells.len();
    }
    let mut at = 0;
    while let Some(first) = cells.get(at) {
        let next = at + usize::from(first.cells()).max(1);
        if next > columns::CELLS_MAX {
            break;
        }
        at = next;
    }
    at
}
