//! Arrays and mipmaps: the bytes that their elements take. The driver pads rows and slices beyond that.

use core::ffi::c_uint;

use cupti_sys::driver::CUDA_ARRAY3D_DESCRIPTOR_v2 as Deep;
use gputrace_wire::call::memory;

use super::given;
use super::memory::{allocated, of_unknown_size};
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
        .map(|what| bits(what.format, what.channels).map(|bits| size([what.width, what.height, 1], bits)));
    described(cx, bytes, out)
}

/// An array of so many bytes, where they are known; `None` where the driver did not read what was asked for.
fn described(cx: &Context, bytes: Option<Option<usize>>, out: *const Handle) -> Description {
    let made = allocated(cx, memory::ARRAY, bytes.flatten().unwrap_or(0), out.cast(), None);
    if bytes == Some(None) { of_unknown_size(made) } else { made }
}

/// `levels` is 1 for an array.
pub fn deep_created(cx: &Context, out: *const Handle, what: *const Deep, levels: c_uint) -> Description {
    // SAFETY: as above.
    let bytes = unsafe { given(cx, what) }.map(|what| of_levels(&what, levels));
    described(cx, bytes, out)
}

/// `None` where the format is not known.
fn of_levels(what: &Deep, levels: u32) -> Option<usize> {
    if what.Flags & WITHOUT_MEMORY != 0 {
        return Some(0);
    }
    let bits = bits(what.Format.0, what.NumChannels)?;
    let has_layers = what.Flags & (LAYERED | CUBEMAP) != 0;
    // The driver makes at least one level, and none beyond the one whose sides are all 1.
    let longest = what.Width.max(what.Height).max(if has_layers { 0 } else { what.Depth }).max(1);
    let levels = levels.clamp(1, (longest.ilog2() + 1).min(LEVELS_MAX));
    let all = (0..levels).fold(0usize, |sum, level| {
        let halved = |side: usize| side.checked_shr(level).unwrap_or(0).max(1);
        let depth = if has_layers { what.Depth.max(1) } else { halved(what.Depth) };
        sum.saturating_add(size([halved(what.Width), halved(what.Height), depth], bits))
    });
    Some(all)
}

fn size([width, height, depth]: [usize; 3], bits: usize) -> usize {
    let elements = width.saturating_mul(height.max(1)).saturating_mul(depth.max(1));
    elements.saturating_mul(bits).div_ceil(8)
}

/// Bits of an element with all its channels, by `CUarray_format`. Of formats for video: of a pixel, its share
/// of the planes with less detail included.
fn bits(format: c_uint, channels: c_uint) -> Option<usize> {
    let channels = channels as usize;
    Some(match format {
        0x01 | 0x08 => 8 * channels,
        0x02 | 0x09 | 0x10 => 16 * channels,
        0x03 | 0x0a | 0x20 => 32 * channels,
        // Normalised integers, by bits and channels; three channels of 10 bits and one of 2.
        0xc0 | 0xc6 => 8,
        0xc1 | 0xc3 | 0xc7 | 0xc9 => 16,
        0xc2 | 0xc4 | 0xc8 | 0xca | 0x50 => 32,
        0xc5 | 0xcb => 64,
        // Compressed blocks: BC1 and BC4, then the other five.
        0x91 | 0x92 | 0x97 | 0x98 => 4,
        0x93..=0x96 | 0x99..=0x9e => 8,
        // 4:2:0, colour at a quarter of the pixels. Of 8 bits: NV12 and the two made of planes; of 10 and 16
        // bits, which take 16: P010, P016 and the two.
        0xb0 | 0x53 | 0x59 => 12,
        0x9f | 0xa1 | 0x54 | 0x5a => 24,
        // 4:2:2, colour at half of the pixels: NV16, YUY2 and the two; P210, P216, Y210, Y216 and the two.
        0xa2 | 0xa5 | 0x55 | 0x5b => 16,
        0xa3 | 0xa4 | 0xa6 | 0xa7 | 0x56 | 0x5c => 32,
        // 4:4:4 in planes of 8 and of 16 bits; packed with a fourth channel: AYUV, Y410 and one more, Y416.
        0xb2 | 0xb4 | 0x57 | 0x5d => 24,
        0xb3 | 0xb5 | 0x58 | 0x5e => 48,
        0xa8 | 0xa9 | 0x52 => 32,
        0xb1 => 64,
        _ => return None,
    })
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
        assert_eq!(of_levels(&deep([100, 0, 0], 0x20, 4, 0), 1), Some(1600));
        assert_eq!(of_levels(&deep([64, 32, 3], 0x08, 2, 0), 1), Some(64 * 32 * 3 * 2));
        assert_eq!(of_levels(&deep([64, 64, 0], 0x91, 1, 0), 1), Some(2048));
        // NV12, P010, P016 and Y416.
        for (format, bytes) in [(0xb0, 6144), (0x9f, 12_288), (0xa1, 12_288), (0xb1, 32_768)] {
            assert_eq!(of_levels(&deep([64, 64, 0], format, 3, 0), 1), Some(bytes), "{format:#x}");
        }
        // Sparse ones, and those of an unknown format.
        assert_eq!(of_levels(&deep([64, 64, 0], 0x20, 1, 0x40), 1), Some(0));
        assert_eq!(of_levels(&deep([64, 64, 0], 0x7fff, 1, 0), 1), None);
        // Nothing that a program says overflows.
        assert_eq!(of_levels(&deep([usize::MAX; 3], 0x20, 4, 0), u32::MAX), Some(usize::MAX));
    }

    /// So that a format of a later CUDA is noticed when the bindings are made again.
    #[test]
    fn every_format_of_the_header_has_a_size_except_one() {
        let source = include_str!("../../../cupti-sys/src/driver/generated.rs");
        let names = source.split("pub const CU_AD_FORMAT_").skip(1);
        let without: Vec<&str> = names
            .filter_map(|rest| {
                let number = rest.split("CUarray_format_enum(").nth(1)?.split(')').next()?.parse().ok()?;
                bits(number, 3).is_none().then_some(rest.split(':').next()?)
            })
            .collect();
        // Whether a width of the first counts pixels or pairs of them is not documented.
        assert_eq!(without, ["UINT8_PACKED_422", "MAX"]);
    }

    #[test]
    fn levels_of_mipmaps_are_halved_and_layers_are_not() {
        let all: usize = [64 * 16, 32 * 8, 16 * 4, 8 * 2, 4, 2, 1].iter().sum();
        assert_eq!(of_levels(&deep([64, 16, 0], 0x01, 1, 0), 7), Some(all));
        assert_eq!(of_levels(&deep([64, 16, 5], 0x01, 1, LAYERED), 7), Some(5 * all));
        assert_eq!(of_levels(&deep([4, 4, 4], 0x01, 1, 0), 3), Some(64 + 8 + 1));
    }
}
