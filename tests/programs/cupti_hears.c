/* A CUPTI client that is there before cuInit: every driver call that it hears of is its own program's. */
#include "cupti.h"

static long calls;

static void called(void *user, int domain, uint32_t id, const CallData *data)
{
    (void)user, (void)domain, (void)id;
    if (data->site == ENTER)
        calls++;
}

int main(void)
{
    void *handle;
    Cuda cuda;
    cupti_load();
    cuptiSubscribe(&handle, called, NULL);
    cuptiEnableDomain(1, handle, DRIVER_API);
    cuptiActivityRegisterCallbacks(request, complete);
    cuptiActivityEnable(CONCURRENT_KERNEL);
    cuptiActivityEnable(DRIVER);
    cuda = cuda_start();
    for (int i = 0; i < 60; i++)
        launch(cuda.first, NULL);
    OK(cuCtxSynchronize());
    cuptiActivityFlushAll(0);
    printf("calls %ld\n", calls);
    tell("records");
    return 0;
}
