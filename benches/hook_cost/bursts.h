/* Nanoseconds a launch as its caller sees it, for benchmarks of what depends on the caller: many bursts, of which the lower
 * quartile counts. `away` bytes are read between launches, untimed, so that the caches hold less of the stack than right after
 * another launch. */
#include <stdlib.h>
#include <x86intrin.h>
#include "stub_driver.h"

static int by_size(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static __attribute__((noinline)) double bursts(long away)
{
    enum { BURSTS = 100, LAUNCHES = 1000 };
    static double each[BURSTS];
    volatile char *other = away ? calloc(1, away) : NULL;
    double begun_ns = now_ns();
    unsigned long long begun = __rdtsc();
    for (int burst = 0; burst < BURSTS; burst++) {
        unsigned long long ticks = 0;
        int launches = away ? LAUNCHES / 10 : LAUNCHES;
        if (!away)
            ticks -= __rdtsc();
        for (int i = 0; i < launches; i++) {
            for (long at = 0; at < away; at += 64)
                other[at]++;
            if (away)
                ticks -= __rdtsc();
            cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0);
            if (away)
                ticks += __rdtsc();
        }
        if (!away)
            ticks += __rdtsc();
        each[burst] = (double)ticks / launches;
        struct timespec pause = {0, 2000000};
        nanosleep(&pause, 0);
    }
    double ns_per_tick = (now_ns() - begun_ns) / (__rdtsc() - begun);
    qsort(each, BURSTS, sizeof *each, by_size);
    return each[BURSTS / 4] * ns_per_tick;
}
