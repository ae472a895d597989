/* One subscriber at a time, the last to register has the buffers, and nothing is lost in silence. */
#include "sim.h"

static unsigned calls;
static size_t later_valid;

static void on_call(void *user, int domain, uint32_t cbid, const void *data)
{
    (void)user, (void)domain, (void)cbid, (void)data;
    calls++;
}

static void later_take(CUcontext of, uint32_t stream, uint8_t *buffer, size_t bytes, size_t valid)
{
    (void)of, (void)stream, (void)bytes;
    later_valid += valid;
    free(buffer);
}

static void give_nothing(uint8_t **buffer, size_t *bytes, size_t *most)
{
    *buffer = NULL;
    *bytes = *most = 0;
}

static uint64_t odd_clock(void) { return host_now_ns() + 1000000000000000u; }

int main(void)
{
    start();
    void *first, *second;
    OK(cuptiSubscribe(&first, on_call, NULL));
    EQ(cuptiSubscribe(&second, on_call, NULL), 39);
    OK(cuptiEnableDomain(1, first, DRIVER_API));
    OK(launch(brief, NULL));
    EQ(calls, 2);
    OK(cuCtxSynchronize());
    EQ(calls, 4);
    OK(cuptiUnsubscribe(first));
    EQ(cuptiUnsubscribe(first), 1);
    EQ(cuptiEnableDomain(1, first, DRIVER_API), 1);
    OK(cuCtxSynchronize());
    EQ(calls, 4);
    OK(cuptiSubscribe(&second, on_call, NULL));
    OK(cuptiUnsubscribe(second));

    start_client();
    OK(cuptiActivityEnable(CONCURRENT_KERNEL));
    EQ(cuptiActivityEnable(0), 21);
    EQ(cuptiActivityEnable(1000), 21);
    OK(launch(brief, NULL));
    OK(cuptiActivityRegisterCallbacks(give_buffer, later_take));
    OK(launch(brief, NULL));
    OK(cuCtxSynchronize());
    OK(cuptiActivityFlushAll(0));
    EQ(record_count, 0);
    EQ(later_valid, 2 * 216); /* The first client's buffer came to the second. */

    size_t dropped;
    OK(cuptiActivityRegisterCallbacks(give_nothing, take_buffer));
    for (int i = 0; i < 3; i++) OK(launch(brief, NULL));
    OK(cuptiActivityGetNumDroppedRecords(NULL, 0, &dropped));
    EQ(dropped, 3);
    OK(cuptiActivityGetNumDroppedRecords(NULL, 0, &dropped));
    EQ(dropped, 0);

    uint64_t time;
    OK(cuptiActivityRegisterCallbacks(give_buffer, take_buffer));
    OK(cuptiActivityRegisterTimestampCallback(odd_clock));
    OK(cuptiGetTimestamp(&time));
    CHECK(odd_clock() - time < 1000000000);
    uint64_t begin = odd_clock();
    OK(launch(brief, NULL));
    OK(cuCtxSynchronize());
    OK(cuptiActivityFlushAll(0));
    EQ(record_count, 1);
    CHECK(quad(records[0], 16) > begin && quad(records[0], 24) < odd_clock());
    return 0;
}
