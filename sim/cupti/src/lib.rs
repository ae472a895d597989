//! `libcupti.so` of the simulated device: activity records and driver callbacks in CUPTI's own layouts.
//!
//! It reaches the engine only through the table that the simulated `libcuda.so.1`
//! exports, and never keeps a copy of the engine's state. Subscriptions, buffers
//! and their delivery live here; what happened on the device is the driver's word.

#![allow(non_snake_case)] // The exported names are CUPTI's.

mod alone;
mod attribute;
mod buffers;
mod delivery;
mod driver;
mod identity;
mod lock;
mod pointer;
mod record;
mod result;
mod state;
mod subscriber;
mod tracing;
