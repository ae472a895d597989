//! An image's file: checks that it is the one that was mapped, and finds the functions at an address.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use addr2line::Loader;
use object::Object;
use object::read::ReadCache;

use super::name;
use crate::model::definitions::Image;

/// Why a file gives no names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Unread {
    /// There is no file: the kernel's own code, or anonymous memory.
    NoFile,
    Gone,
    /// It is not the file that was mapped.
    Changed,
    /// It cannot be opened, or is not a program or library.
    Unreadable,
}

/// A function at an address, with its line if known.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct FrameFunction {
    pub name: Option<String>,
    /// The path that the compiler was given.
    pub file: Option<String>,
    pub line: u32,
}

pub struct Symbols {
    loader: Loader,
    /// The installed debug file of a stripped image.
    debug: Option<Loader>,
    /// The entry point; 0 in most libraries.
    entry: u64,
}

/// The call in `_start` is within this many bytes.
const ENTRY_BYTES: u64 = 64;

impl Symbols {
    /// Opens the image's file, if it is unchanged.
    pub fn open(image: &Image) -> Result<Symbols, Unread> {
        let path = Path::new(OsStr::from_bytes(&image.path));
        // A trace may name any path. Files outside a disk are not opened.
        let is_of_system =
            |path: &Path| ["/proc", "/sys", "/dev"].iter().any(|folder| path.starts_with(folder));
        if !path.is_absolute() || is_of_system(path) {
            return Err(Unread::NoFile);
        }
        if image.path.ends_with(b" (deleted)") {
            return Err(Unread::Gone);
        }
        // Also after links and `..` are resolved.
        let path = &path.canonicalize().map_err(|_| Unread::Gone)?;
        if is_of_system(path) {
            return Err(Unread::NoFile);
        }
        let metadata = path.metadata().map_err(|_| Unread::Gone)?;
        // A device or a pipe that a trace names is not opened.
        if !metadata.is_file() {
            return Err(Unread::Unreadable);
        }
        let file = File::open(path).map_err(|_| Unread::Unreadable)?;
        let entry = {
            let cache = ReadCache::new(file);
            let object = object::File::parse(&cache).map_err(|_| Unread::Unreadable)?;
            if !is_same(image, &object, &metadata) {
                return Err(Unread::Changed);
            }
            object.entry()
        };
        let loader = Loader::new(path).map_err(|_| Unread::Unreadable)?;
        // The loader opened the file again: it must still be the same.
        let now = path.metadata().map_err(|_| Unread::Changed)?;
        if (now.dev(), now.ino(), now.len()) != (metadata.dev(), metadata.ino(), metadata.len()) {
            return Err(Unread::Changed);
        }
        let debug = debug_path(&image.build_id).filter(|path| path.is_file());
        let debug = debug.and_then(|path| Loader::new(path).ok());
        Ok(Symbols { loader, debug, entry })
    }

    /// The functions at an address, outermost first: inlined functions follow the one that contains them.
    pub fn functions(&self, address: u64) -> Vec<FrameFunction> {
        // No file is that long, and later additions must not overflow.
        if address > u64::MAX / 4 {
            return vec![FrameFunction::default()];
        }
        let loaders = || std::iter::once(&self.loader).chain(&self.debug);
        let symbol = loaders().find_map(|loader| loader.find_symbol(address)).map(name::readable);
        let mut functions = loaders().map(|loader| lines(loader, address)).find(|found| !found.is_empty());
        let functions = functions.get_or_insert_with(|| vec![FrameFunction::default()]);
        // The symbol names the outermost function.
        if let Some(last) = functions.last_mut()
            && last.name.is_none()
        {
            last.name = symbol;
        }
        functions.reverse();
        std::mem::take(functions)
    }

    /// Whether the address is in `_start`.
    pub fn is_entry(&self, address: u64) -> bool {
        self.entry != 0 && address.wrapping_sub(self.entry) < ENTRY_BYTES
    }
}

/// The functions by line tables, innermost first; empty if the tables have none.
fn lines(loader: &Loader, address: u64) -> Vec<FrameFunction> {
    let Ok(mut frames) = loader.find_frames(address) else { return Vec::new() };
    let mut found = Vec::new();
    // No real code is inlined deeper.
    while let (Ok(Some(frame)), true) = (frames.next(), found.len() < 64) {
        let name = frame.function.as_ref().and_then(|function| function.raw_name().ok());
        let location = frame.location.as_ref();
        let file = location.and_then(|location| location.file).map(str::to_owned);
        let line = location.and_then(|location| location.line).unwrap_or(0);
        found.push(FrameFunction { name: name.map(|name| name::readable(&name)), file, line });
    }
    found
}

fn is_same<'data>(image: &Image, object: &impl Object<'data>, metadata: &Metadata) -> bool {
    let build_id = object.build_id().ok().flatten().unwrap_or_default();
    if !image.build_id.is_empty() || !build_id.is_empty() {
        return image.build_id == build_id;
    }
    let modified_ns = metadata.mtime().wrapping_mul(1_000_000_000).wrapping_add(metadata.mtime_nsec());
    image.file_bytes == metadata.len() && image.modified_ns == modified_ns.cast_unsigned()
}

/// Where distributions install debug files.
fn debug_path(build_id: &[u8]) -> Option<PathBuf> {
    let hex: String = build_id.iter().map(|byte| format!("{byte:02x}")).collect();
    let (folder, file) = hex.split_at_checked(2).filter(|(_, file)| !file.is_empty())?;
    Some(Path::new("/usr/lib/debug/.build-id").join(folder).join(format!("{file}.debug")))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn image(path: &Path) -> Image {
        Image { path: path.as_os_str().as_bytes().to_vec(), ..Image::default() }
    }

    /// The image as a process that maps the file would have it.
    fn mapped(path: &Path) -> Image {
        let bytes = fs::read(path).unwrap();
        let object = object::File::parse(&bytes[..]).unwrap();
        let build_id = object.build_id().unwrap().unwrap_or_default().to_vec();
        Image { build_id, ..image(path) }
    }

    #[test]
    fn symbols_are_read_only_from_unchanged_plain_files() {
        let folder = tempfile::tempdir().unwrap();
        let text = folder.path().join("text");
        fs::write(&text, "no program").unwrap();
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        let own = std::env::current_exe().unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/dev/zero", &link).unwrap();
        for (path, why) in [
            (Path::new("linux-vdso.so.1"), Unread::NoFile),
            (Path::new("/proc/kmsg"), Unread::NoFile),
            (Path::new("/dev/zero"), Unread::NoFile),
            (Path::new("/tmp/../proc/version"), Unread::NoFile),
            (&link, Unread::NoFile),
            (Path::new("/nowhere/at all.so"), Unread::Gone),
            (Path::new("/lib/x.so (deleted)"), Unread::Gone),
            (folder.path(), Unread::Unreadable),
            (&text, Unread::Unreadable),
            (&own, Unread::Changed),
        ] {
            assert_eq!(Symbols::open(&image(path)).err(), Some(why), "{}", path.display());
        }
        if made.is_ok_and(|status| status.success()) {
            assert_eq!(
                Symbols::open(&image(&pipe)).err(),
                Some(Unread::Unreadable),
                "a pipe is not waited for"
            );
        }
    }

    #[test]
    fn functions_of_this_program_are_found() {
        let own = std::env::current_exe().unwrap();
        let symbols = Symbols::open(&mapped(&own)).unwrap_or_else(|why| panic!("{why:?}"));
        let bytes = fs::read(&own).unwrap();
        let object = object::File::parse(&bytes[..]).unwrap();
        let main = object.symbols().find(|symbol| object::ObjectSymbol::name(symbol) == Ok("main")).unwrap();
        let found = symbols.functions(object::ObjectSymbol::address(&main) + 1);
        assert_eq!(found.last().unwrap().name.as_deref(), Some("main"));
        assert!(symbols.is_entry(object.entry() + 8) && !symbols.is_entry(object.entry() - 1));
    }

    /// Every byte of a small library's headers and tables, changed: names may be wrong, and that is all.
    #[test]
    fn damaged_file_is_read_to_an_end() {
        let Ok(good) = fs::read("/bin/true") else { return };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("damaged");
        fs::write(&path, &good).unwrap();
        let image = mapped(&path);
        let entry = object::File::parse(&good[..]).unwrap().entry();
        let mut read = 0;
        let step = (good.len() / 600).max(1) | 1;
        for at in (0..64).chain((64..good.len()).step_by(step)) {
            for value in [0, 0xff, good[at] ^ 0x80] {
                let mut bytes = good.clone();
                bytes[at] = value;
                fs::write(&path, &bytes).unwrap();
                if let Ok(symbols) = Symbols::open(&image) {
                    read += 1;
                    for address in [entry, entry + 1_000, 0, u64::MAX] {
                        symbols.functions(address);
                    }
                }
            }
        }
        assert!(read > 500, "{read}");
    }
}
