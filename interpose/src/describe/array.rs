//! Arrays and mipmaps: the bytes that their elements take. The driver pads rows and slices beyond that.

use core::ffi::c_uint;

use cupti_sys::driver::CUDA_ARRAY3D_DESCRIPTOR_v2 as Deep;
use gputrace_wire::call::memory;

use super::given;
use super::memory::allocated;
use crate::hook::description::{Context, Description};
use crate::symbols::driver::Handle;

/// `CUDA_ARRAY_DESCRIPTOR`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Flat {
    width: usize,
    height: usize,
    format: c_uint,
    channels: c_uint,
}

const LAYERED: c_uint = 0x01;
const CUBEMAP: c_uint = 0x04;
/// A sparse array, and one that is mapped later, take no memory when they are made.
const WITHOUT_MEMORY: c_uint = 0x40 | 0x80;
/// A side of 2^31 has no more levels than this.
const LEVELS_MAX: u32 = 32;

pub fn created(cx: &Context, out: *const Handle, what: *const Flat) -> Description {
    // SAFETY: the call's own argument.
    let bytes = unsafe { given(cx, what) }
        .map_or(0, |what| size([what.width, what.height, 1], bits(what.format, what.channels)));
    allocated(cx, memory::ARRAY, bytes, out.cast(), None)
}

/// `levels` is 1 for an array.
pub fn deep_created(cx: &Context, out: *const Handle, what: *const Deep, levels: c_uint) -> Description {
    // SAFETY: as above.
    let bytes = unsafe { given(cx, what) }.map_or(0, |what| of_levels(&what, levels));
    allocated(cx, memory::ARRAY, bytes, out.cast(), None)
}

fn of_levels(what: &Deep, levels: u32) -> usize {
    if what.Flags & WITHOUT_MEMORY != 0 {
        return 0;
    }
    let bits = bits(what.Format.0, what.NumChannels);
    let has_layers = what.Flags & (LAYERED | CUBEMAP) != 0;
    // The driver makes at least one level, and none beyond the one whose sides are all 1.
    let longest = what.Width.max(what.Height).max(if has_layers { 0 } else { what.Depth }).max(1);
    let levels = levels.clamp(1, (longest.ilog2() + 1).min(LEVELS_MAX));
    (0..levels).fold(0usize, |sum, level| {
        let halved = |side: usize| side.checked_shr(level).unwrap_or(0).max(1);
        let depth = if has_layers { what.Depth.max(1) } else { halved(what.Depth) };
        sum.saturating_add(size([halved(what.Width), halved(what.Height), depth], bits))
    })
}

fn size([width, height, depth]: [usize; 3], bits: usize) -> usize {
    let elements = width.saturating_mul(height.max(1)).saturating_mul(depth.max(1));
    elements.saturating_mul(bits).div_ceil(8)
}

/// Bits of an element with all its channels, by `CUarray_format`; 0 of a format that is not known here.
fn bits(format: c_uint, channels: c_uint) -> usize {
    let channels = channels as usize;
    match format {
        0x01 | 0x08 => 8 * channels,
        0x02 | 0x09 | 0x10 => 16 * channels,
        0x03 | 0x0a | 0x20 => 32 * channels,
        // NV12: a plane of brightness, and one of colour that is a quarter as large with two channels.
        0xb0 => 12,
        // Normalised integers, by bits and channels.
        0xc0 | 0xc6 => 8,
        0xc1 | 0xc3 | 0xc7 | 0xc9 => 16,
        0xc2 | 0xc4 | 0xc8 | 0xca => 32,
        0xc5 | 0xcb => 64,
        // Compressed blocks: BC1 and BC4, then the other five.
        0x91 | 0x92 | 0x97 | 0x98 => 4,
        0x93..=0x96 | 0x99..=0x9e => 8,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use cupti_sys::driver::CUarray_format;

    use super::*;

    fn deep(sides: [usize; 3], format: c_uint, channels: c_uint, flags: c_uint) -> Deep {
        let [width, height, depth] = sides;
        Deep {
            Width: width,
            Height: height,
            Depth: depth,
            Format: CUarray_format(format),
            NumChannels: channels,
            Flags: flags,
        }
    }

    #[test]
    fn structure_has_its_c_size() {
        assert_eq!(size_of::<Flat>(), 24);
    }

    #[test]
    fn arrays_have_the_bytes_of_their_elements() {
        assert_eq!(of_levels(&deep([100, 0, 0], 0x20, 4, 0), 1), 1600);
        assert_eq!(of_levels(&deep([64, 32, 3], 0x08, 2, 0), 1), 64 * 32 * 3 * 2);
        assert_eq!(of_levels(&deep([64, 64, 0], 0x91, 1, 0), 1), 2048);
        assert_eq!(of_levels(&deep([64, 64, 0], 0xb0, 3, 0), 1), 6144);
        // Sparse ones, and those of an unknown format.
        assert_eq!(of_levels(&deep([64, 64, 0], 0x20, 1, 0x40), 1), 0);
        assert_eq!(of_levels(&deep([64, 64, 0], 0x7fff, 1, 0), 1), 0);
        // Nothing that a program says overflows.
        assert_eq!(of_levels(&deep([usize::MAX; 3], 0x20, 4, 0), u32::MAX), usize::MAX);
    }

    #[test]
    fn levels_of_mipmaps_are_halved_and_layers_are_not() {
        let all: usize = [64 * 16, 32 * 8, 16 * 4, 8 * 2, 4, 2, 1].iter().sum();
        assert_eq!(of_levels(&deep([64, 16, 0], 0x01, 1, 0), 7), all);
        assert_eq!(of_levels(&deep([64, 16, 5], 0x01, 1, LAYERED), 7), 5 * all);
        assert_eq!(of_levels(&deep([4, 4, 4], 0x01, 1, 0), 3), 64 + 8 + 1);
    }
}
