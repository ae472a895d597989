//! Writes a trace: one block for each batch, written at once.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::batch::Batch;
use crate::error::Error;
use crate::trace_file::encode::{BlockEncoder, Encoded};
use crate::trace_file::header;

/// The trace file being written. Each block is one write and not buffered, so that a reader finds it even if
/// this process is killed.
pub struct TraceWriter {
    file: File,
    path: PathBuf,
    encoder: BlockEncoder,
    block: Vec<u8>,
    sequence: u64,
    whole_bytes: u64,
    /// Set once writing failed: nothing more is written, so that the file ends with a whole block.
    failed: bool,
}

impl TraceWriter {
    /// Creates the file, for this user only, or truncates an existing file of this user.
    pub fn create(path: &Path) -> Result<TraceWriter, Error> {
        let create = || {
            let mut file = create_private(path)?;
            file.write_all(&header::to_bytes())?;
            Ok((file, BlockEncoder::new()?))
        };
        let (file, encoder) =
            create().map_err(|source: io::Error| Error::TraceCreate { path: path.to_owned(), source })?;
        Ok(TraceWriter {
            file,
            path: path.to_owned(),
            encoder,
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

    /// Writes a batch, whole or not at all. After an error this does nothing until [`TraceWriter::resume`].
    pub fn write(&mut self, batch: &Batch) -> Result<(), Error> {
        if self.failed {
            return Ok(());
        }
        let before = (self.sequence, self.whole_bytes);
        let Self { file, encoder, block, sequence, whole_bytes, .. } = self;
        let written = encoder.encode(batch, &mut |encoded| put(file, block, sequence, whole_bytes, &encoded));
        written.map_err(|source| {
            (self.sequence, self.whole_bytes) = before;
            self.fail(source)
        })
    }

    /// Writes an encoded block.
    pub(crate) fn write_encoded(&mut self, encoded: &Encoded) -> Result<(), Error> {
        if self.failed {
            return Ok(());
        }
        let Self { file, block, sequence, whole_bytes, .. } = self;
        put(file, block, sequence, whole_bytes, encoded).map_err(|source| self.fail(source))
    }

    fn fail(&mut self, source: io::Error) -> Error {
        self.failed = true;
        // A part of the last block would look like damage.
        let _ = self.file.set_len(self.whole_bytes);
        Error::TraceWrite { path: self.path.clone(), whole_bytes: self.whole_bytes, source }
    }

    /// Whether the file still has the path with which it was created.
    pub(crate) fn still_has_its_path(&self) -> bool {
        match (self.file.metadata(), std::fs::symlink_metadata(&self.path)) {
            (Ok(own), Ok(there)) => (own.dev(), own.ino()) == (there.dev(), there.ino()),
            (_, Err(error)) => error.kind() != io::ErrorKind::NotFound,
            (Err(_), _) => true,
        }
    }

    /// Continues after an error with an empty file.
    pub(crate) fn restart(&mut self) -> Result<(), Error> {
        self.return_to((0, header::HEADER_BYTES as u64))
    }

    /// How far the file is written, for [`TraceWriter::return_to`].
    pub(crate) fn position(&self) -> (u64, u64) {
        (self.sequence, self.whole_bytes)
    }

    /// Goes on as if nothing had been written since then.
    pub(crate) fn return_to(&mut self, position: (u64, u64)) -> Result<(), Error> {
        (self.sequence, self.whole_bytes) = position;
        let cut = self.file.set_len(self.whole_bytes);
        cut.map_err(|source| self.fail(source))?;
        self.resume()
    }

    /// Gives the file that name, which no file may have.
    pub(crate) fn rename(&mut self, path: &Path) -> Result<(), Error> {
        let renamed = match std::fs::symlink_metadata(path) {
            Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
            Err(_) => std::fs::rename(&self.path, path),
        };
        renamed.map_err(|source| Error::TraceCreate { path: path.to_owned(), source })?;
        path.clone_into(&mut self.path);
        Ok(())
    }

    /// Continues after an error, after the last whole block.
    pub(crate) fn resume(&mut self) -> Result<(), Error> {
        let found = self.file.seek(SeekFrom::Start(self.whole_bytes));
        self.failed = false;
        found.map(drop).map_err(|source| self.fail(source))
    }

    /// For tests: writes to another file from now on.
    #[cfg(test)]
    pub fn set_file(&mut self, file: File) {
        self.file = file;
    }
}

/// Writes one block, numbered.
fn put(
    file: &mut File,
    block: &mut Vec<u8>,
    sequence: &mut u64,
    whole_bytes: &mut u64,
    encoded: &Encoded,
) -> io::Result<()> {
    block.clear();
    block.extend_from_slice(&encoded.header(*sequence));
    block.extend_from_slice(encoded.stored);
    file.write_all(block)?;
    *sequence += 1;
    *whole_bytes += block.len() as u64;
    Ok(())
}

/// Never follows a symbolic link, and never writes into another user's file.
fn create_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    let error = match options.clone().create_new(true).open(path) {
        Ok(file) => return Ok(file),
        Err(error) => error,
    };
    if error.kind() != io::ErrorKind::AlreadyExists {
        return Err(error);
    }
    let file = options.open(path)?;
    let found = file.metadata()?;
    if found.file_type().is_char_device() {
        // Devices such as /dev/null, which only root can create.
        return Ok(file);
    }
    if !found.is_file() || found.uid() != rustix::process::geteuid().as_raw() || found.nlink() > 1 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "what is there is no file of this user's",
        ));
    }
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.set_len(0)?;
    Ok(file)
}
