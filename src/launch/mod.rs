//! Starting a program under the tracer: the files it needs, its environment, its signals, its end.

mod arrivals;
pub mod child;
pub mod control;
pub mod descendants;
pub mod descriptors;
pub mod ending;
pub mod environment;
pub mod extract;
mod group_signals;
mod heard;
pub mod inherited;
pub mod private_folder;
pub mod refusal;
pub mod sanitizer_runtime;
pub mod signals;
mod to_each;
pub mod traceable;
pub mod untraced;
pub mod witness;
