"""Made blocks with known effects: how wide the model's intervals are, and how often they contain the effect.

    python3 -m harness.paired_synthetic [BLOCKS] [STATE,…]     in tests/gpu

The noise is like that of two programs on two H200 machines with shared processors, step by step: the steps of a block differ by some 5 %, a few are much longer,
but whole blocks differ by 15 % (standard deviation), and neighbours' logarithms correlate by 0.7. It is
somewhat harder than theirs, whose speed stays the same for longer.
"""

import math
import random
import statistics
import sys

from . import inprocess, paired

STEPS = 7
LEVEL, CORRELATION = 0.15, 0.7
WITHIN, LONG_SHARE, LONG = 0.05, 0.02, 1.4
SEEDS = 8


def blocks(effects, count, seed):
    """(state, steps' times) in a random order of states."""
    draw, state, level, found = random.Random(seed), None, 0.0, []
    for _ in range(count):
        state = draw.choice([other for other in effects if other != state])
        level = CORRELATION * level + draw.gauss(0, LEVEL * math.sqrt(1 - CORRELATION**2))
        block = 1e7 * effects[state] * math.exp(level)
        found.append((state, [block * math.exp(draw.gauss(0, WITHIN)) * (LONG if draw.random() < LONG_SHARE else 1) for _ in range(STEPS)]))
    return found


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    states = sys.argv[2].split(",") if len(sys.argv) > 2 else list(inprocess.STATES)
    effects = {state: 1 + 0.02 * at for at, state in enumerate(dict.fromkeys([inprocess.BASE, *states]))}
    halves, contained, errors = [], [], []
    for seed in range(SEEDS):
        made = [(state, inprocess.quartile(times)) for state, times in blocks(effects, count, seed)]
        for state, found in paired.pooled([paired.of_process(made, inprocess.BASE)]).items():
            halves.append((found["high"] - found["low"]) / 2)
            contained.append(found["low"] <= effects[state] <= found["high"])
            errors.append(found["ratio"] / effects[state] - 1)
    half, share, error = map(statistics.fmean, (halves, contained, errors))
    print(f"±{half * 100:.2f} %, {share * 100:.0f} % contain the effect, mean error {error * 100:+.2f} %, ±0.5 % by {count * (half / 0.005) ** 2:,.0f} switches")
    assert len(halves) == SEEDS * (len(effects) - 1)
    assert share >= 0.85 and abs(error) < half, (share, error, half)


if __name__ == "__main__":
    main()
