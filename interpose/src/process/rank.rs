//! This process's rank in its job, from the launchers' environment variables.

use core::ffi::CStr;

use crate::process::settings;

/// torchrun and compatible launchers, Open MPI, MPICH and its relatives, Slurm. The first one set is used.
const RANK: [&CStr; 4] = [c"RANK", c"OMPI_COMM_WORLD_RANK", c"PMI_RANK", c"SLURM_PROCID"];
const LOCAL_RANK: [&CStr; 4] =
    [c"LOCAL_RANK", c"OMPI_COMM_WORLD_LOCAL_RANK", c"MPI_LOCALRANKID", c"SLURM_LOCALID"];

/// The two fields of a process's definition: each number plus one, or 0.
pub fn fields() -> [u64; 2] {
    [RANK, LOCAL_RANK].map(|names| {
        names
            .iter()
            .find_map(|name| number(settings::get(name)?.to_bytes()))
            .map_or(0, |rank| u64::from(rank) + 1)
    })
}

/// A number without sign or blanks. Any other value is not a rank.
fn number(text: &[u8]) -> Option<u32> {
    if text.is_empty() || text.len() > 9 {
        return None;
    }
    text.iter()
        .try_fold(0, |number: u32, byte| byte.is_ascii_digit().then(|| number * 10 + u32::from(byte - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_plain_numbers_only() {
        assert_eq!((number(b"0"), number(b"1023")), (Some(0), Some(1023)));
        for no in [&b""[..], b"-1", b" 1", b"1.0", b"rank", b"9999999999"] {
            assert_eq!(number(no), None);
        }
    }
}
