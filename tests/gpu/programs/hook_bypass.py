"""What a hook costs as the program sees it: some launches go past gputrace's hook by chance (tests/gpu/hook_bypass.c), and the times from one
launch to the next are compared where the same kernels were launched before. Of these times the middle half counts: the figure is that of a typical
launch, and what happens in fewer than a quarter of the launches is left out.
"""
import ctypes
import itertools
import statistics
import struct
import sys
from pathlib import Path

import hook_tables

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from harness.paired import STRETCHES, T_STRETCHES, jackknife  # noqa: E402

# A history counts only if so many launches went through the hook, and so many past it.
LAUNCHES_MIN = 50
# The machine's speed at a launch is estimated from so many launches before it and after it, by the ratio of
# their times to what is usual of them; larger ratios than RATIO_MAX are cut to it.
AROUND, RATIO_MAX = 25, 2
SAMPLE = struct.Struct("III")


class HookBypass:
    def __init__(self, library, launch, launch_ex):
        """`launch` and `launch_ex` are each two addresses: gputrace's hook, and the driver's function that it stands for."""
        self.library = ctypes.CDLL(str(library))
        self.library.ticks_per_ns.restype = ctypes.c_double
        if not self.library.bypass_prepare(*map(ctypes.c_void_p, (*launch, *launch_ex))):
            raise MemoryError("no memory for the samples")

    @staticmethod
    def of_this_process(library):
        """Puts the library's functions where this process's libraries have gputrace's hooks."""
        tables = hook_tables.HookTables()
        ways = [(tables.hooks[name], tables.driver[name]) for name in ("cuLaunchKernel", "cuLaunchKernelEx")]
        bypass = HookBypass(library, *ways)
        functions = (bypass.library.hook_or_bypass, bypass.library.hook_or_bypass_ex)
        if not tables.replace({hook: ctypes.cast(function, ctypes.c_void_p).value for (hook, _), function in zip(ways, functions)}):
            raise RuntimeError("no library of this process calls a launching function of gputrace's")
        return bypass

    def switch(self, is_on):
        self.library.bypass_switch(int(is_on))

    def samples(self):
        """(ticks, history, is_bypassed) of each launch that was followed by another of its thread in less than 2^32 ticks, up to SAMPLES_MAX of
        hook_bypass.c. To be called while no thread launches."""
        found = ctypes.c_void_p()
        count = self.library.bypass_samples(ctypes.byref(found))
        return list(SAMPLE.iter_unpack(ctypes.string_at(found, count * SAMPLE.size)))

    def ticks_per_ns(self):
        return self.library.ticks_per_ns()


def cost(samples):
    """How many ticks longer a launch takes with its hook, half of that figure's 95 % interval, and the number of launches it is made of."""
    histories = {}
    for at, (ticks, (_, history, is_bypassed)) in enumerate(zip(speed_corrected(samples), samples)):
        histories.setdefault(history, ([], []))[is_bypassed].append((ticks, at * STRETCHES // len(samples)))
    known = [tuple(map(sorted, ways)) for ways in histories.values() if min(map(len, ways)) >= LAUNCHES_MIN]
    each_left_out = [difference(known, stretch) for stretch in range(STRETCHES)]
    if None in each_left_out:
        raise RuntimeError(f"{len(samples)} launches are too few")
    return difference(known), T_STRETCHES * jackknife(each_left_out), sum(len(times) for ways in known for times in ways)


def speed_corrected(samples):
    """Each launch's ticks, scaled to the run's mean speed. The speed at a launch is the mean, over the launches around it, of their time to the
    median time of their history."""
    histories = {}
    for ticks, history, _ in samples:
        histories.setdefault(history, []).append(ticks)
    usual = {history: statistics.median(times) for history, times in histories.items()}
    ratios = [min(ticks / usual[history], RATIO_MAX) for ticks, history, _ in samples]
    sums = [0.0, *itertools.accumulate(ratios)]
    for at, ((ticks, _, _), own) in enumerate(zip(samples, ratios)):
        begin, end = max(at - AROUND, 0), min(at + AROUND + 1, len(samples))
        # The launch itself is left out, or a part of what its hook costs would be taken for speed.
        around = (sums[end] - sums[begin] - own) / max(end - begin - 1, 1)
        yield ticks * sums[-1] / len(samples) / around if around else ticks


def difference(histories, left_out=None):
    """How much longer a typical launch takes with its hook: the mean over histories, weighted by their launches past the hook. The stretch
    `left_out`, if there is one, does not count. None if no history has launches of both kinds."""
    total = weight = 0
    for ways in histories:
        hooked, bypassed = ([ticks for ticks, stretch in times if stretch != left_out] for times in ways)
        if hooked and bypassed:
            total += len(bypassed) * (midmean(hooked) - midmean(bypassed))
            weight += len(bypassed)
    return total / weight if weight else None


def midmean(times):
    """The mean of the middle half of sorted times."""
    return statistics.fmean(times[len(times) // 4 : len(times) - len(times) // 4])
