//! A process's memory of any bytes, read as an interpreter's: its table of offsets, its thread state, its
//! frames, its code objects and its strings.
//!
//! Input: the minor version (u8), then words. A word whose upper half is 0xffffffff stands for a
//! pointer to the byte of the image that its lower half says.
#![no_main]

use std::cell::Cell;

use gputrace_fuzz::Input;
use gputrace_callstack::python::code::{self, Define};
use gputrace_callstack::python::layout::{Layout, debug_offsets};
use gputrace_callstack::python::memory::ProcessImage;
use gputrace_callstack::python::walk::{FRAMES_MAX, Types, frames, position};
use gputrace_callstack::python::{check, identity, stacks};
use gputrace_wire::definition::{Code, FIELDS_MAX, TEXT_MAX, kind};
use libfuzzer_sys::fuzz_target;

const START: u64 = 0x10_0000;

/// Checks what is defined, and counts it.
struct Checks(Cell<u32>);

impl Define for Checks {
    fn define(&self, kind: u16, fields: &[u64], text: &[u8]) -> u32 {
        assert!(fields.len() <= FIELDS_MAX && text.len() <= TEXT_MAX);
        match kind {
            kind::LINES => assert!(text.len() <= TEXT_MAX && fields.len() == 1),
            kind::CODE => {
                let code = Code::read(fields, text);
                assert_eq!(code.name.len() + code.file.len() + code.table.len(), text.len());
                assert!(code.name.len() <= 1024 && code.file.len() <= 4096);
            }
            _ => panic!("kind {kind}"),
        }
        self.0.set(self.0.get() + 1);
        self.0.get()
    }
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let minor = 8 + input.u8() % 7;
    let bytes: Vec<u8> = input
        .0
        .chunks_exact(8)
        .flat_map(|word| {
            let word = u64::from_le_bytes(word.try_into().unwrap());
            let pointed = START + (word & 0xffff_ffff);
            if word >> 32 == 0xffff_ffff { pointed } else { word }.to_le_bytes()
        })
        .collect();
    let memory = ProcessImage { start: START, bytes: &bytes };
    // The thread state is at the beginning, and so is the table of offsets.
    let layout = match Layout::of_minor(minor) {
        Some(layout) => layout,
        None => match debug_offsets::read(&memory, START) {
            Some(layout) => layout,
            None => return,
        },
    };
    let types = Types::default();
    check::look(&memory, &layout, &types, START, 0);
    let fingerprint = || stacks::fingerprint_of_links(&memory, &layout, START, 0);
    assert_eq!(fingerprint(), fingerprint());
    let hash = stacks::hash(&memory, &layout, &types, START);
    assert_eq!(hash, stacks::hash(&memory, &layout, &types, START));

    let (mut count, mut text) = (0, [0; TEXT_MAX]);
    let to = Checks(Cell::new(0));
    let end = frames(&memory, &layout, &types, START, |frame| {
        count += 1;
        // Some are enough, or a ring of frames would take its time.
        if count < 8 {
            identity::of(&memory, &layout, frame.code, &mut identity::Known::default())?;
            assert!(position(&memory, &layout, &frame) <= 0xffff_ffff);
            code::define(&memory, &layout, &types, 0x030c_00f0, frame.code, &mut text, &to);
        }
        Ok(())
    });
    assert!(count <= FRAMES_MAX);
    assert!(hash.is_err() || end.is_ok());
});
