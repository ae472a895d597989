/* Until stdin is closed: a kernel of 10 ms, a copy that waits for it, and three short launches. Most of the time, the
   thread is inside of the copy. Prints how many launches and copies there were. */
#include "driver.h"
#include <poll.h>

static const char *const LONG_KERNEL = ".version 6.0\n.target sm_50\n.address_size 64\n"
                                       ".visible .entry long_kernel(.param .u64 unused)\n{\n"
                                       "// sim.duration_ns = 10000000\n ret;\n}\n";

int main(void)
{
    Cuda cuda = cuda_start();
    struct pollfd in = {0, POLLIN, 0};
    CUmodule module;
    CUfunction longer;
    CUdeviceptr memory;
    char host[64];
    long launches = 0, copies = 0;
    OK(cuModuleLoadData(&module, LONG_KERNEL));
    OK(cuModuleGetFunction(&longer, module, "long_kernel"));
    OK(cuMemAlloc_v2(&memory, sizeof host));
    puts("ready");
    fflush(stdout);
    while (poll(&in, 1, 0) == 0) {
        launch(longer, NULL);
        OK(cuMemcpyDtoH_v2(host, memory, sizeof host));
        for (int i = 0; i < 3; i++)
            launch(cuda.first, NULL);
        launches += 4;
        copies += 1;
    }
    OK(cuCtxSynchronize());
    printf("%ld %ld\n", launches, copies);
    fflush(stdout);
    return 0;
}
