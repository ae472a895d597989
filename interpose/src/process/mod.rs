//! The lowest layer: what the library needs of the process that it is loaded into, CUDA or not.
//!
//! | file | noun |
//! |---|---|
//! | `settings` | the GPUTRACE_… variables this library reads |
//! | `environment`, `memory_functions` | own `getenv` and `memcpy`: programs may wrap the C library's |
//! | `preload_once` | removes from the environment what `run` preloaded for one exec |
//! | `detour` | the separate stack that the start and the end of a session run on |
//! | `loaded` | how many objects the loader has mapped and unmapped |
//! | `link` | what a lower layer calls in a higher one |
//! | `origin` | the trace, service and machine that the process was given |
//! | `rank` | which of a job's processes this is |

pub mod detour;
pub mod environment;
pub mod link;
pub mod loaded;
mod memory_functions;
pub mod origin;
pub mod preload_once;
pub mod rank;
pub mod settings;
