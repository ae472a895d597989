/* Work behind a host function or a wait for a word happens after it, in its stream and in streams that wait for it. */
#include "sim.h"

static char source[64], seen[64], other_seen[64];
static int called;

static void fill_source(void *argument)
{
    usleep(20000);
    memset(source, *(int *)argument, sizeof source);
    __atomic_store_n(&called, 1, __ATOMIC_SEQ_CST);
}

int main(void)
{
    start();
    start_client();
    OK(cuptiActivityEnable(CONCURRENT_KERNEL));
    CUstream stream, other;
    CUevent event;
    CUdeviceptr memory;
    OK(cuStreamCreate(&stream, 1));
    OK(cuStreamCreate(&other, 1));
    OK(cuEventCreate(&event, 0));
    OK(cuMemAlloc_v2(&memory, 64));
    int value = 5;
    OK(cuLaunchHostFunc(stream, fill_source, &value));
    OK(launch(brief, stream));
    OK(cuMemcpyHtoDAsync_v2(memory, source, 64, stream));
    OK(cuEventRecord(event, stream));
    OK(cuStreamWaitEvent(other, event, 0));
    OK(cuMemcpyDtoHAsync_v2(other_seen, memory, 64, other));
    EQ(other_seen[63], 5);
    EQ(called, 1);
    OK(cuStreamSynchronize(other));
    OK(cuMemcpyDtoH_v2(seen, memory, 64));
    EQ(seen[0], 5);
    OK(cuptiActivityFlushAll(0));
    EQ(record_count, 1);

    /* A graph with a host node in the middle. */
    CUgraph graph;
    CUgraphExec exec;
    value = 9;
    OK(cuStreamBeginCapture_v2(stream, 0));
    OK(launch(brief, stream));
    OK(cuLaunchHostFunc(stream, fill_source, &value));
    OK(cuMemcpyHtoDAsync_v2(memory, source, 64, stream));
    OK(launch(brief, stream));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    record_count = 0;
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamDestroy_v2(stream)); /* What is under way goes on. */
    EQ(cuStreamQuery(stream), 400);
    OK(cuCtxSynchronize());
    OK(cuMemcpyDtoH_v2(seen, memory, 64));
    EQ(seen[0], 9);
    OK(cuptiActivityFlushAll(0));
    EQ(record_count, 2);
    EQ(word(records[0], 92), word(records[1], 92));

    /* A stream that waits for a word until another stream writes it. */
    OK(cuStreamCreate(&stream, 1));
    OK(cuMemsetD32_v2(memory, 0, 16));
    OK(cuStreamWaitValue32_v2(stream, memory, 3, 0));
    OK(cuMemsetD8Async(memory + 4, 1, 4, stream));
    usleep(2000);
    EQ(cuStreamQuery(stream), 600);
    OK(cuStreamWriteValue32_v2(other, memory, 4, 0));
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH_v2(seen, memory, 8));
    EQ(seen[0] | seen[4] << 8, 4 | 1 << 8);
    return 0;
}
