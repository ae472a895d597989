//! Graphs: nodes and edges.

use crate::abi::{In, Out, Text};
use crate::entry::{Call, api};
use crate::graph_node::*;
use crate::volume::Volume;
use gputrace_sim::error::{Code, Result};
use gputrace_sim::graph::NodeWork;
use gputrace_sim::world::{World, with};
use std::fmt::Write;

type Nodes = In<u64>;

fn add(out: Out<u64>, graph: u64, dependencies: Nodes, count: u64, work: NodeWork) -> Result {
    out.required()?;
    let dependencies = dependencies.list(count as usize)?;
    out.set(with(|w| w.add_node(graph, &dependencies, work))?)
}

fn add_child(out: Out<u64>, graph: u64, dependencies: Nodes, count: u64, child: u64) -> Result {
    out.required()?;
    let dependencies = dependencies.list(count as usize)?;
    out.set(with(|w| {
        if child == graph {
            return Err(Code::INVALID_VALUE);
        }
        w.add_child(graph, &dependencies, child)
    })?)
}

fn add_allocation(
    out: Out<u64>,
    graph: u64,
    dependencies: Nodes,
    count: u64,
    wanted: &AllocateParameters,
) -> Result<u64> {
    out.required()?;
    let device = wanted.properties.device()?;
    let dependencies = dependencies.list(count as usize)?;
    let (node, address) = with(|w| w.add_allocation(graph, &dependencies, device, wanted.bytes))?;
    out.set(node)?;
    Ok(address)
}

fn add_any(
    out: Out<u64>,
    graph: u64,
    dependencies: Nodes,
    count: u64,
    parameters: Out<AnyParameters>,
) -> Result {
    match any(parameters)? {
        Wanted::Work(work) => add(out, graph, dependencies, count, work),
        Wanted::Child(child) => add_child(out, graph, dependencies, count, child),
        Wanted::Allocate(wanted) => {
            let address = add_allocation(out, graph, dependencies, count, &wanted)?;
            set_any_address(parameters, address)
        }
    }
}

/// Looks at what a node does.
fn look<R>(node: u64, f: impl FnOnce(&World, &NodeWork) -> Result<R>) -> Result<R> {
    with(|w| f(w, &w.nodes.get(node)?.work))
}

/// Replaces what a node does by something of the same kind.
fn replace(node: u64, work: NodeWork) -> Result {
    with(|w| {
        let held = w.nodes.get_mut(node)?;
        if held.work.kind() != work.kind() {
            return Err(Code::INVALID_VALUE);
        }
        held.work = work;
        Ok(())
    })
}

/// Returns a list. A null `nodes` asks for its length only; capacity beyond the length is filled with zeroes.
fn list(all: &[u64], nodes: Out<u64>, count: Out<u64>) -> Result {
    if nodes.is_null() {
        return count.set(all.len() as u64);
    }
    let capacity = count.get()? as usize;
    let mut answer = all.to_vec();
    answer.resize(capacity.max(all.len()).min(1 << 24), 0);
    nodes.set_list(&answer, capacity)?;
    count.set(all.len().min(capacity) as u64)
}

fn zero_edges(data: Out<u64>, nodes: Out<u64>, all: usize, count: Out<u64>) -> Result {
    if nodes.is_null() || data.is_null() {
        return Ok(());
    }
    data.set_list(&vec![0; all], count.get()? as usize)
}

fn dependencies(node: u64) -> Result<Vec<u64>> {
    with(|w| Ok(w.nodes.get(node)?.dependencies.clone()))
}

fn edges(graph: u64, from: Out<u64>, to: Out<u64>, data: Option<Out<u64>>, count: Out<u64>) -> Result {
    let all = with(|w| w.edges(graph))?;
    if from.is_null() != to.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    if let Some(data) = data {
        zero_edges(data, from, all.len(), count)?;
    }
    let (starts, ends): (Vec<u64>, Vec<u64>) = all.into_iter().unzip();
    let capacity = if from.is_null() { 0 } else { count.get()? };
    list(&starts, from, count)?;
    if !to.is_null() {
        count.set(capacity)?;
        list(&ends, to, count)?;
    }
    Ok(())
}

fn pairs(from: Nodes, to: Nodes, count: u64) -> Result<Vec<(u64, u64)>> {
    Ok(from.list(count as usize)?.into_iter().zip(to.list(count as usize)?).collect())
}

fn event_of(node: u64, out: Out<u64>, records: bool) -> Result {
    out.set(look(node, |_, work| match work {
        NodeWork::RecordEvent(event) if records => Ok(*event),
        NodeWork::WaitEvent(event) if !records => Ok(*event),
        _ => Err(Code::INVALID_VALUE),
    })?)
}

fn dot(graph: u64) -> Result<String> {
    with(|w| {
        let mut text = String::from("digraph {\n");
        for &node in &w.graphs.get(graph)?.nodes {
            let held = w.nodes.get(node)?;
            let _ =
                writeln!(text, "  n{} [label=\"{} kind {}\"];", held.number, held.number, held.work.kind());
            for dependency in &held.dependencies {
                let _ = writeln!(text, "  n{} -> n{};", w.nodes.get(*dependency)?.number, held.number);
            }
        }
        text.push_str("}\n");
        Ok(text)
    })
}

api! {
    "cuGraphCreate" 10000 fn cuGraphCreate(phGraph: Out<u64>, flags: u32) |_| {
        phGraph.required()?;
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        phGraph.set(with(|w| w.create_graph())?)
    }
    "cuGraphDestroy" 10000 fn cuGraphDestroy(hGraph: u64) |_| {
        with(|w| w.destroy_graph(hGraph))
    }
    "cuGraphClone" 10000 fn cuGraphClone(phGraphClone: Out<u64>, originalGraph: u64) |_| {
        phGraphClone.required()?;
        phGraphClone.set(with(|w| w.clone_graph(originalGraph))?)
    }
    "cuGraphDebugDotPrint" 11030 fn cuGraphDebugDotPrint(hGraph: u64, path: Text, _flags: u32) |_| {
        let path = path.get()?;
        std::fs::write(path, dot(hGraph)?).map_err(|_| Code::OPERATING_SYSTEM)
    }
    "cuGraphAddKernelNode" 10000 fn cuGraphAddKernelNode(phGraphNode: Out<u64>, hGraph: u64, dependencies: Nodes, numDependencies: u64, nodeParams: In<KernelParameters>) |_| {
        add(phGraphNode, hGraph, dependencies, numDependencies, kernel(nodeParams)?)
    }
    "cuGraphAddKernelNode" 12000 fn cuGraphAddKernelNode_v2(phGraphNode: Out<u64>, hGraph: u64, dependencies: Nodes, numDependencies: u64, nodeParams: In<KernelParametersV2>) |_| {
        add(phGraphNode, hGraph, dependencies, numDependencies, kernel_v2(nodeParams)?)
    }
    "cuGraphAddMemcpyNode" 10000 fn cuGraphAddMemcpyNode(phGraphNode: Out<u64>, hGraph: u64, dependencies: Nodes, numDependencies: u64, copyParams: In<Volume>, _ctx: u64) |_| {
        add(phGraphNode, hGraph, dependencies, numDependencies, copy(copyParams)?)
    }
    "cuGraphAddMemsetNode" 10000 fn cuGraphAddMemsetNode(phGraphNode: Out<u64>, hGraph: u64, dependencies: Nodes, numDependencies: u64, memsetParams: In<FillParameters>, _ctx: u64) |_| {
        add(phGraphNode, hGraph, dependencies, numDependencies, fill(memsetParams)?)
    }
    "cuGraphAddHostNode" 10000 fn cuGraphAddHostNode(phGraphNode: Out<u64>, hGraph: u64, dependencies: Nodes, numDependencies: u64, nodeParams: In<HostParameters>) |_| {
        add(phGraphNode, hGraph, dependencies, numDependencies, host(nodeParams)?)
    }
    "cuGraphAddChildGraphNode" 10000 fn cuGraphAddChildGraphNode(phGraphNode: Out<u64>, hGraph: u64, dependencies: Nodes, numDependencies: u64, childGraph: u64) |_| {
        add_child(phGraphNode, hGraph, dependencies, numDependencies, childGraph)
    }
    "cuGraphAddEmptyNode" 10000 fn cuGraphAddEmptyNode(phGraphNode: Out<u64>, hGraph: u64, dependencies: Nodes, numDependencies: u64) |_| {
        add(phGraphNode, hGraph, dependencies, numDependencies, NodeWork::Empty)
    }
    "cuGraphAddEventRecordNode" 11010 fn cuGraphAddEventRecordNode(phGraphNode: Out<u64>, hGraph: u64, dependencies: Nodes, numDependencies: u64, event: u64) |_| {
        add(phGraphNode, hGraph, dependencies, numDependencies, NodeWork::RecordEvent(checked_event(event)?))
    }
    "cuGraphAddEventWaitNode" 11010 fn cuGraphAddEventWaitNode(phGraphNode: Out<u64>, hGraph: u64, dependencies: Nodes, numDependencies: u64, event: u64) |_| {
        add(phGraphNode, hGraph, dependencies, numDependencies, NodeWork::WaitEvent(checked_event(event)?))
    }
    "cuGraphAddMemAllocNode" 11040 fn cuGraphAddMemAllocNode(phGraphNode: Out<u64>, hGraph: u64, dependencies: Nodes, numDependencies: u64, nodeParams: Out<AllocateParameters>) |_| {
        let mut wanted = nodeParams.get()?;
        wanted.address = add_allocation(phGraphNode, hGraph, dependencies, numDependencies, &wanted)?;
        nodeParams.set(wanted)
    }
    "cuGraphAddMemFreeNode" 11040 fn cuGraphAddMemFreeNode(phGraphNode: Out<u64>, hGraph: u64, dependencies: Nodes, numDependencies: u64, dptr: u64) |_| {
        with(|w| w.memory.find(dptr).map(|_| ()).ok_or(Code::INVALID_VALUE))?;
        add(phGraphNode, hGraph, dependencies, numDependencies, NodeWork::Free { address: dptr })
    }
    "cuGraphAddNode" 12020 fn cuGraphAddNode(phGraphNode: Out<u64>, hGraph: u64, dependencies: Nodes, numDependencies: u64, nodeParams: Out<AnyParameters>) |_| {
        add_any(phGraphNode, hGraph, dependencies, numDependencies, nodeParams)
    }
    "cuGraphAddNode" 12030 fn cuGraphAddNode_v2(phGraphNode: Out<u64>, hGraph: u64, dependencies: Nodes, _dependencyData: u64, numDependencies: u64, nodeParams: Out<AnyParameters>) |_| {
        add_any(phGraphNode, hGraph, dependencies, numDependencies, nodeParams)
    }
    "cuGraphDestroyNode" 10000 fn cuGraphDestroyNode(hNode: u64) |_| {
        with(|w| w.destroy_node(hNode))
    }
    "cuGraphNodeGetType" 10000 fn cuGraphNodeGetType(hNode: u64, kind: Out<u32>) |_| {
        kind.set(look(hNode, |_, work| Ok(work.kind()))?)
    }
    "cuGraphNodeFindInClone" 10000 fn cuGraphNodeFindInClone(phNode: Out<u64>, hOriginalNode: u64, hClonedGraph: u64) |_| {
        phNode.set(with(|w| {
            w.graphs.get(hClonedGraph)?.cloned_from.get(&hOriginalNode).copied().ok_or(Code::INVALID_VALUE)
        })?)
    }
    "cuGraphKernelNodeGetParams" 10000 fn cuGraphKernelNodeGetParams(hNode: u64, nodeParams: Out<KernelParameters>) |_| {
        nodeParams.set(look(hNode, KernelParametersV2::of)?.first())
    }
    "cuGraphKernelNodeGetParams" 12000 fn cuGraphKernelNodeGetParams_v2(hNode: u64, nodeParams: Out<KernelParametersV2>) |_| {
        nodeParams.set(look(hNode, KernelParametersV2::of)?)
    }
    "cuGraphKernelNodeSetParams" 10000 fn cuGraphKernelNodeSetParams(hNode: u64, nodeParams: In<KernelParameters>) |_| {
        replace(hNode, kernel(nodeParams)?)
    }
    "cuGraphKernelNodeSetParams" 12000 fn cuGraphKernelNodeSetParams_v2(hNode: u64, nodeParams: In<KernelParametersV2>) |_| {
        replace(hNode, kernel_v2(nodeParams)?)
    }
    "cuGraphKernelNodeGetAttribute" 11000 fn cuGraphKernelNodeGetAttribute(hNode: u64, attr: u32, value_out: Out<[u32; 16]>) |_| {
        value_out.set(look(hNode, |_, work| {
            let NodeWork::Kernel(kernel) = work else { return Err(Code::INVALID_VALUE) };
            let mut value = [0; 16];
            match attr {
                2 => value[0] = u32::from(kernel.cooperative),
                4 => value[..3].copy_from_slice(&kernel.cluster),
                1..=16 => {}
                _ => return Err(Code::INVALID_VALUE),
            }
            Ok(value)
        })?)
    }
    "cuGraphKernelNodeSetAttribute" 11000 fn cuGraphKernelNodeSetAttribute(hNode: u64, attr: u32, value: In<[u32; 16]>) |_| {
        let value = value.get()?;
        with(|w| {
            let NodeWork::Kernel(kernel) = &mut w.nodes.get_mut(hNode)?.work else { return Err(Code::INVALID_VALUE) };
            match attr {
                2 => kernel.cooperative = value[0] != 0,
                4 => kernel.cluster.copy_from_slice(&value[..3]),
                1..=16 => {}
                _ => return Err(Code::INVALID_VALUE),
            }
            Ok(())
        })
    }
    "cuGraphKernelNodeCopyAttributes" 11000 fn cuGraphKernelNodeCopyAttributes(dst: u64, src: u64) |_| {
        with(|w| {
            let NodeWork::Kernel(from) = &w.nodes.get(src)?.work else { return Err(Code::INVALID_VALUE) };
            let (cooperative, cluster) = (from.cooperative, from.cluster);
            let NodeWork::Kernel(to) = &mut w.nodes.get_mut(dst)?.work else { return Err(Code::INVALID_VALUE) };
            to.cooperative = cooperative;
            to.cluster = cluster;
            Ok(())
        })
    }
    "cuGraphMemcpyNodeGetParams" 10000 fn cuGraphMemcpyNodeGetParams(hNode: u64, nodeParams: Out<Volume>) |_| {
        nodeParams.set(look(hNode, |_, work| match work {
            NodeWork::Copy(copy) => Ok(Volume::describe(copy)),
            _ => Err(Code::INVALID_VALUE),
        })?)
    }
    "cuGraphMemcpyNodeSetParams" 10000 fn cuGraphMemcpyNodeSetParams(hNode: u64, nodeParams: In<Volume>) |_| {
        replace(hNode, copy(nodeParams)?)
    }
    "cuGraphMemsetNodeGetParams" 10000 fn cuGraphMemsetNodeGetParams(hNode: u64, nodeParams: Out<FillParameters>) |_| {
        nodeParams.set(look(hNode, |_, work| FillParameters::of(work))?)
    }
    "cuGraphMemsetNodeSetParams" 10000 fn cuGraphMemsetNodeSetParams(hNode: u64, nodeParams: In<FillParameters>) |_| {
        replace(hNode, fill(nodeParams)?)
    }
    "cuGraphHostNodeGetParams" 10000 fn cuGraphHostNodeGetParams(hNode: u64, nodeParams: Out<HostParameters>) |_| {
        nodeParams.set(look(hNode, |_, work| HostParameters::of(work))?)
    }
    "cuGraphHostNodeSetParams" 10000 fn cuGraphHostNodeSetParams(hNode: u64, nodeParams: In<HostParameters>) |_| {
        replace(hNode, host(nodeParams)?)
    }
    "cuGraphChildGraphNodeGetGraph" 10000 fn cuGraphChildGraphNodeGetGraph(hNode: u64, phGraph: Out<u64>) |_| {
        phGraph.set(look(hNode, |_, work| match work {
            NodeWork::Child(child) => Ok(*child),
            _ => Err(Code::INVALID_VALUE),
        })?)
    }
    "cuGraphEventRecordNodeGetEvent" 11010 fn cuGraphEventRecordNodeGetEvent(hNode: u64, event_out: Out<u64>) |_| {
        event_of(hNode, event_out, true)
    }
    "cuGraphEventRecordNodeSetEvent" 11010 fn cuGraphEventRecordNodeSetEvent(hNode: u64, event: u64) |_| {
        replace(hNode, NodeWork::RecordEvent(checked_event(event)?))
    }
    "cuGraphEventWaitNodeGetEvent" 11010 fn cuGraphEventWaitNodeGetEvent(hNode: u64, event_out: Out<u64>) |_| {
        event_of(hNode, event_out, false)
    }
    "cuGraphEventWaitNodeSetEvent" 11010 fn cuGraphEventWaitNodeSetEvent(hNode: u64, event: u64) |_| {
        replace(hNode, NodeWork::WaitEvent(checked_event(event)?))
    }
    "cuGraphMemFreeNodeGetParams" 11040 fn cuGraphMemFreeNodeGetParams(hNode: u64, dptr_out: Out<u64>) |_| {
        dptr_out.set(look(hNode, |_, work| match work {
            NodeWork::Free { address } => Ok(*address),
            _ => Err(Code::INVALID_VALUE),
        })?)
    }
    "cuGraphNodeSetParams" 12020 fn cuGraphNodeSetParams(hNode: u64, nodeParams: Out<AnyParameters>) |_| {
        match any(nodeParams)? {
            Wanted::Work(work) => replace(hNode, work),
            Wanted::Child(_) | Wanted::Allocate(_) => Err(Code::NOT_SUPPORTED),
        }
    }
    "cuGraphGetNodes" 10000 fn cuGraphGetNodes(hGraph: u64, nodes: Out<u64>, numNodes: Out<u64>) |_| {
        list(&with(|w| Ok(w.graphs.get(hGraph)?.nodes.clone()))?, nodes, numNodes)
    }
    "cuGraphGetRootNodes" 10000 fn cuGraphGetRootNodes(hGraph: u64, rootNodes: Out<u64>, numRootNodes: Out<u64>) |_| {
        list(&with(|w| w.roots(hGraph))?, rootNodes, numRootNodes)
    }
    "cuGraphGetEdges" 10000 fn cuGraphGetEdges(hGraph: u64, from: Out<u64>, to: Out<u64>, numEdges: Out<u64>) |_| {
        edges(hGraph, from, to, None, numEdges)
    }
    "cuGraphGetEdges" 12030 fn cuGraphGetEdges_v2(hGraph: u64, from: Out<u64>, to: Out<u64>, edgeData: Out<u64>, numEdges: Out<u64>) |_| {
        edges(hGraph, from, to, Some(edgeData), numEdges)
    }
    "cuGraphNodeGetDependencies" 10000 fn cuGraphNodeGetDependencies(hNode: u64, dependencies_: Out<u64>, numDependencies: Out<u64>) |_| {
        list(&dependencies(hNode)?, dependencies_, numDependencies)
    }
    "cuGraphNodeGetDependencies" 12030 fn cuGraphNodeGetDependencies_v2(hNode: u64, dependencies_: Out<u64>, edgeData: Out<u64>, numDependencies: Out<u64>) |_| {
        let all = dependencies(hNode)?;
        zero_edges(edgeData, dependencies_, all.len(), numDependencies)?;
        list(&all, dependencies_, numDependencies)
    }
    "cuGraphNodeGetDependentNodes" 10000 fn cuGraphNodeGetDependentNodes(hNode: u64, dependentNodes: Out<u64>, numDependentNodes: Out<u64>) |_| {
        list(&with(|w| w.dependents(hNode))?, dependentNodes, numDependentNodes)
    }
    "cuGraphNodeGetDependentNodes" 12030 fn cuGraphNodeGetDependentNodes_v2(hNode: u64, dependentNodes: Out<u64>, edgeData: Out<u64>, numDependentNodes: Out<u64>) |_| {
        let all = with(|w| w.dependents(hNode))?;
        zero_edges(edgeData, dependentNodes, all.len(), numDependentNodes)?;
        list(&all, dependentNodes, numDependentNodes)
    }
    "cuGraphAddDependencies" 10000 fn cuGraphAddDependencies(hGraph: u64, from: Nodes, to: Nodes, numDependencies: u64) |_| {
        let pairs = pairs(from, to, numDependencies)?;
        with(|w| w.add_edges(hGraph, &pairs))
    }
    "cuGraphAddDependencies" 12030 fn cuGraphAddDependencies_v2(hGraph: u64, from: Nodes, to: Nodes, _edgeData: u64, numDependencies: u64) |_| {
        let pairs = pairs(from, to, numDependencies)?;
        with(|w| w.add_edges(hGraph, &pairs))
    }
    "cuGraphRemoveDependencies" 10000 fn cuGraphRemoveDependencies(hGraph: u64, from: Nodes, to: Nodes, numDependencies: u64) |_| {
        let pairs = pairs(from, to, numDependencies)?;
        with(|w| w.remove_edges(hGraph, &pairs))
    }
    "cuGraphRemoveDependencies" 12030 fn cuGraphRemoveDependencies_v2(hGraph: u64, from: Nodes, to: Nodes, _edgeData: u64, numDependencies: u64) |_| {
        let pairs = pairs(from, to, numDependencies)?;
        with(|w| w.remove_edges(hGraph, &pairs))
    }
}
