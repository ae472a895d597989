"""How quick the processor is at the moment, by two small pieces of work that a program does in the midst of its steps, on the thread that makes them.

A virtual machine's processor may share its core with others', which halves its speed for some milliseconds or seconds. Samples beside the steps tell that
from the effect of a session's state (tests/gpu/harness/paired.py), so a state must change them little: the memory that they need is little, or in the core's caches before
the clock is read. Other work takes 2 to 3 % longer while device times are recorded, by CUPTI alone too.
"""

import json
import re
import statistics
import time

TURNS = 1_000
DATA = {"values": [1.5, 2, "three", None, True] * 4, "names": {f"name{number}": number for number in range(20)}}
PATTERN = re.compile(r"(\w+)-(\d+)|([a-f]+)")
TEXT = "alpha-12 beta-7 face gamma-99 " * 6


def loop():
    """A few instructions, over and over."""
    total = 0
    for turn in range(TURNS):
        total += turn & 7
    return total


def calls():
    """Many instructions, more than the first level of the caches holds."""
    text = json.dumps(DATA)
    json.loads(text)
    PATTERN.findall(TEXT)
    sorted(TEXT.split(), key=len)
    text.encode().hex().replace("7", "x").upper()


class Speed:
    def __init__(self):
        self.begin()

    def begin(self):
        """Begins a step, which has no samples yet: what they take in all, and the ns of either work in each."""
        self.ns, self.samples = 0, []

    def sample(self):
        begin = time.perf_counter_ns()
        loop()
        after_loop = time.perf_counter_ns()
        # The first time brings into the caches what the second one needs.
        calls()
        before_calls = time.perf_counter_ns()
        calls()
        end = time.perf_counter_ns()
        self.samples.append((after_loop - begin, end - before_calls))
        self.ns += time.perf_counter_ns() - begin

    def means(self):
        """Of either work the geometric mean of the step's samples, in ns; nothing if there is none."""
        return [round(statistics.geometric_mean(times)) for times in zip(*self.samples)]
