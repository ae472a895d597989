"""Runs HTA's analyses on a chrome export and prints their figures as JSON. Run by scripts/check-viewers.

usage: hta_figures.py FILE.json
"""
import json
import logging
import math
import sys
import warnings

logging.disable(logging.CRITICAL)
warnings.filterwarnings("ignore")

from hta.trace_analysis import TraceAnalysis  # noqa: E402  (logging must be off first)

analysis = TraceAnalysis(trace_files={0: sys.argv[1]})
_, kernels = analysis.get_gpu_kernel_breakdown(
    visualize=False, duration_ratio=1.0, num_kernels=1_000_000, include_memory_kernels=True)
temporal = analysis.get_temporal_breakdown(visualize=False).iloc[0]
idle, _ = analysis.get_idle_time_breakdown(visualize=False)
launches = analysis.get_cuda_kernel_launch_stats(visualize=False)[0]
overlap = float(analysis.get_comm_comp_overlap(visualize=False).iloc[0]["comp_comm_overlap_pctg"])
queue = analysis.get_queue_length_summary()
bandwidth = analysis.get_memory_bw_summary()



def rows(table):
    """Those of a table, which HTA leaves out if there is nothing in it."""
    return [] if table is None else table.iterrows()


print(json.dumps({
    "kernels": {row["name"]: [row["sum (us)"], row["max (us)"], row["min (us)"]] for _, row in kernels.iterrows()},
    "busy_us": float(temporal["kernel_time(us)"] - temporal["idle_time(us)"]),
    "idle_us": float(temporal["idle_time(us)"]),
    "idle_by_stream": {str(stream): float(of["idle_time"].sum()) for stream, of in idle.groupby("stream")},
    "launches": len(launches),
    "launched_us": float(launches["gpu_duration"].sum()),
    "overlap_percent": None if math.isnan(overlap) else overlap,
    "longest_queue": {str(stream): float(row[("queue_length", "max")]) for (_, stream), row in rows(queue)},
    "fastest_gbps": {name: float(row[("memory_bw_gbps", "max")]) for (_, name), row in rows(bandwidth)},
}, default=float))
