"""Turns overhead samples into medians, ratios and spreads, and those into a Markdown table."""

import statistics
from collections import defaultdict

ORDER = ["untraced", "hooks", "client", "full", "otlp", "native", "torch-ops", "by-node", "by-graph", "profiler-cuda", "profiler-cpu+cuda", "nsys"]


def quartiles(values):
    """(first quartile, median, third quartile)."""
    if len(values) < 2:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def ratio(values, base):
    """What one process of a round took to another: the median over their turns, which alternated; of their medians where they had none."""
    if len(values) == len(base):
        return statistics.median(ours / theirs for ours, theirs in zip(values, base))
    return statistics.median(values) / statistics.median(base)


def ratios(rounds, variant, base):
    """The ratios of the rounds in which both ran, within one group each."""
    return [ratio(values[variant], values[base]) for values in rounds.values() if values.get(variant) and all(values.get(base) or [0])]


def summarize(samples):
    """One dictionary for each workload and variant."""
    by_workload = defaultdict(lambda: defaultdict(dict))
    inside, seconds = defaultdict(list), defaultdict(list)
    for sample in samples:
        key = sample["workload"], sample["variant"]
        values = sample["values"]
        low, middle, high = quartiles(values)
        by_workload[sample["workload"]][sample["group"], sample["round"]][sample["variant"]] = values
        inside[key].append((high - low) / middle if middle else 0)
        seconds[key].append(sample["process_seconds"])
    found = []
    for workload, rounds in by_workload.items():
        # A peer is compared with the untraced processes beside it, which have the same workloads in one process.
        for variant in sorted({name for values in rounds.values() for name in values}, key=lambda name: ORDER.index(name) if name in ORDER else 99):
            medians = [statistics.median(values[variant]) for values in rounds.values() if variant in values]
            entry = {"workload": workload, "variant": variant, "processes": len(medians), "quartiles": quartiles(medians),
                     "within_process_spread": statistics.median(inside[workload, variant]), "process_seconds": statistics.median(seconds[workload, variant])}
            for base in ("untraced", "client", "full"):
                against = ratios(rounds, variant, base)
                if against and variant != base:
                    entry[f"ratio_to_{base}"] = {"rounds": len(against), "quartiles": quartiles(against)}
            found.append(entry)
    return found


def ratio_text(entry, base):
    ratio = entry.get(f"ratio_to_{base}")
    if not ratio:
        return "–"
    low, middle, high = ratio["quartiles"]
    return f"{middle:.3f} [{low:.3f}–{high:.3f}]"


def markdown(found):
    lines = ["| workload | variant | processes | median | quartiles | to untraced | to bare client | to full | within a process | whole process, s |",
             "|---|---|---:|---:|---|---|---|---|---:|---:|"]
    for entry in found:
        low, middle, high = entry["quartiles"]
        digits = 0 if entry["workload"].endswith("_ns") else 3
        client = ratio_text(entry, "client") if entry["variant"] in ("full", "otlp", "native", "torch-ops", "by-node", "by-graph") else "–"
        full = ratio_text(entry, "full") if entry["variant"] in ("otlp", "native", "torch-ops") else "–"
        lines.append(f"| {entry['workload']} | {entry['variant']} | {entry['processes']} | {middle:.{digits}f} | {low:.{digits}f}–{high:.{digits}f} | "
                     f"{ratio_text(entry, 'untraced')} | {client} | {full} | {entry['within_process_spread'] * 100:.1f} % | {entry['process_seconds']:.1f} |")
    return "\n".join(lines)
