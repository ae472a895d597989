/* A CUPTI client with a clock of its own: so many ticks a nanosecond as it is told, from an origin of its own. Every kernel must lie between
   the readings of that clock before its launch and after its end. */
#include "cupti.h"

#include <time.h>

static uint64_t rate;

static uint64_t clock_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return rate * ((uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec) + 1000000000000ull;
}

int main(int count, char **arguments)
{
    uint64_t told = 0, before, after, slack;
    Cuda cuda = cuda_start();
    rate = count > 1 ? strtoull(arguments[1], NULL, 10) : 1;
    slack = rate * 2000000;
    launch(cuda.second, NULL);
    cupti_load();
    printf("register %d\n", cuptiActivityRegisterCallbacks(request, complete));
    printf("no clock %d\n", cuptiActivityRegisterTimestampCallback(NULL));
    printf("clock %d\n", cuptiActivityRegisterTimestampCallback(clock_now));
    cuptiActivityEnable(CONCURRENT_KERNEL);
    for (int round = 0; round < 5; round++) {
        struct timespec pause = {0, 20000000};
        first_start = last_end = 0;
        before = clock_now();
        for (int i = 0; i < 10; i++)
            launch(cuda.first, NULL);
        OK(cuCtxSynchronize());
        after = clock_now();
        cuptiActivityFlushAll(0);
        printf("%s %s %s\n", first_start + slack >= before ? "after" : "BEFORE", last_end <= after + slack ? "until" : "BEYOND",
               last_end > first_start ? "long" : "EMPTY");
        nanosleep(&pause, NULL);
    }
    cuptiGetTimestamp(&told);
    after = clock_now();
    printf("timestamp %s\n", told <= after && told + slack >= after ? "follows" : "is another");
    tell("records");
    return 0;
}
