//! A process's memory of any bytes, read as a mapped image with its table of frames, and as a stack.
//!
//! Input: where a frame goes on, its stack pointer and its frame pointer, as places in the image; then words. A word whose upper
//! half is 0xffffffff stands for a pointer to the byte of the image that its lower half says.
#![no_main]

use gputrace_fuzz::Input;
use gputrace_callstack::native::eh_frame::{self, COMMON_BYTES, FUNCTION_BYTES, Pieces};
use gputrace_callstack::native::elf;
use gputrace_callstack::native::rule::{Kind, Rule};
use gputrace_callstack::native::walk::{End, FRAMES_MAX, Frame, Registers, Words, walk};
use gputrace_callstack::python::memory::{ProcessImage, Memory};
use libfuzzer_sys::fuzz_target;

const START: u64 = 0x10_0000;

struct Stack<'b> {
    memory: ProcessImage<'b>,
    from: u64,
}

impl Words for Stack<'_> {
    fn word(&mut self, at: u64) -> Option<u64> {
        if at < self.from || at & 7 != 0 { None } else { self.memory.word(at, 0) }
    }

    /// No image here is the tracer's own, and all of the stack is there.
    fn lives_up_to(&mut self, _: u64) {}

    fn go_on_at(&mut self, sp: u64) -> bool {
        self.from = sp;
        sp & 7 == 0 && self.memory.word(sp, 0).is_some()
    }
}

fn frames(bytes: &[u8], from: Registers) -> (Vec<Frame>, End) {
    let memory = ProcessImage { start: START, bytes };
    let header = elf::read(&memory, START).map_or(START, |image| {
        assert!(image.build_id_bytes <= elf::BUILD_ID_MAX);
        image.frames
    });
    let mut pieces = Pieces { common: [0; COMMON_BYTES], function: [0; FUNCTION_BYTES] };
    let rule = |pc: u64| match eh_frame::look_up(&memory, header, pc.wrapping_sub(1), &mut pieces) {
        Ok(entry) => entry.rule,
        Err(_) => Rule::UNKNOWN,
    };
    let mut found = Vec::new();
    let mut stack = Stack { memory: ProcessImage { start: START, bytes }, from: from.sp };
    let end = walk(&mut stack, from, rule, |frame| found.push(frame));
    (found, end)
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let [pc, sp, bp] = [(); 3].map(|()| START + (input.u64() & 0xf_ffff));
    let bytes: Vec<u8> = input
        .0
        .chunks_exact(8)
        .flat_map(|word| {
            let word = u64::from_le_bytes(word.try_into().unwrap());
            let pointed = START + (word & 0xffff_ffff);
            if word >> 32 == 0xffff_ffff { pointed } else { word }.to_le_bytes()
        })
        .collect();
    let from = Registers { pc, sp: sp & !7, bp };
    let (found, end) = frames(&bytes, from);
    assert_eq!((found.clone(), end), frames(&bytes, from));
    assert!(!found.is_empty() && found.len() <= FRAMES_MAX);
    assert!(end != End::Cut || found.len() == FRAMES_MAX);
    // Frames lie one above the other, but where a signal may have come on another stack.
    for pair in found.windows(2) {
        assert!(pair[0].rule.kind() == Kind::Signal || pair[0].end <= pair[1].end);
    }
});
