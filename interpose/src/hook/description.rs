//! What a call did, and what its description may use.

use gputrace_producer::session::Session;
use gputrace_wire::call::Detail;

use crate::symbols::driver::{Handle, SUCCESS, Status};
use crate::table::tables::Tables;

/// What a description may use: the session, its tables, and how the call ended.
#[derive(Clone, Copy)]
pub struct Context {
    pub session: &'static Session,
    pub tables: &'static Tables,
    pub status: Status,
    /// The definition of the function that the call launches, if it is known already.
    pub launched: Option<u32>,
}

impl Context {
    pub fn succeeded(&self) -> bool {
        self.status == SUCCESS
    }

    /// The definition of the function that the call launches.
    #[inline(always)]
    pub fn function(&self, handle: Handle) -> u32 {
        self.launched.unwrap_or_else(|| self.tables.function(self.session, handle))
    }
}

/// What a call did. Made by `describe`.
#[derive(Clone, Copy)]
pub struct Description {
    pub kind: u16,
    pub flags: u8,
    pub stream: On,
    pub detail: Detail,
}

/// The stream a call works on.
#[derive(Clone, Copy)]
pub enum On {
    /// The call uses no stream.
    Nothing,
    /// The call works on this stream. If the stream is capturing, the work is captured, not executed.
    Stream(Handle),
}
