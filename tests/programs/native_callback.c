/* C functions between Python's: one that calls back, and one that launches. */
#include "driver.h"

#define NOINLINE __attribute__((noinline))

static volatile int sink;

static NOINLINE int middle_c(int (*callback)(int), int value)
{
    volatile char room[500];
    room[value] = 1;
    int result = callback(value);
    sink += room[value];
    return result + 1;
}

int outer_c(int (*callback)(int), int value)
{
    int result = middle_c(callback, value);
    sink++;
    return result + 1;
}

int launch_c(void *function, unsigned blocks)
{
    unsigned long long unused = 0;
    void *parameters[] = {&unused};
    int status = cuLaunchKernel(function, blocks, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
    sink++;
    return status;
}
