//! The file: tables that are made with their first row, and the numbers of texts.

use std::io;
use std::path::Path;

use rusqlite::{Connection, Error, ErrorCode, OpenFlags, Params};
use rustc_hash::FxHashMap;

use crate::export::sqlite::schema::{self, NsysTable};
use crate::names::line_safe;

/// Statements that stay compiled: one for each table, and some.
const STATEMENTS: usize = 64;

pub struct Database {
    connection: Connection,
    /// The statement that adds a row, by table.
    inserts: FxHashMap<&'static str, String>,
    texts: FxHashMap<Box<str>, i64>,
}

impl Database {
    pub fn create(path: &Path) -> io::Result<Database> {
        // Not by SQLite's rules for names, which give some a meaning (`:memory:`).
        let path = if path.is_absolute() { path.to_owned() } else { Path::new(".").join(path) };
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_EXRESCODE;
        Database::on(Connection::open_with_flags(path, flags).map_err(io_error)?)
    }

    pub(super) fn on(connection: Connection) -> io::Result<Database> {
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        // A file that is not completed is thrown away, so nothing needs to be undone or kept safe.
        connection
            .execute_batch(
                "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE; \
                 PRAGMA cache_size = -16384; BEGIN",
            )
            .map_err(io_error)?;
        let mut database =
            Database { connection, inserts: FxHashMap::default(), texts: FxHashMap::default() };
        // Some reports need these even without rows.
        for table in [schema::STRINGS, schema::GPU] {
            database.make(&table)?;
        }
        // As in nsys's files, number 0 is no name.
        database.text("[?]")?;
        Ok(database)
    }

    fn make(&mut self, table: &NsysTable) -> io::Result<()> {
        let NsysTable { name, columns } = table;
        self.execute(&format!("CREATE TABLE {name} ({columns})"))?;
        // A row of few values names them: what it leaves out is NULL.
        let values: Vec<String> = table.column_names().map(|column| format!(":{column}")).collect();
        let values = values.join(", ");
        self.inserts.insert(name, format!("INSERT INTO {name} VALUES ({values})"));
        Ok(())
    }

    pub fn execute(&self, statement: &str) -> io::Result<()> {
        self.connection.execute_batch(statement).map_err(io_error)
    }

    /// Adds a row, with the table if it is the first one.
    pub fn add(&mut self, table: &NsysTable, row: impl Params) -> io::Result<()> {
        if !self.inserts.contains_key(table.name) {
            self.make(table)?;
        }
        let Some(insert) = self.inserts.get(table.name) else { return Ok(()) };
        let mut statement = self.connection.prepare_cached(insert).map_err(io_error)?;
        statement.execute(row).map_err(io_error)?;
        Ok(())
    }

    /// The number of a text, with its row if it is new. Control characters are written out.
    pub fn text(&mut self, text: &str) -> io::Result<i64> {
        let text = line_safe(text);
        if let Some(known) = self.texts.get(text.as_ref()) {
            return Ok(*known);
        }
        let number = self.texts.len() as i64;
        self.add(&schema::STRINGS, (number, text.as_ref()))?;
        self.texts.insert(text.into(), number);
        Ok(number)
    }

    pub fn complete(&self) -> io::Result<()> {
        self.execute("COMMIT")
    }
}

/// A full disk keeps its kind. `PRAGMA`s that a read-only file system refuses come here too.
fn io_error(error: Error) -> io::Error {
    let kind = match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => io::ErrorKind::StorageFull,
        Some(ErrorCode::PermissionDenied | ErrorCode::ReadOnly) => io::ErrorKind::PermissionDenied,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}
