//! Sticky errors: after one of them every call into the context fails, and pending work is not done. By the
//! driver's numbers; [`crate::failed_calls::name`] has the names.

/// Whether an error ends the context. Success and transient errors do not.
pub const fn is_sticky(status: u16) -> bool {
    // Uncorrectable errors of memory or of a link, and contained ones.
    matches!(status, 214 | 220 | 226)
        // Errors of code on the device, and its timeout.
        || matches!(status, 700 | 702 | 710 | 714..=719 | 721)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failed_calls;

    #[test]
    fn errors_that_stay_are_those_of_a_context_that_is_lost() {
        let stay: Vec<&str> = (0..=u16::MAX).filter(|s| is_sticky(*s)).map(failed_calls::name).collect();
        assert_eq!(
            stay,
            [
                "CUDA_ERROR_ECC_UNCORRECTABLE",
                "CUDA_ERROR_NVLINK_UNCORRECTABLE",
                "CUDA_ERROR_CONTAINED",
                "CUDA_ERROR_ILLEGAL_ADDRESS",
                "CUDA_ERROR_LAUNCH_TIMEOUT",
                "CUDA_ERROR_ASSERT",
                "CUDA_ERROR_HARDWARE_STACK_ERROR",
                "CUDA_ERROR_ILLEGAL_INSTRUCTION",
                "CUDA_ERROR_MISALIGNED_ADDRESS",
                "CUDA_ERROR_INVALID_ADDRESS_SPACE",
                "CUDA_ERROR_INVALID_PC",
                "CUDA_ERROR_LAUNCH_FAILED",
                "CUDA_ERROR_TENSOR_MEMORY_LEAK",
            ]
        );
    }
}
