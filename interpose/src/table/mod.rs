//! What a session knows of the program's handles, and the CUDA part of a thread's slot.
//!
//! | file | noun |
//! |---|---|
//! | `tables` | a session's handles and their definitions |
//! | `functions` | its part about functions and modules |
//! | `streams` | its part about contexts, devices and streams |
//! | `launched` | its part about launches of a kernel on a stream |
//! | `pairs` | the pairs of a kernel and a stream that were launched, and launches that are only counted |
//! | `cuda_slot` | the CUDA-specific fields of a thread's slot |
//! | `kept_launch` | what a launch keeps there from one function of its steps to the next |
//! | `device` | device properties, asked of the driver |

pub mod cuda_slot;
pub mod device;
mod functions;
pub mod kept_launch;
pub mod launched;
pub mod pairs;
pub mod streams;
pub mod tables;
