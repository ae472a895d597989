"""Device memory by line: against PyTorch's own statistics, cuMemGetInfo, and programs with a planted leak, churn and want of memory."""

import json
import subprocess

from . import memory_ways

MIB = 1 << 20


def prepared(bench, name, mode, env=None):
    """What the program says of itself, the report's memory and that of its one process; None where one of them is missing."""
    outcome, folder = bench.traced(name, bench.script("memory_use.py", mode), env=env)
    report = bench.report(name, folder)
    if not bench.check(f"{name}-exit", outcome.code == 0, f"{outcome.ending()} {outcome.stderr[-300:]!r}") or not report:
        return None
    said = json.loads(outcome.stdout.strip().splitlines()[-1])
    memory = report["memory"]
    bench.keep(f"{name}-memory.json", json.dumps(memory, indent=1))
    if not bench.check(f"{name}-process", len(memory["processes"]) == 1, f"{len(memory['processes'])} processes with memory"):
        return None
    unmatched = memory["processes"][0]["unmatched_frees"]
    bench.check(f"{name}-frees", not any(unmatched.values()), f"unmatched {unmatched}")
    return said, memory, memory["processes"][0], folder, outcome


def printed(bench, name, folder, *options):
    """What `gputrace memory` prints of a run."""
    trace = sorted(folder.rglob("trace.gputrace"))[0]
    done = subprocess.run([bench.gputrace, "memory", *options, trace], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=bench.limit(60), check=False)
    text = done.stdout.decode(errors="replace")
    bench.keep(f"{name}.txt", text + done.stderr.decode(errors="replace"))
    return text


def line_of(line):
    return (line.get("line") or {}).get("line")


def leak(bench):
    found = prepared(bench, "leak", "leak")
    if not found:
        return
    said, memory, process, folder, _ = found
    bench.check("leak-peak", process["peak_bytes"] == said["peak"], f"{process['peak_bytes']} of {said['peak']} B; cuMemGetInfo fell by {said['taken']} B")
    bench.check("leak-get-info", abs(said["taken"] - said["peak"]) <= 4 * MIB, f"{said['taken'] - said['peak']} B more than was asked for")
    bench.check("leak-end", process["end_bytes"] == said["leaked"], f"{process['end_bytes']} of {said['leaked']} B in {process['end_allocations']}")
    leaks = json.loads(printed(bench, "leak-leaks", folder, "--leaks", "--json"))["lines"]
    first = leaks[0] if leaks else {}
    bench.check("leak-first-line", line_of(first) == said["lines"]["leak"] and first["end_allocations"] == 64, f"{first.get('line')} {first.get('end_allocations')}")
    bench.row("leak-table", "INFO", printed(bench, "leak-table", folder, "--leaks").replace("\n", " | "))


def churn(bench):
    found = prepared(bench, "churn", "churn")
    if not found:
        return
    said, memory, process, folder, _ = found
    lines = json.loads(printed(bench, "churn-temporary", folder, "--temporary", "--json"))["lines"]
    first = lines[0] if lines else {}
    bench.check("churn-first-line", line_of(first) == said["lines"]["churn"] and first["temporary"] == 500, f"{first.get('line')} {first.get('temporary')} {first.get('calls_ns')} ns")
    bench.check("churn-peak", process["peak_bytes"] == said["peak"] and not process["end_bytes"], f"peak {process['peak_bytes']}, end {process['end_bytes']}")


def oom(bench):
    found = prepared(bench, "oom", "oom")
    if not found:
        return
    said, memory, process, folder, outcome = found
    last = process["refusals"][-1] if process["refusals"] else {}
    good = line_of(last) == said["lines"]["oom"] and not last["given_later"]
    bench.check("oom-line", good, f"{process['refused']} refusals, last {last.get('line')} of {last.get('bytes')} B, held {last.get('held_bytes')}")
    bench.check("oom-asked", last.get("bytes", 0) >= said["asked"], f"{last.get('bytes')} of {said['asked']}")
    # PyTorch gives its cache back before it asks again: what it holds at the end it held at the last refusal.
    bench.check("oom-held", last.get("held_bytes") == said["reserved"], f"{last.get('held_bytes')} of {said['reserved']} reserved; {last.get('holders')}")
    told = [text for text in outcome.stderr.splitlines() if "out of memory" in text.lower()]
    bench.row("oom-stderr", "INFO", told[:4])


def retry(bench):
    found = prepared(bench, "retry", "retry")
    if not found:
        return
    said, memory, process, _, outcome = found
    given = [refusal["given_later"] for refusal in process["refusals"]]
    verdict = "INFO" if not said["retries"] else "PASS" if all(given) and given else "FAIL"
    bench.row("retry-given", verdict, f"{said['retries']} retries, given later {given}")


def segments(bench, name, env):
    found = prepared(bench, name, "segments", env)
    if not found:
        return
    said, memory, process, folder, _ = found
    kinds = {kind["kind"]: kind for kind in process["kinds"]}
    ours = {"allocations": sum(kind["allocations"] for kind in kinds.values() if kind["kind"] in ("device", "virtual")),
            "frees": sum(kind["frees"] for kind in kinds.values() if kind["kind"] in ("device", "virtual")),
            "peak": process["peak_bytes"], "reserved": process["end_bytes"]}
    bench.row(f"{name}-figures", "INFO", f"ours {ours}, PyTorch's {said}, kinds {sorted(kinds)}")
    # Of expandable segments PyTorch counts the whole segments, not the pieces of 2 and 20 MiB.
    names = ("peak", "reserved") if "virtual" in kinds else ("allocations", "frees", "peak", "reserved")
    for figure in names:
        bench.check(f"{name}-{figure}", ours[figure] == said[figure], f"{ours[figure]} of {said[figure]}")
    held = [line for line in memory["lines"] if line["peak_bytes"]]
    bench.check(f"{name}-first-line", held and line_of(held[0]) == said["lines"]["segments"], f"{held[0]['line'] if held else None}")
    bench.row(f"{name}-table", "INFO", printed(bench, f"{name}-table", folder).replace("\n", " | "))


def run(bench):
    # Each of them looks at what is free on the device, so they take turns.
    jobs = {"leak": lambda: leak(bench), "churn": lambda: churn(bench), "oom": lambda: oom(bench), "retry": lambda: retry(bench),
            "segments": lambda: segments(bench, "segments", {"PYTORCH_CUDA_ALLOC_CONF": None}),
            "expandable": lambda: segments(bench, "expandable", {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"})}
    jobs.update({name: lambda job=job: job(bench) for name, job in memory_ways.JOBS.items()})
    bench.parallel(jobs, workers=1)
