/* A node is heard of in the call that makes it, on its thread; its number is its graph's and its index, counted from 0.
 * Instantiating and cloning give new graph numbers and keep the indexes; nodes of a child follow those around it. */
#include "sim.h"

unsigned cuptiGetGraphId(CUgraph, uint32_t *), cuptiGetGraphNodeId(CUgraphNode, uint64_t *);
CUresult cuGraphClone(CUgraph *, CUgraph), cuGraphCreate(CUgraph *, unsigned);
CUresult cuGraphAddChildGraphNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUgraph);
CUresult cuGraphExecUpdate_v2(CUgraphExec, CUgraph, void *);

enum { RESOURCE = 3, NODE_CREATED = 13 };
static uint64_t heard[64];
static unsigned heard_count;
static pthread_t heard_on;

static void hear(void *user, int domain, uint32_t id, const void *data)
{
    (void)user;
    EQ(domain, RESOURCE);
    EQ(id, NODE_CREATED);
    void *const *graph_data = ((void *const *)data)[2];
    OK(cuptiGetGraphNodeId(graph_data[2], &heard[heard_count++ % 64]));
    heard_on = pthread_self();
}

int main(void)
{
    start();
    void *subscriber;
    OK(cuptiSubscribe(&subscriber, hear, 0));
    OK(cuptiEnableCallback(1, subscriber, RESOURCE, NODE_CREATED));
    start_client();
    OK(cuptiActivityEnable(CONCURRENT_KERNEL));
    CUstream stream;
    OK(cuStreamCreate(&stream, 1));
    CUgraph graph, clone, outer;
    CUgraphExec exec, outer_exec;
    CUgraphNode child;
    uint32_t id, exec_id, clone_id;

    OK(cuStreamBeginCapture_v2(stream, 0));
    for (unsigned i = 0; i < 2; i++) {
        OK(launch(brief, stream));
        EQ(heard_count, i + 1);
    }
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuptiGetGraphId(graph, &id));
    EQ(heard[0], (uint64_t)id << 32);
    EQ(heard[1], (uint64_t)id << 32 | 1);
    CHECK(pthread_equal(heard_on, pthread_self()));

    heard_count = 0;
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuptiGetGraphExecId(exec, &exec_id));
    CHECK(exec_id != id);
    EQ(heard_count, 2);
    EQ(heard[1], (uint64_t)exec_id << 32 | 1);
    OK(cuGraphClone(&clone, graph));
    OK(cuptiGetGraphId(clone, &clone_id));
    EQ(heard[3], (uint64_t)clone_id << 32 | 1);

    OK(cuGraphCreate(&outer, 0));
    OK(cuGraphAddChildGraphNode(&child, outer, 0, 0, graph));
    OK(cuGraphInstantiateWithFlags(&outer_exec, outer, 0));
    uint32_t outer_id;
    OK(cuptiGetGraphExecId(outer_exec, &outer_id));
    OK(cuGraphLaunch(outer_exec, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuptiActivityFlushAll(0));
    EQ(record_count, 2);
    EQ(quad(records[0], 144), (uint64_t)outer_id << 32 | 1);
    EQ(quad(records[1], 144), (uint64_t)outer_id << 32 | 2);

    /* An update tells nobody of nodes, and numbers stay. */
    record_count = heard_count = 0;
    uint64_t result[4];
    OK(cuGraphExecUpdate_v2(exec, clone, result));
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuptiActivityFlushAll(0));
    EQ(heard_count, 0);
    EQ(quad(records[0], 144), (uint64_t)exec_id << 32);
    EQ(quad(records[1], 144), (uint64_t)exec_id << 32 | 1);
    return 0;
}
