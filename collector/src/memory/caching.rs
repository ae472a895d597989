//! Libraries that keep the memory that they were given, known by the kernels that they launch.
//!
//! PyTorch, CuPy and XLA cache what they free, and keep handles with memory of their own until the process
//! ends. No call shows that, and the line that asked is the program's own. Their kernels have names of their
//! own.

/// A part of a kernel's name as the driver knows it, and the library whose it is.
const KERNELS: [(&str, &str); 6] = [
    ("2at6native", "PyTorch"),
    ("at::native", "PyTorch"),
    // What PyTorch's compiler makes: triton_poi_fused_add_0.
    ("triton_poi_fused", "PyTorch"),
    ("triton_red_fused", "PyTorch"),
    ("triton_per_fused", "PyTorch"),
    ("cupy_", "CuPy"),
];
/// XLA names kernels after its instructions: `loop_add_fusion`, `input_reduce_fusion_1`, `wrapped_multiply`.
const XLA: [&str; 3] = ["loop_", "input_", "wrapped_"];

/// The library that launches a kernel of that name and caches memory, if it is one of these.
pub fn caching_library(kernel: &str) -> Option<&'static str> {
    let of_xla = || XLA.iter().any(|start| kernel.starts_with(start)) && kernel.contains("fusion");
    let known = KERNELS.iter().find(|(part, _)| kernel.contains(part)).map(|(_, library)| *library);
    known.or_else(|| of_xla().then_some("XLA"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_known_by_their_kernels() {
        for (kernel, library) in [
            ("_ZN2at6native29vectorized_elementwise_kernelILi4EEEvi", Some("PyTorch")),
            ("triton_poi_fused_add_relu_0", Some("PyTorch")),
            ("cupy_add__float32_float32_float32", Some("CuPy")),
            ("loop_add_fusion_2", Some("XLA")),
            ("input_output", None),
            ("first_kernel", None),
            ("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize64x64x32", None),
        ] {
            assert_eq!(caching_library(kernel), library, "{kernel}");
        }
    }
}
