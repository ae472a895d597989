/* Loads the library at LIBRARY, which has a CUPTI inside, before cuInit: `LIBRARY COPY`. That CUPTI is the copy of libcupti
   at COPY. */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "driver.h"

int main(int count, char **arguments)
{
    void *library = count == 3 ? dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library)
        return 93;
    void (*begins)(const char *path) = (void (*)(const char *))dlsym(library, "inner_cupti_begins");
    void (*ends)(void) = (void (*)(void))dlsym(library, "inner_cupti_ends");
    Cuda cuda = cuda_start();
    for (int i = 0; i < 5; i++)
        launch(cuda.first, NULL);
    OK(cuCtxSynchronize());
    begins(arguments[2]);
    for (int i = 0; i < 7; i++)
        launch(cuda.first, NULL);
    OK(cuCtxSynchronize());
    ends();
    return 0;
}
