/* A copy between two devices moves the bytes, takes the link's time, and has a record of its own kind. */
#include "sim.h"

int main(void)
{
    start();
    start_client();
    OK(cuptiActivityEnable(MEMCPY));
    OK(cuptiActivityEnable(MEMCPY2));
    int count;
    OK(cuDeviceGetCount(&count));
    EQ(count, 2);
    CUcontext there;
    CUdeviceptr here, far;
    OK(cuMemAlloc_v2(&here, 200000));
    OK(cuDevicePrimaryCtxRetain(&there, 1));
    OK(cuCtxSetCurrent(there));
    OK(cuMemAlloc_v2(&far, 200000));
    OK(cuMemsetD32_v2(far, 0x05050505, 50000));
    OK(cuCtxSetCurrent(context));
    OK(cuMemcpyPeerAsync(here, context, far, there, 200000, NULL));
    OK(cuCtxSynchronize());
    OK(cuptiActivityFlushAll(0));
    const uint8_t *record = only(MEMCPY2);
    EQ(record_count, 1);
    EQ(record[4], 10);
    EQ(quad(record, 8), 200000);
    EQ(quad(record, 24) - quad(record, 16), 2000 + 1000);
    EQ(word(record, 32), 0);
    EQ(word(record, 44), 1); /* From device 1 */
    EQ(word(record, 52), 0); /* to device 0. */
    char byte;
    OK(cuMemcpyDtoH_v2(&byte, here + 199999, 1));
    EQ(byte, 5);
    return 0;
}
