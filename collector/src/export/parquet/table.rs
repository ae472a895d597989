//! One table: the rows of the current row group, and the file that they go to.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, Encoding as ParquetEncoding, LogicalType, Repetition, Type as Physical};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, Type};
use rustc_hash::FxHashMap;

use crate::export::parquet::schema::{Column, ColumnKind, Encoding, TableSchema};

/// A row group ends with so many rows, or with so many bytes in memory.
const GROUP_ROWS: usize = 1 << 20;
const GROUP_BYTES: usize = 32 << 20;
/// Values of a column that are passed to the encoder at a time.
const CHUNK_ROWS: usize = 1 << 12;

/// A value of a row.
#[derive(Clone, Copy, Debug)]
pub enum Datum<'v> {
    None,
    Int(i64),
    Id(u32),
    Big(u64),
    Text(&'v str),
    Bool(bool),
}

impl Datum<'_> {
    /// An id, of which 0 is none.
    pub fn id(id: u32) -> Datum<'static> {
        if id == 0 { Datum::None } else { Datum::Id(id) }
    }

    pub fn optional(id: Option<u32>) -> Datum<'static> {
        id.map_or(Datum::None, Datum::Id)
    }
}

pub struct ParquetTable {
    schema: &'static TableSchema,
    writer: SerializedFileWriter<File>,
    columns: Vec<Buffer>,
    group_rows: usize,
    /// About the bytes of the current row group.
    bytes: usize,
    pub rows: u64,
}

/// The values of a column in the current row group.
struct Buffer {
    values: Values,
    /// Of an optional column: for each row, 1 if it has a value.
    levels: Option<Vec<i16>>,
}

enum Values {
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Bool(Vec<bool>),
    /// The different texts, and for each value which of them it is.
    Text {
        texts: Vec<ByteArray>,
        numbers: FxHashMap<Box<str>, u32>,
        of: Vec<u32>,
    },
}

impl ParquetTable {
    pub fn create(folder: &Path, schema: &'static TableSchema) -> io::Result<ParquetTable> {
        let fields = schema.columns.iter().map(|column| field(column).map(Arc::new));
        let fields = fields.collect::<Result<Vec<_>, _>>().map_err(io_error)?;
        let root = Type::group_type_builder(schema.name).with_fields(fields).build().map_err(io_error)?;
        let file = File::create(folder.join(format!("{}.parquet", schema.name)))?;
        let writer = SerializedFileWriter::new(file, Arc::new(root), Arc::new(properties(schema)));
        let columns = schema.columns.iter().map(Buffer::new).collect();
        Ok(ParquetTable {
            schema,
            writer: writer.map_err(io_error)?,
            columns,
            group_rows: 0,
            bytes: 0,
            rows: 0,
        })
    }

    /// Adds a row with a value for each column.
    pub fn add(&mut self, row: &[Datum<'_>]) -> io::Result<()> {
        if row.len() != self.columns.len() {
            return Err(io::Error::other(format!("a row of {} has {} values", self.schema.name, row.len())));
        }
        for (buffer, value) in self.columns.iter_mut().zip(row) {
            self.bytes += buffer.add(*value);
        }
        self.rows += 1;
        self.group_rows += 1;
        if self.group_rows >= GROUP_ROWS || self.bytes >= GROUP_BYTES { self.write_group() } else { Ok(()) }
    }

    fn write_group(&mut self) -> io::Result<()> {
        let mut group = self.writer.next_row_group().map_err(io_error)?;
        for buffer in &mut self.columns {
            let Some(mut column) = group.next_column().map_err(io_error)? else { break };
            buffer.write(column.untyped()).map_err(io_error)?;
            column.close().map_err(io_error)?;
            buffer.clear();
        }
        group.close().map_err(io_error)?;
        (self.group_rows, self.bytes) = (0, 0);
        Ok(())
    }

    /// Writes the rest. A table without rows has its columns and no row group.
    pub fn finish(&mut self) -> io::Result<()> {
        if self.group_rows > 0 {
            self.write_group()?;
        }
        self.writer.finish().map_err(io_error)?;
        Ok(())
    }
}

fn field(column: &Column) -> Result<Type, ParquetError> {
    let unsigned = |bit_width| Some(LogicalType::integer(bit_width, false));
    let (physical, logical) = match column.kind {
        ColumnKind::Int64 => (Physical::INT64, None),
        ColumnKind::UInt32 => (Physical::INT32, unsigned(32)),
        ColumnKind::UInt64 => (Physical::INT64, unsigned(64)),
        ColumnKind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        ColumnKind::Bool => (Physical::BOOLEAN, None),
    };
    let repetition = if column.optional { Repetition::OPTIONAL } else { Repetition::REQUIRED };
    Type::primitive_type_builder(column.name, physical)
        .with_logical_type(logical)
        .with_repetition(repetition)
        .build()
}

fn properties(schema: &TableSchema) -> WriterProperties {
    let mut properties = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_created_by(concat!("gputrace ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::SNAPPY)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_max_row_group_row_count(None);
    for column in schema.columns {
        let path = ColumnPath::from(column.name);
        properties =
            properties.set_column_dictionary_enabled(path.clone(), column.encoding == Encoding::Dictionary);
        if column.encoding == Encoding::Delta {
            properties = properties.set_column_encoding(path, ParquetEncoding::DELTA_BINARY_PACKED);
        }
    }
    properties.build()
}

impl Buffer {
    fn new(column: &Column) -> Buffer {
        let values = match column.kind {
            ColumnKind::UInt32 => Values::Int32(Vec::new()),
            ColumnKind::Int64 | ColumnKind::UInt64 => Values::Int64(Vec::new()),
            ColumnKind::Bool => Values::Bool(Vec::new()),
            ColumnKind::Text => {
                Values::Text { texts: Vec::new(), numbers: FxHashMap::default(), of: Vec::new() }
            }
        };
        Buffer { values, levels: column.optional.then(Vec::new) }
    }

    /// Adds a value and returns about how many bytes it takes. A value of another kind is written as 0.
    fn add(&mut self, value: Datum<'_>) -> usize {
        if let Some(levels) = &mut self.levels {
            let is_some = !matches!(value, Datum::None);
            levels.push(is_some.into());
            if !is_some {
                return size_of::<i16>();
            }
        }
        match &mut self.values {
            Values::Int32(values) => {
                values.push(if let Datum::Id(id) = value { id.cast_signed() } else { 0 });
                size_of::<i32>()
            }
            Values::Int64(values) => {
                values.push(match value {
                    Datum::Int(value) => value,
                    Datum::Big(value) => value.cast_signed(),
                    _ => 0,
                });
                size_of::<i64>()
            }
            Values::Bool(values) => {
                values.push(matches!(value, Datum::Bool(true)));
                size_of::<bool>()
            }
            Values::Text { texts, numbers, of } => {
                let text = if let Datum::Text(text) = value { text } else { "" };
                if let Some(known) = numbers.get(text) {
                    of.push(*known);
                    return size_of::<u32>();
                }
                let number = u32::try_from(texts.len()).unwrap_or(u32::MAX);
                of.push(number);
                numbers.insert(text.into(), number);
                texts.push(ByteArray::from(text));
                // The text is there twice, with its entries in both lists.
                2 * text.len() + 96
            }
        }
    }

    fn write(&self, writer: &mut ColumnWriter<'_>) -> Result<(), ParquetError> {
        let levels = self.levels.as_deref();
        match (&self.values, writer) {
            (Values::Int32(values), ColumnWriter::Int32ColumnWriter(to)) => {
                to.write_batch(values, levels, None)?
            }
            (Values::Int64(values), ColumnWriter::Int64ColumnWriter(to)) => {
                to.write_batch(values, levels, None)?
            }
            (Values::Bool(values), ColumnWriter::BoolColumnWriter(to)) => {
                to.write_batch(values, levels, None)?
            }
            (Values::Text { texts, of, .. }, ColumnWriter::ByteArrayColumnWriter(to)) => {
                let mut of = of.iter();
                let text = |number: &u32| texts.get(*number as usize).cloned().unwrap_or_default();
                let mut written = 0;
                match levels {
                    Some(levels) => {
                        for levels in levels.chunks(CHUNK_ROWS) {
                            let count = levels.iter().filter(|level| **level > 0).count();
                            let values: Vec<ByteArray> = of.by_ref().take(count).map(text).collect();
                            written += to.write_batch(&values, Some(levels), None)?;
                        }
                    }
                    None => {
                        for chunk in of.as_slice().chunks(CHUNK_ROWS) {
                            let values: Vec<ByteArray> = chunk.iter().map(text).collect();
                            written += to.write_batch(&values, None, None)?;
                        }
                    }
                }
                written
            }
            _ => return Err(ParquetError::General("a column of another kind".to_owned())),
        };
        Ok(())
    }

    fn clear(&mut self) {
        match &mut self.values {
            Values::Int32(values) => values.clear(),
            Values::Int64(values) => values.clear(),
            Values::Bool(values) => values.clear(),
            Values::Text { texts, numbers, of } => {
                texts.clear();
                numbers.clear();
                of.clear();
            }
        }
        self.levels.iter_mut().for_each(Vec::clear);
    }
}

/// The error of the file system inside, if that is what failed.
fn io_error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(inner) => *inner,
            Err(inner) => io::Error::other(inner),
        },
        other => io::Error::other(other),
    }
}
