//! Modules, libraries and the functions in them.

use core::ffi::{CStr, c_char, c_void};

use gputrace_producer::session;
use gputrace_producer::stderr::KeepErrno;
use gputrace_wire::call::{Detail, operation};
use gputrace_wire::cell::kind;
use gputrace_wire::definition::TEXT_MAX;

use super::cubin::{Cubin, Image, InFile, InMemory, Scratch};
use super::{sync, written};
use crate::hook::description::{Context, Description, On};
use crate::process::detour::KeepCancel;
use crate::symbols::driver::{Handle, Status, text};
use crate::table::tables;

/// CUDA_ERROR_NO_BINARY_FOR_GPU: the function exists, but its code is for other devices.
const NO_BINARY_FOR_GPU: Status = 209;

fn description(operation: u8, module: u32) -> Description {
    Description {
        kind: kind::MODULE,
        flags: 0,
        stream: On::Nothing,
        detail: Detail::Module { module, operation },
    }
}

/// `form` is 0 for a module, 1 for a library.
pub fn loaded(cx: &Context, out: *const Handle, form: u64) -> Description {
    loaded_with(cx, out, form, || None::<InMemory>)
}

/// The same for an image in memory.
pub fn loaded_image(cx: &Context, out: *const Handle, form: u64, image: *const c_void) -> Description {
    // SAFETY: read only if the original succeeded.
    loaded_with(cx, out, form, || unsafe { InMemory::of_elf(image) })
}

/// The same for a file. Its name is recorded if it could not be loaded.
pub fn loaded_from(cx: &Context, out: *const Handle, form: u64, path: *const c_char) -> Description {
    if !was_read(cx.status) {
        // SAFETY: read only if the original succeeded: it has just opened the file of that name.
        let name = || (!path.is_null()).then(|| unsafe { CStr::from_ptr(path) });
        return loaded_with(cx, out, form, || name().and_then(InFile::open));
    }
    // SAFETY: with this error, the original has just read the name.
    let path = unsafe { text(path, TEXT_MAX) };
    description(operation::LOAD, cx.tables.file_not_loaded(cx.session, path, form))
}

/// Defines the module with the line table of its image.
fn loaded_with<I: Image>(
    cx: &Context,
    out: *const Handle,
    form: u64,
    image: impl FnOnce() -> Option<I>,
) -> Description {
    // SAFETY: the call's own out pointer.
    let Some(module) = (unsafe { written(cx, out) }) else { return description(operation::LOAD, 0) };
    let _errno = KeepErrno::new();
    // If the thread is to be cancelled, that happens where it would without us, not here.
    let _cancel = KeepCancel::new();
    let lines = image().map_or((0, 0), |image| lines_of_image(cx, &image));
    description(operation::LOAD, cx.tables.module_loaded(cx.session, module, form, lines))
}

/// The definition of an image's line table (0 if it is not kept), and its length.
fn lines_of_image(cx: &Context, image: &impl Image) -> (u32, u64) {
    let Some(cubin) = Cubin::of(image) else { return (0, 0) };
    let Some(mut scratch) = Scratch::new() else { return (0, 0) };
    match cubin.lines(&mut scratch) {
        Some(lines) => (cx.tables.module_lines(cx.session, lines.bytes), lines.length),
        None => (0, 0),
    }
}

/// Whether the error concerns the file's content or existence: the driver then read its name.
fn was_read(status: Status) -> bool {
    matches!(status, 200 | 209 | 218 | 220..=223 | 300..=303)
}

/// Called before the original: once that returns, the handles may be reused.
pub fn forget(module: Handle) {
    if let Some(session) = session::current()
        && let Some(tables) = tables::of(session)
    {
        tables.forget_module(module);
    }
}

pub fn unloaded(_: &Context, _module: Handle) -> Description {
    description(operation::UNLOAD, 0)
}

pub fn function(
    cx: &Context,
    out: *const Handle,
    module: Handle,
    name: *const c_char,
    is_kernel: bool,
) -> Description {
    if cx.status == NO_BINARY_FOR_GPU && !name.is_null() {
        // SAFETY: the caller gave it to the driver as a C string, and the driver looked for it.
        let name = unsafe { text(name, TEXT_MAX) };
        return sync::other(cx, operation::LOOK_UP_FAILED, cx.tables.name(cx.session, name).into());
    }
    // SAFETY: the call's own out pointer.
    let function = unsafe { written(cx, out) };
    if let Some(function) = function {
        // SAFETY: the call succeeded, so the original has just read the name.
        let name = unsafe { text(name, TEXT_MAX) };
        cx.tables.function_found(cx.session, function, module, name, is_kernel);
    }
    sync::other(cx, operation::LOOK_UP, function.map_or(0, |function| function as u64))
}

/// A library's module for the current context: the functions belong to the library.
pub fn of_library(cx: &Context, out: *const Handle, library: Handle) -> Description {
    // SAFETY: the call's own out pointer.
    if let Some(module) = unsafe { written(cx, out) } {
        cx.tables.module_of_library(cx.session, module, library);
    }
    sync::other(cx, operation::LOOK_UP, library as u64)
}

pub fn function_of_kernel(cx: &Context, out: *const Handle, kernel: Handle) -> Description {
    // SAFETY: the call's own out pointer.
    if let Some(function) = unsafe { written(cx, out) } {
        cx.tables.function_of_kernel(function, kernel);
    }
    sync::other(cx, operation::LOOK_UP, kernel as u64)
}
