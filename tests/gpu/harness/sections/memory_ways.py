"""Every way to memory against what the driver counts: pools, arrays, mappings, another process's memory, graphs; and what following allocations costs."""

import json

MIB = 1 << 20


def report_of(bench, name, mode):
    """What the program says of itself, and the processes of the report's memory; None where one of them is missing."""
    outcome, folder = bench.traced(name, bench.script("memory_use.py", mode))
    report = bench.report(name, folder)
    if not bench.check(f"{name}-exit", outcome.code == 0, f"{outcome.ending()} {outcome.stderr[-300:]!r}") or not report:
        return None
    processes = report["memory"]["processes"]
    bench.keep(f"{name}-memory.json", json.dumps(processes, indent=1))
    unmatched = [process["unmatched_frees"] for process in processes]
    bench.check(f"{name}-frees", not any(any(frees.values()) for frees in unmatched), f"unmatched {unmatched}")
    return json.loads(outcome.stdout.strip().splitlines()[-1]), processes


def pools(bench):
    found = report_of(bench, "pools", "pools")
    if not found:
        return
    said, [process] = found
    own, made = process["pools"]
    for name, pool in (("own", own), ("made", made)):
        # The driver rounds each allocation up; the program's are multiples of 1 MiB.
        ours, theirs = (pool["peak_bytes"], pool["end_bytes"]), (said["used"][name], said["end"][name])
        bench.check(f"pools-{name}", ours == theirs, f"{ours} of {theirs}")
    bench.check("pools-reserved", made["reserved_bytes"] == said["reserved"], f"{made['reserved_bytes']} of {said['reserved']}")


def devices(bench):
    """Of two devices; for the section `two`."""
    found = report_of(bench, "devices", "devices")
    if not found:
        return
    said, [process] = found
    ours = [(pool["device"], pool["is_default"], pool["end_bytes"]) for pool in process["pools"]]
    theirs = list(zip((0, 1, 1), (True, True, False), said["used"]))
    bench.check("devices-pools", ours == theirs, f"{ours} of {theirs}")


def arrays(bench):
    found = report_of(bench, "arrays", "arrays")
    if not found:
        return
    said, [process] = found
    figures = {name: process[f"{name}_bytes"] for name in ("peak", "end")}
    bench.check("arrays-bytes", all(figures[name] == said[name] for name in figures), f"{figures} of {said}")
    # On an H100 the mipmap's 21 MiB take 22.
    bench.check("arrays-get-info", 0 <= said["taken"] - said["peak"] <= 4 * MIB, f"{said['taken']} taken, {said['peak']} asked for")


def mapped(bench):
    found = report_of(bench, "mapped", "mapped")
    if not found:
        return
    said, [process] = found
    bench.check("mapped-driver", said["taken"] == said["held"], f"cuMemGetInfo {said['taken']}, held {said['held']}")
    on_host = sum(kind["end_bytes"] for kind in process["kinds"] if kind["kind"] == "pinned")
    ours, theirs = (process["peak_bytes"], process["end_bytes"], on_host), (said["peak"], said["end"], said["on_host"])
    bench.check("mapped-bytes", ours == theirs, f"{ours} of {theirs}; the same handle again {said['same_handles']} times, retained the same {said['retained_same']}")


def shared(bench):
    found = report_of(bench, "shared", "shared")
    if not found:
        return
    said, processes = found
    ends = sorted(process["end_bytes"] for process in processes)
    bench.check("shared-bytes", ends == sorted([said["end"], said["child_end"]]), f"{ends}")
    opened = [kind for process in processes for kind in process["kinds"] if kind["kind"] == "imported"]
    good = [(kind["allocations"], kind["frees"]) for kind in opened] == [(4, 3)]
    bench.check("shared-opened", good, f"{opened}")


def graph(bench):
    found = report_of(bench, "graph", "graph")
    if not found:
        return
    said, [process] = found
    bench.check("graph-bytes", process["graph_bytes"] == said["in_graphs"] and process["end_bytes"] == said["end"], f"{process['graph_bytes']} and {process['end_bytes']} of {said}")


def cost(bench):
    """The allocation hooks' part of the hooks' sampled time, by their share of the calls, on an ordinary training."""
    outcome, folder = bench.traced("cost", bench.script("torch_train.py", "--steps", "200"))
    report = bench.report("cost", folder)
    if not bench.check("cost-exit", outcome.code == 0, outcome.ending()) or not report:
        return
    hook_ns = report["cost"]["hook_ns"]
    names = ("cuMemAlloc", "cuMemFree", "cuMemHost", "cuMemCreate", "cuMemMap", "cuMemUnmap", "cuMemRelease", "cuMemPool", "cuMemGetInfo", "cuArray", "cuMipmapped")
    calls = sum(call["calls"] for call in report["calls"] if call["name"].startswith(names))
    share = (hook_ns or 0) * calls / report["wall_ns"]
    bench.check("cost-share", hook_ns is not None and share <= 0.003, f"{calls} calls of {hook_ns} ns in {report['wall_ns'] / 1e9:.2f} s: {100 * share:.5f} %")


JOBS = {"pools": pools, "arrays": arrays, "mapped": mapped, "shared": shared, "graph": graph, "cost": cost}
