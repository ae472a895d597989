//! The programs and libraries that are mapped, each defined once, and the rules from their tables.
//!
//! The cold work happens here, by one thread at a time: the first sight of a code address, and of an image.
//! After any library was closed an image is checked again: it is then either the same (by path, build id
//! and address) or another one.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use gputrace_producer::handles::key_of;
use gputrace_producer::memory::{self, Zeroed};
use gputrace_producer::stderr::KeepErrno;
use gputrace_producer::system;
use gputrace_wire::definition::{image as field, kind};

use super::eh_frame::{self, COMMON_BYTES, FUNCTION_BYTES, Pieces};
use super::pages::Pages;
use super::rule::{EVALUATION, IMAGES_MAX, INTERPRETER, OWN, Rule};
use super::rules::Rules;
use super::{elf, maps, surroundings};
use crate::fold::fold;
use crate::python::code::Define;
use crate::python::memory::Memory;

/// How often a thread tries to begin working out a rule: some 100 µs in all.
const TRIES: u32 = 20_000;
/// The number of pages that one table look-up usually copies: those of the search, and an entry's.
const PAGES: usize = 16;
const PATH_MAX: usize = 4096;
/// How often at most a session reads `/proc/self/maps` for an image that the loader does not lead to.
const MAPS_MAX: u32 = 4096;
const FIELDS: usize = field::MODIFIED_NS + 1;

struct Slot {
    start: AtomicU64,
    end: AtomicU64,
    bias: AtomicU64,
    frames: AtomicU64,
    /// A hash of path, build id and address.
    identity: AtomicU64,
    /// The epoch in which the image was last seen at its address.
    epoch: AtomicU32,
    definition: AtomicU32,
}

// SAFETY: zeroed atomics.
unsafe impl Zeroed for Slot {}

/// Buffers for tables, paths and maps.
struct Work {
    is_taken: AtomicU32,
    pages: Pages<PAGES>,
    pieces: UnsafeCell<Pieces>,
    path: UnsafeCell<[u8; PATH_MAX]>,
    maps: UnsafeCell<maps::LinesBuffer>,
}

// SAFETY: what is in the cells and pages is touched by whoever took the work, one at a time.
unsafe impl Sync for Work {}
// SAFETY: bytes, addresses and an atomic.
unsafe impl Zeroed for Work {}

pub struct Images {
    /// Slot 0 means "none".
    slots: &'static [Slot],
    count: AtomicU32,
    work: &'static Work,
    /// Epochs wrap from time to time; this counts the wraps.
    round: AtomicU32,
    maps_read: AtomicU32,
    /// Whether the notice that the table is full was written.
    is_said: AtomicU32,
    /// A thread waited for the work without success: until the work is free again no other thread waits.
    is_stuck: AtomicU32,
}

/// A mapped image: its definition, and the difference of its addresses from those in its file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MappedImage {
    pub definition: u32,
    pub bias: u64,
}

struct Found<'w> {
    image: elf::Image,
    path: &'w [u8],
}

impl Images {
    pub fn new() -> Option<Images> {
        const { assert!(size_of::<Pieces>() == COMMON_BYTES + FUNCTION_BYTES) };
        Some(Images {
            slots: memory::map(IMAGES_MAX)?,
            count: AtomicU32::new(1),
            work: memory::map::<Work>(1)?.first()?,
            round: AtomicU32::new(0),
            maps_read: AtomicU32::new(0),
            is_said: AtomicU32::new(0),
            is_stuck: AtomicU32::new(0),
        })
    }

    /// The definition and the bias of a rule's image.
    pub fn mapped(&self, image: usize) -> Option<MappedImage> {
        let slot = self.slots.get(image).filter(|_| image != 0)?;
        Some(MappedImage {
            definition: slot.definition.load(Ordering::Relaxed),
            bias: slot.bias.load(Ordering::Relaxed),
        })
    }

    /// Works out the rule for return address `pc`, and stores it.
    #[cold]
    #[inline(never)]
    pub fn work_out(&self, rules: &Rules, session: &impl Define, pc: u64) -> Rule {
        const USER_END: u64 = 1 << 47;
        let _errno = KeepErrno::new();
        if pc == 0 || pc >= USER_END || !self.take() {
            return Rule::UNKNOWN;
        }
        let rule = self.worked_out(rules, session, pc);
        // SYNC: pairs with the Acquire exchange in `take`: the next owner's reads and writes come after
        // ours.
        self.work.is_taken.store(0, Ordering::Release);
        rule
    }

    fn take(&self) -> bool {
        let tries = if self.is_stuck.load(Ordering::Relaxed) != 0 { 1 } else { TRIES };
        let is_taken = (0..tries).any(|_| {
            core::hint::spin_loop();
            self.work.is_taken.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
        });
        self.is_stuck.store(u32::from(!is_taken), Ordering::Relaxed);
        is_taken
    }

    fn worked_out(&self, rules: &Rules, session: &impl Define, pc: u64) -> Rule {
        let count = surroundings::epoch();
        let (epoch, round) = (Rules::epoch_of(count), count - Rules::epoch_of(count));
        if self.round.swap(round, Ordering::Relaxed) != round {
            rules.forget_all();
        }
        // A wrong frame may lead to any library, also to one that another thread unloads.
        let memory = &self.work.pages;
        memory.forget();
        let address = pc - 1;
        let Some(index) = self.image_of(memory, session, address, count) else {
            self.say_if_full(session);
            return Rule::UNKNOWN;
        };
        let Some(slot) = self.slots.get(index) else { return Rule::UNKNOWN };
        let (start, end) = (slot.start.load(Ordering::Relaxed), slot.end.load(Ordering::Relaxed));
        let (interpreter, evaluation) = surroundings::interpreter();
        let mut flags = 0;
        if (start..end).contains(&(Images::new as *const () as u64)) {
            flags |= OWN;
        }
        if (start..end).contains(&interpreter) {
            flags |= INTERPRETER;
        }
        // SAFETY: this thread took the work; the guard of the hook keeps a signal handler's out.
        let pieces = unsafe { &mut *self.work.pieces.get() };
        let frames = slot.frames.load(Ordering::Relaxed);
        let entry = if frames == 0 {
            Err(super::cfi::Unfit)
        } else {
            eh_frame::look_up(memory, frames, address, pieces)
        };
        let rule = match entry {
            Ok(entry) => {
                if flags & INTERPRETER != 0 && entry.function_start == evaluation {
                    flags |= EVALUATION;
                }
                entry.rule
            }
            Err(_) => Rule::UNKNOWN,
        };
        let rule = rule.with(index, flags);
        rules.keep(pc, epoch, rule);
        rule
    }

    /// Reports once that there are more images than the table holds: stacks end at the first frame in a
    /// further one.
    fn say_if_full(&self, session: &impl Define) {
        let is_full = self.count.load(Ordering::Relaxed) as usize >= IMAGES_MAX
            || self.maps_read.load(Ordering::Relaxed) >= MAPS_MAX;
        if is_full && self.is_said.swap(1, Ordering::Relaxed) == 0 {
            let text =
                b"more libraries were loaded than native frames can name: stacks end at those that came last";
            session.define(kind::NOTICE, &[1, 0], text);
        }
    }

    /// The index in the table of the image that contains `address`.
    fn image_of<M: Memory>(
        &self,
        memory: &M,
        session: &impl Define,
        address: u64,
        epoch: u32,
    ) -> Option<usize> {
        let known = self.slots.iter().take(self.count.load(Ordering::Acquire) as usize);
        let known = known.enumerate().find(|(_, slot)| {
            slot.epoch.load(Ordering::Relaxed) == epoch
                && (slot.start.load(Ordering::Relaxed)..slot.end.load(Ordering::Relaxed)).contains(&address)
        });
        match known {
            Some((index, _)) => Some(index),
            None => self.look_at(memory, session, address, epoch),
        }
    }

    fn look_at<M: Memory>(
        &self,
        memory: &M,
        session: &impl Define,
        address: u64,
        epoch: u32,
    ) -> Option<usize> {
        let Found { image, path } = self.find(memory, address)?;
        let fields = fields(&image, path);
        let identity = fields.iter().fold(key_of(path), |all, word| fold(all, *word));
        let count = self.count.load(Ordering::Acquire) as usize;
        let same = (1..count).find(|index| {
            self.slots.get(*index).is_some_and(|slot| slot.identity.load(Ordering::Relaxed) == identity)
        });
        let index = match same {
            Some(index) => index,
            None => {
                let slot = self.slots.get(count)?;
                slot.start.store(image.start, Ordering::Relaxed);
                slot.end.store(image.end, Ordering::Relaxed);
                slot.bias.store(image.bias, Ordering::Relaxed);
                slot.frames.store(image.frames, Ordering::Relaxed);
                slot.identity.store(identity, Ordering::Relaxed);
                let id = session.define(kind::IMAGE, &fields, path);
                slot.definition.store(id, Ordering::Relaxed);
                // SYNC: pairs with the Acquire loads of `count`: a slot is read only when it is complete.
                self.count.store(count as u32 + 1, Ordering::Release);
                count
            }
        };
        self.slots.get(index)?.epoch.store(epoch, Ordering::Relaxed);
        Some(index)
    }

    fn find<M: Memory>(&self, memory: &M, address: u64) -> Option<Found<'_>> {
        // SAFETY: as in `worked_out`; nobody else borrows these two.
        let (path, buffer) = unsafe { (&mut *self.work.path.get(), &mut *self.work.maps.get()) };
        if let Some(answer) = surroundings::find_object(address) {
            let object = answer?;
            // Where an object's segments leave gaps between them, the loader says the bounds of one
            // segment, as it does for many programs that lld has linked. The headers are then at the load
            // address (`l_addr`), which is added to the file's addresses; if it is 0, the kernel's list
            // below says where they are.
            let load_address = memory.word(object.link_map, 0);
            let image = [Some(object.start), load_address].into_iter().flatten().find_map(|start| {
                elf::read(memory, start).filter(|image| (image.start..image.end).contains(&address))
            });
            if let Some(image) = image {
                let length = said_path(memory, object.link_map, path)?;
                let is_whole = path.first() == Some(&b'/') || !path.get(..length)?.contains(&b'/');
                if is_whole && length > 0 {
                    return Some(Found { image, path: path.get(..length)? });
                }
                // The loader has no name for the program itself. Its names of others may be relative to a
                // folder that the program has left.
                let path = maps::image_at(address, buffer).map_or(&b""[..], |(_, path)| path);
                return Some(Found { image, path });
            }
        }
        if self.maps_read.fetch_add(1, Ordering::Relaxed) >= MAPS_MAX {
            return None;
        }
        let (start, path) = maps::image_at(address, buffer)?;
        let image = elf::read(memory, start).filter(|image| image.end > address)?;
        Some(Found { image, path })
    }
}

/// The path by which the loader knows an object, and the path's length.
fn said_path<M: Memory>(memory: &M, link_map: u64, buffer: &mut [u8; PATH_MAX]) -> Option<usize> {
    let name = memory.word(link_map, 8)?;
    for (length, to) in buffer.iter_mut().enumerate() {
        match memory.byte(name, length as u64)? {
            0 => return Some(length),
            byte => *to = byte,
        }
    }
    None
}

fn fields(image: &elf::Image, path: &[u8]) -> [u64; FIELDS] {
    let mut fields = [0; FIELDS];
    fields[field::START] = image.start;
    fields[field::END] = image.end;
    fields[field::BIAS] = image.bias;
    fields[field::BUILD_ID_BYTES] = image.build_id_bytes as u64;
    for (to, word) in fields.iter_mut().skip(field::BUILD_ID).zip(image.build_id.as_chunks::<8>().0) {
        *to = u64::from_le_bytes(*word);
    }
    if image.build_id_bytes == 0 {
        [fields[field::FILE_BYTES], fields[field::MODIFIED_NS]] = file_of(path).unwrap_or_default();
    }
    fields
}

/// Distinguishes a file without a build id from another at its path: the file's length and modification
/// time.
fn file_of(path: &[u8]) -> Option<[u64; 2]> {
    let mut buffer = [0u8; 512];
    buffer.get_mut(..path.len()).filter(|_| path.len() < 512)?.copy_from_slice(path);
    // SAFETY: zero is a valid stat.
    let mut stat: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: a C string, ended by the buffer's last zeros, and a live value.
    if unsafe { system::stat(buffer.as_ptr().cast(), &mut stat) } != 0 {
        return None;
    }
    let modified_ns = stat.st_mtime.wrapping_mul(1_000_000_000).wrapping_add(stat.st_mtime_nsec);
    Some([stat.st_size.cast_unsigned(), modified_ns.cast_unsigned()])
}

#[cfg(test)]
mod tests {
    use core::cell::RefCell;

    use super::*;

    struct Said(RefCell<Vec<String>>);

    impl Define for Said {
        fn define(&self, kind: u16, _: &[u64], text: &[u8]) -> u32 {
            assert_eq!(kind, kind::NOTICE);
            self.0.borrow_mut().push(String::from_utf8(text.to_vec()).unwrap());
            1
        }
    }

    /// Where the loader gives no answers: glibc before 2.35.
    #[test]
    fn notice_of_too_many_looks_at_the_mappings_is_written_once() {
        let images = Images::new().unwrap();
        let said = Said(RefCell::new(Vec::new()));
        images.maps_read.store(MAPS_MAX - 1, Ordering::Relaxed);
        images.say_if_full(&said);
        assert!(said.0.borrow().is_empty());
        images.maps_read.store(MAPS_MAX, Ordering::Relaxed);
        images.say_if_full(&said);
        images.say_if_full(&said);
        let [text] = &said.0.borrow()[..] else { panic!("{:?}", said.0.borrow()) };
        assert!(text.contains("more libraries were loaded than native frames can name"));
    }
}
