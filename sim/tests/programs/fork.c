/* A child forked after cuInit has no device, as with the real driver, and does not hang. */
#include "sim.h"
#include <sys/wait.h>

int main(void)
{
    start();
    start_client();
    OK(cuptiActivityEnable(CONCURRENT_KERNEL));
    OK(launch(brief, NULL));
    OK(cuCtxSynchronize());
    pid_t child = fork();
    if (child == 0) {
        int version;
        alarm(20);
        EQ(launch(brief, NULL), 3);
        EQ(cuInit(0), 3);
        EQ(cuCtxSynchronize(), 3);
        OK(cuDriverGetVersion(&version));
        CHECK(cuptiActivityFlushAll(1) != 0);
        exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    EQ(status, 0);
    OK(launch(brief, NULL));
    OK(cuCtxSynchronize());
    return 0;
}
