//! Memory set to a value.

use crate::entry::{Call, api};
use gputrace_sim::error::Result;
use gputrace_sim::fill::Pattern;
use gputrace_sim::timeline::wait;
use gputrace_sim::work::Work;
use gputrace_sim::world::with;

struct Rows {
    target: u64,
    pitch: u64,
    width: u64,
    height: u64,
}

fn one(target: u64, width: u64) -> Rows {
    Rows { target, pitch: 0, width, height: 1 }
}

fn fill(call: &Call, rows: Rows, value: u32, element_bytes: u32, stream: Option<u64>) -> Result {
    let given = stream.map_or(call.default_stream(), |stream| call.stream(stream));
    let Rows { target, pitch, width, height } = rows;
    let pattern = Pattern { target, pitch, value, element_bytes, width, height };
    let moment = with(|w| {
        let to = w.stream(given)?;
        let fill = w.plan_fill(pattern, stream.is_some())?;
        w.submit(to, Work::Fill(fill))
    })?;
    match moment {
        Some(moment) if stream.is_none() => wait(|_| Ok(moment.known())),
        _ => Ok(()),
    }
}

api! {
    "cuMemsetD8" 3020 fn cuMemsetD8_v2 / 7000 cuMemsetD8_v2_ptds(dstDevice: u64, uc: u8, N: u64) |c| {
        fill(c, one(dstDevice, N), uc.into(), 1, None)
    }
    "cuMemsetD16" 3020 fn cuMemsetD16_v2 / 7000 cuMemsetD16_v2_ptds(dstDevice: u64, us: u16, N: u64) |c| {
        fill(c, one(dstDevice, N), us.into(), 2, None)
    }
    "cuMemsetD32" 3020 fn cuMemsetD32_v2 / 7000 cuMemsetD32_v2_ptds(dstDevice: u64, ui: u32, N: u64) |c| {
        fill(c, one(dstDevice, N), ui, 4, None)
    }
    "cuMemsetD2D8" 3020 fn cuMemsetD2D8_v2 / 7000 cuMemsetD2D8_v2_ptds(dstDevice: u64, dstPitch: u64, uc: u8, Width: u64, Height: u64) |c| {
        fill(c, Rows { target: dstDevice, pitch: dstPitch, width: Width, height: Height }, uc.into(), 1, None)
    }
    "cuMemsetD2D16" 3020 fn cuMemsetD2D16_v2 / 7000 cuMemsetD2D16_v2_ptds(dstDevice: u64, dstPitch: u64, us: u16, Width: u64, Height: u64) |c| {
        fill(c, Rows { target: dstDevice, pitch: dstPitch, width: Width, height: Height }, us.into(), 2, None)
    }
    "cuMemsetD2D32" 3020 fn cuMemsetD2D32_v2 / 7000 cuMemsetD2D32_v2_ptds(dstDevice: u64, dstPitch: u64, ui: u32, Width: u64, Height: u64) |c| {
        fill(c, Rows { target: dstDevice, pitch: dstPitch, width: Width, height: Height }, ui, 4, None)
    }
    "cuMemsetD8Async" 3020 fn cuMemsetD8Async / 7000 cuMemsetD8Async_ptsz(dstDevice: u64, uc: u8, N: u64, hStream: u64) |c| {
        fill(c, one(dstDevice, N), uc.into(), 1, Some(hStream))
    }
    "cuMemsetD16Async" 3020 fn cuMemsetD16Async / 7000 cuMemsetD16Async_ptsz(dstDevice: u64, us: u16, N: u64, hStream: u64) |c| {
        fill(c, one(dstDevice, N), us.into(), 2, Some(hStream))
    }
    "cuMemsetD32Async" 3020 fn cuMemsetD32Async / 7000 cuMemsetD32Async_ptsz(dstDevice: u64, ui: u32, N: u64, hStream: u64) |c| {
        fill(c, one(dstDevice, N), ui, 4, Some(hStream))
    }
    "cuMemsetD2D8Async" 3020 fn cuMemsetD2D8Async / 7000 cuMemsetD2D8Async_ptsz(dstDevice: u64, dstPitch: u64, uc: u8, Width: u64, Height: u64, hStream: u64) |c| {
        fill(c, Rows { target: dstDevice, pitch: dstPitch, width: Width, height: Height }, uc.into(), 1, Some(hStream))
    }
    "cuMemsetD2D16Async" 3020 fn cuMemsetD2D16Async / 7000 cuMemsetD2D16Async_ptsz(dstDevice: u64, dstPitch: u64, us: u16, Width: u64, Height: u64, hStream: u64) |c| {
        fill(c, Rows { target: dstDevice, pitch: dstPitch, width: Width, height: Height }, us.into(), 2, Some(hStream))
    }
    "cuMemsetD2D32Async" 3020 fn cuMemsetD2D32Async / 7000 cuMemsetD2D32Async_ptsz(dstDevice: u64, dstPitch: u64, ui: u32, Width: u64, Height: u64, hStream: u64) |c| {
        fill(c, Rows { target: dstDevice, pitch: dstPitch, width: Width, height: Height }, ui, 4, Some(hStream))
    }
}
