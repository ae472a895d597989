//! Compares the walk with the C library's own unwinder, on call chains of many kinds of frames.

use core::cell::{Cell, RefCell};
use core::ffi::{c_int, c_void};
use core::hint::black_box;

use super::bounds::tests::learn_in_a_thread;
use super::frames::{Expected, FrameBuffer, Native, NativeFrame};
use super::last_walk::{LastNativeWalk, NativeStart};
use super::pages::PAGE;
use super::rule::OWN;
use super::surroundings::{self, Object};
use super::walk::{End, FRAMES_MAX};
use crate::python::code::Define;
use crate::read_word::ReadWord;

unsafe extern "C" {
    fn backtrace(buffer: *mut *mut c_void, size: c_int) -> c_int;
    fn qsort(
        base: *mut c_void,
        count: usize,
        size: usize,
        order: unsafe extern "C" fn(*const c_void, *const c_void) -> c_int,
    );
    fn _dl_find_object(address: *mut c_void, result: *mut Object) -> c_int;
}

/// Keeps the biases of defined images: ids are 1, 2, ….
struct ImageBiases(Cell<[u64; 64]>, Cell<u32>);

impl Define for ImageBiases {
    fn define(&self, _: u16, fields: &[u64], _: &[u8]) -> u32 {
        let id = self.1.get() + 1;
        self.1.set(id);
        let mut biases = self.0.get();
        biases[id as usize] = fields[gputrace_wire::definition::image::BIAS];
        self.0.set(biases);
        id
    }
}

struct Compared {
    native: Native,
    images: ImageBiases,
    last: RefCell<Box<LastNativeWalk>>,
    /// How often the frames were compared, and how often the last walk could be used.
    times: Cell<u32>,
    kept: Cell<u32>,
}

thread_local! {
    static COMPARED: Compared = Compared {
        native: Native::new().unwrap(),
        images: ImageBiases(Cell::new([0; 64]), Cell::new(0)),
        // SAFETY: zeroed memory is valid.
        last: RefCell::new(Box::new(unsafe { core::mem::zeroed() })),
        times: const { Cell::new(0) },
        kept: const { Cell::new(0) },
    };
}

/// Compares the frames from here on.
#[inline(never)]
fn compare() {
    COMPARED.with(|compared| {
        let mut buffer: Box<FrameBuffer> = Box::new([NativeFrame::default(); FRAMES_MAX]);
        let (count, end) = compared.native.write_frames(&compared.images, &mut buffer);
        let mut theirs = [core::ptr::null_mut(); 2 * FRAMES_MAX];
        // SAFETY: a buffer of that size.
        let their_count = unsafe { backtrace(theirs.as_mut_ptr(), theirs.len() as c_int) } as usize;
        let theirs: Vec<u64> = theirs[..their_count].iter().map(|pc| *pc as u64).collect();
        // In a thread, the C library also reports the return address of the first function, which is 0.
        let theirs: Vec<u64> = theirs.into_iter().filter(|pc| *pc != 0).collect();
        let biases = compared.images.0.get();
        let ours: Vec<u64> =
            buffer[..count].iter().map(|frame| frame.at + biases[frame.image as usize] + 1).collect();
        // The position in this function differs, and so do all frames that it calls.
        let outward = |frames: &[u64]| frames.iter().rev().copied().collect::<Vec<u64>>();
        let (ours_outward, theirs_outward) = (outward(&ours), outward(&theirs));
        let alike = ours_outward.iter().zip(&theirs_outward).take_while(|(one, other)| one == other).count();
        match end {
            End::Outermost => assert!(alike + 4 >= theirs.len(), "{alike} alike:\n{ours:x?}\n{theirs:x?}"),
            End::Cut => {
                let from = theirs.iter().position(|pc| ours.contains(pc)).unwrap();
                let index = ours.iter().position(|pc| *pc == theirs[from]).unwrap();
                assert_eq!(ours[index..], theirs[from..from + ours.len() - index]);
            }
            End::Lost => panic!("the walk was lost:\n{ours:x?}\n{theirs:x?}"),
        }
        assert!(buffer[..count].is_sorted_by_key(|frame| frame.end));
        // The frames belong to the library under test, which counts as the tracer's own.
        assert!(buffer[0].flags & OWN != 0 && !buffer[0].is_shown());
        let last = &mut **compared.last.borrow_mut();
        let (native, images) = (&compared.native, &compared.images);
        let (mut words, mut start) = (Vec::new(), NativeStart::NONE);
        let mut plain = 0;
        // All of them come from the same place.
        for turn in 0..7 {
            let others: Vec<ReadWord> =
                words.iter().map(|read: &ReadWord| ReadWord { word: read.word + 1, ..*read }).collect();
            let right = Some(Expected { of: 1, start: &start, words: &words });
            let wrong = Some(Expected { of: 2, start: &start, words: &others });
            let (expected, second, has_last) = match turn {
                0 => (None, None, false),
                1 | 2 => (None, None, true),
                3 => (right, wrong, false),
                4 => (wrong, right, false),
                5 => (None, right, false),
                _ => (wrong, wrong, false),
            };
            let hash = native.hash(images, expected, || second, has_last.then_some(&mut *last));
            match turn {
                0 => plain = hash.unwrap(),
                3..6 if !words.is_empty() => assert_eq!(hash, Err(1), "{turn}"),
                _ => assert_eq!(hash, Ok(plain), "{end:?}, {turn}"),
            }
            if turn == 2
                && let Some((read, from)) = last.words()
            {
                (words, start) = (read.to_vec(), from);
            }
        }
        // What this function calls differs.
        let kept = last.addresses();
        let alike = kept.iter().zip(&ours_outward).take_while(|(kept, ours)| kept == ours).count();
        assert_eq!(kept.is_empty(), words.is_empty());
        assert!(kept.is_empty() || alike + 4 >= ours.len(), "{alike} alike:\n{kept:x?}\n{ours_outward:x?}");
        compared.kept.set(compared.kept.get() + u32::from(!kept.is_empty()));
        compared.times.set(compared.times.get() + 1);
    });
}

/// Recurses through frames of different kinds, as the bits select.
#[inline(never)]
fn chain(bits: u64, depth: u32) -> u64 {
    if depth == 0 {
        compare();
        return bits;
    }
    let next = (bits >> 3, depth - 1);
    let result = match bits & 7 {
        0 => plain(next),
        1 => with_buffer::<100>(next),
        2 => with_buffer::<5_000>(next),
        3 => aligned(next),
        4 => through_qsort(next),
        5 => through_closure(&|next| chain(next.0, next.1), next),
        6 => many_arguments(1, 2, 3, 4, 5, 6, 7, 8, next),
        _ => std::panic::catch_unwind(|| chain(next.0, next.1)).unwrap(),
    };
    // After the call, so that the call is not a tail call.
    black_box(result).wrapping_add(1)
}

#[inline(never)]
fn plain(next: (u64, u32)) -> u64 {
    chain(next.0, next.1) ^ 1
}

#[inline(never)]
fn with_buffer<const BYTES: usize>(next: (u64, u32)) -> u64 {
    let buffer = black_box([next.1 as u8; BYTES]);
    chain(next.0, next.1) ^ u64::from(buffer[BYTES / 2])
}

#[repr(align(64))]
struct Aligned([u8; 64]);

#[inline(never)]
fn aligned(next: (u64, u32)) -> u64 {
    let buffer = black_box(Aligned([next.1 as u8; 64]));
    assert!((&raw const buffer).addr().is_multiple_of(64));
    chain(next.0, next.1) ^ u64::from(buffer.0[7])
}

thread_local! {
    static NEXT: Cell<(u64, u32)> = const { Cell::new((0, 0)) };
}

#[inline(never)]
fn through_qsort(next: (u64, u32)) -> u64 {
    unsafe extern "C" fn order(_: *const c_void, _: *const c_void) -> c_int {
        let (bits, depth) = NEXT.get();
        black_box(chain(bits, depth));
        0
    }
    NEXT.set(next);
    let mut items = [2u64, 1];
    // SAFETY: two items of eight bytes.
    unsafe { qsort(items.as_mut_ptr().cast(), 2, 8, order) };
    items[0]
}

#[inline(never)]
fn through_closure(call: &dyn Fn((u64, u32)) -> u64, next: (u64, u32)) -> u64 {
    black_box(call)(next) ^ 2
}

#[inline(never)]
#[allow(clippy::too_many_arguments)]
fn many_arguments(a: u64, b: u64, c: u64, d: u64, e: u64, f: u64, g: u64, h: u64, next: (u64, u32)) -> u64 {
    chain(next.0, next.1) ^ black_box([a, b, c, d, e, f, g, h]).iter().sum::<u64>()
}

fn chains() {
    learn_in_a_thread();
    let mut bits = 0x9e37_79b9_7f4a_7c15u64;
    for round in 0..200 {
        bits = bits.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        chain(bits, round % 20);
    }
    COMPARED.with(|compared| {
        let (times, kept) = (compared.times.get(), compared.kept.get());
        assert!(times >= 200 && kept == times, "{kept} kept of {times}");
    });
}

/// Says the bounds of the address's page, as the loader says those of its segment in an object with gaps.
unsafe extern "C" fn find_page(address: *mut c_void, result: *mut Object) -> c_int {
    // SAFETY: the caller's arguments are those of the C library's function.
    let status = unsafe { _dl_find_object(address, result) };
    // SAFETY: the caller's value, which no other thread has.
    let object = unsafe { &mut *result };
    object.start = address as u64 & !(PAGE - 1);
    object.end = object.start + PAGE;
    status
}

#[test]
fn frames_are_those_of_the_system_unwinder() {
    chains();
    // That was without the loader's answers. With them, and with those of a loader that sees gaps everywhere:
    for find in [_dl_find_object as *mut c_void, find_page as *mut c_void] {
        // SAFETY: the C library's function of that name, or one of its type that calls it.
        unsafe { surroundings::set_find_object(find) };
        std::thread::spawn(chains).join().unwrap();
    }
}

#[test]
fn deep_recursion_is_cut() {
    chain(0, 2 * FRAMES_MAX as u32);
}
