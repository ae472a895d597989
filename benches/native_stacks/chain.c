/* Nanoseconds a launch from DEPTH native frames, each of a function of its own: the lower quartile of many bursts, launch after
 * launch, and with 1 MiB of other memory read between launches. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <x86intrin.h>

typedef void *handle;
int cuInit(unsigned flags);
int cuCtxCreate_v2(handle *context, unsigned flags, int device);
int cuModuleGetFunction(handle *function, handle module, const char *name);
int cuLaunchKernel(handle f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   handle stream, handle *params, handle *extra);

static handle function;
static volatile int sink;

static double now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

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

typedef double (*level)(int depth, long away);
static level levels[];

/* A frame of each function: of 40 to 500 bytes. */
#define LEVEL(number)                                                                                                  \
    static __attribute__((noinline)) double level_##number(int depth, long away)                                       \
    {                                                                                                                  \
        volatile char room[40 + number % 8 * 60];                                                                      \
        room[number % 40] = 1;                                                                                         \
        double result = depth ? levels[(number + 1) % 64](depth - 1, away) : bursts(away);                             \
        sink += room[number % 40];                                                                                     \
        return result;                                                                                                 \
    }
#define EIGHT(with, tens) with(tens##0) with(tens##1) with(tens##2) with(tens##3) with(tens##4) with(tens##5) with(tens##6) with(tens##7)
#define ALL(with) EIGHT(with, 1) EIGHT(with, 2) EIGHT(with, 3) EIGHT(with, 4) EIGHT(with, 5) EIGHT(with, 6) EIGHT(with, 7) EIGHT(with, 8)
ALL(LEVEL)
#define NAME(number) level_##number,
static level levels[] = {ALL(NAME)};

int main(int count, char **arguments)
{
    handle context;
    /* main, these, `bursts`, and what the C library has around main. */
    int depth = count > 1 ? atoi(arguments[1]) - 6 : 24;
    cuInit(0);
    cuCtxCreate_v2(&context, 0, 0);
    cuModuleGetFunction(&function, (handle)8, "kernel");
    double hot = levels[0](depth, 0);
    printf("%.1f %.1f\n", hot, levels[0](depth, 1 << 20));
    return 0;
}
