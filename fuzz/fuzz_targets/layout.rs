//! Headers of any bytes, and a mapping of any size.
//!
//! Input: the mapping's size (u64), a segment header, a ring header.
#![no_main]

use gputrace_fuzz::Input;
use gputrace_wire::cell::CELL_BYTES;
use gputrace_wire::segment::{
    CONTROL_OFFSET, COUNTER_SLOTS, COUNTERS_OFFSET, Layout, RINGS_MAX, RingHeader, SegmentHeader,
};
use libfuzzer_sys::fuzz_target;

/// A header made of the input's bytes.
///
/// # Safety
/// `T` is a `repr(C)` struct of atomic integers, which every byte pattern is valid for.
unsafe fn header<T>(input: &mut Input<'_>) -> T {
    let mut header = std::mem::MaybeUninit::<T>::zeroed();
    let words = header.as_mut_ptr().cast::<u64>();
    for index in 0..size_of::<T>() / 8 {
        // SAFETY: below the struct's size, and it is aligned to more than a word.
        unsafe { words.add(index).write(input.u64()) };
    }
    // SAFETY: the caller's promise.
    unsafe { header.assume_init() }
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let mapped = input.u64() as usize;
    // SAFETY: both are such structs.
    let (segment, ring): (SegmentHeader, RingHeader) = unsafe { (header(&mut input), header(&mut input)) };
    let inside = |offset: usize, count: usize, bytes: usize| {
        let end = offset as u128 + count as u128 * bytes as u128;
        assert!(end <= mapped as u128, "{offset} + {count} × {bytes} in {mapped}");
    };
    if let Ok(layout) = Layout::read(&segment, mapped) {
        assert!(layout.ring_count <= RINGS_MAX as usize);
        assert!(layout.ring_table_offset.is_multiple_of(align_of::<RingHeader>()));
        assert!(layout.definitions_offset.is_multiple_of(8));
        inside(CONTROL_OFFSET, 1, 64);
        inside(COUNTERS_OFFSET, COUNTER_SLOTS, 8);
        inside(layout.ring_table_offset, layout.ring_count, size_of::<RingHeader>());
        inside(layout.definitions_offset, layout.definitions_bytes, 1);
    }
    if let Some((offset, cells)) = Layout::ring_extent(&ring, mapped) {
        assert!(cells.is_power_of_two() && offset.is_multiple_of(CELL_BYTES));
        inside(offset, cells, CELL_BYTES);
    }
});
