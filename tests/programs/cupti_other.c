/* Clients that cannot share CUPTI: `v2` by the newer interface, `copy FILE` with a libcupti of its own. */
#include "cupti.h"

static void called(void *user, int domain, uint32_t id, const CallData *data) { (void)user, (void)domain, (void)id, (void)data; }

int main(int count, char **arguments)
{
    void *handle;
    Cuda cuda = cuda_start();
    for (int i = 0; i < 5; i++)
        launch(cuda.first, NULL);
    OK(cuCtxSynchronize());
    if (count > 2) {
        cupti_load_from(arguments[2]);
        printf("subscribe %d\n", cuptiSubscribe(&handle, called, NULL));
    } else {
        cupti_load();
        printf("subscribe %d\n", cuptiSubscribe_v2(&handle, called, NULL, NULL));
    }
    cuptiActivityRegisterCallbacks(request, complete);
    cuptiActivityEnable(CONCURRENT_KERNEL);
    for (int i = 0; i < 7; i++)
        launch(cuda.first, NULL);
    OK(cuCtxSynchronize());
    cuptiActivityFlushAll(0);
    tell("records");
    return 0;
}
