//! The dashboard of `gputrace top`: what is on the screen, what keys do, and how it is drawn.
//!
//! A [`Scene`] is what is known at one moment: devices, their samples, processes, traced sessions. A
//! [`View`] is what the user chose: device, table, order, filter, pause. [`draw`] makes a frame of both
//! and keeps nothing. [`Terminal`] owns the terminal's state and restores it, also when a signal ends the
//! program. Nothing here reads devices or sessions: the caller fills the scene.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod draw;
mod keys;
mod palette;
mod plain;
mod scene;
mod terminal;
mod text;
mod view;

pub use draw::draw;
pub use keys::{Action, key};
pub use palette::{Glyphs, Palette};
pub use plain::plain;
pub use scene::{DeviceView, MemoryRow, ProcessRow, Scene, SessionView, TableRow, Tables};
pub use terminal::{Terminal, TerminalError, restore};
pub use view::{Pending, ProcessOrder, Tab, View};

#[cfg(test)]
mod tests;
