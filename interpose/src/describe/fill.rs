//! Fills of device memory.

use gputrace_wire::call::Detail;
use gputrace_wire::cell::{flag, kind};

use crate::hook::description::{Context, Description, On};
use crate::symbols::driver::Handle;

/// `height` rows of `width` elements of `element` bytes. `stream` is `None` for entries that wait.
#[inline]
pub fn bytes(
    _: &Context,
    value: u32,
    element: u64,
    width: usize,
    height: usize,
    stream: Option<Handle>,
) -> Description {
    let bytes = (width as u64).saturating_mul(height as u64).saturating_mul(element);
    Description {
        kind: kind::FILL,
        flags: if stream.is_some() { flag::ASYNC } else { 0 },
        stream: On::Stream(stream.unwrap_or(core::ptr::null_mut())),
        detail: Detail::Fill { bytes, value },
    }
}
