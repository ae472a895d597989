//! PyTorch's functions that say what the calling thread is at.
//!
//! There is one set of them for each copy of PyTorch in the process. They are known from the first backward
//! pass on, and their library stays mapped from then.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use super::node::Node;
use crate::memory;

/// Copies of PyTorch in one process that are followed.
const ENGINES_MAX: usize = 4;

/// `int get_current_graph_task_id()`.
pub type Number = unsafe extern "C" fn() -> c_int;
/// `const std::unordered_map<…>* get_current_graph_task_exec_info()`: a part of the pass itself.
pub type Inside = unsafe extern "C" fn() -> *const c_void;
/// `std::shared_ptr<Node> get_current_node()` or, later, `c10::intrusive_ptr<Node>`: both are
/// written where the first argument says.
pub type CurrentNode = unsafe extern "C" fn(*mut [u64; 2]) -> *mut [u64; 2];

/// Where a node's references are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counts {
    /// In a block of the C++ library's, which the second word of a `shared_ptr` points to: 32 bits.
    Beside,
    /// In the node itself: the lower half of 64 bits.
    Within,
}

/// Both counts are the second word of where they are.
const COUNT: u64 = 8;

#[derive(Debug)]
pub struct Engine {
    /// Numbers rise over the process's life, and none is given twice.
    pub number: Number,
    pub inside: Inside,
    pub node: Option<CurrentNode>,
    pub counts: Counts,
}

static ENGINES: [AtomicPtr<Engine>; ENGINES_MAX] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; ENGINES_MAX];

/// Ask this one from now on.
pub fn add(engine: Engine) {
    let is_known = all().any(|(_, known)| core::ptr::fn_addr_eq(known.number, engine.number));
    let Some(room) = (!is_known).then(|| memory::map_bytes(size_of::<Engine>())).flatten() else { return };
    let room = room.cast::<Engine>();
    // SAFETY: the mapping is large enough, page-aligned, ours alone, and never unmapped.
    unsafe { room.write(engine) };
    for place in &ENGINES {
        let free = core::ptr::null_mut();
        // SYNC: the Release pairs with the Acquire loads in `first` and `all`.
        if place.compare_exchange(free, room, Ordering::Release, Ordering::Relaxed).is_ok() {
            return;
        }
    }
}

/// The first that was added.
#[inline(always)]
pub fn first() -> Option<&'static Engine> {
    at(&ENGINES[0])
}

#[inline(always)]
fn at(place: &AtomicPtr<Engine>) -> Option<&'static Engine> {
    // SAFETY: the pointer is null or to an engine that was written whole before it was stored, and is
    // never freed.
    unsafe { place.load(Ordering::Acquire).as_ref() }
}

pub fn all() -> impl Iterator<Item = (usize, &'static Engine)> {
    ENGINES.iter().enumerate().map_while(|(index, place)| Some((index, at(place)?)))
}

impl Engine {
    /// The number of the pass that the calling thread works for.
    #[inline(always)]
    pub fn pass_number(&self) -> Option<u32> {
        // SAFETY: PyTorch's function of that type; it reads a thread-local.
        u32::try_from(unsafe { (self.number)() }).ok()
    }

    /// An address inside of that pass; 0 where there is none.
    pub fn inside_of_pass(&self) -> u64 {
        // SAFETY: as above.
        unsafe { (self.inside)() as u64 }
    }

    /// The node that the thread is at. The engine holds it until it is done with it, twice over, so
    /// that the reference that is given and taken back here is never the first or the last one.
    pub fn node(&self) -> Option<Node> {
        let mut held = [0u64; 2];
        // SAFETY: as above; what is returned fits in two words.
        unsafe { (self.node?)(&mut held) };
        let [node, beside] = held;
        if node == 0 {
            return None;
        }
        // SAFETY: the node is live, and so is what counts its references.
        unsafe {
            match self.counts {
                Counts::Beside if beside != 0 => {
                    let count = &*((beside + COUNT) as *const AtomicU32);
                    count.fetch_sub(1, Ordering::AcqRel);
                }
                Counts::Beside => {}
                Counts::Within => {
                    let count = &*((node + COUNT) as *const AtomicU64);
                    count.fetch_sub(1, Ordering::AcqRel);
                }
            }
            Node::read(node)
        }
    }
}

#[cfg(test)]
mod tests {
    use core::cell::UnsafeCell;

    use super::*;

    /// An object whose table of functions leads to a name, its count, and a count beside it.
    struct Object {
        words: [u64; 2],
        beside: [u64; 2],
        table: [u64; 2],
        description: [u64; 2],
    }

    thread_local! {
        static HELD: UnsafeCell<[u64; 2]> = const { UnsafeCell::new([0; 2]) };
    }

    /// As `get_current_node`, which adds a reference where it counts them.
    unsafe extern "C" fn current(into: *mut [u64; 2]) -> *mut [u64; 2] {
        // SAFETY: the test's own object, and where the engine wants it.
        unsafe {
            let held = HELD.with(|held| *held.get());
            let [node, beside] = held;
            let count = if beside != 0 { beside } else { node } + COUNT;
            if node != 0 {
                *(count as *mut u32) += 1;
            }
            into.write(held);
        }
        into
    }

    unsafe extern "C" fn number() -> c_int {
        -1
    }

    unsafe extern "C" fn inside() -> *const c_void {
        core::ptr::null()
    }

    #[test]
    fn a_node_s_references_are_as_many_as_before() {
        let name = b"N5torch8autograd14AccumulateGradE\0";
        let mut object = Box::new(Object {
            words: [0, 1 << 63 | 1 << 32 | 2],
            beside: [0, 1 << 32 | 2],
            table: [0; 2],
            description: [0, name.as_ptr() as u64],
        });
        object.table[0] = object.description.as_ptr() as u64;
        object.words[0] = &raw const object.table[1] as u64;
        let (node, beside) = (object.words.as_ptr() as u64, object.beside.as_ptr() as u64);
        for counts in [Counts::Beside, Counts::Within] {
            let engine = Engine { number, inside, node: Some(current), counts };
            let second = if counts == Counts::Beside { beside } else { 0 };
            // SAFETY: the thread's own.
            HELD.with(|held| unsafe { *held.get() = [node, second] });
            let read = engine.node().unwrap();
            assert_eq!(read.mangled(), &name[..name.len() - 1]);
            // SAFETY: the object lives; the engine wrote to it by its address.
            let after = unsafe {
                (object.words.as_ptr().add(1).read_volatile(), object.beside.as_ptr().add(1).read_volatile())
            };
            assert_eq!(after, (1 << 63 | 1 << 32 | 2, 1 << 32 | 2), "{counts:?}");
            // SAFETY: as above.
            HELD.with(|held| unsafe { *held.get() = [0; 2] });
            assert!(engine.node().is_none());
        }
        assert_eq!(Engine { number, inside, node: None, counts: Counts::Beside }.pass_number(), None);
    }
}
