//! What a session knows of the program's handles, and the CUDA part of a thread's slot.
//!
//! | file | noun |
//! |---|---|
//! | `tables` | a session's handles and their definitions |
//! | `launch_counts` | how often each kernel was launched on each stream, where no more is recorded |
//! | `cuda_slot` | the CUDA-specific fields of a thread's slot |
//! | `device` | device properties, asked of the driver |

pub mod cuda_slot;
pub mod device;
pub mod launch_counts;
pub mod tables;
