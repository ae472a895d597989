//! Waits, and calls of which only the name is recorded.

use gputrace_wire::call::Detail;
use gputrace_wire::cell::{flag, kind};

use crate::hook::description::{Context, Description, On};
use crate::symbols::driver::Handle;

/// The host waited.
pub fn waited(_: &Context, what: u8, handle: u64) -> Description {
    Description { kind: kind::WAIT, flags: 0, stream: On::Nothing, detail: Detail::Wait { what, handle } }
}

/// A stream waits; the host does not.
pub fn stream_waits(_: &Context, what: u8, stream: Handle, handle: u64) -> Description {
    Description {
        kind: kind::WAIT,
        flags: flag::ASYNC,
        stream: On::Stream(stream),
        detail: Detail::Wait { what, handle },
    }
}

/// Any other operation that is put on a stream.
pub fn on_stream(_: &Context, operation: u8, stream: Handle, value: u64) -> Description {
    Description {
        kind: kind::CALL,
        flags: flag::ASYNC,
        stream: On::Stream(stream),
        detail: Detail::Other { operation, value },
    }
}

pub fn other(_: &Context, operation: u8, value: u64) -> Description {
    Description {
        kind: kind::CALL,
        flags: 0,
        stream: On::Nothing,
        detail: Detail::Other { operation, value },
    }
}
