//! Where a thread's last walk found its frames, so that their lines are prefetched while the driver works.
//!
//! A walk waits for each frame's line of memory before it knows the address of the next one. Most of the
//! outer frames are those of the last launch, and inner ones lie where others lay before. Only addresses are
//! kept, in a few lines of the thread's own, and they are hints: what is there is read by the next walk
//! alone, which follows the chain.

use core::cell::Cell;

use gputrace_producer::memory::prefetch_at;

use super::layout::Layout;

/// Deeper frames are not prefetched.
const FRAMES: usize = 46;

/// Zeroed memory is valid: no walk.
#[derive(Debug)]
#[repr(C)]
pub struct LastFrames {
    /// The upper halves of the addresses: those of the innermost frame.
    high: Cell<u32>,
    count: Cell<u16>,
    /// The offsets of the first and the last field that a walk reads.
    first: Cell<u8>,
    last: Cell<u8>,
    /// The lower halves, the innermost frame's first.
    low: [Cell<u32>; FRAMES],
}

impl LastFrames {
    /// Prefetches the lines that a walk along the same frames reads.
    #[inline(always)]
    pub fn expect(&self) {
        let high = u64::from(self.high.get()) << 32;
        let (first, last) = (u64::from(self.first.get()), u64::from(self.last.get()));
        for low in self.low.get(..self.count.get().into()).unwrap_or_default() {
            let at = high | u64::from(low.get());
            prefetch_at(at + first);
            prefetch_at(at + last);
        }
    }

    /// Notes a walk's frame, the innermost one's index being 0.
    #[inline(always)]
    pub fn put(&self, index: usize, at: u64) {
        if let Some(low) = self.low.get(index) {
            low.set(at as u32);
        }
        if index == 0 {
            self.high.set((at >> 32) as u32);
        }
    }

    /// Called after the walk's last frame.
    #[inline(always)]
    pub fn end(&self, count: usize, layout: &Layout) {
        let fields = [layout.frame_previous, layout.frame_code, layout.frame_instruction];
        let first = fields.into_iter().fold(u16::MAX, u16::min);
        let last = fields.into_iter().fold(0, u16::max);
        self.first.set(first.min(u8::MAX.into()) as u8);
        self.last.set(last.min(u8::MAX.into()) as u8);
        self.count.set(count.min(FRAMES) as u16);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_frames_anywhere_is_kept_and_prefetched() {
        let layout = Layout::of_minor(12).unwrap();
        // SAFETY: zeroed memory is valid.
        let frames: LastFrames = unsafe { core::mem::zeroed() };
        frames.expect();
        for count in [0, 3, FRAMES, FRAMES + 5] {
            // Nothing is mapped there.
            (0..count).for_each(|index| frames.put(index, 0x7f12_0000_0000 + 0x80 * index as u64));
            frames.end(count, &layout);
            frames.expect();
            assert_eq!(usize::from(frames.count.get()), count.min(FRAMES));
            let last = frames.low[count.min(FRAMES).saturating_sub(1)].get();
            assert_eq!(u64::from(last), 0x80 * count.min(FRAMES).saturating_sub(1) as u64);
        }
        assert_eq!((frames.high.get(), frames.first.get(), frames.last.get()), (0x7f12, 0, 56));
    }
}
