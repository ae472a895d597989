//! PyTorch's functions that report what the calling thread executes.
//!
//! Each copy of PyTorch in the process has one set of them. A set is known from the first backward pass on,
//! and its library stays mapped from then on.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use gputrace_producer::memory;
use gputrace_producer::own_static;

use super::node::GradNode;
use super::pass_offsets::PassOffsets;

/// How many copies of PyTorch in one process are followed.
const ENGINES_MAX: usize = 4;

/// `int get_current_graph_task_id()`.
pub type Number = unsafe extern "C" fn() -> c_int;
/// `const std::unordered_map<…>* get_current_graph_task_exec_info()`: returns an address inside the pass
/// itself.
pub type Inside = unsafe extern "C" fn() -> *const c_void;
/// `std::shared_ptr<Node> get_current_node()` or, later, `c10::intrusive_ptr<Node>`: both are written to
/// the address in the first argument.
pub type CurrentNode = unsafe extern "C" fn(*mut [u64; 2]) -> *mut [u64; 2];

/// `uint64_t at::sequence_number::peek()`: the number of the next node that the calling thread makes.
pub type NextNode = unsafe extern "C" fn() -> u64;
/// `uint64_t at::RecordFunction::currentThreadId()`: PyTorch's own number of the calling thread.
pub type ThreadNumber = unsafe extern "C" fn() -> u64;

/// Where a node's references are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counts {
    /// In a block of the C++ library, to which the second word of a `shared_ptr` points: 32 bits.
    Beside,
    /// In the node itself: the lower half of 64 bits.
    Within,
}

/// A node's number and its thread, by where references are counted: `sequence_nr_` and `thread_id_`. Read in
/// 2.11 and 2.15; the sources before have them in the same order.
const MAKER_BESIDE: (u64, u64) = (24, 48);
const MAKER_WITHIN: (u64, u64) = (16, 40);

/// How many passes are checked: no other word would equal the number of all of them.
const LOOKS: u32 = 8;

/// In both forms the count is the second word.
const COUNT: u64 = 8;

/// The functions of one copy of PyTorch.
#[derive(Clone, Copy, Debug)]
pub struct Functions {
    /// The function that begins passes.
    pub execute: *const c_void,
    /// Numbers rise over the process's life, from 0, and each is used once.
    pub number: Number,
    pub inside: Inside,
    pub node: Option<CurrentNode>,
    pub next_node: Option<NextNode>,
    pub thread: Option<ThreadNumber>,
    pub counts: Counts,
}

/// What identifies a node: its number among those that the thread made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Maker {
    pub number: u64,
    /// PyTorch's number of the thread that made the node.
    pub thread: u64,
}

#[derive(Debug)]
pub struct Engine {
    functions: Functions,
    offsets: Option<PassOffsets>,
    /// How often the offsets were checked.
    looks: AtomicU32,
    /// Whether a check failed.
    are_wrong: AtomicBool,
    /// The lowest number that the next pass can have.
    next: AtomicU64,
}

/// What is known of a pass that begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Beginning {
    /// The copy of PyTorch that the pass belongs to.
    pub engine: usize,
    pub number: Option<u32>,
    /// The number is this one, or a higher one if passes began unnoticed.
    pub at_least: u64,
}

#[unsafe(link_section = "gputrace_hot")]
static FIRST: AtomicPtr<Engine> = AtomicPtr::new(core::ptr::null_mut());
static OTHERS: [AtomicPtr<Engine>; ENGINES_MAX - 1] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; ENGINES_MAX - 1];

fn engines() -> impl Iterator<Item = &'static AtomicPtr<Engine>> {
    core::iter::once(&FIRST).chain(&OTHERS)
}

/// Adds a copy of PyTorch.
pub fn add(functions: Functions) {
    let is_known = all().any(|(_, known)| core::ptr::fn_addr_eq(known.functions.number, functions.number));
    let Some(mapped) = (!is_known).then(|| memory::map_bytes(size_of::<Engine>())).flatten() else { return };
    let mapped = mapped.cast::<Engine>();
    // SAFETY: the mapping is large enough, page-aligned, ours alone, and never unmapped.
    unsafe { mapped.write(Engine::new(functions)) };
    for place in engines() {
        let free = core::ptr::null_mut();
        // SYNC: the Release pairs with the Acquire loads in `first` and `all`.
        if place.compare_exchange(free, mapped, Ordering::Release, Ordering::Relaxed).is_ok() {
            return;
        }
    }
}

/// Called when that function begins a pass, before any thread works on the pass. The pass is read if its
/// address is known.
pub fn begins(execute: *const c_void, pass: Option<u64>) -> Option<Beginning> {
    let (index, engine) = all().find(|(_, engine)| engine.functions.execute == execute)?;
    Some(Beginning { engine: index, ..engine.begins(pass) })
}

/// The first copy that was added.
#[inline(always)]
pub fn first() -> Option<&'static Engine> {
    at(own_static!(FIRST))
}

#[inline(always)]
fn at(place: &AtomicPtr<Engine>) -> Option<&'static Engine> {
    // SAFETY: the pointer is null, or points to an engine that was written completely before it was stored,
    // and is never freed.
    unsafe { place.load(Ordering::Acquire).as_ref() }
}

pub fn all() -> impl Iterator<Item = (usize, &'static Engine)> {
    engines().enumerate().map_while(|(index, place)| Some((index, at(place)?)))
}

impl Engine {
    pub fn new(functions: Functions) -> Engine {
        let Functions { number, inside, .. } = functions;
        let offsets = PassOffsets::said(number as *const () as u64, inside as *const () as u64);
        Engine {
            functions,
            offsets,
            looks: AtomicU32::new(0),
            are_wrong: AtomicBool::new(false),
            next: AtomicU64::new(0),
        }
    }

    /// Whether a pass's number, read at its beginning, was confirmed.
    pub fn knows_numbers(&self) -> bool {
        self.offsets().is_some()
    }

    /// Where passes have their numbers, unless a check failed.
    fn offsets(&self) -> Option<PassOffsets> {
        self.offsets.filter(|_| !self.are_wrong.load(Ordering::Relaxed))
    }

    fn begins(&self, pass: Option<u64>) -> Beginning {
        // Each pass takes a number.
        let at_least = self.next.fetch_add(1, Ordering::Relaxed);
        let number = pass.and_then(|pass| self.offsets()?.number_of(pass));
        Beginning { engine: 0, number, at_least }
    }

    /// Checks the offsets: a thread works on a pass with that number, and `inside` is in the pass.
    pub fn is_met(&self, inside: u64, number: u32) {
        self.next.fetch_max(u64::from(number) + 1, Ordering::Relaxed);
        if let Some(offsets) = self.offsets()
            && self.looks.load(Ordering::Relaxed) < LOOKS
            && let Some(read) = offsets.number_around(inside)
        {
            // Only a number that could be read proves anything.
            self.looks.fetch_add(1, Ordering::Relaxed);
            if read != number {
                self.are_wrong.store(true, Ordering::Relaxed);
            }
        }
    }

    /// The number of the pass that the calling thread works on.
    #[inline(always)]
    pub fn pass_number(&self) -> Option<u32> {
        // SAFETY: PyTorch's function of that type; it reads a thread-local.
        u32::try_from(unsafe { (self.functions.number)() }).ok()
    }

    /// An address inside that pass; 0 if there is none.
    pub fn inside_of_pass(&self) -> u64 {
        // SAFETY: as above.
        unsafe { (self.functions.inside)() as u64 }
    }

    /// The number of the next node that the calling thread makes.
    #[inline(always)]
    pub fn next_node(&self) -> Option<u64> {
        // SAFETY: PyTorch's function of that type; it reads a thread-local.
        self.functions.next_node.map(|next_node| unsafe { next_node() })
    }

    /// PyTorch's number of the calling thread.
    pub fn thread(&self) -> Option<u64> {
        // SAFETY: as above.
        self.functions.thread.map(|thread| unsafe { thread() })
    }

    /// The node that the thread executes, and who made it. The engine holds two references until the node is
    /// done, so the reference that is added and dropped here is never the first or the last one.
    pub fn node(&self) -> Option<(GradNode, Maker)> {
        let mut held = [0u64; 2];
        // SAFETY: as above; what is returned fits in two words.
        unsafe { (self.functions.node?)(&mut held) };
        let [node, beside] = held;
        if node == 0 {
            return None;
        }
        // SAFETY: the node is live, and so is what counts its references. Every node has more bytes than are
        // read of it here.
        unsafe {
            match self.functions.counts {
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
            let (number, thread) = match self.functions.counts {
                Counts::Beside => MAKER_BESIDE,
                Counts::Within => MAKER_WITHIN,
            };
            let word = |offset: u64| ((node + offset) as *const u64).read();
            let maker = Maker { number: word(number), thread: word(thread) };
            Some((GradNode::read(node)?, maker))
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use core::cell::UnsafeCell;

    use super::*;

    /// An object whose virtual table leads to a name, with its count, and a count in a separate block.
    struct Object {
        words: [u64; 7],
        beside: [u64; 2],
        table: [u64; 2],
        description: [u64; 2],
    }

    thread_local! {
        static HELD: UnsafeCell<[u64; 2]> = const { UnsafeCell::new([0; 2]) };
    }

    /// Like `get_current_node`: adds a reference where the engine counts them.
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
    fn node_s_references_are_as_many_as_before() {
        let name = b"N5torch8autograd14AccumulateGradE\0";
        let mut object = Box::new(Object {
            words: [0, 1 << 63 | 1 << 32 | 2, 21, 31, 0, 22, 32],
            beside: [0, 1 << 32 | 2],
            table: [0; 2],
            description: [0, name.as_ptr() as u64],
        });
        object.table[0] = object.description.as_ptr() as u64;
        object.words[0] = &raw const object.table[1] as u64;
        let (node, beside) = (object.words.as_ptr() as u64, object.beside.as_ptr() as u64);
        for counts in [Counts::Beside, Counts::Within] {
            let engine = Engine::new(Functions { node: Some(current), counts, ..engine_of_none().functions });
            let second = if counts == Counts::Beside { beside } else { 0 };
            // SAFETY: the thread's own.
            HELD.with(|held| unsafe { *held.get() = [node, second] });
            let (read, maker) = engine.node().unwrap();
            assert_eq!(read.mangled(), &name[..name.len() - 1]);
            let number = if counts == Counts::Beside { 31 } else { 21 };
            assert_eq!(maker, Maker { number, thread: number + 1 });
            // SAFETY: the object lives; the engine wrote to it by its address.
            let after = unsafe {
                (object.words.as_ptr().add(1).read_volatile(), object.beside.as_ptr().add(1).read_volatile())
            };
            assert_eq!(after, (1 << 63 | 1 << 32 | 2, 1 << 32 | 2), "{counts:?}");
            // SAFETY: as above.
            HELD.with(|held| unsafe { *held.get() = [0; 2] });
            assert!(engine.node().is_none());
        }
        assert_eq!(engine_of_none().pass_number(), None);
    }
    fn engine_of_none() -> Engine {
        let execute = core::ptr::null();
        Engine::new(Functions {
            execute,
            number,
            inside,
            node: None,
            next_node: None,
            thread: None,
            counts: Counts::Beside,
        })
    }

    #[test]
    fn pass_s_number_is_at_least_one_more_than_those_before() {
        let engine = engine_of_none();
        assert_eq!((engine.begins(None).at_least, engine.begins(None).at_least), (0, 1));
        engine.is_met(8, 1);
        assert_eq!(engine.begins(None).at_least, 2);
        engine.is_met(8, 40);
        engine.is_met(8, 7);
        assert_eq!((engine.begins(None).at_least, engine.begins(None).at_least), (41, 42));
    }

    /// Written like PyTorch's functions: the first has the number 64 bytes from the beginning of a pass;
    /// the second returns an address 16 bytes from there.
    static NUMBER: [u8; 128] = code([0x90, 0x8b, 0x80, 0x40, 0, 0, 0]);
    static INSIDE: [u8; 128] = code([0x48, 0x05, 0x10, 0, 0, 0, 0x90]);

    const fn code(begins: [u8; 7]) -> [u8; 128] {
        let mut code = [0xc3; 128];
        let mut at = 0;
        while at < begins.len() {
            code[at] = begins[at];
            at += 1;
        }
        code
    }

    /// One with enough successful checks.
    pub fn engine_that_knows_numbers() -> Engine {
        let engine = engine_with_offsets();
        engine.looks.store(LOOKS, Ordering::Relaxed);
        engine
    }

    fn engine_with_offsets() -> Engine {
        // SAFETY: never called.
        let functions = unsafe {
            Functions {
                number: core::mem::transmute::<*const u8, Number>(NUMBER.as_ptr()),
                inside: core::mem::transmute::<*const u8, Inside>(INSIDE.as_ptr()),
                ..engine_of_none().functions
            }
        };
        Engine::new(functions)
    }

    #[test]
    fn number_is_read_as_its_pass_begins_until_it_turns_out_to_be_none() {
        let mut pass = [0u64; 16];
        let at = pass.as_ptr().expose_provenance() as u64;
        let engine = engine_with_offsets();
        for number in 3..30u32 {
            pass[8] = number.into();
            core::hint::black_box(&mut pass);
            assert_eq!(engine.begins(Some(at)).number, Some(number));
            engine.is_met(at + 16, number);
            assert!(engine.knows_numbers());
        }
        let engine = engine_with_offsets();
        assert_eq!(engine.begins(Some(at)).number, Some(29));
        engine.is_met(at + 16, 30);
        assert!(!engine.knows_numbers());
        assert_eq!(engine.begins(Some(at)).number, None);
    }
}
