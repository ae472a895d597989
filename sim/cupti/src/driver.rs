//! The way to the simulated driver that is mapped in this process.

use crate::result::{Failure, NOT_COMPATIBLE, NOT_INITIALIZED};
use gputrace_sim::interface::{Interface, SYMBOL, VERSION};
use std::sync::OnceLock;

fn look_up() -> Result<&'static Interface, Failure> {
    // SAFETY: the name is a C string; with RTLD_NOLOAD nothing is loaded. The reference that is gained is
    // kept for ever, so the table stays mapped.
    let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
    if library.is_null() {
        return Err(NOT_INITIALIZED);
    }
    // SAFETY: the handle is open and the name is a C string.
    let symbol = unsafe { libc::dlsym(library, SYMBOL.as_ptr()) };
    if symbol.is_null() {
        return Err(NOT_COMPATIBLE);
    }
    // SAFETY: only the simulated driver has a symbol of this name, and it is a function of this type.
    let get: extern "C" fn() -> *const Interface = unsafe { std::mem::transmute(symbol) };
    // SAFETY: the function returns the address of a constant table.
    let interface = unsafe { &*get() };
    if interface.version == VERSION { Ok(interface) } else { Err(NOT_COMPATIBLE) }
}

/// The driver's table, if the simulated driver is mapped. A failure is not remembered.
pub fn driver() -> Result<&'static Interface, Failure> {
    static DRIVER: OnceLock<&'static Interface> = OnceLock::new();
    if let Some(known) = DRIVER.get() {
        return Ok(known);
    }
    let found = look_up()?;
    Ok(DRIVER.get_or_init(|| found))
}
