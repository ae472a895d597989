//! The structures that describe copies of rectangles and boxes, and what they mean.

use gputrace_sim::array::Array;
use gputrace_sim::copy::{Copy, Shape, Side};
use gputrace_sim::error::{Code, Result};
use gputrace_sim::world::with;

/// `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, std::marker::Copy)]
pub struct Plane {
    source: PlaneSide,
    target: PlaneSide,
    width_bytes: u64,
    height: u64,
}

#[repr(C)]
#[derive(Clone, std::marker::Copy)]
struct PlaneSide {
    x_bytes: u64,
    y: u64,
    memory_type: u32,
    host: u64,
    device: u64,
    array: u64,
    pitch: u64,
}

/// `CUDA_MEMCPY3D` and, with contexts in place of the reserved words, `CUDA_MEMCPY3D_PEER`.
#[repr(C)]
#[derive(Clone, std::marker::Copy)]
pub struct Volume {
    pub source: VolumeSide,
    pub target: VolumeSide,
    pub width_bytes: u64,
    pub height: u64,
    pub depth: u64,
}

/// `CUDA_MEMCPY3D_BATCH_OP`.
#[repr(C)]
#[derive(Clone, std::marker::Copy)]
pub struct VolumeOperation {
    source: Operand,
    target: Operand,
    width: u64,
    height: u64,
    depth: u64,
    order: u32,
    flags: u32,
}

/// `CUmemcpy3DOperand`: an address with row length, rows and a hint, or an array with three offsets.
#[repr(C)]
#[derive(Clone, std::marker::Copy)]
struct Operand {
    kind: u32,
    words: [u64; 4],
}

impl VolumeOperation {
    /// The copy as a volume.
    pub fn as_volume(&self) -> Result<Volume> {
        Ok(Volume {
            source: self.source.as_side()?,
            target: self.target.as_side()?,
            width_bytes: self.width,
            height: self.height,
            depth: self.depth,
        })
    }
}

impl Operand {
    fn as_side(&self) -> Result<VolumeSide> {
        let [first, second, third, fourth] = self.words;
        let side = VolumeSide {
            x_bytes: 0,
            y: 0,
            z: 0,
            level: 0,
            memory_type: 4,
            host: 0,
            device: first,
            array: first,
            context: 0,
            pitch: second,
            height: third,
        };
        match self.kind {
            1 => Ok(side),
            2 => Ok(VolumeSide {
                memory_type: 3,
                x_bytes: second,
                y: third,
                z: fourth,
                pitch: 0,
                height: 0,
                ..side
            }),
            _ => Err(Code::INVALID_VALUE),
        }
    }
}

/// One side of a volume.
#[repr(C)]
#[derive(Clone, std::marker::Copy)]
pub struct VolumeSide {
    x_bytes: u64,
    y: u64,
    z: u64,
    level: u64,
    memory_type: u32,
    host: u64,
    device: u64,
    array: u64,
    /// Null but in the peer form.
    pub context: u64,
    pitch: u64,
    height: u64,
}

impl PlaneSide {
    fn as_volume(&self) -> VolumeSide {
        VolumeSide {
            x_bytes: self.x_bytes,
            y: self.y,
            z: 0,
            level: 0,
            memory_type: self.memory_type,
            host: self.host,
            device: self.device,
            array: self.array,
            context: 0,
            pitch: self.pitch,
            height: 0,
        }
    }
}

impl VolumeSide {
    /// The side, its pitch and its slice.
    fn resolve(&self, width: u64, height: u64) -> Result<(Side, u64, u64)> {
        let (base, pitch, rows) = match self.memory_type {
            1 => (Side::Host(self.host), self.pitch, self.height),
            2 => (Side::Device(self.device), self.pitch, self.height),
            3 => {
                let array: Array = with(|w| w.arrays.get(self.array).copied())?;
                (Side::Device(array.base), array.pitch(), array.rows())
            }
            4 => (Side::Unified(self.device), self.pitch, self.height),
            _ => return Err(Code::INVALID_VALUE),
        };
        let pitch = if pitch == 0 { width } else { pitch };
        if height > 1 && pitch < width {
            return Err(Code::INVALID_VALUE);
        }
        let rows = if rows == 0 { height } else { rows };
        let slice = pitch.checked_mul(rows).ok_or(Code::INVALID_VALUE)?;
        let offset = self.z.checked_mul(slice).and_then(|z| z.checked_add(self.y.checked_mul(pitch)?));
        let offset = offset.and_then(|o| o.checked_add(self.x_bytes)).ok_or(Code::INVALID_VALUE)?;
        let moved = |at: u64| at.checked_add(offset).ok_or(Code::INVALID_VALUE);
        let side = match base {
            Side::Host(at) => Side::Host(moved(at)?),
            Side::Device(at) => Side::Device(moved(at)?),
            Side::Unified(at) => Side::Unified(moved(at)?),
        };
        Ok((side, pitch, slice))
    }
}

impl Volume {
    /// The copy as a program would write it.
    pub fn describe(copy: &Copy) -> Volume {
        let side = |side: Side, pitch: u64, slice: u64| {
            let (memory_type, host, device) = match side {
                Side::Host(at) => (1, at, 0),
                Side::Device(at) => (2, 0, at),
                Side::Unified(at) => (4, 0, at),
            };
            let height = slice.checked_div(pitch).unwrap_or(0);
            VolumeSide {
                x_bytes: 0,
                y: 0,
                z: 0,
                level: 0,
                memory_type,
                host,
                device,
                array: 0,
                context: 0,
                pitch,
                height,
            }
        };
        let shape = copy.shape;
        Volume {
            source: side(copy.source_side, shape.source_pitch, shape.source_slice),
            target: side(copy.target_side, shape.target_pitch, shape.target_slice),
            width_bytes: shape.width,
            height: shape.height,
            depth: shape.depth,
        }
    }

    /// The copy's shape and sides.
    pub fn resolve(&self) -> Result<(Shape, Side, Side)> {
        let (source, source_pitch, source_slice) = self.source.resolve(self.width_bytes, self.height)?;
        let (target, target_pitch, target_slice) = self.target.resolve(self.width_bytes, self.height)?;
        let shape = Shape {
            source: 0,
            target: 0,
            width: self.width_bytes,
            height: self.height,
            depth: self.depth,
            source_pitch,
            source_slice,
            target_pitch,
            target_slice,
        };
        Ok((shape, source, target))
    }
}

impl Plane {
    /// As a volume of one slice.
    pub fn as_volume(&self) -> Volume {
        Volume {
            source: self.source.as_volume(),
            target: self.target.as_volume(),
            width_bytes: self.width_bytes,
            height: self.height,
            depth: 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_their_c_sizes() {
        assert_eq!((size_of::<Plane>(), size_of::<Volume>()), (128, 200));
        assert_eq!(size_of::<VolumeOperation>(), 112);
    }
}
