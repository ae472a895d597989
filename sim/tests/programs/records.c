/* One launch, one copy each way, one memset: a record of each, with the right contents and ids that count up. */
#include "sim.h"

static unsigned entered, left;
static uint32_t launch_correlation;

struct CallbackData {
    int site;
    const char *function_name;
    const void *parameters;
    void *result;
    const char *symbol_name;
    CUcontext context;
    uint32_t context_uid;
    uint64_t *correlation_data;
    uint32_t correlation_id;
};

static void on_call(void *user, int domain, uint32_t cbid, const void *given)
{
    const struct CallbackData *data = given;
    CHECK(user == &entered);
    EQ(domain, DRIVER_API);
    EQ(cbid, CBID_LAUNCH_KERNEL);
    CHECK(strcmp(data->function_name, "cuLaunchKernel") == 0);
    CHECK(strcmp(data->symbol_name, "brief") == 0);
    CHECK(data->context == context);
    struct { CUfunction function; unsigned grid[3]; } parameters;
    memcpy(&parameters, data->parameters, sizeof parameters);
    CHECK(parameters.function == brief);
    EQ(parameters.grid[2], 4);
    if (data->site == 0) {
        entered++;
        *data->correlation_data = 4711;
        launch_correlation = data->correlation_id;
    } else {
        left++;
        EQ(*data->correlation_data, 4711);
        EQ(data->correlation_id, launch_correlation);
        EQ(*(unsigned *)data->result, 0);
    }
}

int main(void)
{
    start();
    uint32_t version, context_id, stream_id;
    OK(cuptiGetVersion(&version));
    EQ(version, 130001);
    start_client();
    void *subscriber;
    OK(cuptiSubscribe(&subscriber, on_call, &entered));
    OK(cuptiEnableCallback(1, subscriber, DRIVER_API, CBID_LAUNCH_KERNEL));
    int kinds[] = {MEMCPY, MEMSET, CONCURRENT_KERNEL, MEMCPY2, 17 /* accepted and silent */};
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) OK(cuptiActivityEnable(kinds[i]));

    CUstream stream;
    CUdeviceptr memory;
    OK(cuStreamCreate(&stream, 1));
    OK(cuMemAlloc_v2(&memory, 1000000));
    uint8_t *host = malloc(1000000);
    void *pinned;
    OK(cuMemAllocHost_v2(&pinned, 1000000));
    uint64_t before, after;
    OK(cuptiGetTimestamp(&before));
    OK(launch(brief, stream));
    OK(cuMemcpyHtoD_v2(memory, host, 1000000));
    OK(cuMemsetD8Async(memory, 7, 500, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuptiActivityDisable(MEMCPY));
    OK(cuMemcpyHtoD_v2(memory, host, 10)); /* Not recorded. */
    OK(cuptiActivityEnable(MEMCPY));
    OK(cuptiGetTimestamp(&after));
    EQ(cuptiActivityFlushAll(0), 0);
    EQ(record_count, 3);
    CHECK(!pthread_equal(completing_thread, pthread_self()));

    OK(cuptiGetContextId(context, &context_id));
    OK(cuptiGetStreamId(context, stream, &stream_id));
    const uint8_t *kernel = only(CONCURRENT_KERNEL), *copy = only(MEMCPY), *fill = only(MEMSET);
    EQ(quad(kernel, 24) - quad(kernel, 16), BRIEF_NS);
    CHECK(quad(kernel, 16) > before && quad(kernel, 24) < after);
    EQ(kernel[6] | kernel[7] << 8, 40);
    EQ(word(kernel, 40), 0);
    EQ(word(kernel, 44), context_id);
    EQ(word(kernel, 48), stream_id);
    unsigned geometry[] = {2, 3, 4, 32, 2, 1, 256, 0};
    for (int i = 0; i < 8; i++) EQ(word(kernel, 52 + 4 * i), geometry[i]);
    CHECK(strcmp((const char *)(uintptr_t)quad(kernel, 104), "brief") == 0);
    EQ(word(kernel, 92), launch_correlation);
    EQ(quad(kernel, 144), 0);

    EQ(copy[4] | copy[5] << 8 | copy[6] << 16 | copy[7] << 24, 1 | 1 << 8 | 3 << 16 | 0 << 24);
    EQ(quad(copy, 8), 1000000);
    EQ(quad(copy, 24) - quad(copy, 16), 1500 + 1000000 / 25);
    EQ(word(copy, 40), 7); /* The legacy default stream. */
    EQ(word(copy, 44), launch_correlation + 1);

    EQ(word(fill, 4), 7);
    EQ(quad(fill, 8), 500);
    EQ(word(fill, 44), launch_correlation + 2);
    EQ(fill[48], 1);

    /* Pinned memory is told from pageable. */
    record_count = 0;
    OK(cuMemcpyDtoHAsync_v2(pinned, memory, 100, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuptiActivityFlushAll(0));
    copy = only(MEMCPY);
    EQ(copy[4] | copy[5] << 8 | copy[6] << 16 | copy[7] << 24, 2 | 3 << 8 | 2 << 16 | 1 << 24);

    OK(cuptiUnsubscribe(subscriber));
    OK(launch(brief, stream));
    OK(cuStreamSynchronize(stream));
    EQ(entered, 1);
    EQ(left, 1);
    return 0;
}
