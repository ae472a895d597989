/* An unforced flush withholds the buffer that holds a running kernel; a forced one returns it without an end, once. */
#include "sim.h"

int main(void)
{
    start();
    start_client();
    OK(cuptiActivityEnable(CONCURRENT_KERNEL));
    OK(launch(brief, NULL));
    OK(launch(lengthy, NULL));
    usleep(1000);
    OK(cuptiActivityFlushAll(0));
    EQ(record_count, 0);
    OK(cuCtxSynchronize());
    OK(cuptiActivityFlushAll(0));
    EQ(record_count, 2);
    EQ(quad(records[1], 24) - quad(records[1], 16), LENGTHY_NS);

    record_count = 0;
    OK(launch(brief, NULL));
    OK(launch(lengthy, NULL));
    OK(launch(brief, NULL));
    usleep(1000);
    OK(cuptiActivityFlushAll(1));
    EQ(record_count, 3);
    EQ(quad(records[0], 24) - quad(records[0], 16), BRIEF_NS);
    CHECK(quad(records[1], 16) != 0); /* It began, */
    EQ(quad(records[1], 24), 0);      /* but did not end. */
    EQ(quad(records[2], 16), 0);
    OK(cuCtxSynchronize());
    OK(cuptiActivityFlushAll(1));
    EQ(record_count, 3);

    /* A full buffer comes by itself, once its kernels are over. */
    record_count = 0;
    for (int i = 0; i < BUFFER_BYTES / 216 + 1; i++) OK(launch(brief, NULL));
    OK(cuCtxSynchronize());
    for (int i = 0; i < 1000 && record_count == 0; i++) usleep(1000);
    EQ(record_count, BUFFER_BYTES / 216);
    OK(cuptiFinalize());
    EQ(record_count, BUFFER_BYTES / 216 + 1);
    return 0;
}
