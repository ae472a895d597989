/* With GPUTRACE_SIM_PACE=off a wait moves the virtual clock instead of taking time. */
#include "sim.h"

int main(void)
{
    start();
    start_client();
    OK(cuptiActivityEnable(CONCURRENT_KERNEL));
    uint64_t began = host_now_ns(), before, after;
    OK(cuptiGetTimestamp(&before));
    for (int i = 0; i < 500; i++) OK(launch(lengthy, NULL));
    EQ(cuStreamQuery(NULL), 600);
    OK(cuCtxSynchronize());
    OK(cuStreamQuery(NULL));
    OK(cuptiGetTimestamp(&after));
    OK(cuptiActivityFlushAll(0));
    EQ(record_count, 500);
    CHECK(after - before >= 500ull * LENGTHY_NS);
    CHECK(host_now_ns() - began < 50ull * LENGTHY_NS);
    return 0;
}
