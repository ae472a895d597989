"""What a Chrome trace of torch.profiler says of the device: which operations, how long, and whether each belongs to a call.

Times in these traces are microseconds with fractions.
"""

import json
import statistics
from collections import Counter, defaultdict

DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
HOST = ("cuda_runtime", "cuda_driver")
# The fit of the device's clock to the host's may be off by this much without anybody being wrong.
SLACK_US = 20.0


def read(path):
    """The complete events of one trace."""
    return [event for event in json.loads(path.read_text(errors="replace"), strict=False)["traceEvents"] if event.get("ph") == "X"]


def window(events):
    """One window's figures: operations by name, their durations, and how they lie to their calls."""
    device = [event for event in events if event.get("cat") in DEVICE]
    calls = {event["args"]["correlation"]: event for event in events if event.get("cat") in HOST and "correlation" in event.get("args", {})}
    # What the CPU side of the window spans; device work may end a little after its last call, never before its first.
    host_start = min((event["ts"] for event in events if event.get("cat") in (*HOST, "cpu_op", "user_annotation")), default=0.0)
    host_end = max((event["ts"] + event["dur"] for event in events if event.get("cat") in (*HOST, "cpu_op", "user_annotation")), default=0.0)
    found = {"counts": Counter(), "durations": defaultdict(list), "uncorrelated": 0, "early": 0, "outside": 0, "bad": 0, "latencies": [], "host_calls": Counter()}
    for event in events:
        if event.get("cat") in HOST:
            found["host_calls"][event["cat"], event["name"]] += 1
    for event in device:
        found["counts"][event["cat"], event["name"]] += 1
        found["durations"][event["cat"], event["name"]].append(event["dur"])
        call = calls.get(event.get("args", {}).get("correlation"))
        if call is None:
            found["uncorrelated"] += 1
        else:
            found["latencies"].append(event["ts"] - call["ts"])
            found["early"] += event["ts"] < call["ts"] - SLACK_US
        found["outside"] += event["ts"] < host_start - SLACK_US or event["ts"] + event["dur"] > host_end + 1000
        found["bad"] += event["ts"] <= 0 or event["dur"] < 0
    return found


def summary(folder):
    """All windows of a run together; `windows` has each one's operation count."""
    whole = {"counts": Counter(), "durations": defaultdict(list), "latencies": [], "host_calls": Counter(), "windows": [], "uncorrelated": 0, "early": 0, "outside": 0, "bad": 0}
    for path in sorted(folder.glob("window-*.json"), key=lambda path: int(path.stem.split("-")[1])):
        one = window(read(path))
        whole["counts"] += one["counts"]
        whole["host_calls"] += one["host_calls"]
        for key, values in one["durations"].items():
            whole["durations"][key] += values
        whole["latencies"] += one["latencies"]
        whole["windows"].append(sum(one["counts"].values()))
        for key in ("uncorrelated", "early", "outside", "bad"):
            whole[key] += one[key]
    return whole


def typical_us(found):
    """The device time of a run, each kernel counted at its median: one disturbed kernel does not move it."""
    return sum(len(values) * statistics.median(values) for key, values in found["durations"].items() if key[0] == "kernel")


def differences(want, got):
    """`name want/got` for every counter that differs."""
    return [f"{'/'.join(key)[:80]} {got[key]} for {want[key]}" for key in sorted(want.keys() | got.keys()) if want[key] != got[key]]


def median_us(values):
    return statistics.median(values) if values else 0.0


# Proton.


def hatchet(path):
    """{name: [count, ns]} of the leaves of a Proton tree that have a device time."""
    found = defaultdict(lambda: [0, 0])

    def walk(node):
        metrics = node.get("metrics", {})
        name = node.get("frame", {}).get("name", "?")
        if "count" in metrics and not node.get("children"):
            found[name][0] += metrics["count"]
            found[name][1] += metrics.get("time (ns)", 0)
        for child in node.get("children", []):
            walk(child)

    for root in json.loads(path.read_text()):
        if "children" in root or "frame" in root:
            walk(root)
    return dict(found)
