//! The backends that this build has.

use crate::source::Backend;

/// In the order of their devices.
pub const BACKENDS: &[Backend] = &[
    #[cfg(feature = "nvml")]
    crate::nvml::BACKEND,
    #[cfg(feature = "rocm")]
    crate::sysfs::AMD,
    #[cfg(feature = "intel")]
    crate::sysfs::INTEL,
];
