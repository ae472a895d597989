//! What a launch pays for its Python stack: the walk, the hash and the look-up, on frames made by hand.
//!
//! Frames and code objects are of their true sizes and apart as an interpreter has them, one code
//! object a frame. `scripts/bench-python-stacks` measures the same in real interpreters.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use gputrace_callstack::python::layout::{ABSENT, Layout};
use gputrace_callstack::python::memory::Own;
use gputrace_callstack::python::stacks;
use gputrace_callstack::python::walk::Types;
use gputrace_producer::handles::Handles;

const CODE_TYPE: u64 = 0x7000_0000_0000;
/// Between code objects, and between the frames of a data stack.
/// (apart by odd numbers of cache lines, or all would want the same places of the cache).
const CODE_BYTES: usize = 13 * 64;
const FRAME_BYTES: usize = 3 * 64;
const TEXT_BYTES: usize = 3 * 64;

struct Process {
    memory: Vec<u64>,
    layout: Layout,
}

impl Process {
    fn put(&mut self, at: usize, offset: u16, value: u64) {
        let at = at + usize::from(offset);
        let mut bytes = [0; 8];
        let word = &mut self.memory[at / 8..at / 8 + 2];
        bytes.copy_from_slice(&value.to_le_bytes());
        // Fields of four bytes may be at any multiple of four.
        let both =
            (u128::from(word[1]) << 64 | u128::from(word[0])) & !(u128::from(u64::MAX) << (at % 8 * 8));
        let both = both | u128::from(value) << (at % 8 * 8);
        (word[0], word[1]) = (both as u64, (both >> 64) as u64);
    }

    fn address(&self, at: usize) -> u64 {
        self.memory.as_ptr() as u64 + at as u64
    }

    fn new(minor: u8, depth: usize) -> (Process, u64) {
        let layout = Layout::of_minor(minor).unwrap();
        let each = CODE_BYTES + FRAME_BYTES + 3 * TEXT_BYTES;
        let mut process = Process { memory: vec![0; (each * depth + 4096) / 8], layout };
        let (frames, codes) = (2048, 2048 + FRAME_BYTES * depth);
        let texts = codes + CODE_BYTES * depth;
        let at_frame = |index: usize| frames + FRAME_BYTES * index;
        for index in 0..depth {
            let code = codes + CODE_BYTES * index;
            let text = |which: usize| texts + (3 * index + which) * TEXT_BYTES;
            let code_start = if layout.code_start == ABSENT { 0 } else { u64::from(layout.code_start) };
            let previous = if index == 0 { 0 } else { process.address(at_frame(index - 1)) };
            let (code_at, texts_at) =
                (process.address(code), [0, 1, 2].map(|which| process.address(text(which))));
            process.put(at_frame(index), layout.frame_instruction, code_at + code_start + 40);
            process.put(at_frame(index), layout.frame_code, code_at);
            process.put(at_frame(index), layout.frame_previous, previous);
            process.put(code, layout.object_type, CODE_TYPE);
            process.put(code, layout.code_first_line, index as u64 + 1);
            if layout.code_version != ABSENT {
                process.put(code, layout.code_version, index as u64 + 77);
            }
            for (which, field) in [layout.code_name, layout.code_file].into_iter().enumerate() {
                process.put(code, field, texts_at[which]);
                process.put(text(which), layout.text_hash, 12345 + which as u64);
                process.put(text(which), layout.text_length, 20);
            }
            process.put(code, layout.code_table, texts_at[2]);
            process.put(text(2), layout.object_size, if minor == 11 { 120 } else { 50 });
        }
        let (thread, between) = (0, 1024);
        let innermost = process.address(at_frame(depth - 1));
        if layout.cframe_frame == ABSENT {
            process.put(thread, layout.thread_frame, innermost);
        } else {
            let at = process.address(between);
            process.put(thread, layout.thread_frame, at);
            process.put(between, layout.cframe_frame, innermost);
        }
        let state = process.address(thread);
        (process, state)
    }
}

fn depths(criterion: &mut Criterion) {
    for minor in [8, 11, 12] {
        let mut group = criterion.benchmark_group(format!("3.{minor}"));
        for depth in [5, 30, 100] {
            let (process, state) = Process::new(minor, depth);
            // SAFETY: all addresses in it are of its own memory.
            let memory = unsafe { Own::new() };
            let types = Types { code: CODE_TYPE, ..Types::default() };
            let table = Handles::new(1 << 17).unwrap();
            let known = stacks::hash(&memory, &process.layout, &types, state).unwrap();
            table.get_or_define(known, || 7);
            group.bench_function(format!("{depth} frames"), |bencher| {
                bencher.iter(|| {
                    let hash = stacks::hash(&memory, &process.layout, &types, black_box(state)).unwrap();
                    assert_eq!(table.get(hash), Some(7));
                });
            });
        }
        group.finish();
    }
}

criterion_group!(benches, depths);
criterion_main!(benches);
