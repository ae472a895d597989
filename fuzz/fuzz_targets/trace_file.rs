//! A trace file of any contents. Checksums are no obstacle: most inputs have them put right.
//!
//! Input: a mode (u8). Even: the bytes after the file's header. Odd: blocks, each
//! kind, encoding, process, ring (u8 each), raw bytes (u32), length (u16), payload.
#![no_main]

use gputrace_collector::batch::Batch;
use gputrace_collector::trace_file::{TraceReader, TraceWriter};
use gputrace_fuzz::{Input, trace_file_header};
use libfuzzer_sys::fuzz_target;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

const BLOCK_HEADER_BYTES: usize = 40;
/// Cells kept of one input: a small block can hold 65 536 of them.
const CELLS_MAX: usize = 1 << 17;

/// A file in memory for the writer, there for as long as an input takes.
static SCRATCH: LazyLock<PathBuf> =
    LazyLock::new(|| Path::new("/dev/shm").join(format!("gputrace-fuzz-{}", std::process::id())));

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let mut file = trace_file_header();
    if input.u8().is_multiple_of(2) {
        file.extend_from_slice(input.0);
    } else {
        let mut sequence = 0;
        while !input.0.is_empty() {
            put_block(&mut input, sequence, &mut file);
            sequence += 1;
        }
    }
    let Some(batches) = read(&file) else { return };

    // What was read is written again and reads the same.
    let mut writer = TraceWriter::create(&SCRATCH).expect("a memory file");
    for batch in &batches {
        writer.write(batch).expect("a memory file");
    }
    drop(writer);
    let reader = TraceReader::open(&SCRATCH).expect("what was just written");
    std::fs::remove_file(&*SCRATCH).expect("what was just written");
    let again: Vec<_> = reader.filter(|batch| !is_empty(batch)).collect();
    assert!(again.into_iter().eq(batches.into_iter().filter(|batch| !is_empty(batch))));
});

/// The writer writes no block for nothing.
fn is_empty(batch: &Batch) -> bool {
    match batch {
        Batch::Cells { cells, .. } => cells.is_empty(),
        Batch::Definitions { records, .. } => records.is_empty(),
        _ => false,
    }
}

/// The batches up to the first damage; `None` if they are too large to go on with.
fn read(file: &[u8]) -> Option<Vec<Batch>> {
    let mut reader = TraceReader::new(file, file.len() as u64, Path::new("input")).expect("a good header");
    let mut batches = Vec::new();
    let mut cells_kept = 0;
    let mut closed = false;
    for batch in reader.by_ref() {
        assert!(!closed, "something follows the end");
        closed = matches!(batch, Batch::SessionEnd { .. });
        if let Batch::Cells { cells, .. } = &batch {
            cells_kept += cells.len();
        }
        if cells_kept > CELLS_MAX {
            return None;
        }
        batches.push(batch);
    }
    assert!(reader.progress().0 <= file.len() as u64);
    assert!(closed || reader.damage().is_some(), "a trace that is not closed is damaged");
    assert!(reader.next().is_none());
    Some(batches)
}

/// Moves one block from the input to the file, with its number and checksum as they should be.
fn put_block(input: &mut Input<'_>, sequence: u64, file: &mut Vec<u8>) {
    let [kind, encoding, process, ring] = [(); 4].map(|()| input.u8());
    let raw_bytes = u32::from_le_bytes([(); 4].map(|()| input.u8()));
    let length = usize::from(u16::from_le_bytes([(); 2].map(|()| input.u8())));
    let (payload, rest) = input.0.split_at(length.min(input.0.len()));
    input.0 = rest;

    let mut header = Vec::with_capacity(BLOCK_HEADER_BYTES);
    header.extend(b"GTB1");
    header.extend([kind, 0, encoding, 0]);
    for word in [u32::from(process), u32::from(ring), raw_bytes, payload.len() as u32] {
        header.extend(word.to_le_bytes());
    }
    header.extend(sequence.to_le_bytes());
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(&header);
    checksum.update(&[0; 4]);
    checksum.update(payload);
    header.extend(checksum.finalize().to_le_bytes());
    header.extend([0; 4]);
    file.extend(header);
    file.extend_from_slice(payload);
}
