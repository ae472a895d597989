//! A session's life: its start, its end at every form of exit, an exec. Forks are `gputrace_producer`'s.
//!
//! | file | noun |
//! |---|---|
//! | `start` | starts a session after the first successful `cuInit` |
//! | `checks` | what prevents a session |
//! | `collector` | the session's collector, or a new one |
//! | `definitions` | what is defined of the process at the start |
//! | `finish` | ends a session |
//! | `before_exit` | our `_exit` and exec, which end it or announce the exec first |
//! | `patience` | how long the end waits |
//! | `run_settings` | settings that change while the session runs |
//! | `device_times` | what `cupti` does at these moments |

pub mod before_exit;
mod checks;
mod collector;
mod definitions;
pub mod device_times;
mod finish;
mod patience;
mod run_settings;
pub mod start;
