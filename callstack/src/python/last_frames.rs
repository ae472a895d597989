//! Where a thread's last walk found its frames, so that their lines are prefetched while the driver works.
//!
//! A walk waits for each frame's line of memory before it knows the address of the next one. Most of the
//! outer frames are those of the last launch, and inner ones lie where others lay before. Only addresses are
//! kept, and they are hints: what is there is read by the next walk alone, which follows the chain. (To go on
//! at an address that was kept, before the chain has said the same, gained nothing in a real program.)

use core::cell::Cell;

use gputrace_producer::memory::prefetch_at;

use super::layout::Layout;

/// Deeper frames are not prefetched.
const FRAMES: usize = 40;

/// Zeroed memory is valid: no walk.
#[derive(Debug)]
#[repr(C)]
pub struct LastFrames {
    count: Cell<u32>,
    /// The offsets of the first and the last field that a walk reads.
    first: Cell<u16>,
    last: Cell<u16>,
    /// The addresses, the innermost frame's first.
    frames: [Cell<u64>; FRAMES],
}

impl Default for LastFrames {
    fn default() -> LastFrames {
        let frames = [const { Cell::new(0) }; FRAMES];
        LastFrames { count: Cell::new(0), first: Cell::new(0), last: Cell::new(0), frames }
    }
}

impl LastFrames {
    /// Prefetches the lines that a walk along the same frames reads.
    #[inline(always)]
    pub fn expect(&self) {
        let (first, last) = (u64::from(self.first.get()), u64::from(self.last.get()));
        for at in self.frames.get(..self.count.get() as usize).unwrap_or_default() {
            prefetch_at(at.get().wrapping_add(first));
            prefetch_at(at.get().wrapping_add(last));
        }
    }

    /// Notes a walk's frame, the innermost one's index being 0.
    #[inline(always)]
    pub fn put(&self, index: usize, at: u64) {
        if let Some(frame) = self.frames.get(index) {
            frame.set(at);
        }
    }

    /// Called after the walk's last frame.
    #[inline(always)]
    pub fn end(&self, count: usize, layout: &Layout) {
        self.first.set(layout.frame_previous.min(layout.frame_instruction));
        self.last.set(layout.frame_previous.max(layout.frame_instruction));
        self.count.set(count.min(FRAMES) as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_frames_anywhere_is_kept_and_prefetched() {
        let layout = Layout::of_minor(12).unwrap();
        let frames = LastFrames::default();
        frames.expect();
        for count in [0, 3, FRAMES, FRAMES + 5] {
            // Nothing is mapped there.
            (0..count).for_each(|index| frames.put(index, 0x7f12_0000_0000 + 0x80 * index as u64));
            frames.end(count, &layout);
            frames.expect();
            let kept = count.min(FRAMES);
            assert_eq!(frames.count.get() as usize, kept);
            let at = frames.frames[kept.saturating_sub(1)].get();
            assert_eq!(at, if count == 0 { 0 } else { 0x7f12_0000_0000 + 0x80 * (kept as u64 - 1) });
        }
        assert_eq!((frames.first.get(), frames.last.get()), (8, 56));
    }
}
