/* A CUPTI client that never flushes: it sets a period and waits. Every driver call that it hears of is its own program's. */
#include "cupti.h"

#include <unistd.h>

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
    printf("period %d\n", cuptiActivityFlushPeriod(20));
    cuda = cuda_start();
    for (int i = 0; i < 60; i++)
        launch(cuda.first, NULL);
    OK(cuCtxSynchronize());
    for (int i = 0; i < 1000 && __atomic_load_n(&records[CONCURRENT_KERNEL], __ATOMIC_SEQ_CST) < 60; i++)
        usleep(10000);
    printf("calls %ld\n", calls);
    tell("records");
    return 0;
}
