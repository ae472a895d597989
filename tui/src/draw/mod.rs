//! Draws a scene as the view wants it. Every size of terminal has a frame; what does not fit is left out
//! from the bottom, and the footer stays.

mod bar;
mod columns;
mod device;
mod devices;
mod frame;
mod help;
mod history;
mod memory;
mod processes;
mod session;

pub use frame::draw;
