"""What a hook costs as the program sees it: by chance some stretches of launches go past gputrace's hook
(tests/gpu/hook_bypass.c). The time from such a launch to the next one is compared with those of the nearest
launches before and after it that went through the hook and had the same history: the same kernel, and the
same seven before it. Of the differences the middle half counts: the figure is that of a typical launch, and
what happens in fewer than a quarter of the launches is left out.
"""
import ctypes
import statistics
import struct
import sys
from pathlib import Path

import hook_tables

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from harness.paired import STRETCHES, T_STRETCHES, jackknife  # noqa: E402

# Each twentieth of the samples must have at least so many differences, or there is no figure.
DIFFERENCES_MIN = 50
SAMPLE = struct.Struct("III")


class HookBypass:
    def __init__(self, library, launch, launch_ex):
        """`launch` and `launch_ex` are each two addresses: gputrace's hook, and the driver's function that it
        stands for."""
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
        """(ticks, history, is_bypassed) of each launch that was followed by another of its thread in less than
        2^32 ticks and was not the first after a choice, up to SAMPLES_MAX of hook_bypass.c. To be called while
        no thread launches."""
        found = ctypes.c_void_p()
        count = self.library.bypass_samples(ctypes.byref(found))
        return list(SAMPLE.iter_unpack(ctypes.string_at(found, count * SAMPLE.size)))

    def ticks_per_ns(self):
        return self.library.ticks_per_ns()


def cost(samples):
    """How many ticks longer a launch takes with its hook, half the width of that figure's 95 % interval, and the
    number of differences it is made of."""
    differences = sorted(compared(samples))
    counts = [0] * STRETCHES
    for _, stretch in differences:
        counts[stretch] += 1
    if min(counts) < DIFFERENCES_MIN:
        raise RuntimeError(f"{len(samples)} launches are too few")
    each_left_out = [midmean([ticks for ticks, of in differences if of != stretch]) for stretch in range(STRETCHES)]
    return midmean([ticks for ticks, _ in differences]), T_STRETCHES * jackknife(each_left_out), len(differences)


def compared(samples):
    """For each launch past the hook up to two pairs, one with the last and one with the next launch through the
    hook that has the same history: that launch's time less the one's past the hook, and in which twentieth of
    the samples the latter is. The distribution of times is skewed. That of a difference of two with the same
    skew is symmetric, so that its middle has no bias as long as a hook only adds a constant to each time."""
    last, waiting = {}, {}
    for at, (ticks, history, is_bypassed) in enumerate(samples):
        stretch = at * STRETCHES // len(samples)
        if is_bypassed:
            if history in last:
                yield last[history] - ticks, stretch
            waiting.setdefault(history, []).append((ticks, stretch))
        else:
            for bypassed, stretch_then in waiting.pop(history, ()):
                yield ticks - bypassed, stretch_then
            last[history] = ticks


def midmean(times):
    """The mean of the middle half of sorted numbers."""
    return statistics.fmean(times[len(times) // 4 : len(times) - len(times) // 4])
