"""Checks that hook_bypass finds a known cost: in made times of launches, and with two hooks that run, one
that adds a microsecond and one that is the driver's function itself.

    python3 -m harness.hook_bypass_synthetic FOLDER       in tests/gpu; needs gcc
"""

import ctypes
import random
import statistics
import sys
from pathlib import Path

from . import build

sys.path.insert(0, str(build.PROGRAMS))
import hook_bypass  # noqa: E402

LAUNCHES, KERNELS = 60_000, 7
MADE = """
#include <time.h>
typedef int launch_t(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void *, void *);
static double now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e9 + now.tv_nsec;
}
static void work(double ns) {
    for (double from = now_ns(); now_ns() - from < ns;)
        ;
}
int driver() { work(1000); return 0; }
int hook() { work(1000); return driver(); }
// Kernels take turns, and the program does more after some of them than after others.
void launches(launch_t *launch, long count) {
    for (long at = 0; at < count; at++) {
        launch((void *)(4096 + 64 * (at %% %d)), 1, 1, 1, 1, 1, 1, 0, 0, 0, 0);
        work(500 * (at %% %d));
    }
}
""" % (KERNELS, KERNELS)
# The made times, of which a tick is a nanosecond: launches are 10 to 40 us apart, as in a model's layer; the
# machine's slowness changes by up to 5 % each 50 launches; and 3 % of the launches take three times as long.
SEEDS, PLANTED, PLACES = 12, 300, 60
CHANGE, LEAST, MOST, NOISE, LONG_SHARE, LONG = 0.05, 0.7, 1.5, 0.08, 0.03, 3


def made_samples(seed):
    """Samples, and the hook's mean cost in them. As all times it is multiplied by the machine's slowness."""
    draw, slowness, samples, all_slowness = random.Random(seed), 1.0, [], []
    changes_at, is_bypassed = 0, False
    apart = [draw.uniform(10_000, 40_000) for _ in range(PLACES)]
    for at in range(LAUNCHES):
        if at % 50 == 0:
            slowness = min(max(slowness * draw.uniform(1 - CHANGE, 1 + CHANGE), LEAST), MOST)
        if at == changes_at:
            is_bypassed, changes_at = draw.random() < 0.5, at + draw.randrange(32, 64)
        time = (apart[at % PLACES] + (0 if is_bypassed else PLANTED)) * slowness * draw.lognormvariate(0, NOISE) * (LONG if draw.random() < LONG_SHARE else 1)
        samples.append((int(time), at % PLACES, int(is_bypassed)))
        all_slowness.append(slowness)
    return samples, PLANTED * statistics.fmean(all_slowness)


def check_made_samples():
    halves, errors = [], []
    for seed in range(SEEDS):
        samples, planted = made_samples(seed)
        ticks, half, _ = hook_bypass.cost(samples)
        halves.append(half)
        errors.append(ticks - planted)
    contained = sum(abs(error) <= half for error, half in zip(errors, halves))
    mean, half = statistics.fmean(errors), statistics.fmean(halves)
    print(f"made samples: ± {half:.0f}, {contained} of {SEEDS} intervals contain the planted cost of some {PLANTED}, mean error {mean:+.1f}")
    assert contained >= SEEDS - 2 and abs(mean) < half / SEEDS**0.5, (contained, mean, half)
    # Without histories half an interval is some 1,040.
    assert 20 < half < 90, half


def check_made_hooks(folder):
    source, builder = folder / "made.c", build.Builder(folder)
    source.write_text(MADE, encoding="utf-8")

    def library(name, source):
        built = builder.c(name, source, "-shared", "-fPIC", suffix=".so")
        assert built, builder.failures
        return str(built)

    made = ctypes.CDLL(library("made", source))
    hook, driver = (ctypes.cast(function, ctypes.c_void_p).value for function in (made.hook, made.driver))
    for name, way, least, most in (("a hook of 1 us", (hook, driver), 990, 1200), ("no hook", (driver, driver), -10, 10)):
        # Each hook has a copy of the library, since the samples are static variables.
        bypass = hook_bypass.HookBypass(library(f"bypass-{name.replace(' ', '-')}", build.GPU_TESTS / "hook_bypass.c"), way, way)
        bypass.switch(True)
        made.launches(bypass.library.hook_or_bypass, ctypes.c_long(LAUNCHES))
        bypass.switch(False)
        samples, ticks_per_ns = bypass.samples(), bypass.ticks_per_ns()
        ticks, half, known = hook_bypass.cost(samples)
        ns, half, share = ticks / ticks_per_ns, half / ticks_per_ns, statistics.fmean(sample[2] for sample in samples)
        print(f"{name}: {ns:.0f} ± {half:.1f} ns, by {known} differences, {share:.1%} of the launches past the hook")
        assert 0.97 * LAUNCHES < len(samples) < LAUNCHES and known > 0.5 * LAUNCHES and 0.3 < share < 0.7, (len(samples), known, share)
        # The machine may be busy: what its noise explains is no error.
        assert least - half < ns < most + half and 0 < half < 100, (ns, half)


check_made_samples()
check_made_hooks(Path(sys.argv[1]))
