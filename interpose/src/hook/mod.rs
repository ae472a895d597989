//! Hooks: what happens around a call of the driver, whichever it is.
//!
//! | file | noun |
//! |---|---|
//! | `steps` | the steps of any call that has none of its own, and what is recorded of it |
//! | `around_launch` | a launch's hook in instructions; it calls one of `*_launch` or `launch` |
//! | `launch_frame` | what such a hook has on the stack |
//! | `plain_launch` | the steps of a launch that is recorded like those before it |
//! | `paused_launch` | those of a launch while the session is paused |
//! | `launch` | those of any other launch |
//! | `description` | what a call did, as `describe` fills it in |
//! | `capture` | capture ranges: the part of a process that alone is recorded |
//! | `captures` | captures of streams: whether a call's work is executed or becomes a graph's |
//! | `beginning` | whether a session begins paused, and what it reports of that |
//! | `nodes` | the graph nodes that a call made |
//! | `calibration` | what CUPTI's records cost launch calls |
//! | `pause` | what becomes of a call while the session is paused |
//! | `held_calls` | which calls are under way, and their wait while CUPTI is flushed |
//! | `under_way` | launches under way, counted until CUPTI calls back at them |
//! | `others_under_way` | the same for copies, fills and launches of graphs |
//! | `saving` | what becomes of a launch outside of windows, where a budget allows no more than a part |

pub mod around_launch;
pub mod beginning;
mod calibration;
pub mod capture;
pub mod captures;
pub mod description;
pub mod held_calls;
pub mod launch;
pub mod launch_frame;
pub mod nodes;
pub mod others_under_way;
mod pause;
pub mod paused_launch;
pub mod plain_launch;
pub mod saving;
pub mod steps;
pub mod under_way;
