//! What a call did, and what its description may use.

use core::ffi::c_uint;

use gputrace_producer::session::Session;
use gputrace_wire::call::{Detail, Launch};
use gputrace_wire::cell::{flag, kind};

use crate::symbols::driver::{Handle, SUCCESS, Status};
use crate::table::tables::Tables;

/// What a description may use: the session, its tables, and how the call ended.
#[derive(Clone, Copy)]
pub struct Context {
    pub session: &'static Session,
    pub tables: &'static Tables,
    pub status: Status,
}

impl Context {
    pub fn succeeded(&self) -> bool {
        self.status == SUCCESS
    }

    /// The definition of the function that the call launches.
    #[inline(always)]
    pub fn function(&self, handle: Handle) -> u32 {
        self.tables.function(self.session, handle)
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

impl Description {
    pub fn of_launch(context: &Context, function: Handle, sizes: Sizes, stream: Handle) -> Description {
        Description {
            kind: kind::LAUNCH,
            flags: flag::ASYNC,
            stream: On::Stream(stream),
            detail: Detail::Launch(sizes.launch(context.function(function))),
        }
    }
}

/// Grid, block, cluster and dynamic shared bytes of a launch, as the driver got them; the cluster's sides are
/// cut to 255. All are 0 if the launch has no configuration.
#[derive(Clone, Copy, Default)]
pub struct Sizes {
    pub grid: [c_uint; 3],
    pub block: [c_uint; 3],
    pub cluster: [u8; 3],
    pub shared: c_uint,
}

impl Sizes {
    /// The launch of that function. Sizes that an entry has no room for are cut.
    pub fn launch(self, function: u32) -> Launch {
        let ([x, y, z], [block_x, block_y, block_z]) = (self.grid, self.block);
        let grid = [x, y.min(0xffff), z.min(0xffff)];
        let block = [block_x.min(0xffff), block_y.min(0xffff), block_z.min(0xff)];
        Sizes { grid, block, ..self }.taken_launch(function)
    }

    /// The same of a launch that a device has taken. It takes none that an entry has no room for: a grid has
    /// at most 65,535 blocks in y and z, and a block at most 1,024 threads, 64 of them in z.
    #[inline(always)]
    pub fn taken_launch(self, function: u32) -> Launch {
        let ([x, y, z], block) = (self.grid, self.block);
        Launch {
            function,
            grid: [x, y & 0xffff, z & 0xffff],
            block: [block[0] as u16, block[1] as u16, block[2] as u8 as u16],
            cluster: self.cluster,
            dynamic_shared_bytes: self.shared,
        }
    }
}

/// The stream a call works on.
#[derive(Clone, Copy)]
pub enum On {
    /// The call uses no stream.
    Nothing,
    /// The call works on this stream. If the stream is capturing, the work is captured, not executed.
    Stream(Handle),
}
