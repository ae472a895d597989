/* Three launches, then "there", and an end once the file named in the argument exists. */
#include <unistd.h>

#include "driver.h"

int main(int count, char **arguments)
{
    Cuda cuda = cuda_start();
    for (int i = 0; i < 3; i++)
        launch(cuda.first, NULL);
    OK(cuCtxSynchronize());
    printf("there %d\n", getpid());
    fflush(stdout);
    /* Two minutes at most: nobody may come. */
    for (int i = 0; count > 1 && i < 12000 && access(arguments[1], F_OK) != 0; i++)
        usleep(10000);
    return 0;
}
