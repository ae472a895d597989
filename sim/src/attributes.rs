//! Device attributes, by the driver's numbers.
//!
//! The values are those of an H100-like device; where one has to agree with the
//! engine's behaviour it comes from [`crate::device`].

use crate::device as d;
use crate::error::{Code, Result};

/// One past the last attribute number that this driver version knows.
const END: u32 = 149;

/// The value of attribute `number` on `device`.
pub fn device_attribute(number: u32, device: u32) -> Result<i32> {
    let value: u64 = match number {
        1 => d::MAX_THREADS_PER_BLOCK.into(),
        2 => d::MAX_BLOCK[0].into(),
        3 => d::MAX_BLOCK[1].into(),
        4 => d::MAX_BLOCK[2].into(),
        5 => d::MAX_GRID[0].into(),
        6 => d::MAX_GRID[1].into(),
        7 => d::MAX_GRID[2].into(),
        8 => d::SHARED_BYTES_PER_BLOCK.into(),
        9 => 65536, // constant memory
        10 => d::WARP_SIZE.into(),
        11 => 2_147_483_647,                          // pitch
        12 => d::REGISTERS_PER_MULTIPROCESSOR.into(), // per block
        13 => 1_980_000,                              // clock, kHz
        14 => 512,                                    // texture alignment
        15 => 1,                                      // copies overlap kernels
        16 => d::MULTIPROCESSORS.into(),
        19 => 1, // maps host memory
        21 => 131_072,
        22 => 131_072,
        23 => 65_536,
        24..=26 => 16_384,
        27 | 28 => 32_768,
        29 => 2_048,
        30 => 512,
        31 => 1, // concurrent kernels
        32 => 1, // ECC
        33 => d::pci_bus(device).into(),
        36 => 2_619_000,  // memory clock, kHz
        37 => 5_120,      // memory bus, bits
        38 => 52_428_800, // L2
        39 => d::MAX_THREADS_PER_MULTIPROCESSOR.into(),
        40 => 3, // copy engines
        41 => 1, // unified addressing
        42 => 32_768,
        43 => 2_048,
        44 => 1,
        45 | 46 => 32_768,
        47 | 48 => 8_192,
        49 => 32_768,
        51 => 32,
        52 | 53 => 32_768,
        54 => 2_046,
        55 => 32_768,
        56 => 131_072,
        57 => 65_536,
        58..=60 => 16_384,
        61 => 32_768,
        62 => 2_048,
        63 | 64 => 32_768,
        65 => 2_048,
        66 | 67 => 32_768,
        68 => 2_046,
        69 => 268_435_456,
        70 => 131_072,
        71 => 65_000,
        72 => 2_097_120,
        73 | 74 => 32_768,
        75 => 9, // compute capability
        76 => 0,
        77 => 32_768,
        78 => 1, // stream priorities
        79 | 80 => 1,
        81 => d::SHARED_BYTES_PER_MULTIPROCESSOR.into(),
        82 => d::REGISTERS_PER_MULTIPROCESSOR.into(),
        83 => 1, // managed memory
        87 => 2,
        88 => 0,
        89 => 1,
        90 => 1,
        91 => 1,
        92..=94 => 0,
        95 => 1, // cooperative launch
        96 => 0,
        97 => d::SHARED_BYTES_PER_BLOCK_OPT_IN.into(),
        98 => 1,
        99 => 1,
        100 | 101 => 0,
        102 => 1, // virtual memory management
        103 => 0, // no file-descriptor handles
        106 => d::MAX_BLOCKS_PER_MULTIPROCESSOR.into(),
        107 => 0,
        108 => 32_768_000,
        109 => 134_213_632,
        111 => d::RESERVED_SHARED_BYTES_PER_BLOCK.into(),
        112 => 0,
        113 => 0,
        115 => 1,       // memory pools
        119 => 1,       // pool handle types: none
        120 => 1,       // clusters
        122 | 123 => 1, // stream memory operations
        125 => 0,
        126 => 4,
        127 => 0,
        129 => 0,
        131 | 134 => 0,
        number if (1..END).contains(&number) => 0,
        _ => return Err(Code::INVALID_VALUE),
    };
    Ok(value as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_known() {
        assert_eq!(device_attribute(16, 0), Ok(132));
        assert_eq!(device_attribute(0, 0), Err(Code::INVALID_VALUE));
        assert_eq!(device_attribute(5000, 0), Err(Code::INVALID_VALUE));
    }
}
