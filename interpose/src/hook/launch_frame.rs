//! What a launch's hook has on the stack while the driver's function runs, as
//! [`around_launch`](super::around_launch) has put it there: words to keep, and the call's arguments.

use core::mem::MaybeUninit;

use crate::symbols::driver::Status;

/// The hook's part of the stack, from its lowest address on; it lives until the hook returns.
///
/// ```text
///  word 0       when the driver's function was called, in ticks (plain launches only)
///  words 1–6    what `keep` was given
///  words 7–12   r9, r8, rcx, rdx, rsi, rdi
///  word 13      the hook's return address
///  words 14…    the arguments behind the sixth
/// ```
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Frame(*mut u64);

/// What a function after the call returns if not all is done: any value that is not SUCCESS.
pub const NOT_DONE: Status = -1;
/// How many words of a frame are kept for the function after the call. Odd, so that the stack is aligned to
/// 16 bytes at calls.
pub const KEPT_WORDS: usize = 7;
/// How many arguments are passed in registers (System V ABI for x86-64).
pub const REGISTERS: usize = 6;
const _: () = assert!((KEPT_WORDS + REGISTERS) % 2 == 1);

impl Frame {
    /// When the driver's function was called, in ticks.
    #[inline(always)]
    pub fn start(self) -> u64 {
        // SAFETY: the hook's own word, of this call alone, which lives until it returns.
        unsafe { self.0.read() }
    }

    #[inline(always)]
    pub fn set_start(self, ticks: u64) {
        // SAFETY: as in `start`.
        unsafe { self.0.write(ticks) }
    }

    /// Keeps a value until after the call.
    #[inline(always)]
    pub fn keep<T: Copy>(self, value: T) {
        self.kept_at::<T>().write(value);
    }

    /// The value that [`keep`](Frame::keep) got.
    ///
    /// # Safety
    ///
    /// The caller guarantees that it kept a value of this type in this frame, and does not use the reference
    /// after the hook has returned.
    #[inline(always)]
    pub unsafe fn kept<'f, T: Copy>(self) -> &'f T {
        // SAFETY: the caller guarantees that it was written.
        unsafe { (*self.kept_at::<T>()).assume_init_ref() }
    }

    #[inline(always)]
    fn kept_at<'f, T: Copy>(self) -> &'f mut MaybeUninit<T> {
        const { assert!(size_of::<T>() <= (KEPT_WORDS - 1) * 8 && align_of::<T>() <= 8) };
        // SAFETY: likewise the words behind it.
        unsafe { &mut *self.0.add(1).cast::<MaybeUninit<T>>() }
    }

    /// The call's arguments, the first one first.
    #[inline(always)]
    pub fn arguments(self) -> Arguments {
        Arguments { frame: self, next: 0 }
    }
}

/// The arguments of a call, which are read one after the other.
#[derive(Debug)]
pub struct Arguments {
    frame: Frame,
    next: usize,
}

impl Arguments {
    /// The next argument.
    ///
    /// # Safety
    ///
    /// The caller guarantees that the hooked function has so many arguments, this one of this type.
    #[inline(always)]
    pub unsafe fn next<T: Copy>(&mut self) -> T {
        const { assert!(size_of::<T>() <= 8) };
        // The last register was saved last, and is lowest; the return address is above the first one.
        let word = match self.next {
            register @ 0..REGISTERS => KEPT_WORDS + REGISTERS - 1 - register,
            pushed => KEPT_WORDS + 1 + pushed,
        };
        self.next += 1;
        // SAFETY: `way` has saved the registers there, and the caller has pushed the rest; an argument is in
        // the lowest bytes of its word.
        unsafe { self.frame.0.add(word).cast::<T>().read() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_from_where_they_were_saved() {
        // The kept words, r9 to rdi, the return address, and two arguments above it.
        let mut words: [u64; 16] = core::array::from_fn(|word| word as u64);
        let mut arguments = Frame(words.as_mut_ptr()).arguments();
        // SAFETY: as many words as eight arguments have.
        let read: [u32; 8] = core::array::from_fn(|_| unsafe { arguments.next() });
        assert_eq!(read, [12, 11, 10, 9, 8, 7, 14, 15]);
    }
}
