//! User objects.

use crate::abi::Out;
use crate::entry::{Call, api};
use gputrace_sim::error::{Code, Result};
use gputrace_sim::user_object::UserObject;
use gputrace_sim::work::HostCall;
use gputrace_sim::world::with;
use std::ffi::c_void;

type Destructor = Option<extern "C" fn(*mut c_void)>;

/// `CU_GRAPH_USER_OBJECT_MOVE`.
const MOVE: u32 = 1;

api! {
    "cuUserObjectCreate" 11030 fn cuUserObjectCreate(object_out: Out<u64>, ptr: *mut c_void, destroy: Destructor, initialRefcount: u32, _flags: u32) |_| {
        object_out.required()?;
        let function = destroy.filter(|_| initialRefcount > 0).ok_or(Code::INVALID_VALUE)?;
        let destructor = HostCall { function, argument: ptr };
        object_out.set(with(|w| w.objects.insert(UserObject { destructor, references: initialRefcount.into() }))?)
    }
    "cuUserObjectRetain" 11030 fn cuUserObjectRetain(object: u64, count: u32) |_| {
        with(|w| w.retain_object(object, count))
    }
    "cuUserObjectRelease" 11030 fn cuUserObjectRelease(object: u64, count: u32) |_| {
        with(|w| w.release_object(object, count))
    }
    "cuGraphRetainUserObject" 11030 fn cuGraphRetainUserObject(graph: u64, object: u64, count: u32, flags: u32) |_| {
        if flags & !MOVE != 0 {
            return Err(Code::INVALID_VALUE);
        }
        with(|w| w.retain_object_in_graph(graph, object, count, flags == MOVE))
    }
    "cuGraphReleaseUserObject" 11030 fn cuGraphReleaseUserObject(graph: u64, object: u64, count: u32) |_| {
        with(|w| w.release_object_in_graph(graph, object, count))
    }
}
