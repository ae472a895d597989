/* Seven launches of one kernel, three of another, copies both ways and between, two fills. */
#include "driver.h"

int main(void)
{
    Cuda cuda = cuda_start();
    CUdeviceptr a, b;
    static char host[65536];
    OK(cuMemAlloc_v2(&a, sizeof host));
    OK(cuMemAlloc_v2(&b, sizeof host));
    for (int i = 0; i < 5; i++)
        OK(cuMemcpyHtoD_v2(a, host, 1000));
    OK(cuMemcpyDtoD_v2(b, a, 3000));
    OK(cuMemsetD8_v2(a, 1, 100));
    OK(cuMemsetD32_v2(b, 2, 100));
    for (int i = 0; i < 7; i++)
        launch(cuda.first, NULL);
    for (int i = 0; i < 3; i++)
        launch(cuda.second, NULL);
    OK(cuCtxSynchronize());
    OK(cuMemcpyDtoH_v2(host, a, 65536));
    OK(cuMemFree_v2(b));
    OK(cuMemFree_v2(a));
    return 0;
}
