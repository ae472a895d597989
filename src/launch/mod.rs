//! Starting a program under the tracer: the files it needs, its environment, its signals, its end.

pub mod child;
pub mod control;
pub mod descendants;
pub mod descriptors;
pub mod ending;
pub mod environment;
pub mod extract;
pub mod inherited;
pub mod live_settings;
pub mod private_folder;
pub mod pty;
pub mod refusal;
pub mod sanitizer_runtime;
pub mod schedule;
pub mod signals;
pub mod traceable;
pub mod untraced;
