//! The content of the window at one moment: a trace in memory, to be written or modelled.

use std::io;
use std::path::Path;

use crate::batch::{Batch, Excerpt, SessionBegin};
use crate::error::Error;
use crate::flight_recorder::block::Block;
use crate::flight_recorder::kept::Kept;
use crate::model::sink::Sink;
use crate::model::{Model, Totals};
use crate::trace_file::{BlockDecoder, TraceWriter};

/// What precedes and follows a process's events.
#[derive(Debug)]
pub(super) struct ProcessPart {
    begin: Batch,
    definitions: Vec<Block>,
    /// The marks of evicted events.
    before: Vec<Batch>,
    ending: [Batch; 2],
}

impl ProcessPart {
    pub fn new(kept: &Kept, now_ns: u64) -> ProcessPart {
        ProcessPart {
            begin: Batch::ProcessBegin(kept.begin.clone()),
            definitions: kept.definitions.clone(),
            before: kept.before.batches(kept.begin.process),
            ending: kept.ending(now_ns),
        }
    }
}

#[derive(Debug)]
pub struct Snapshot {
    pub(super) begin: SessionBegin,
    pub(super) excerpt: Excerpt,
    pub(super) parts: Vec<ProcessPart>,
    pub(super) blocks: Vec<Block>,
    pub(super) unrecorded: Vec<String>,
    pub(super) wall_ns: u64,
}

/// One piece of a trace.
enum Piece<'a> {
    Batch(&'a Batch),
    Block(&'a Block),
}

impl Snapshot {
    pub fn excerpt(&self) -> &Excerpt {
        &self.excerpt
    }

    /// The trace from begin to end.
    fn pieces<E>(&self, take: &mut dyn FnMut(Piece) -> Result<(), E>) -> Result<(), E> {
        take(Piece::Batch(&Batch::SessionBegin(self.begin.clone())))?;
        take(Piece::Batch(&Batch::Excerpt(self.excerpt.clone())))?;
        for part in &self.parts {
            take(Piece::Batch(&part.begin))?;
            part.definitions.iter().try_for_each(|block| take(Piece::Block(block)))?;
            part.before.iter().try_for_each(|batch| take(Piece::Batch(batch)))?;
        }
        self.blocks.iter().try_for_each(|block| take(Piece::Block(block)))?;
        for part in &self.parts {
            part.ending.iter().try_for_each(|batch| take(Piece::Batch(batch)))?;
        }
        if !self.unrecorded.is_empty() {
            take(Piece::Batch(&Batch::Unrecorded(self.unrecorded.clone())))?;
        }
        take(Piece::Batch(&Batch::SessionEnd { wall_ns: self.wall_ns }))
    }

    /// Writes it as a trace file, replacing one of the same name. Returns its size.
    pub fn write(&self, path: &Path) -> Result<u64, Error> {
        let mut writer = TraceWriter::create(path)?;
        self.write_to(&mut writer)?;
        Ok(writer.whole_bytes())
    }

    pub(crate) fn write_to(&self, writer: &mut TraceWriter) -> Result<(), Error> {
        self.pieces(&mut |piece| match piece {
            Piece::Batch(batch) => writer.write(batch),
            Piece::Block(block) => writer.write_encoded(&block.encoded()),
        })
    }

    /// Feeds the trace to a model, with the same result as from its file.
    pub fn model<S: Sink>(&self, sink: S) -> io::Result<(Totals, S)> {
        let mut decoder = BlockDecoder::new()?;
        let mut model = Model::new(sink);
        self.pieces::<io::Error>(&mut |piece| {
            match piece {
                Piece::Batch(batch) => model.consume(batch),
                Piece::Block(block) => {
                    // We encoded these bytes, so this hardly ever fails.
                    let decoded = decoder.decode(&block.encoded());
                    let decoded = decoded.map_err(|reason| io::Error::other(reason.to_string()))?;
                    decoded.iter().for_each(|batch| model.consume(batch));
                }
            }
            Ok(())
        })?;
        Ok(model.finish())
    }
}
