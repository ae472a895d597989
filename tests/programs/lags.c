/* Launches, waits a moment and is killed: what CUPTI had delivered by then is what is known of the device. */
#include <signal.h>
#include <unistd.h>

#include "driver.h"

int main(void)
{
    Cuda cuda = cuda_start();
    for (int i = 0; i < 20; i++)
        launch(cuda.first, NULL);
    OK(cuCtxSynchronize());
    usleep(600000);
    kill(getpid(), SIGKILL);
    return 0;
}
