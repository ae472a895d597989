"""How much each state, a setting under which blocks of steps ran, changes the time of a step: estimated
within a process, from blocks that were measured one after another, and pooled over processes.

The model: the logarithm of a block's time a step is the state's effect, plus a drift, plus noise. The drift of a process is slow, so that the
difference of two neighbouring blocks is the difference of their states' effects plus noise, whatever the drift is. Effects, against
the base, are fitted to these differences by least squares, with weights that bound what outliers count for (Huber). The
standard error comes from leaving out one of 20 stretches of the process at a time (jackknife), which allows
for noise that neighbours share.

Where blocks come with samples of the processor's speed (tests/gpu/programs/speed.py), a difference of blocks also has the differences of the samples' logarithms, times factors
that are fitted with the effects. Where a state slows the samples too, that part is missing from its effect.
"""

import math
import statistics

STRETCHES = 20
HUBER = 1.345
# With fewer, a fit may be exact by chance, and then has no error.
DIFFERENCES_LEAST = 2 * STRETCHES


def student(freedom):
    """The 97.5 % quantile of Student's t with so many degrees of freedom."""
    few = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228]
    if freedom <= len(few):
        return few[freedom - 1]
    # The first terms of its series about the normal distribution's.
    normal = 1.96
    return normal + (normal**3 + normal) / (4 * freedom) + (5 * normal**5 + 16 * normal**3 + 3 * normal) / (96 * freedom**2)


T_STRETCHES = student(STRETCHES - 1)


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


def fit(differences, states):
    """Each state's effect, from (from, to, difference, differences of samples). Either state may be the base, which is not in
    `states`: its effect is 0. None if effects cannot be distinguished."""
    place = {state: at for at, state in enumerate(states)}
    known = [of_difference(place, *one) for one in differences]
    weights, found = [1.0] * len(differences), None
    size = len(states) + (len(differences[0][3]) if differences else 0)
    for _ in range(12):
        matrix, right = [[0.0] * size for _ in range(size)], [0.0] * size
        for weight, terms, (_, _, value, _) in zip(weights, known, differences):
            for row, factor in terms:
                right[row] += weight * factor * value
                for column, other in terms:
                    matrix[row][column] += weight * factor * other
        found = solve(matrix, right)
        if found is None:
            return None
        rest = [abs(value - sum(found[at] * factor for at, factor in terms)) for terms, (_, _, value, _) in zip(known, differences)]
        scale = max(1e-12, 1.4826 * statistics.median(rest))
        weights = [min(1.0, HUBER * scale / max(one, 1e-15)) for one in rest]
    # The samples' factors come behind the effects.
    return dict(zip(states, found))


def of_difference(place, before, after, _, samples):
    """What a difference consists of: (number of the unknown, its factor)."""
    effects = [(place[state], sign) for state, sign in ((before, -1.0), (after, 1.0)) if state in place]
    return effects + [(len(place) + at, difference) for at, difference in enumerate(samples)]


def jackknife(left_out):
    """The standard error of a figure, from its values with one stretch left out each time."""
    mean = statistics.fmean(left_out)
    return math.sqrt((len(left_out) - 1) / len(left_out) * sum((one - mean) ** 2 for one in left_out))


def of_process(blocks, base):
    """By state: (effect, standard error), from (state, time a step) or (state, time a step, logarithms of samples) in the order of time. Empty if blocks are few."""
    states = sorted({state for state, *_ in blocks} - {base})
    logs = [(state, math.log(time), more[0] if more else ()) for state, time, *more in blocks]
    differences = [(one, other, after - before, [late - early for early, late in zip(samples, later)])
                   for (one, before, samples), (other, after, later) in zip(logs, logs[1:])]
    if len(differences) < DIFFERENCES_LEAST:
        return {}
    whole = fit(differences, states)
    if whole is None:
        return {}
    size = len(differences) / STRETCHES
    without = [fit(differences[:round(at * size)] + differences[round((at + 1) * size):], states) for at in range(STRETCHES)]
    found = {}
    for state in states:
        found[state] = whole[state], jackknife([fitted[state] for fitted in without if fitted])
    return found


def weighted(each):
    """Of processes' (figure, half of its 95 % interval, which is T_STRETCHES standard errors): the mean,
    weighted by 1 / half², and half of its own 95 % interval. Where processes differ by more than their
    intervals explain, it is widened by Birge's ratio and by Student's quantile, since two processes that
    differ say little."""
    weights = [1 / half**2 for _, half in each]
    mean = sum(weight * figure for weight, (figure, _) in zip(weights, each)) / sum(weights)
    excess = math.sqrt(sum(weight * (figure - mean) ** 2 for weight, (figure, _) in zip(weights, each)) / max(1, len(each) - 1))
    return mean, math.sqrt(1 / sum(weights)) * max(1.0, student(max(1, len(each) - 1)) * excess)


def pooled(processes):
    """By state: the effect as a ratio, its 95 % interval, and how many processes it is of."""
    found = {}
    for state in {state for process in processes for state in process}:
        each = [(effect, T_STRETCHES * max(error, 1e-9)) for effect, error in (process[state] for process in processes if state in process)]
        mean, half = weighted(each)
        found[state] = {"ratio": math.exp(mean), "low": math.exp(mean - half), "high": math.exp(mean + half), "processes": len(each)}
    return found
