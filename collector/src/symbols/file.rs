//! An image's file: whether it is the one that was mapped, and what it says of places.

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
    /// There is none: the kernel's own code, or memory of no file.
    NoFile,
    Gone,
    /// It is not what was mapped.
    Changed,
    /// It cannot be opened, or is no program.
    Unreadable,
}

/// A function at a place, with its line where that is known.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Function {
    pub name: Option<String>,
    /// As the compiler was told it.
    pub file: Option<String>,
    pub line: u32,
}

pub struct Symbols {
    loader: Loader,
    /// The same of what was stripped off, where that is installed.
    debug: Option<Loader>,
    /// Where the program begins; 0 in most libraries.
    entry: u64,
}

/// How far into `_start` its one call can be.
const ENTRY_BYTES: u64 = 64;

impl Symbols {
    /// Opens the image's file, if it still is that.
    pub fn open(image: &Image) -> Result<Symbols, Unread> {
        let path = Path::new(OsStr::from_bytes(&image.path));
        if !path.is_absolute() {
            return Err(Unread::NoFile);
        }
        if image.path.ends_with(b" (deleted)") {
            return Err(Unread::Gone);
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
        let debug = debug_path(&image.build_id).filter(|path| path.is_file());
        let debug = debug.and_then(|path| Loader::new(path).ok());
        Ok(Symbols { loader, debug, entry })
    }

    /// The functions that an address is in, those that were inlined behind what they were inlined into.
    pub fn functions(&self, address: u64) -> Vec<Function> {
        let loaders = || std::iter::once(&self.loader).chain(&self.debug);
        let symbol = loaders().find_map(|loader| loader.find_symbol(address)).map(name::readable);
        let mut functions = loaders().map(|loader| lines(loader, address)).find(|found| !found.is_empty());
        let functions = functions.get_or_insert_with(|| vec![Function::default()]);
        // What nothing was inlined into is what the symbol names.
        if let Some(last) = functions.last_mut()
            && last.name.is_none()
        {
            last.name = symbol;
        }
        functions.reverse();
        std::mem::take(functions)
    }

    /// Whether the address is where the program itself begins, before its `main`.
    pub fn is_entry(&self, address: u64) -> bool {
        self.entry != 0 && address.wrapping_sub(self.entry) < ENTRY_BYTES
    }
}

/// What line tables say, innermost first; empty where they say nothing.
fn lines(loader: &Loader, address: u64) -> Vec<Function> {
    let Ok(mut frames) = loader.find_frames(address) else { return Vec::new() };
    let mut found = Vec::new();
    // Nobody inlines deeper.
    while let (Ok(Some(frame)), true) = (frames.next(), found.len() < 64) {
        let name = frame.function.as_ref().and_then(|function| function.raw_name().ok());
        let location = frame.location.as_ref();
        let file = location.and_then(|location| location.file).map(str::to_owned);
        let line = location.and_then(|location| location.line).unwrap_or(0);
        found.push(Function { name: name.map(|name| name::readable(&name)), file, line });
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

/// Where distributions install what they stripped off.
fn debug_path(build_id: &[u8]) -> Option<PathBuf> {
    let hex: String = build_id.iter().map(|byte| format!("{byte:02x}")).collect();
    let (folder, file) = hex.split_at_checked(2).filter(|(_, file)| !file.is_empty())?;
    Some(Path::new("/usr/lib/debug/.build-id").join(folder).join(format!("{file}.debug")))
}
