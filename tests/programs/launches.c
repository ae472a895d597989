/* launches THREADS: each of so many threads, 64 at most, which all live until the last one has launched, makes 200
   launches by each of the driver's six launching functions, and then one by each that is to fail. Prints how many
   succeeded, and how many results were not as expected. */
#include "driver.h"
#include "launches.h"
#include <pthread.h>

CUresult cuLaunchKernel_ptsz(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **);
CUresult cuLaunchCooperativeKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **);
CUresult cuLaunchCooperativeKernel_ptsz(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **);
CUresult cuLaunchKernelEx(const Configuration *, CUfunction, void **, void **);
CUresult cuLaunchKernelEx_ptsz(const Configuration *, CUfunction, void **, void **);

static Cuda cuda;
static long succeeded, wrong;
static pthread_barrier_t all_have;

static void launch_all(unsigned shared, CUresult expected)
{
    Configuration configuration = {{GX, GY, GZ}, {BX, BY, BZ}, shared, STREAM, NULL, 0};
    CUresult results[] = {
        cuLaunchKernel(cuda.first, GX, GY, GZ, BX, BY, BZ, shared, STREAM, PARAMETERS, EXTRA),
        cuLaunchKernel_ptsz(cuda.first, GX, GY, GZ, BX, BY, BZ, shared, STREAM, PARAMETERS, EXTRA),
        cuLaunchCooperativeKernel(cuda.first, GX, GY, GZ, BX, BY, BZ, shared, STREAM, PARAMETERS),
        cuLaunchCooperativeKernel_ptsz(cuda.first, GX, GY, GZ, BX, BY, BZ, shared, STREAM, PARAMETERS),
        cuLaunchKernelEx(&configuration, cuda.first, PARAMETERS, EXTRA),
        cuLaunchKernelEx_ptsz(&configuration, cuda.first, PARAMETERS, EXTRA),
    };
    for (size_t i = 0; i < sizeof results / sizeof *results; i++) {
        __atomic_add_fetch(&wrong, results[i] != expected, __ATOMIC_RELAXED);
        __atomic_add_fetch(&succeeded, results[i] == 0, __ATOMIC_RELAXED);
    }
}

static void *thread(void *unused)
{
    for (int i = 0; i < 200; i++)
        launch_all(16, 0);
    launch_all(13, 1);
    pthread_barrier_wait(&all_have);
    return unused;
}

int main(int argc, char **argv)
{
    int count = argc > 1 ? atoi(argv[1]) : 1;
    pthread_t threads[64];
    cuda = cuda_start();
    pthread_barrier_init(&all_have, NULL, count);
    for (int i = 0; i < count; i++)
        pthread_create(&threads[i], NULL, thread, NULL);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    printf("%ld %ld\n", succeeded, wrong);
    return 0;
}
