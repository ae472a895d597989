/* For programs whose plugins launch through a function of theirs: so many blocks of the first kernel, and something after it, so that
 * the call is no tail jump and the function has a frame. */
#pragma once

#include "driver.h"

static Cuda cuda;
static volatile int sink;

static void launch_blocks(int blocks)
{
    unsigned long long unused = 0;
    void *parameters[] = {&unused};
    OK(cuLaunchKernel(cuda.first, blocks, 1, 1, 64, 1, 1, 0, NULL, parameters, NULL));
    sink++;
}
