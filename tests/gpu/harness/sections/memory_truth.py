"""Allocations against counts that others make: CUPTI's MEMORY2 records of a client of its own, CuPy's pools, RMM's statistics."""

import json
import subprocess
import sys

# Kinds that CUPTI has records of, by our names.
KINDS = ("device", "pinned", "managed", "pool")


def ours_by_kind(processes):
    """{kind: [allocations, bytes, frees, bytes]} over all processes."""
    found = {}
    for kind in (kind for process in processes for kind in process["kinds"]):
        sums = found.setdefault(kind["kind"], [0, 0, 0, 0])
        for index, name in enumerate(("allocations", "allocated_bytes", "frees", "freed_bytes")):
            sums[index] += kind[name]
    return found


def traced(bench, name, command, is_killed=False):
    """What the program says of itself, and the report's processes with memory; None where one of them is missing."""
    outcome, folder = bench.traced(name, command, meant_to_die=is_killed)
    report = bench.report(name, folder)
    good = outcome.code == 0 or is_killed and outcome.stdout.strip()
    if not bench.check(f"{name}-exit", good, f"{outcome.ending()} {outcome.stderr[-300:]!r}") or not report:
        return None
    bench.keep(f"{name}-memory.json", json.dumps(report["memory"], indent=1))
    return json.loads(outcome.stdout.strip().splitlines()[-1]), report["memory"]["processes"]


def cupti(bench, mode):
    name = f"cupti-{mode}"
    command = bench.script("memory_use.py", mode)
    outcome, client = bench.counted(name, command, env={"CUPTI_CLIENT_MEMORY": "1"})
    found = traced(bench, name, command)
    if not found:
        return
    if not client or not client.get("memory"):
        bench.row(f"{name}-records", "INFO", f"the client has no records of memory: {outcome.ending() if outcome else 'not built'}")
        return
    ours, theirs = ours_by_kind(found[1]), client["memory"]
    bench.row(f"{name}-figures", "INFO", f"ours {ours}, CUPTI's {theirs}, lost by the client {client.get('dropped', 0)}")
    for kind in KINDS:
        if kind in ours:
            # CUPTI 13 may name no kind of memory for what it has no records of; then it says nothing of ours.
            if kind not in theirs:
                bench.row(f"{name}-{kind}", "INFO", f"ours {ours[kind]}, no records of CUPTI's")
                continue
            # In `pools`, cuMemFree frees memory of a pool: which kind CUPTI gives that is not documented.
            compared = 2 if mode == "pools" else 3
            bench.check(f"{name}-{kind}", ours[kind][:compared] == theirs[kind][:compared], f"ours {ours[kind]}, CUPTI's {theirs[kind]} (allocations, bytes, frees, bytes)")


def has(module):
    return subprocess.run([sys.executable, "-c", f"import {module}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0


def cupy(bench, kind):
    name = f"cupy-{kind}"
    if not has("cupy"):
        bench.row(name, "INFO", "skipped: CuPy cannot be imported")
        return
    found = traced(bench, name, bench.script("cupy_memory.py", kind), is_killed=True)
    if not found:
        return
    said, [process] = found
    if kind == "pool":
        ours = {of["kind"]: of for of in process["kinds"]}.get("device", {})
        bench.check(f"{name}-total", ours.get("end_bytes") == said["total"], f"{ours.get('end_bytes')} B of segments, CuPy's total_bytes {said['total']}, used {said['used']}")
        bench.check(f"{name}-most", ours.get("peak_bytes", 0) >= said["most"] and process["caching"] == ["CuPy"], f"{ours.get('peak_bytes')} of {said['most']}; {process['caching']}")
        return
    used = sum(pool["end_bytes"] for pool in process["pools"])
    bench.check(f"{name}-used", used == said["used"], f"{used} B in {len(process['pools'])} pools, CuPy's used_bytes {said['used']}, total_bytes {said['total']}")
    reserved = [pool["reserved_bytes"] for pool in process["pools"] if pool["reserved_bytes"] is not None]
    bench.check(f"{name}-reserved", said["total"] in reserved, f"reserved {reserved} of {said['total']}: CuPy asks the driver for it")


def rmm(bench):
    if not has("rmm"):
        bench.row("rmm", "INFO", "skipped: RMM cannot be imported")
        return
    found = traced(bench, "rmm", bench.script("rmm_memory.py"), is_killed=True)
    if not found:
        return
    said, [process] = found
    ours = {of["kind"]: of for of in process["kinds"]}.get("device", {})
    figures = (ours.get("allocations"), ours.get("end_bytes"), ours.get("peak_bytes"))
    bench.check("rmm-segments", figures == (said["allocations"], said["current"], said["peak"]), f"{figures} of {said}")


def run(bench):
    jobs = {f"cupti-{mode}": (lambda mode=mode: cupti(bench, mode)) for mode in ("leak", "churn", "pools", "kinds", "arrays")}
    jobs.update({"cupy-pool": lambda: cupy(bench, "pool"), "cupy-async": lambda: cupy(bench, "async"), "rmm": lambda: rmm(bench)})
    bench.parallel(jobs, workers=2)
