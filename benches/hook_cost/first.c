/* What a program does for the first time, timed from outside, as a library for first.py. */
#include <stdio.h>
#include <string.h>
#include "stub_driver.h"

static double launch_ns;

void begin_first(void)
{
    begin();
}

/* The mean of `times` loads of a fat binary, in ns. */
double load_ns(int times)
{
    /* The magic number of what the CUDA runtime gives to the driver. */
    static const unsigned image[16] = {0x466243b1, 1};
    handle library;
    double from = now_ns();
    for (int time = 0; time < times; time++)
        cuLibraryLoadData(&library, image, 0, 0, 0, 0, 0, 0);
    return (now_ns() - from) / times;
}

/* The mean of `times` look-ups of kernels that were not looked up before, with names of 450 letters, in ns. */
double look_up_ns(int times)
{
    char name[451];
    handle kernel;
    double all = 0;
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = 0;
    for (int time = 0; time < times; time++) {
        static int number;
        snprintf(name, sizeof name, "_Z%d", number++);
        name[strlen(name)] = 'x';
        double from = now_ns();
        cuLibraryGetKernel(&kernel, (handle)8, name);
        all += now_ns() - from;
    }
    return all / times;
}

void launch_first(void)
{
    double from = now_ns();
    cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0);
    launch_ns = now_ns() - from;
}

double last_launch_ns(void)
{
    return launch_ns;
}
