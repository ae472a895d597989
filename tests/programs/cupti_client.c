/* A CUPTI client in the program, as profilers are: subscribes, counts callbacks, takes records in windows.
   `early` subscribes before cuInit, `late` after some launches. */
#include "cupti.h"

static long enters, exits;

static void called(void *user, int domain, uint32_t id, const CallData *data)
{
    (void)id;
    if (user != &enters || domain != DRIVER_API)
        abort();
    (data->site == ENTER) ? enters++ : exits++;
}

static void begin(void **handle)
{
    int second;
    void *other;
    printf("subscribe %d\n", cuptiSubscribe(handle, called, &enters));
    second = cuptiSubscribe(&other, called, &enters);
    printf("again %d\n", second);
    printf("register nothing %d\n", cuptiActivityRegisterCallbacks(NULL, NULL));
    printf("register %d\n", cuptiActivityRegisterCallbacks(request, complete));
}

static void window(void *handle, Cuda *cuda, CUdeviceptr memory, int kernel_kind, int number)
{
    uint32_t state = 9;
    size_t dropped = 9;
    printf("window %d: %d", number, cuptiActivityEnable(kernel_kind));
    printf(" %d %d", cuptiActivityEnable(MEMCPY), cuptiActivityEnable(DRIVER));
    printf(" callback %d", cuptiEnableCallback(1, handle, DRIVER_API, 307));
    cuptiGetCallbackState(&state, handle, DRIVER_API, 307);
    printf(" is %u\n", state);
    for (int i = 0; i < 10 + number; i++)
        launch(cuda->first, NULL);
    OK(cuMemcpyHtoD_v2(memory, &state, sizeof state));
    OK(cuMemsetD8_v2(memory, 1, 100));
    OK(cuCtxSynchronize());
    cuptiActivityDisable(kernel_kind);
    cuptiActivityDisable(MEMCPY);
    cuptiActivityDisable(DRIVER);
    /* The id that is no function's switches all of them off, in CUPTI 13.0. */
    number % 2 ? cuptiEnableDomain(0, handle, DRIVER_API) : cuptiEnableCallback(0, handle, DRIVER_API, 0);
    launch(cuda->second, NULL);
    OK(cuCtxSynchronize());
    printf("flush %d,", cuptiActivityFlushAll(0));
    cuptiActivityGetNumDroppedRecords(NULL, 0, &dropped);
    printf(" dropped %zu, calls %ld %ld\n", dropped, enters, exits);
    tell("records");
}

int main(int count, char **arguments)
{
    int is_early = count > 1 && !strcmp(arguments[1], "early");
    void *handle = NULL;
    CUdeviceptr memory;
    Cuda cuda;
    cupti_load();
    if (is_early)
        begin(&handle);
    cuda = cuda_start();
    OK(cuMemAlloc_v2(&memory, 100));
    for (int i = 0; i < 5; i++)
        launch(cuda.second, NULL);
    if (!is_early)
        begin(&handle);
    for (int number = 0; number < 20; number++)
        window(handle, &cuda, memory, number % 4 == 3 ? KERNEL : CONCURRENT_KERNEL, number);
    printf("unsubscribe %d\n", cuptiUnsubscribe(handle));
    printf("again %d\n", cuptiUnsubscribe(handle));
    begin(&handle);
    window(handle, &cuda, memory, CONCURRENT_KERNEL, 20);
    printf("finalize %d\n", cuptiFinalize());
    launch(cuda.second, NULL);
    OK(cuCtxSynchronize());
    cuptiActivityFlushAll(1);
    tell("at the end");
    return 0;
}
