//! Names that the program gives to its threads, streams, contexts and devices.

use core::ffi::{c_int, c_void};

use gputrace_callstack::ranges;
use gputrace_producer::session::{self, Session};
use gputrace_producer::thread::{self, Slot};

use super::text::{self, Resource};
use super::{Ascii, Installed, Wide, table};
use crate::symbols::driver::{Device, Handle};
use crate::table::tables::{self, Tables};

/// Indexed by NVTX's function numbers.
pub const CUDA: &[(usize, Installed)] = table! {
    1 name_device_a 2 name_device_w 3 name_context_a 4 name_context_w 5 name_stream_a 6 name_stream_w
};

pub const CUDART: &[(usize, Installed)] = table! {
    1 name_device_a 2 name_device_w 3 name_stream_a 4 name_stream_w
};

/// Types of resources: class in the upper half, number in the lower.
mod resource {
    pub const THREAD_NATIVE: u32 = 1 << 16 | 3;
    pub const CUDA_DEVICE: u32 = 4 << 16 | 1;
    pub const CUDA_CONTEXT: u32 = 4 << 16 | 2;
    pub const CUDA_STREAM: u32 = 4 << 16 | 3;
    pub const CUDART_DEVICE: u32 = 5 << 16;
    pub const CUDART_STREAM: u32 = 5 << 16 | 1;
}

/// Writes, at a session's start, the thread names given before it.
pub fn define_thread_names(session: &Session) {
    ranges::say_threads(session);
}

/// Gives a name to the object that `find` returns, if there is a session. May make system calls and ask the
/// driver: programs do not name objects in a loop.
fn name(text: &[u8], find: impl FnOnce(&'static Session, &'static Tables, &Slot) -> u32) {
    let Some(session) = session::current() else { return };
    let Some(tables) = tables::of(session) else { return };
    thread::with(|slot| {
        if let Some(_inside) = slot.enter() {
            ranges::name_thing(session, find(session, tables, slot), text);
        }
    });
}

fn name_thread(tid: u32, text: &[u8]) {
    if ranges::prepare() {
        ranges::name_thread(tid, text);
    }
}

fn name_device(device: Device, text: &[u8]) {
    name(text, |_, tables, _| tables.known_device(device));
}

fn name_context(context: Handle, text: &[u8]) {
    name(text, |_, tables, _| tables.known_context(context));
}

fn name_stream(stream: Handle, text: &[u8]) {
    name(text, |session, tables, slot| tables.stream(session, slot, stream, false));
}

/// Pairs of functions that differ only in the form of the text.
macro_rules! namings {
    ($($ascii:ident $wide:ident ($thing:ident: $type:ty) => $name:ident;)*) => {
        $(
        /// # Safety
        /// The same as for NVTX's function of that name.
        pub unsafe extern "C" fn $ascii($thing: $type, text: Ascii) {
            // SAFETY: null or a C string, as NVTX asks for it.
            $name($thing, unsafe { text::ascii(text) });
        }

        /// # Safety
        /// The same as for NVTX's function of that name.
        pub unsafe extern "C" fn $wide($thing: $type, text: Wide) {
            // SAFETY: null or a wide string, as NVTX asks for it.
            unsafe { text::wide(text, |text| $name($thing, text)) };
        }
        )*
    };
}

namings! {
    name_os_thread_a name_os_thread_w (tid: u32) => name_thread;
    name_device_a name_device_w (device: c_int) => name_device;
    name_context_a name_context_w (context: Handle) => name_context;
    name_stream_a name_stream_w (stream: Handle) => name_stream;
}

/// Names a resource, which may have no other use. The returned value is not an address.
///
/// # Safety
/// The same as for NVTX's function of that name.
pub unsafe extern "C" fn resource_create(_domain: *const c_void, resource: *const Resource) -> *const c_void {
    let act = |said: &Resource, name: &[u8]| {
        let handle = core::ptr::without_provenance_mut(said.identifier as usize);
        match said.identifier_type {
            resource::THREAD_NATIVE => name_thread(said.identifier as u32, name),
            resource::CUDA_DEVICE | resource::CUDART_DEVICE => name_device(said.identifier as c_int, name),
            resource::CUDA_CONTEXT => name_context(handle, name),
            resource::CUDA_STREAM | resource::CUDART_STREAM => name_stream(handle, name),
            _ => {}
        }
    };
    // SAFETY: null or NVTX's attributes.
    unsafe { text::resource(resource, act) };
    core::ptr::without_provenance(1)
}

/// # Safety
/// The same as for NVTX's function of that name.
pub unsafe extern "C" fn resource_destroy(_resource: *const c_void) {}
