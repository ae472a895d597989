//! CUPTI's own version number, which says what its records hold.
//!
//! Counted 1 to 28 up to CUDA 12, and `major minor patch` in two digits each from CUDA 13 on.

use core::fmt;

/// What `cuptiGetVersion` returns.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ApiVersion(pub u32);

impl ApiVersion {
    /// CUDA 11.1 to 11.4 (measured; newer headers count 15 from 11.2 on).
    pub const CUDA_11_1: Self = Self(14);
    /// 11.6 reports the number of 11.5 although its records have channels: those are read from here on.
    pub const CUDA_11_7: Self = Self(17);
    /// CUDA 11.8, but 12.0 and 12.1 report the same number although their kernel records are longer.
    pub const CUDA_11_8: Self = Self(18);
    pub const CUDA_12_2: Self = Self(20);
    pub const CUDA_12_3: Self = Self(21);
    pub const CUDA_12_8: Self = Self(26);
    pub const CUDA_12_9: Self = Self(27);
    pub const CUDA_13_0: Self = Self(130_000);
    pub const CUDA_13_1: Self = Self(130_100);
    pub const CUDA_13_3: Self = Self(130_300);
    pub const CUDA_13_4: Self = Self(130_400);

    /// The oldest version whose records [`crate::records`] may be given. No wheel has headers this old: what
    /// such records hold is what newer headers say of the structs `Kernel5`, `Memcpy4`, `MemcpyPtoP3` and
    /// `Memset3`.
    pub const OLDEST: Self = Self::CUDA_11_1;

    /// Whether CUPTI survives a buffer request that is answered with NULL. Older ones crash on it.
    pub const fn may_refuse_buffers(self) -> bool {
        self.0 >= Self::CUDA_12_9.0
    }
}

/// The number, and the CUDA release it stands for where that is known.
impl fmt::Display for ApiVersion {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let release = match self.0 {
            14 => "11.1 to 11.4",
            15 => "11.2 to 11.4",
            16 => "11.5 or 11.6",
            17 => "11.6 or 11.7",
            18 => "11.8, 12.0 or 12.1",
            20 => "12.2",
            21 => "12.3",
            22 => "12.4",
            23 => "12.5",
            24 => "12.6",
            26 => "12.8",
            27 | 28 => "12.9",
            130_000.. => {
                return write!(out, "{} (CUDA {}.{})", self.0, self.0 / 10_000, self.0 / 100 % 100);
            }
            _ => return write!(out, "{}", self.0),
        };
        write!(out, "{} (CUDA {release})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_names_the_release() {
        assert_eq!(ApiVersion(18).to_string(), "18 (CUDA 11.8, 12.0 or 12.1)");
        assert_eq!(ApiVersion(28).to_string(), "28 (CUDA 12.9)");
        assert_eq!(ApiVersion(130_001).to_string(), "130001 (CUDA 13.0)");
        assert_eq!(ApiVersion(140_305).to_string(), "140305 (CUDA 14.3)");
        assert_eq!(ApiVersion(3).to_string(), "3");
    }

    #[test]
    fn null_buffers_are_safe_from_12_9() {
        assert!(!ApiVersion(26).may_refuse_buffers());
        assert!(ApiVersion(27).may_refuse_buffers());
        assert!(ApiVersion(130_001).may_refuse_buffers());
    }
}
