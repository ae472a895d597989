"""Made blocks with known effects: how wide the model's intervals are, without and with samples of the processor's speed, and how often they contain the effect.

    python3 -m harness.paired_synthetic [BLOCKS] [STATE,…]     in tests/gpu

The noise is like that of two programs on two H200 machines with shared processors, step by step: the steps of a block differ by some 5 %, a few are much longer,
but whole blocks differ by 15 % (standard deviation), and neighbours' logarithms correlate by 0.7. It is
somewhat harder than theirs, whose speed stays the same for longer. Samples follow a block's speed but for some 4 %, as in the launch-bound step.
"""

import math
import random
import statistics
import sys

from . import inprocess, paired

STEPS = 7
LEVEL, CORRELATION = 0.15, 0.7
UNEXPLAINED = 0.04
WITHIN, LONG_SHARE, LONG = 0.05, 0.02, 1.4
SEEDS = 8


def blocks(effects, count, seed):
    """(state, steps' times, logarithms of two kinds of samples) in a random order of states."""
    draw, state, level, found = random.Random(seed), None, 0.0, []
    for _ in range(count):
        state = draw.choice([other for other in effects if other != state])
        level = CORRELATION * level + draw.gauss(0, LEVEL * math.sqrt(1 - CORRELATION**2))
        block = 1e7 * effects[state] * math.exp(level)
        steps = [block * math.exp(draw.gauss(0, WITHIN)) * (LONG if draw.random() < LONG_SHARE else 1) for _ in range(STEPS)]
        found.append((state, steps, [level + draw.gauss(0, UNEXPLAINED), 0.8 * level + draw.gauss(0, UNEXPLAINED)]))
    return found


def trial(effects, count, has_samples):
    """Means: half of the 95 % interval, the share of intervals that contain the effect, and the error."""
    halves, contained, errors = [], [], []
    for seed in range(SEEDS):
        made = [(state, statistics.geometric_mean(times), samples if has_samples else ()) for state, times, samples in blocks(effects, count, seed)]
        for state, found in paired.pooled([paired.of_process(made, inprocess.BASE)]).items():
            halves.append((found["high"] - found["low"]) / 2)
            contained.append(found["low"] <= effects[state] <= found["high"])
            errors.append(found["ratio"] / effects[state] - 1)
    assert len(halves) == SEEDS * (len(effects) - 1)
    return [statistics.fmean(figures) for figures in (halves, contained, errors)]


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    states = sys.argv[2].split(",") if len(sys.argv) > 2 else list(inprocess.STATES)
    effects = {state: 1 + 0.02 * at for at, state in enumerate(dict.fromkeys([inprocess.BASE, *states]))}
    widths = []
    for name, has_samples in (("without samples", False), ("with samples", True)):
        half, share, error = trial(effects, count, has_samples)
        print(f"{name}: ±{half * 100:.2f} %, {share * 100:.0f} % contain the effect, mean error {error * 100:+.2f} %, ±0.5 % by {count * (half / 0.005) ** 2:,.0f} switches")
        assert share >= 0.85 and abs(error) < half, (share, error, half)
        widths.append(half)
    assert widths[1] < 0.7 * widths[0], widths


if __name__ == "__main__":
    main()
