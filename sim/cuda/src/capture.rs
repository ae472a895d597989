//! Stream capture.

use crate::abi::{In, Out};
use crate::entry::{Call, api};
use gputrace_sim::capture::{CaptureInfo, Mode, exchange_thread_mode};
use gputrace_sim::error::{Code, Result};
use gputrace_sim::world::with;
use std::cell::RefCell;

thread_local! {
    /// What the last question on this thread was answered with: nodes, and empty edge data for each.
    static ANSWERED: RefCell<(Vec<u64>, Vec<u64>)> = const { RefCell::new((Vec::new(), Vec::new())) };
}

fn begin(call: &Call, stream: u64, mode: u32) -> Result {
    let (given, mode) = (call.stream(stream), Mode::from_number(mode)?);
    with(|w| {
        let stream = w.stream(given)?;
        w.begin_capture(stream, mode, None)
    })
}

fn info(call: &Call, stream: u64) -> Result<CaptureInfo> {
    let given = call.stream(stream);
    with(|w| {
        let stream = w.stream(given)?;
        w.capture_info(stream)
    })
}

struct Answer {
    status: Out<u32>,
    id: Out<u64>,
    graph: Out<u64>,
    nodes: Out<*const u64>,
    edges: Option<Out<*const u64>>,
    count: Out<u64>,
}

fn answer(info: CaptureInfo, wanted: Answer) -> Result {
    wanted.status.set(info.status)?;
    if info.status != 1 {
        return Ok(());
    }
    wanted.id.set_if_wanted(info.id);
    wanted.graph.set_if_wanted(info.graph);
    wanted.count.set_if_wanted(info.leaves.len() as u64);
    ANSWERED.with_borrow_mut(|(nodes, edges)| {
        *edges = vec![0; info.leaves.len()];
        *nodes = info.leaves;
        wanted.nodes.set_if_wanted(nodes.as_ptr());
        if let Some(wanted) = wanted.edges {
            wanted.set_if_wanted(edges.as_ptr());
        }
    });
    Ok(())
}

fn update(call: &Call, stream: u64, nodes: In<u64>, count: u64, flags: u32) -> Result {
    if flags > 1 {
        return Err(Code::INVALID_VALUE);
    }
    let (given, nodes) = (call.stream(stream), nodes.list(count as usize)?);
    with(|w| {
        let stream = w.stream(given)?;
        w.update_capture(stream, &nodes, flags == 1)
    })
}

api! {
    "cuStreamBeginCapture" 10000 fn cuStreamBeginCapture / 10000 cuStreamBeginCapture_ptsz(hStream: u64) |c| {
        begin(c, hStream, 0)
    }
    "cuStreamBeginCapture" 10010 fn cuStreamBeginCapture_v2 / 10010 cuStreamBeginCapture_v2_ptsz(hStream: u64, mode: u32) |c| {
        begin(c, hStream, mode)
    }
    "cuStreamBeginCaptureToGraph" 12030 fn cuStreamBeginCaptureToGraph / 12030 cuStreamBeginCaptureToGraph_ptsz(
        hStream: u64, hGraph: u64, dependencies: In<u64>, _dependencyData: u64, numDependencies: u64, mode: u32,
    ) |c| {
        let (given, mode) = (c.stream(hStream), Mode::from_number(mode)?);
        let leaves = dependencies.list(numDependencies as usize)?;
        with(|w| {
            let stream = w.stream(given)?;
            w.begin_capture(stream, mode, Some((hGraph, leaves)))
        })
    }
    "cuStreamEndCapture" 10000 fn cuStreamEndCapture / 10000 cuStreamEndCapture_ptsz(hStream: u64, phGraph: Out<u64>) |c| {
        phGraph.required()?;
        let given = c.stream(hStream);
        let ended = with(|w| {
            let stream = w.stream(given)?;
            w.end_capture(stream)
        });
        phGraph.set(ended.unwrap_or(0))?;
        ended.map(|_| ())
    }
    "cuStreamIsCapturing" 10000 fn cuStreamIsCapturing / 10000 cuStreamIsCapturing_ptsz(hStream: u64, captureStatus: Out<u32>) |c| {
        captureStatus.set(info(c, hStream)?.status)
    }
    "cuStreamGetCaptureInfo" 10010 fn cuStreamGetCaptureInfo / 10010 cuStreamGetCaptureInfo_ptsz(
        hStream: u64, captureStatus_out: Out<u32>, id_out: Out<u64>,
    ) |c| {
        let info = info(c, hStream)?;
        captureStatus_out.set(info.status)?;
        if info.status == 1 {
            id_out.set_if_wanted(info.id);
        }
        Ok(())
    }
    "cuStreamGetCaptureInfo" 11030 fn cuStreamGetCaptureInfo_v2 / 11030 cuStreamGetCaptureInfo_v2_ptsz(
        hStream: u64, captureStatus_out: Out<u32>, id_out: Out<u64>, graph_out: Out<u64>,
        dependencies_out: Out<*const u64>, numDependencies_out: Out<u64>,
    ) |c| {
        let wanted = Answer {
            status: captureStatus_out, id: id_out, graph: graph_out, nodes: dependencies_out, edges: None,
            count: numDependencies_out,
        };
        answer(info(c, hStream)?, wanted)
    }
    "cuStreamGetCaptureInfo" 12030 fn cuStreamGetCaptureInfo_v3 / 12030 cuStreamGetCaptureInfo_v3_ptsz(
        hStream: u64, captureStatus_out: Out<u32>, id_out: Out<u64>, graph_out: Out<u64>,
        dependencies_out: Out<*const u64>, edgeData_out: Out<*const u64>, numDependencies_out: Out<u64>,
    ) |c| {
        let wanted = Answer {
            status: captureStatus_out, id: id_out, graph: graph_out, nodes: dependencies_out,
            edges: Some(edgeData_out), count: numDependencies_out,
        };
        answer(info(c, hStream)?, wanted)
    }
    "cuStreamUpdateCaptureDependencies" 11030 fn cuStreamUpdateCaptureDependencies / 11030 cuStreamUpdateCaptureDependencies_ptsz(
        hStream: u64, dependencies: In<u64>, numDependencies: u64, flags: u32,
    ) |c| {
        update(c, hStream, dependencies, numDependencies, flags)
    }
    "cuStreamUpdateCaptureDependencies" 12030 fn cuStreamUpdateCaptureDependencies_v2 / 12030 cuStreamUpdateCaptureDependencies_v2_ptsz(
        hStream: u64, dependencies: In<u64>, _dependencyData: u64, numDependencies: u64, flags: u32,
    ) |c| {
        update(c, hStream, dependencies, numDependencies, flags)
    }
    "cuThreadExchangeStreamCaptureMode" 10010 fn cuThreadExchangeStreamCaptureMode(mode: Out<u32>) |_| {
        let wanted = Mode::from_number(mode.get()?)?;
        mode.set(exchange_thread_mode(wanted) as u32)
    }
}
