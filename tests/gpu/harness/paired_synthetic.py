"""Made blocks with known effects: what intervals the model gives, and how often they contain the effect.

    python3 -m harness.paired_synthetic [BLOCKS] [STATE,…]     in tests/gpu

The noise is like that of two launch-bound programs on a GPU machine whose processors are shared. There only whole blocks of about 12 steps were
measured: their logarithms had standard deviations of 0.16 and 0.20, and neighbours correlated by 0.22 and 0.45; those made here have 0.21 and 0.28. A
step is 10 ms × the effect × a drift × (1 + 2 % of normal noise) × (1 + a gamma variate of shape 0.5), whose mean is about 0.7 and walks from block to
block. That the steps of a block are distributed so is an assumption: another shape makes another quantile the best.
"""

import math
import random
import statistics
import sys

from . import inprocess, paired

STEPS = 7
SHAPE, MEAN = 0.5, 0.7


def blocks(effects, count, seed):
    """(state, times of steps) in the order in which a process measures its states."""
    draw = random.Random(seed)
    states, level, drift, found = inprocess.walk(list(effects), draw), 0.0, 0.0, []
    for _ in range(count):
        state = next(states)
        level, drift = 0.8 * level + draw.gauss(0, 0.2), drift + draw.gauss(0, 0.003)
        time = 1e7 * effects[state] * math.exp(drift)
        noise = MEAN / SHAPE * math.exp(level)
        found.append((state, [time * (1 + draw.gauss(0, 0.02)) * (1 + draw.gammavariate(SHAPE, noise)) for _ in range(STEPS)]))
    return found


def trial(effects, count, seeds):
    """By location: the half-width of an interval, the share of intervals that contain the effect, and the mean error."""
    every = {}
    for seed in seeds:
        made = blocks(effects, count, seed)
        for name, place in paired.LOCATIONS.items():
            found = paired.pooled([paired.of_process([(state, place(times)) for state, times in made], inprocess.BASE)])
            assert set(found) == set(effects) - {inprocess.BASE}, found
            every.setdefault(name, []).extend((one["high"] / one["low"], one["low"] <= effects[state] <= one["high"], one["ratio"] / effects[state]) for state, one in found.items())
    return {name: (math.log(statistics.fmean(one[0] for one in each)) / 2, statistics.fmean(one[1] for one in each), statistics.fmean(one[2] for one in each) - 1) for name, each in every.items()}


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    states = sys.argv[2].split(",") if len(sys.argv) > 2 else list(inprocess.STATES)
    effects = {state: 1 + 0.02 * at for at, state in enumerate(dict.fromkeys([inprocess.BASE, *states]))}
    found = trial(effects, count, range(8))
    for name, (half, contained, error) in found.items():
        needed = count * (half / 0.005) ** 2
        print(f"{name:14} ±{half * 100:.2f} %, {contained * 100:3.0f} % contain the effect, mean error {error * 100:+.2f} %, ±0.5 % by {needed:,.0f} switches")
    assert all(contained >= 0.8 for _, contained, _ in found.values()), found
    assert found["fastest half"][0] < 0.75 * found["mean"][0], found
    assert found["fastest half"][0] > abs(found["fastest half"][2]), found


if __name__ == "__main__":
    main()
