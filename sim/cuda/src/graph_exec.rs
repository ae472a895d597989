//! Executable graphs.

use crate::abi::{In, Out};
use crate::entry::{Call, api};
use crate::graph_node::*;
use crate::volume::Volume;
use gputrace_sim::error::{Code, Result};
use gputrace_sim::graph::NodeWork;
use gputrace_sim::work::Work;
use gputrace_sim::world::with;

/// `CUDA_GRAPH_INSTANTIATE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct InstantiateParameters {
    flags: u64,
    upload_stream: u64,
    error_node: u64,
    result: u32,
}

/// `CUgraphExecUpdateResultInfo`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UpdateResult {
    result: u32,
    error_node: u64,
    error_from_node: u64,
}

/// Flags that instantiation knows.
const KNOWN_FLAGS: u64 = 15;

fn instantiate(out: Out<u64>, graph: u64, flags: u64) -> Result {
    out.required()?;
    if flags & !KNOWN_FLAGS != 0 {
        return Err(Code::INVALID_VALUE);
    }
    out.set(with(|w| w.instantiate(graph, flags))?)
}

fn update(executable: u64, graph: u64) -> Result<(u32, u64)> {
    Ok(match with(|w| w.update_executable(executable, graph))? {
        Ok(()) => (0, 0),
        Err((refusal, node)) => (refusal as u32, node),
    })
}

fn set(executable: u64, node: u64, work: NodeWork) -> Result {
    with(|w| w.set_step(executable, node, work))
}

api! {
    "cuGraphInstantiate" 10000 fn cuGraphInstantiate(phGraphExec: Out<u64>, hGraph: u64, _phErrorNode: u64, _logBuffer: u64, _bufferSize: u64) |_| {
        instantiate(phGraphExec, hGraph, 0)
    }
    "cuGraphInstantiate" 11000 fn cuGraphInstantiate_v2(phGraphExec: Out<u64>, hGraph: u64, _phErrorNode: u64, _logBuffer: u64, _bufferSize: u64) |_| {
        instantiate(phGraphExec, hGraph, 0)
    }
    "cuGraphInstantiateWithFlags" 11040 fn cuGraphInstantiateWithFlags(phGraphExec: Out<u64>, hGraph: u64, flags: u64) |_| {
        instantiate(phGraphExec, hGraph, flags)
    }
    "cuGraphInstantiateWithParams" 12000 fn cuGraphInstantiateWithParams / 12000 cuGraphInstantiateWithParams_ptsz(phGraphExec: Out<u64>, hGraph: u64, instantiateParams: Out<InstantiateParameters>) |_| {
        let mut parameters = instantiateParams.get()?;
        let done = instantiate(phGraphExec, hGraph, parameters.flags);
        parameters.error_node = 0;
        parameters.result = u32::from(done.is_err());
        instantiateParams.set(parameters)?;
        done
    }
    "cuGraphExecDestroy" 10000 fn cuGraphExecDestroy(hGraphExec: u64) |_| {
        with(|w| w.destroy_executable(hGraphExec))
    }
    "cuGraphExecGetFlags" 12000 fn cuGraphExecGetFlags(hGraphExec: u64, flags: Out<u64>) |_| {
        flags.set(with(|w| w.executables.get(hGraphExec).map(|held| held.flags))?)
    }
    "cuGraphUpload" 11010 fn cuGraphUpload / 11010 cuGraphUpload_ptsz(hGraphExec: u64, hStream: u64) |c| {
        let given = c.stream(hStream);
        with(|w| {
            let stream = w.stream(given)?;
            w.executables.get(hGraphExec)?;
            w.submit(stream, Work::Mark).map(|_| ())
        })
    }
    "cuGraphLaunch" 10000 fn cuGraphLaunch / 10000 cuGraphLaunch_ptsz(hGraphExec: u64, hStream: u64) |c| {
        let given = c.stream(hStream);
        with(|w| {
            let stream = w.stream(given)?;
            w.launch_graph(hGraphExec, stream)
        })
    }
    "cuGraphExecUpdate" 10020 fn cuGraphExecUpdate(hGraphExec: u64, hGraph: u64, hErrorNode_out: Out<u64>, updateResult_out: Out<u32>) |_| {
        let (result, node) = update(hGraphExec, hGraph)?;
        hErrorNode_out.set_if_wanted(node);
        updateResult_out.set_if_wanted(result);
        if result == 0 { Ok(()) } else { Err(Code::GRAPH_EXEC_UPDATE_FAILURE) }
    }
    "cuGraphExecUpdate" 12000 fn cuGraphExecUpdate_v2(hGraphExec: u64, hGraph: u64, resultInfo: Out<UpdateResult>) |_| {
        let (result, error_node) = update(hGraphExec, hGraph)?;
        resultInfo.set_if_wanted(UpdateResult { result, error_node, error_from_node: 0 });
        if result == 0 { Ok(()) } else { Err(Code::GRAPH_EXEC_UPDATE_FAILURE) }
    }
    "cuGraphExecKernelNodeSetParams" 10010 fn cuGraphExecKernelNodeSetParams(hGraphExec: u64, hNode: u64, nodeParams: In<KernelParameters>) |_| {
        set(hGraphExec, hNode, kernel(nodeParams)?)
    }
    "cuGraphExecKernelNodeSetParams" 12000 fn cuGraphExecKernelNodeSetParams_v2(hGraphExec: u64, hNode: u64, nodeParams: In<KernelParametersV2>) |_| {
        set(hGraphExec, hNode, kernel_v2(nodeParams)?)
    }
    "cuGraphExecMemcpyNodeSetParams" 10020 fn cuGraphExecMemcpyNodeSetParams(hGraphExec: u64, hNode: u64, copyParams: In<Volume>, _ctx: u64) |_| {
        set(hGraphExec, hNode, copy(copyParams)?)
    }
    "cuGraphExecMemsetNodeSetParams" 10020 fn cuGraphExecMemsetNodeSetParams(hGraphExec: u64, hNode: u64, memsetParams: In<FillParameters>, _ctx: u64) |_| {
        set(hGraphExec, hNode, fill(memsetParams)?)
    }
    "cuGraphExecHostNodeSetParams" 10020 fn cuGraphExecHostNodeSetParams(hGraphExec: u64, hNode: u64, nodeParams: In<HostParameters>) |_| {
        set(hGraphExec, hNode, host(nodeParams)?)
    }
    "cuGraphExecEventRecordNodeSetEvent" 11010 fn cuGraphExecEventRecordNodeSetEvent(hGraphExec: u64, hNode: u64, event: u64) |_| {
        set(hGraphExec, hNode, NodeWork::RecordEvent(checked_event(event)?))
    }
    "cuGraphExecEventWaitNodeSetEvent" 11010 fn cuGraphExecEventWaitNodeSetEvent(hGraphExec: u64, hNode: u64, event: u64) |_| {
        set(hGraphExec, hNode, NodeWork::WaitEvent(checked_event(event)?))
    }
    "cuGraphExecNodeSetParams" 12020 fn cuGraphExecNodeSetParams(hGraphExec: u64, hNode: u64, nodeParams: Out<AnyParameters>) |_| {
        match any(nodeParams)? {
            Wanted::Work(work) => set(hGraphExec, hNode, work),
            Wanted::Child(_) | Wanted::Allocate(_) => Err(Code::NOT_SUPPORTED),
        }
    }
    "cuGraphNodeSetEnabled" 11060 fn cuGraphNodeSetEnabled(hGraphExec: u64, hNode: u64, isEnabled: u32) |_| {
        with(|w| {
            let step = w.step(hGraphExec, hNode)?;
            if step.work.kind() > 2 {
                return Err(Code::INVALID_VALUE);
            }
            step.enabled = isEnabled != 0;
            Ok(())
        })
    }
    "cuGraphNodeGetEnabled" 11060 fn cuGraphNodeGetEnabled(hGraphExec: u64, hNode: u64, isEnabled: Out<u32>) |_| {
        isEnabled.set(with(|w| Ok(u32::from(w.step(hGraphExec, hNode)?.enabled)))?)
    }
}
