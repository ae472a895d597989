//! Hooks: what happens around a call of the driver, whichever it is.
//!
//! | file | noun |
//! |---|---|
//! | `steps` | the steps every hook takes, and what it records |
//! | `description` | what a call did, as `describe` fills it in |
//! | `captures` | whether a call's work is executed or becomes a graph's |
//! | `nodes` | the graph nodes that a call made |

pub mod captures;
pub mod description;
pub mod nodes;
pub mod steps;
