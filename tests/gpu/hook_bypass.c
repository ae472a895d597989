// Measures what a hook costs as the program sees it. The functions hook_or_bypass and hook_or_bypass_ex are
// put where libraries of a process keep the addresses of cuLaunchKernel and cuLaunchKernelEx
// (hook_tables.py). Each thread chooses by chance, for some fifty of its launches, whether they go to
// gputrace's hook or directly to the driver, and then chooses again. The time from each launch to the thread's
// next one is noted, so that it includes what the hook makes slower after it has returned. hook_bypass.py
// compares the times.
//
// They do not choose at each launch, because a hook that did not see the thread's launch before predicts the
// stack less often (callstack/src/recent.rs), and so costs more: the first launch after each choice does not
// count. It also took a wrong launch for what follows the last one before, and predicts wrongly once more when
// it comes to that one again, so the figure is a little high. With many more launches to a choice, those that
// are compared would be further apart in time, and a shared machine's changes of speed would enter the
// difference. Launches that go directly to the driver are in no trace.
//
// For x86-64 with an invariant time-stamp counter.
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <time.h>
#include <x86intrin.h>

// After SAMPLES_MAX samples no more are noted. A choice is for the launch that chooses and at least LEAST more,
// but fewer than LEAST + SPREAD more.
enum { SAMPLES_MAX = 1 << 23, LEAST = 32, SPREAD = 32 };

struct sample {
    uint32_t ticks;       // from a launch to the thread's next one
    uint32_t history;     // a hash of the launch's kernel and of the thread's seven before it
    uint32_t is_bypassed; // whether the launch went past the hook
};

typedef int launch_t(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void *, void *);
typedef int launch_ex_t(void *, void *, void *, void *);

// The hook and the driver's own function, in this order.
static launch_t *launch[2];
static launch_ex_t *launch_ex[2];
static struct sample *samples;
static uint32_t count, is_sampling;

static __thread uint64_t last_ticks, chance, kernels;
static __thread uint32_t last_history, is_bypassing, is_first, left, bypassed;

// Notes the time since the thread's last launch, if that counts. Returns whether this one goes to the driver.
static inline unsigned bypasses(void *function) {
    uint64_t now = __rdtsc();
    if (!__atomic_load_n(&is_sampling, __ATOMIC_RELAXED)) {
        last_ticks = 0;
        return 0;
    }
    if (last_ticks && !is_first && now - last_ticks < UINT32_MAX) {
        uint32_t at = __atomic_fetch_add(&count, 1, __ATOMIC_RELAXED);
        if (at < SAMPLES_MAX)
            samples[at] = (struct sample){(uint32_t)(now - last_ticks), last_history, is_bypassing};
    }
    is_first = left == 0;
    if (left-- == 0) {
        // Xorshift.
        chance = chance ? chance : now | 1;
        chance ^= chance << 13, chance ^= chance >> 7, chance ^= chance << 17;
        is_bypassing = chance >> 60 & 1;
        left = LEAST + (chance >> 40) % SPREAD;
    }
    kernels = kernels << 8 | (uint8_t)((uintptr_t)function * 0x9e3779b97f4a7c15u >> 56);
    last_history = (uint32_t)(kernels * 0x9e3779b97f4a7c15u >> 32);
    last_ticks = now;
    bypassed += is_bypassing;
    return is_bypassing;
}

int hook_or_bypass(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream, void *arguments,
                   void *extra) {
    return launch[bypasses(function)](function, gx, gy, gz, bx, by, bz, shared, stream, arguments, extra);
}

int hook_or_bypass_ex(void *config, void *function, void *arguments, void *extra) {
    return launch_ex[bypasses(function)](config, function, arguments, extra);
}

// 0 if there is no memory for the samples.
int bypass_prepare(void *hook, void *driver, void *hook_ex, void *driver_ex) {
    launch[0] = hook, launch[1] = driver, launch_ex[0] = hook_ex, launch_ex[1] = driver_ex;
    samples = mmap(NULL, sizeof *samples * SAMPLES_MAX, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return samples != MAP_FAILED;
}

// While it is off, every launch goes to the hook.
void bypass_switch(int is_on) { __atomic_store_n(&is_sampling, is_on, __ATOMIC_RELAXED); }

// The number of samples, and where they are. To be called while no thread launches.
uint32_t bypass_samples(struct sample **found) {
    *found = samples;
    return count < SAMPLES_MAX ? count : SAMPLES_MAX;
}

// How many of the calling thread's launches went past the hook.
uint32_t bypass_count(void) { return bypassed; }

double ticks_per_ns(void) {
    struct timespec from, to, wait = {0, 50 * 1000 * 1000};
    clock_gettime(CLOCK_MONOTONIC, &from);
    uint64_t ticks = __rdtsc();
    nanosleep(&wait, NULL);
    clock_gettime(CLOCK_MONOTONIC, &to);
    return (double)(__rdtsc() - ticks) / ((to.tv_sec - from.tv_sec) * 1e9 + (to.tv_nsec - from.tv_nsec));
}
