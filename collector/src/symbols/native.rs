//! The native frames of a session's stacks, all looked up at once, so that each file is opened once.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::cut;
use super::file::{FrameFunction, Symbols, Unread};
use crate::model::Totals;
use crate::model::definitions::Image;
use crate::source::is_own;

/// A native frame with its names.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NativeFrame {
    /// The functions at the address, at least one: several if functions were inlined, the innermost last.
    pub functions: Vec<FrameFunction>,
    /// The image's path, and its last part.
    pub image: Arc<str>,
    pub file: Arc<str>,
    pub address: u64,
    /// Whether the image is user code.
    pub own: bool,
    /// Whether the frame only starts the program or a thread, such as `_start`.
    pub begins: bool,
}

/// Process, image definition, address in the image's file.
type FrameKey = (u32, u32, u64);

#[derive(Debug, Default)]
pub struct Natives {
    frames: FxHashMap<FrameKey, Arc<NativeFrame>>,
    /// Files that gave no names, by reason.
    unread: BTreeMap<Unread, Vec<String>>,
}

impl Natives {
    pub fn new(totals: &Totals) -> Natives {
        let mut wanted: BTreeMap<Image, Vec<FrameKey>> = BTreeMap::new();
        for process in &totals.processes {
            let mut images: FxHashMap<u32, Option<Image>> = FxHashMap::default();
            for (id, at) in process.definitions.native_frames() {
                let image = images.entry(id).or_insert_with(|| process.definitions.image(id));
                let Some(image) = image else { continue };
                let key = (process.number, id, at);
                match wanted.get_mut(image) {
                    Some(keys) => keys.push(key),
                    None => _ = wanted.insert(image.clone(), vec![key]),
                }
            }
        }
        let mut natives = Natives::default();
        for (image, keys) in wanted {
            natives.look_up(&image, keys);
        }
        natives
    }

    fn look_up(&mut self, image: &Image, mut wanted: Vec<FrameKey>) {
        wanted.sort_unstable();
        wanted.dedup();
        // Processes of one program have the same frames.
        let mut known: FxHashMap<u64, Arc<NativeFrame>> = FxHashMap::default();
        let path: Arc<str> = String::from_utf8_lossy(&image.path).into();
        let file: Arc<str> = path.trim_end_matches(" (deleted)").rsplit('/').next().unwrap_or("").into();
        let own = is_own_image(&path);
        let mut symbols = None;
        for key in wanted {
            let frame = known.get(&key.2).cloned().unwrap_or_else(|| {
                let symbols = symbols.get_or_insert_with(|| guarded(|| Symbols::open(image)).flatten());
                let found = match symbols {
                    Ok(open) => guarded(|| frame(Some(&*open), key.2, &path, &file, own)),
                    Err(why) => Err(*why),
                };
                match found {
                    Ok(frame) => {
                        known.insert(key.2, frame.clone());
                        frame
                    }
                    Err(why) => {
                        // A truncated file is not read any more; after other errors, further addresses are
                        // tried.
                        if why == Unread::Changed {
                            *symbols = Err(why);
                        }
                        frame(None, key.2, &path, &file, own)
                    }
                }
            });
            self.frames.insert(key, frame);
        }
        if let Some(Err(why)) = symbols {
            self.unread.entry(why).or_default().push(file.to_string());
        }
    }

    pub fn frame(&self, process: u32, image: u32, at: u64) -> Option<&Arc<NativeFrame>> {
        self.frames.get(&(process, image, at))
    }

    /// The source files of all frames.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        let functions = self.frames.values().flat_map(|frame| &frame.functions);
        functions.filter_map(|function| function.file.as_deref())
    }

    /// Notices for the user about files that gave no names.
    pub fn notices(&self) -> Vec<String> {
        let why = |why: &Unread| match why {
            Unread::NoFile => None,
            Unread::Gone => Some("the file is gone"),
            Unread::Changed => Some("the file is not the one that ran (another build id, or written since)"),
            Unread::Unreadable => Some("the file cannot be read"),
        };
        let known_reasons = self.unread.iter().filter_map(|(reason, files)| Some((why(reason)?, files)));
        known_reasons
            .map(|(why, files)| {
                let mut files = files.clone();
                files.sort();
                files.dedup();
                let more = files.len().saturating_sub(5);
                files.truncate(5);
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                format!("native frames without names in {}{more}: {why}", files.join(", "))
            })
            .collect()
    }
}

fn frame(
    symbols: Option<&Symbols>,
    address: u64,
    path: &Arc<str>,
    file: &Arc<str>,
    own: bool,
) -> Arc<NativeFrame> {
    let functions =
        symbols.map_or_else(|| vec![FrameFunction::default()], |symbols| symbols.functions(address));
    let outermost = functions.first().and_then(|function| function.name.as_deref());
    let begins = symbols.is_some_and(|symbols| symbols.is_entry(address))
        || is_c_library(file) && outermost.is_none_or(is_beginning);
    Arc::new(NativeFrame { functions, image: path.clone(), file: file.clone(), address, own, begins })
}

/// Runs `read`, which may panic on invalid tables or find that the file was truncated: then there are no
/// names.
fn guarded<T>(read: impl FnOnce() -> T) -> Result<T, Unread> {
    let read = cut::reading(|| std::panic::catch_unwind(AssertUnwindSafe(read)));
    read.ok_or(Unread::Changed)?.map_err(|_| Unread::Unreadable)
}

fn is_c_library(file: &str) -> bool {
    ["libc.so", "libc-2.", "libpthread", "ld-linux", "ld-2.", "libstdc++.so"]
        .iter()
        .any(|begin| file.starts_with(begin))
}

/// Functions of the C library that begin a thread or call `main`.
fn is_beginning(function: &str) -> bool {
    let bare = function.trim_start_matches('_');
    matches!(bare, "start_thread" | "clone" | "clone3" | "pthread_start" | "execute_native_thread_routine")
        || bare.starts_with("libc_start_")
}

/// Whether an image is user code: any program, and libraries outside the system's folders.
fn is_own_image(path: &str) -> bool {
    const INSTALLED: [&str; 5] = ["/usr/", "/lib/", "/lib64/", "/opt/", "/nix/"];
    let file = path.rsplit('/').next().unwrap_or(path);
    let is_installed = INSTALLED.iter().any(|folder| path.starts_with(folder));
    let is_program = !file.contains(".so") && !file.starts_with("python");
    path.starts_with('/') && is_own(path) && (is_program || !is_installed)
}

impl NativeFrame {
    /// Whether a source file is user code. A library's header is not, even if inlined into user code.
    pub fn is_own_file(&self, file: &str) -> bool {
        self.own && is_own(file) && !file.starts_with("/usr/") && !file.starts_with("/rustc/")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A build may overwrite the program while its report is made.
    #[test]
    fn program_that_is_cut_while_its_names_are_looked_up_has_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        std::fs::copy(std::env::current_exe().unwrap(), &path).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let object = object::File::parse(&bytes[..]).unwrap();
        let build_id = object::Object::build_id(&object).unwrap().unwrap_or_default().to_vec();
        let image =
            Image { path: path.as_os_str().as_encoded_bytes().to_vec(), build_id, ..Image::default() };
        let text: Arc<str> = "program".into();
        // A function with lines: at other addresses nothing is looked up.
        let own = object::Object::symbols(&object)
            .find(|symbol| object::ObjectSymbol::name(symbol).is_ok_and(|name| name.contains("is_own_image")))
            .unwrap();
        let address = object::ObjectSymbol::address(&own) + 1;
        let symbols = guarded(|| Symbols::open(&image)).flatten().unwrap_or_else(|why| panic!("{why:?}"));
        std::fs::File::options().write(true).open(&path).unwrap().set_len(4096).unwrap();
        let found = guarded(|| frame(Some(&symbols), address, &text, &text, true));
        assert_eq!(found, Err(Unread::Changed));
    }

    #[test]
    fn programs_are_own_wherever_they_lie_and_libraries_where_they_are_not_installed() {
        for own in ["/home/me/train", "/opt/company/bin/server", "/usr/src/app/run", "/srv/app/libours.so.2"]
        {
            assert!(is_own_image(own), "{own}");
        }
        let others = [
            "/usr/lib/x86_64-linux-gnu/libc.so.6",
            "/opt/nvidia/lib64/libcublas.so.13",
            "/usr/bin/python3.12",
            "/home/me/.venv/lib/python3.12/site-packages/torch/lib/libtorch_cpu.so",
            "[vdso]",
            "",
        ];
        for other in others {
            assert!(!is_own_image(other), "{other}");
        }
    }
}
