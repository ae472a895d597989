//! Writing a trace: one block a batch, each written whole as it comes.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::batch::Batch;
use crate::error::Error;
use crate::trace_file::block::{BlockHeader, encoding, kind};
use crate::trace_file::bytes::put_varint;
use crate::trace_file::{columns, header, payload};

/// zstd's own default: twice as fast as the next and within a few percent on columns.
const LEVEL: i32 = 3;
/// Definitions are cut into blocks of about this many bytes.
const DEFINITIONS_BYTES: usize = 1 << 20;

/// The trace file being written. Blocks go out by one write each and are not buffered, so what
/// was written is there for a reader even if this process is killed.
pub struct TraceWriter {
    file: File,
    path: PathBuf,
    compressor: zstd::bulk::Compressor<'static>,
    encoder: columns::Encoder,
    raw: Vec<u8>,
    block: Vec<u8>,
    sequence: u64,
    whole_bytes: u64,
    /// Set once writing failed: nothing more is written, so that the file ends whole.
    failed: bool,
}

impl TraceWriter {
    /// Creates the file, replacing one of the same name.
    pub fn create(path: &Path) -> Result<TraceWriter, Error> {
        let create = || {
            let mut file = File::create(path)?;
            file.write_all(&header::to_bytes())?;
            Ok((file, zstd::bulk::Compressor::new(LEVEL)?))
        };
        let (file, compressor) =
            create().map_err(|source: io::Error| Error::TraceCreate { path: path.to_owned(), source })?;
        Ok(TraceWriter {
            file,
            path: path.to_owned(),
            compressor,
            encoder: columns::Encoder::default(),
            raw: Vec::new(),
            block: Vec::new(),
            sequence: 0,
            whole_bytes: header::HEADER_BYTES as u64,
            failed: false,
        })
    }

    /// Bytes of the file up to its last whole block.
    pub fn whole_bytes(&self) -> u64 {
        self.whole_bytes
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a batch. After the first error the file is left as it is, and this does nothing.
    pub fn write(&mut self, batch: &Batch) -> Result<(), Error> {
        if self.failed {
            return Ok(());
        }
        self.try_write(batch).map_err(|source| {
            self.failed = true;
            // What was written of the last block would only look like damage.
            let _ = self.file.set_len(self.whole_bytes);
            Error::TraceWrite { path: self.path.clone(), whole_bytes: self.whole_bytes, source }
        })
    }

    /// For tests: what is written from now on goes elsewhere.
    #[cfg(test)]
    pub fn set_file(&mut self, file: File) {
        self.file = file;
    }

    fn try_write(&mut self, batch: &Batch) -> io::Result<()> {
        self.raw.clear();
        match batch {
            Batch::SessionBegin(begin) => {
                payload::put_session_begin(&mut self.raw, begin);
                self.put(kind::SESSION_BEGIN, 0, 0)
            }
            Batch::ProcessBegin(begin) => {
                payload::put_process_begin(&mut self.raw, begin);
                self.put(kind::PROCESS_BEGIN, begin.process, 0)
            }
            Batch::Definitions { process, records } => self.put_definitions(*process, records),
            Batch::Cells { process, ring, cells } => {
                let mut rest = cells.as_slice();
                while !rest.is_empty() {
                    let (now, later) = rest.split_at(whole_entries(rest));
                    self.raw.clear();
                    self.encoder.encode(now, &mut self.raw);
                    self.put(kind::CELLS, *process, *ring)?;
                    rest = later;
                }
                Ok(())
            }
            Batch::Counters(counters) => {
                payload::put_counters(&mut self.raw, counters);
                self.put(kind::COUNTERS, counters.process, 0)
            }
            Batch::ProcessEnd { process, end, monotonic_ns } => {
                payload::put_process_end(&mut self.raw, *end, *monotonic_ns);
                self.put(kind::PROCESS_END, *process, 0)
            }
            Batch::SessionEnd { wall_ns } => {
                put_varint(&mut self.raw, *wall_ns);
                self.put(kind::SESSION_END, 0, 0)
            }
        }
    }

    fn put_definitions(&mut self, process: u32, records: &[crate::batch::Definition]) -> io::Result<()> {
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
            self.put(kind::DEFINITIONS, process, 0)?;
            rest = rest.get(count..).unwrap_or(&[]);
        }
        Ok(())
    }

    /// Writes what is in `raw` as one block.
    fn put(&mut self, kind: u16, process: u32, ring: u32) -> io::Result<()> {
        let compressed = self.compressor.compress(&self.raw)?;
        let (encoding, stored) = match compressed.len() < self.raw.len() {
            true => (encoding::ZSTD, compressed.as_slice()),
            false => (encoding::RAW, self.raw.as_slice()),
        };
        let length = |bytes: usize| u32::try_from(bytes).map_err(|_| io::ErrorKind::FileTooLarge);
        let head = BlockHeader {
            kind,
            encoding,
            process,
            ring,
            raw_bytes: length(self.raw.len())?,
            stored_bytes: length(stored.len())?,
            sequence: self.sequence,
            checksum: 0,
        };
        self.block.clear();
        self.block.extend_from_slice(&head.to_bytes(stored));
        self.block.extend_from_slice(stored);
        self.file.write_all(&self.block)?;
        self.sequence += 1;
        self.whole_bytes += self.block.len() as u64;
        Ok(())
    }
}

/// How many of the first cells go into one block: whole entries, as many as fit.
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
