/* under_way MILLISECONDS [range|COPY_MILLISECONDS]: until stdin is closed, one thread is inside of a copy, which waits
   for kernels of 0.3 s or of so many milliseconds. The other makes a launch that returns after so many milliseconds,
   and three that return at once; with "range" it makes 20 launches between cuProfilerStart and cuProfilerStop, once.
   Prints how many launches and copies there were. */
#include "driver.h"
#include <poll.h>
#include <pthread.h>
#include <string.h>

CUresult cuProfilerStart(void);
CUresult cuProfilerStop(void);

static Cuda cuda;
static struct pollfd in = {0, POLLIN, 0};
static long copies, long_launches;

static CUfunction kernel(const char *name, const char *what, long ns)
{
    char text[512];
    CUmodule module;
    CUfunction function;
    snprintf(text, sizeof text,
             ".version 6.0\n.target sm_50\n.address_size 64\n"
             ".visible .entry %s(.param .u64 unused)\n{\n// sim.%s = %ld\n ret;\n}\n",
             name, what, ns);
    OK(cuModuleLoadData(&module, text));
    OK(cuModuleGetFunction(&function, module, name));
    return function;
}

static void *copy(void *longer)
{
    CUstream stream;
    CUdeviceptr memory;
    void *host;
    OK(cuCtxSetCurrent(cuda.context));
    OK(cuStreamCreate(&stream, 0));
    OK(cuMemAlloc_v2(&memory, 4096));
    OK(cuMemAllocHost_v2(&host, 4096));
    while (poll(&in, 1, 0) == 0) {
        launch(longer, NULL);
        long_launches += 1;
        OK(cuMemcpyDtoH_v2(host, memory, 4096));
        copies += 1;
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    CUstream stream;
    CUfunction longer, slow;
    long launches = 0;
    int has_range = argc > 2 && !strcmp(argv[2], "range");
    cuda = cuda_start();
    longer = kernel("long_kernel", "duration_ns", argc > 2 && !has_range ? atol(argv[2]) * 1000000 : 300000000);
    slow = kernel("slow_kernel", "launch_ns", atol(argv[1]) * 1000000);
    OK(cuStreamCreate(&stream, 1));
    pthread_create(&thread, NULL, copy, longer);
    puts("ready");
    fflush(stdout);
    if (has_range) {
        poll(&in, 1, 100);
        OK(cuProfilerStart());
        for (int i = 0; i < 20; i++)
            launch(cuda.first, stream);
        OK(cuProfilerStop());
        launches = 20;
        poll(&in, 1, -1);
    }
    while (poll(&in, 1, 0) == 0) {
        launch(slow, stream);
        for (int i = 0; i < 3; i++)
            launch(cuda.first, stream);
        launches += 4;
    }
    pthread_join(thread, NULL);
    OK(cuCtxSynchronize());
    printf("%ld %ld\n", launches + long_launches, copies);
    fflush(stdout);
    return 0;
}
