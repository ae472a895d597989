"""Effects of states of one process, from blocks of steps that were measured one after another.

The model: the logarithm of a block's location is the state's effect, plus a drift, plus noise. The drift is a random walk; how fast it walks, against
the noise, is found in the blocks themselves. Blocks near in time share the drift, so a state is compared with those measured around it, and
with more of them the slower the drift is. Weights bound what outliers count for (Huber). The interval comes from leaving out one of 20 stretches of the
process at a time (jackknife), which allows for noise that neighbours share.
"""

import math
import statistics

STRETCHES = 20
T_STRETCHES = 2.093  # 97.5 % of Student's t with 19 degrees of freedom.
HUBER = 1.345
ROUNDS = 8
# The noise's variance to that of the drift from block to block: where the search for it begins, and its limits.
STIFFNESS, STIFFNESS_MIN, STIFFNESS_MAX = 10.0, 0.1, 1e4
LAG = 8


def fastest(times, share):
    """The mean of the fastest share of the times."""
    times = sorted(times)
    return statistics.fmean(times[:max(1, math.ceil(len(times) * share))])


# A block's location, from its steps' times. Noise of a shared machine only makes steps longer, and some much longer.
LOCATIONS = {
    "fastest half": lambda times: fastest(times, 0.5),
    "fastest fifth": lambda times: fastest(times, 0.2),
    "median": statistics.median,
    "mean": statistics.fmean,
}


def solve(matrix, right):
    """The solution of a symmetric positive system; None where a state cannot be distinguished from the others."""
    size, rows = len(right), [row[:] + [value] for row, value in zip(matrix, right)]
    for at in range(size):
        best = max(range(at, size), key=lambda row: abs(rows[row][at]))
        if abs(rows[best][at]) < 1e-9:
            return None
        rows[at], rows[best] = rows[best], rows[at]
        for row in range(size):
            if row != at:
                factor = rows[row][at] / rows[at][at]
                rows[row] = [one - factor * other for one, other in zip(rows[row], rows[at])]
    return [rows[at][size] / rows[at][at] for at in range(size)]


class Smoother:
    """The drift that fits values best, by their weights: the least squares of values less drift, plus the stiffness times those of the drift's steps."""

    def __init__(self, weights, stiffness):
        self.stiffness, self.weights, self.pivots, last = stiffness, weights, [], 0.0
        for at, weight in enumerate(weights):
            ends = (at > 0) + (at < len(weights) - 1)
            last = weight + stiffness * ends - (stiffness * stiffness / last if at else 0.0)
            last = max(last, 1e-12)
            self.pivots.append(last)

    def drift(self, values):
        stiffness, right = self.stiffness, []
        for at, (weight, value) in enumerate(zip(self.weights, values)):
            right.append(weight * value + (stiffness * right[-1] / self.pivots[at - 1] if at else 0.0))
        found, later = [0.0] * len(right), 0.0
        for at in range(len(right) - 1, -1, -1):
            later = (right[at] + stiffness * later) / self.pivots[at]
            found[at] = later
        return found


def fit(of, logs, states, kept, stiffness):
    """Effects of `states` on `logs`, whose states are `of`, and the drift with them; blocks that are not kept count for nothing."""
    columns = [[float(one == state) for one in of] for state in states]
    weights, effects = [float(keep) for keep in kept], None
    for _ in range(ROUNDS):
        smoother = Smoother(weights, stiffness)
        flat = [[one - drift for one, drift in zip(column, smoother.drift(column))] for column in columns]
        matrix = [[sum(w * a * b for w, a, b in zip(weights, column, other)) for other in flat] for column in columns]
        right = [sum(w * a * b for w, a, b in zip(weights, other, logs)) for other in flat]
        effects = solve(matrix, right)
        if effects is None:
            return None
        known = dict(zip(states, effects))
        rest = [value - known.get(state, 0.0) for state, value in zip(of, logs)]
        noise = [abs(one - drift) for one, drift in zip(rest, smoother.drift(rest))]
        scale = max(1e-12, 1.4826 * statistics.median(one for one, keep in zip(noise, kept) if keep))
        weights = [min(1.0, HUBER * scale / max(one, 1e-15)) if keep else 0.0 for one, keep in zip(noise, kept)]
    return known, rest


def stiffness_of(rest):
    """From how much more blocks differ that are further apart."""
    def variance(lag):
        return statistics.median(abs(other - one) for one, other in zip(rest, rest[lag:])) ** 2

    if len(rest) < 4 * LAG:
        return STIFFNESS
    near, far = variance(1), variance(LAG)
    drift = (far - near) / (LAG - 1)
    noise = max(0.0, (near - drift) / 2)
    return min(STIFFNESS_MAX, max(STIFFNESS_MIN, noise / drift)) if drift > 0 else STIFFNESS_MAX


def of_process(blocks, base):
    """By state: (effect, standard error), from (state, location) in the order of time."""
    states = sorted({state for state, _ in blocks} - {base})
    of, logs = [state for state, _ in blocks], [math.log(time) for _, time in blocks]
    kept = [True] * len(blocks)
    first = fit(of, logs, states, kept, STIFFNESS) if base in of and states else None
    if first is None:
        return {}
    stiffness = stiffness_of(first[1])
    whole = fit(of, logs, states, kept, stiffness)
    size, without = len(blocks) / STRETCHES, []
    for at in range(STRETCHES):
        left = [not round(at * size) <= number < round((at + 1) * size) for number in range(len(blocks))]
        without.append(any(left) and fit(of, logs, states, left, stiffness))
    if whole is None or not all(without):
        return {}
    found = {}
    for state in states:
        left = [known[state] for known, _ in without]
        mean = statistics.fmean(left)
        found[state] = whole[0][state], math.sqrt((STRETCHES - 1) / STRETCHES * sum((one - mean) ** 2 for one in left))
    return found


def pooled(processes):
    """By state: the effect as a ratio, its 95 % interval, and how many processes it is of. Where processes differ by more than their own errors
    explain, the interval is wider by that (Birge's ratio)."""
    found = {}
    for state in {state for process in processes for state in process}:
        each = [process[state] for process in processes if state in process]
        weights = [1 / max(error, 1e-9) ** 2 for _, error in each]
        mean = sum(weight * effect for weight, (effect, _) in zip(weights, each)) / sum(weights)
        excess = sum(weight * (effect - mean) ** 2 for weight, (effect, _) in zip(weights, each)) / max(1, len(each) - 1)
        half = T_STRETCHES * math.sqrt(1 / sum(weights)) * max(1.0, math.sqrt(excess))
        found[state] = {"ratio": math.exp(mean), "low": math.exp(mean - half), "high": math.exp(mean + half), "processes": len(each)}
    return found
