//! Where an export goes: stdout, a file, or a folder. Files and folders are written under a temporary name
//! beside the final one, and renamed once they are whole.

use std::cell::RefCell;
use std::fs::{self, DirBuilder, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use flate2::Compression;
use flate2::write::GzEncoder;
use gputrace_collector::export::{Destination, FormatEntry, Target};

use crate::cli::exit_code;
use crate::cli::failure::{Failure, reason, remedy_for_named};
use crate::cli::output_folder::{beside, stream_whole, unwritable_named};

const BUFFER_BYTES: usize = 1 << 16;
/// The file that an export adds to the folder it makes. It has the names of the other files, one a line.
const MARKER: &str = ".gputrace-export";

/// Opens the destination that a format needs, passes it to `write`, and then completes it. A `path` of `None`
/// is stdout.
pub fn write_to<T>(
    path: Option<&Path>,
    format: &FormatEntry,
    write: impl FnOnce(Destination) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let is_compressed = path.and_then(Path::extension).is_some_and(|ending| ending == "gz");
    match (format.target, path) {
        (Target::Stream, None) => through(io::stdout(), false, None, write),
        (Target::Stream, Some(path)) => stream_whole(path, |file| {
            let file = file.try_clone().map_err(|error| unwritable_named(path, &error))?;
            through(file, is_compressed, Some(path), write)
        }),
        (target, None) => {
            let what = if target == Target::Folder { "a folder" } else { "a file that is no stream" };
            let failure = Failure::new(format!("{} is {what}: it cannot be written to stdout", format.name));
            Err(failure.hint("name it with -o").code(exit_code::USAGE))
        }
        (_, Some(path)) if is_compressed => {
            let failure =
                Failure::new(format!("cannot write {}: {} is never compressed", path.display(), format.name));
            Err(failure.hint("choose a name that does not end in .gz").code(exit_code::USAGE))
        }
        (Target::File, Some(path)) => file(path, write),
        (Target::Folder, Some(path)) => folder(path, write),
    }
}

/// The failure of an output that was partly written.
pub fn cut_short(path: Option<&Path>, error: &io::Error) -> Failure {
    let name = path.map_or_else(|| "stdout".to_owned(), |path| path.display().to_string());
    let failure = Failure::new(format!("cannot write to {name}: {}", reason(error)));
    let failure = failure.code(exit_code::collector::WRITE_FAILED);
    match remedy_for_named(error) {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

// --- streams

enum Stream<W: Write> {
    Plain(BufWriter<W>),
    Compressed(GzEncoder<BufWriter<W>>),
}

/// The format's handle on a stream that we keep too. The format drops its handle, which would lose an error;
/// we then complete the stream ourselves, so that we see an error at the compressor's end.
struct Shared<W: Write> {
    stream: Rc<RefCell<Completed<W>>>,
}

struct Completed<W: Write> {
    stream: Stream<W>,
    /// The first error of a write. A format's own buffer may drop the error, so it is kept here.
    error: Option<io::ErrorKind>,
}

fn through<W: Write + 'static, T>(
    output: W,
    is_compressed: bool,
    path: Option<&Path>,
    write: impl FnOnce(Destination) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let buffer = BufWriter::with_capacity(BUFFER_BYTES, output);
    let stream = match is_compressed {
        true => Stream::Compressed(GzEncoder::new(buffer, Compression::default())),
        false => Stream::Plain(buffer),
    };
    let stream = Rc::new(RefCell::new(Completed { stream, error: None }));
    let done = write(Destination::Stream(Box::new(Shared { stream: Rc::clone(&stream) })))?;
    let completed = stream.borrow_mut().complete();
    match completed {
        Err(error) if path.is_some() || error.kind() != io::ErrorKind::BrokenPipe => {
            Err(cut_short(path, &error))
        }
        _ => Ok(done),
    }
}

impl<W: Write> Completed<W> {
    fn complete(&mut self) -> io::Result<()> {
        if let Some(kind) = self.error {
            return Err(kind.into());
        }
        match &mut self.stream {
            Stream::Plain(buffer) => buffer.flush(),
            Stream::Compressed(encoder) => {
                encoder.try_finish()?;
                encoder.get_mut().flush()
            }
        }
    }

    fn noting<T>(&mut self, done: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &done
            && error.kind() != io::ErrorKind::Interrupted
        {
            self.error.get_or_insert(error.kind());
        }
        done
    }
}

impl<W: Write> Write for Shared<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut shared = self.stream.borrow_mut();
        let done = match &mut shared.stream {
            Stream::Plain(buffer) => buffer.write(bytes),
            Stream::Compressed(encoder) => encoder.write(bytes),
        };
        shared.noting(done)
    }

    /// Does not flush the compressor, since a flush makes the output larger. [`Completed::complete`] writes
    /// its end.
    fn flush(&mut self) -> io::Result<()> {
        let mut shared = self.stream.borrow_mut();
        let done = match &mut shared.stream {
            Stream::Plain(buffer) => buffer.flush(),
            Stream::Compressed(_) => Ok(()),
        };
        shared.noting(done)
    }
}

// --- files and folders that a library writes

/// A temporary folder of ours. Dropping it removes the folder with everything that is left in it.
struct Temporary(PathBuf);

impl Temporary {
    /// First removes what has that name: an earlier run with our process id may have left it.
    fn create(path: &Path) -> io::Result<Temporary> {
        let temporary = beside(path);
        remove(&temporary)?;
        DirBuilder::new().mode(0o700).create(&temporary)?;
        Ok(Temporary(temporary))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = remove(&self.0);
    }
}

fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    removed.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

/// Has `write` make the file inside a temporary folder. A library may leave journals beside the file; they
/// are removed with the folder.
fn file<T>(path: &Path, write: impl FnOnce(Destination) -> Result<T, Failure>) -> Result<T, Failure> {
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(occupied(path, "it is no file").hint("name another file with -o"));
    }
    let failed = |error: io::Error| unwritable_named(path, &error);
    let Some(name) = path.file_name() else { return Err(failed(io::ErrorKind::InvalidFilename.into())) };
    let temporary = Temporary::create(path).map_err(failed)?;
    let inside = temporary.0.join(name);
    let done = write(Destination::File(inside.clone()))?;
    // Only the user may read a trace, as with all other outputs.
    fs::set_permissions(&inside, fs::Permissions::from_mode(0o600)).map_err(failed)?;
    fs::rename(&inside, path).map_err(failed)?;
    Ok(done)
}

/// Replaces a folder that is empty or that an export made, and refuses any other.
fn folder<T>(path: &Path, write: impl FnOnce(Destination) -> Result<T, Failure>) -> Result<T, Failure> {
    // Removes a slash at the end: the temporary name is made by adding to the path, and after a slash it
    // would be inside the folder.
    let path = &path.components().collect::<PathBuf>();
    let failed = |error: io::Error| unwritable_named(path, &error);
    match fs::metadata(path) {
        Ok(found) if !found.is_dir() => {
            return Err(occupied(path, "it is no folder").hint("name another folder with -o"));
        }
        Ok(_) if !is_replaceable(path).map_err(failed)? => {
            let failure = occupied(path, "the folder holds something else than an export");
            return Err(failure.hint("name another folder with -o, or remove that one"));
        }
        _ => {}
    }
    let temporary = Temporary::create(path).map_err(failed)?;
    let done = write(Destination::Folder(temporary.0.clone()))?;
    mark(&temporary.0).map_err(failed)?;
    // rename succeeds if there is no folder or an empty one. One with files must be moved away first.
    if fs::rename(&temporary.0, path).is_ok() {
        return Ok(done);
    }
    let mut old = beside(path).into_os_string();
    old.push(".old");
    let old = PathBuf::from(old);
    remove(&old).map_err(failed)?;
    fs::rename(path, &old).map_err(failed)?;
    if let Err(error) = fs::rename(&temporary.0, path) {
        let _ = fs::rename(&old, path);
        return Err(failed(error));
    }
    let _ = remove(&old);
    Ok(done)
}

/// Writes the names of the export's files into [`MARKER`]. A later export sees by it whether somebody added
/// other files, and then does not replace the folder.
fn mark(folder: &Path) -> io::Result<()> {
    let mut names = entries(folder)?;
    names.sort();
    let mut file = File::create_new(folder.join(MARKER))?;
    file.write_all((names.join("\n") + "\n").as_bytes())
}

/// Whether a folder is empty, or holds nothing but what an export wrote.
fn is_replaceable(folder: &Path) -> io::Result<bool> {
    let found = entries(folder)?;
    let marker = fs::read_to_string(folder.join(MARKER)).unwrap_or_default();
    let known: Vec<&str> = marker.lines().collect();
    Ok(found.iter().all(|name| name == MARKER || known.contains(&name.as_str())))
}

fn entries(folder: &Path) -> io::Result<Vec<String>> {
    let entry = |entry: io::Result<fs::DirEntry>| Ok(entry?.file_name().to_string_lossy().into_owned());
    fs::read_dir(folder)?.map(entry).collect()
}

fn occupied(path: &Path, why: &str) -> Failure {
    Failure::new(format!("cannot write {}: {why}", path.display())).code(exit_code::collector::CANNOT_CREATE)
}

#[cfg(test)]
mod tests {
    use gputrace_collector::export::Format;

    use super::*;
    use crate::launch::private_folder::SessionFolder;

    fn entry(target: Target) -> FormatEntry {
        let open = |_: Destination| -> io::Result<Box<dyn Format>> { Err(io::ErrorKind::Unsupported.into()) };
        FormatEntry { name: "made-up", about: "", target, open }
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names = entries(folder).unwrap();
        names.sort();
        names
    }

    /// Writes a table into a folder as a format would.
    fn tables(path: &Path, text: &str) -> Result<(), Failure> {
        write_to(Some(path), &entry(Target::Folder), |destination| {
            let folder = destination.path().unwrap();
            fs::write(folder.join(text), text).unwrap();
            Ok(())
        })
    }

    #[test]
    fn folder_of_an_export_is_replaced_and_no_other_one() {
        let base = SessionFolder::create().unwrap();
        let path = base.path().join("tables/");
        tables(&path, "a").unwrap();
        assert_eq!(names(&path), [MARKER, "a"]);
        tables(&path, "b").unwrap();
        assert_eq!(names(&path), [MARKER, "b"]);
        fs::write(path.join("dear"), "").unwrap();
        let refused = tables(&path, "c").unwrap_err();
        assert!(refused.message.ends_with("the folder holds something else than an export"), "{refused}");
        assert_eq!(names(&path), [MARKER, "b", "dear"]);
        fs::create_dir(base.path().join("empty")).unwrap();
        tables(&base.path().join("empty"), "d").unwrap();
        assert_eq!(names(base.path()), ["empty", "tables"]);
    }

    #[test]
    fn output_that_fails_leaves_nothing_and_keeps_the_earlier_one() {
        let base = SessionFolder::create().unwrap();
        let path = base.path().join("x");
        for target in [Target::Stream, Target::File] {
            fs::write(&path, "earlier").unwrap();
            let failed = write_to(Some(&path), &entry(target), |destination| {
                match destination {
                    Destination::Stream(mut stream) => stream.write_all(b"half").unwrap(),
                    Destination::File(file) | Destination::Folder(file) => {
                        fs::write(file.with_extension("journal"), "").unwrap();
                        fs::write(file, "half").unwrap();
                    }
                }
                Err::<(), _>(Failure::new("no"))
            });
            assert_eq!(failed.unwrap_err().message, "no");
            assert_eq!(
                (names(base.path()), fs::read_to_string(&path).unwrap()),
                (vec!["x".into()], "earlier".into())
            );
        }
    }

    #[test]
    fn leftovers_of_a_killed_run_with_our_process_id_are_replaced() {
        let base = SessionFolder::create().unwrap();
        let (whole, file) = (base.path().join("tables"), base.path().join("x"));
        fs::create_dir(beside(&whole)).unwrap();
        fs::write(beside(&whole).join("half"), "").unwrap();
        fs::write(beside(&file), "half").unwrap();
        tables(&whole, "a").unwrap();
        let write = |destination: Destination| {
            fs::write(destination.path().unwrap(), "whole").unwrap();
            Ok(())
        };
        write_to(Some(&file), &entry(Target::File), write).unwrap();
        assert_eq!(names(base.path()), ["tables", "x"]);
        assert_eq!(names(&whole), [MARKER, "a"]);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    }

    /// A writer that fails once it has taken that many bytes.
    struct Full(usize);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The compressor writes most of a short file only when it is completed, so the error comes only then.
    #[test]
    fn error_at_the_end_of_a_stream_is_seen() {
        for is_compressed in [false, true] {
            let write = |destination: Destination| {
                let mut stream = destination.stream().unwrap();
                stream.write_all(b"short").unwrap();
                Ok(())
            };
            let path = Some(Path::new("x"));
            let failed = through(Full(4), is_compressed, path, write).unwrap_err();
            assert_eq!(failed.exit_code, exit_code::collector::WRITE_FAILED, "{failed}");
            through(Full(1000), is_compressed, path, write).unwrap();
        }
    }

    #[test]
    fn what_is_no_stream_is_not_written_to_stdout() {
        for target in [Target::File, Target::Folder] {
            let refused = write_to(None, &entry(target), |_| Ok(())).unwrap_err();
            assert_eq!(refused.exit_code, exit_code::USAGE);
        }
    }
}
