"""What counts as leaked: planted faults against an ordinary training loop, and the snapshot in PyTorch's format."""

import json
import subprocess
import sys

VIEWER = "import pickle, sys; from torch.cuda import _memory_viz as v; s = pickle.load(open(sys.argv[1], 'rb')); print(len(v.segsum(s)), len(v.trace(s)))"


def output(bench, name, *words):
    """What gputrace prints, and its exit code."""
    done = subprocess.run([bench.gputrace, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=bench.limit(60), check=False)
    text = done.stdout.decode(errors="replace")
    bench.keep(f"{name}.txt", text + done.stderr.decode(errors="replace"))
    return text, done.returncode


def traced(bench, name, command, *options):
    """The trace, what the program says of itself, and the report's memory; None if it failed."""
    outcome, folder = bench.traced(name, command, *options)
    report = bench.report(name, folder)
    if not bench.check(f"{name}-exit", outcome.code == 0, f"{outcome.ending()} {outcome.stderr[-300:]!r}") or not report:
        return None
    bench.keep(f"{name}-memory.json", json.dumps(report["memory"], indent=1))
    return sorted(folder.rglob("trace.gputrace"))[0], outcome.stdout.strip().splitlines(), report["memory"]


def planted(bench, mode, leaks):
    """The fault's line is the first of the leaks, or of what is held at the peak."""
    found = traced(bench, f"leaks-{mode}", bench.script("memory_planted.py", mode))
    if not found:
        return
    trace, said, memory = found
    said = json.loads(said[-1])
    process = memory["processes"][0]
    bench.check(f"{mode}-caching", process["caching"] == ["PyTorch"], process["caching"])
    options = ["--leaks"] if leaks else []
    text, _ = output(bench, f"leaks-{mode}", "memory", *options, "--json", trace)
    lines = json.loads(text)["lines"]
    first = (lines[0]["line"] or {}).get("line") if lines else None
    code = output(bench, f"leaks-{mode}-ci", "report", "--fail-on", "leaked>0", trace)[1]
    figures = f"first line {first} of {said['lines']}, leaked {process['leaked_bytes']} of {process['unfreed_bytes']} B, {said['reserved']} reserved"
    if mode == "steady":
        bench.check("steady-leaks-nothing", not lines and code == 0, figures)
        bench.check("steady-held", process["unfreed_bytes"] >= said["reserved"], figures)
    else:
        bench.check(f"{mode}-first-line", first == said["lines"][mode], figures)
        if leaks:
            bench.check(f"{mode}-exit-code", code == 4, f"exit {code}")
    snapshot(bench, mode, trace, process)


def snapshot(bench, mode, trace, process):
    path = bench.scratch / f"{mode}.pickle"
    output(bench, f"snapshot-{mode}", "export", "--format", "torch-snapshot", "-o", path, trace)
    done = subprocess.run([sys.executable, "-c", VIEWER, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=bench.limit(60), check=False)
    bench.check(f"{mode}-snapshot", done.returncode == 0, (done.stdout + done.stderr).decode(errors="replace")[-300:])


def in_c(bench):
    program = bench.builder.driver_program("memory_leak", "memory_leak.c", "-g")
    if not bench.check("c-built", program, bench.builder.failures.get("memory_leak", "")[-300:]):
        return
    found = traced(bench, "leaks-c", [program], "--stacks", "native")
    if not found:
        return
    trace, _, memory = found
    process = memory["processes"][0]
    text, _ = output(bench, "leaks-c", "memory", "--leaks", "--json", trace)
    first = (json.loads(text)["lines"] or [{}])[0]
    good = (first.get("line") or {}).get("function") == "leak" and first["leaked_allocations"] == 30
    bench.check("c-first-line", good, f"{first.get('line')}, {process['leaked_bytes']} B of {30 * (2 << 20)}")
    bench.check("c-leaked", process["leaked_bytes"] == 30 * (2 << 20) and not process["caching"], process["leaked_bytes"])


def run(bench):
    jobs = {mode: (lambda mode=mode: planted(bench, mode, mode in ("steady", "cycle", "cache"))) for mode in ("steady", "cycle", "cache", "fragmentation")}
    bench.parallel({**jobs, "c": lambda: in_c(bench)}, workers=2)
