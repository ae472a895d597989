/* The legacy default stream and blocking streams wait for each other; non-blocking streams wait for nobody. */
#include "sim.h"

/* Nanoseconds from the end of a lengthy kernel in `first` to the end of a brief one in `second`; negative if the
   second did not wait. */
static double gap(CUstream first, CUstream second, int per_thread)
{
    CUevent long_end, short_end;
    OK(cuEventCreate(&long_end, 0));
    OK(cuEventCreate(&short_end, 0));
    OK(launch(lengthy, first));
    /* An event would itself wait in the default stream: it stays in its kernel's stream. */
    OK(cuEventRecord(long_end, first));
    if (per_thread)
        OK(cuLaunchKernel_ptsz(brief, 1, 1, 1, 1, 1, 1, 0, second, NULL, NULL));
    else
        OK(launch(brief, second));
    OK(cuEventRecord(short_end, per_thread ? (CUstream)2 : second));
    OK(cuCtxSynchronize());
    float milliseconds;
    OK(cuEventElapsedTime(&milliseconds, long_end, short_end));
    OK(cuEventDestroy_v2(long_end));
    OK(cuEventDestroy_v2(short_end));
    return milliseconds * 1e6;
}

static void waits(double gap_ns) { CHECK(gap_ns >= BRIEF_NS * 0.99 && gap_ns < LENGTHY_NS / 2); }
static void runs_beside(double gap_ns) { CHECK(gap_ns < -LENGTHY_NS / 2.0); }

int main(void)
{
    start();
    CUstream blocking, another, free_running;
    OK(cuStreamCreate(&blocking, 0));
    OK(cuStreamCreate(&another, 0));
    OK(cuStreamCreate(&free_running, 1));
    waits(gap(blocking, blocking, 0));
    runs_beside(gap(blocking, another, 0));
    waits(gap(blocking, NULL, 0));
    waits(gap(NULL, blocking, 0));
    runs_beside(gap(NULL, free_running, 0));
    runs_beside(gap(free_running, NULL, 0));
    waits(gap(NULL, NULL, 1));          /* The per-thread default stream is a blocking one, */
    runs_beside(gap(blocking, NULL, 1)); /* and not the legacy one. */

    CUevent event;
    OK(cuEventCreate(&event, 0));
    OK(launch(lengthy, free_running));
    OK(cuEventRecord(event, free_running));
    EQ(cuEventQuery(event), 600);
    uint64_t began = host_now_ns();
    OK(cuStreamWaitEvent(another, event, 0));
    OK(launch(brief, another));
    OK(cuStreamSynchronize(another));
    CHECK(host_now_ns() - began > LENGTHY_NS * 9ull / 10);
    OK(cuEventQuery(event));
    return 0;
}
