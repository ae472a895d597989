//! The demo's kernels: their names, how long each takes, and the PTX that the driver compiles.
//!
//! All of them run the same small real loop over a buffer, so that they take a visible time on a real
//! device too. They compute nothing that anybody needs.

use std::fmt::Write as _;

/// A kernel, by its position in [`KERNELS`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kernel {
    Embedding,
    LayerNorm,
    Gemm,
    Softmax,
    Gelu,
    CrossEntropy,
    GemmBackward,
    SoftmaxBackward,
    GeluBackward,
    LayerNormBackward,
    EmbeddingBackward,
    AdamStep,
}

/// Name, and time on the simulated device in µs, in the order of [`Kernel`].
pub const KERNELS: [(&str, u32); 12] = [
    ("embedding_forward", 200),
    ("layer_norm", 60),
    ("gemm_forward", 180),
    ("softmax", 150),
    ("gelu", 110),
    ("cross_entropy", 220),
    ("gemm_backward", 300),
    ("softmax_backward", 220),
    ("gelu_backward", 160),
    ("layer_norm_backward", 90),
    ("embedding_backward", 330),
    ("adam_step", 240),
];

/// Rounds of a kernel's loop for each µs that it takes on the simulated device.
const ROUNDS_PER_US: u32 = 2;

const HEADER: &str = ".version 6.0\n.target sm_50\n.address_size 64\n";
const TEMPLATE: &str = include_str!("kernel.ptx");

impl Kernel {
    /// The rounds that give the kernel its share of the time on a real device.
    pub fn rounds(self) -> u32 {
        KERNELS.get(self as usize).map_or(1, |(_, us)| us * ROUNDS_PER_US)
    }
}

/// A module with all kernels, NUL-terminated as the driver wants it.
pub fn ptx() -> String {
    let mut text = HEADER.to_owned();
    for (name, us) in KERNELS {
        let duration_ns = (us * 1000).to_string();
        let _ = writeln!(text, "\n{}", TEMPLATE.replace("NAME", name).replace("DURATION_NS", &duration_ns));
    }
    text + "\0"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_have_a_row_each() {
        assert_eq!(KERNELS[Kernel::AdamStep as usize].0, "adam_step");
        assert_eq!(KERNELS[Kernel::GemmBackward as usize].0, "gemm_backward");
        assert_eq!(KERNELS.len(), Kernel::AdamStep as usize + 1);
        let text = ptx();
        assert_eq!(text.matches(".visible .entry ").count(), KERNELS.len());
        assert!(!text.contains("NAME") && !text.contains("DURATION_NS") && text.ends_with('\0'));
    }
}
