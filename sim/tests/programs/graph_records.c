/* All nodes of a graph launch carry the launch's correlation id; whole-graph records replace those of nodes. */
#include "sim.h"

int main(void)
{
    start();
    start_client();
    CUstream stream;
    CUdeviceptr memory;
    OK(cuMemAlloc_v2(&memory, 64));
    OK(cuStreamCreate(&stream, 1));
    OK(cuptiActivityEnable(CONCURRENT_KERNEL));
    OK(cuptiActivityEnable(MEMSET));
    OK(cuStreamBeginCapture_v2(stream, 0));
    for (int i = 0; i < 5; i++) OK(launch(brief, stream));
    OK(cuMemsetD8Async(memory, 1, 64, stream));
    CUgraph graph;
    CUgraphExec exec;
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuptiActivityFlushAll(0));
    EQ(record_count, 0); /* Capturing executes nothing. */

    for (int i = 0; i < 2; i++) OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuptiActivityFlushAll(0));
    EQ(record_count, 12);
    uint32_t exec_id;
    OK(cuptiGetGraphExecId(exec, &exec_id));
    for (int i = 0; i < 12; i++) {
        const uint8_t *record = records[i];
        int fill = word(record, 0) == MEMSET;
        EQ(word(record, fill ? 44 : 92), word(records[i / 6 * 6], 92));
        EQ(word(record, fill ? 72 : 156), exec_id);
        EQ(quad(record, fill ? 64 : 144), (uint64_t)exec_id << 32 | (i % 6));
    }
    EQ(word(records[6], 92), word(records[0], 92) + 1);
    EQ(quad(records[1], 16), quad(records[0], 24)); /* In order. */

    record_count = 0;
    OK(cuptiActivityEnable(GRAPH_TRACE));
    CUgraphExec whole_exec; /* Made while the kind is on, or its launch ends the program: graph_too_early.c. */
    OK(cuGraphInstantiateWithFlags(&whole_exec, graph, 0));
    OK(cuptiGetGraphExecId(whole_exec, &exec_id));
    OK(cuGraphLaunch(whole_exec, stream));
    OK(launch(brief, stream)); /* No node: still recorded. */
    OK(cuStreamSynchronize(stream));
    OK(cuptiActivityFlushAll(0));
    EQ(record_count, 2);
    const uint8_t *whole = only(GRAPH_TRACE);
    EQ(word(whole, 28), exec_id);
    EQ(quad(whole, 16) - quad(whole, 8), 5 * BRIEF_NS + 1000); /* The memset is 64 bytes: latency alone. */
    EQ(word(only(CONCURRENT_KERNEL), 92), word(whole, 4) + 1);
    OK(cuGraphExecDestroy(whole_exec));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    return 0;
}
