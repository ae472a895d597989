"""PyTorch's backward passes, operators and compiled code: which line, node and operator its kernels are charged to.

`torch_backward.py` says by hand how many kernels its lines launch, backward passes among them. The same holds with `--torch-ops`, on
threads of torch.nn.parallel's, and through a captured graph; compiled code is asked for its lines only, since what
is fused is the compiler's choice. Graphs that a framework captures by itself (cudagraph trees, JAX's command buffers) are asked for
the line that had them captured. JAX's compiled functions are asked for their names.
"""

import re
import time
from pathlib import Path

from ..build import PROGRAMS
from .control import Running
from .stacks import kernels, lines_of, marked, sources

PROGRAM = "torch_backward.py"
SOURCE = (PROGRAMS / PROGRAM).read_text(encoding="utf-8")


def folded(folder):
    """[(frames, kernel, microseconds)]"""
    text = "".join(path.read_text() for path in sorted(folder.rglob("flame.folded")))
    found = []
    for line in text.splitlines():
        stack, _, time_us = line.rpartition(" ")
        frames = stack.split(";")
        found.append((frames[:-1], frames[-1], int(time_us)))
    return found


def traced(bench, name, what, *options):
    outcome, folder = bench.traced(name, bench.script(PROGRAM, *what), *options, limit_s=180)
    report = bench.report(name, folder) if outcome.code == 0 else None
    if not report:
        reason = f"{outcome.ending()} {outcome.stderr[-300:]!r}"
        bare = bench.bare(name, bench.script(PROGRAM, *what), 180)
        bench.row(name, "FAIL" if bare.code == 0 else "SKIP", reason)
        return None, None
    return report, folder


def counts(bench, name, report, wanted):
    found = lines_of(report, PROGRAM)
    for line, number in wanted.items():
        got = kernels(found[line]) if line in found else 0
        bench.check(f"{name}-line-{line}", got == number, f"{got} kernels, by hand {number}")


def wanted_of(what):
    """{line: kernels} by hand, for that way to run."""
    marks = ((line, re.search(rf"# LAUNCHES .*?(\d+) in {what}\b", text)) for line, text in enumerate(SOURCE.splitlines(), 1))
    return {line: int(mark[1]) for line, mark in marks if mark}


def nodes(bench, name, stacks):
    """Every kernel of the engine's thread stands under [autograd] and a node, and the line stands before it."""
    of_engine = [frames for frames, _, _ in stacks if any(frame.startswith("pt_autograd") for frame in frames)]
    right = [frames for frames in of_engine if "[autograd]" in frames and any(PROGRAM in frame for frame in frames[: frames.index("[autograd]")])]
    bench.check(f"{name}-engine", of_engine and len(right) == len(of_engine), f"{len(right)} of {len(of_engine)} stacks of the engine's thread have a line, then [autograd]")
    for node in ("MulBackward0", "TanhBackward0"):
        bench.check(f"{name}-{node}", any(node in frames for frames in right), f"among {sorted({frames[frames.index('[autograd]') + 1] for frames in right})}")


def modules(bench):
    """Forward and backward together are each class's, but for the first of the twenty steps' backward pass."""
    report, _ = traced(bench, "modules", ("modules",))
    if not report:
        return
    found = report.get("modules", {})
    have = {one["class"]: (one["calls"], one["backward_calls"], one["self_calls"]) for one in found.get("list", ())}
    for name, forward, backward, own in (("Scale", 3, 3, True), ("Bend", 2, 2, True), ("Both", 6, 5, False)):
        calls = 20 * forward + 19 * backward
        want = (calls, 19 * backward, calls if own else 20)
        bench.check(f"modules-{name}", have.get(name) == want, f"calls, backward, itself {have.get(name)}, by hand {want}")
    bench.check("modules-backward", found.get("backward", {}).get("calls") == 5, f"{found.get('backward')}, the first pass has 5")


def replays(bench, name, report, program, mark, least):
    """Nodes of a framework's own graphs stand under the line that had them captured, and their replays at it too; none is of unknown origin."""
    ((line, _),) = marked(program, mark).items()
    found = lines_of(report, program).get(line, {})
    bench.check(f"{name}-line", found.get("replayed_calls", 0) >= least, f"line {line}: {found.get('calls')} operations, {found.get('replayed_calls')} of them nodes of graphs launched there, at least {least}")
    bench.row(f"{name}-graphs", "INFO", f"{report['graph_launches']} launches of {[(graph['label'], graph['nodes']) for graph in report['graphs']][:4]}")


def paused_operators(bench):
    """A session with --torch-ops has observers in PyTorch while it records, and only then: PyTorch says so itself."""
    running = Running(bench, "paused-operators", ["--torch-ops", "--start-paused"], program=bench.script("torch_paused_ops.py"))
    if not bench.check("paused-operators-ready", running.is_ready(), running.err.read_text(errors="replace")[-300:]):
        running.end()
        return
    wanted, followed = {}, True
    for number, order in enumerate([None, "start", "stop", "start", "stop"], 1):
        followed = followed and (not order or running.order(order)[0])
        multiplications = 10**number
        wanted[multiplications] = int(order == "start")
        running.child.stdin.write(f"{multiplications}\n".encode())
        running.child.stdin.flush()
        until = time.monotonic() + 40
        while running.out.read_text(errors="replace").count("OBSERVED") < number and time.monotonic() < until:
            time.sleep(0.02)
    code, _, report = running.end()
    observed = re.findall(r"OBSERVED (\d)", running.out.read_text(errors="replace"))
    bench.check("paused-operators-observers", followed and observed == [str(one) for one in wanted.values()], f"exit {code}, orders followed: {followed}; has observers {observed}, wanted {list(wanted.values())}")
    calls = {one["name"]: one["calls"] for one in (report or {}).get("operators", {}).get("list", ())}
    recorded = sum(multiplications for multiplications, is_recorded in wanted.items() if is_recorded)
    bench.check("paused-operators-calls", calls.get("aten::mul") == recorded, f"{calls.get('aten::mul')} kernels of aten::mul, of {sum(wanted)} multiplications {recorded} while it recorded")


def trees(bench):
    report, folder = traced(bench, "trees", ("trees",))
    if not report:
        return
    # The first step is not captured; each of the others launches a graph of the one kernel that Inductor fuses all into.
    # Inductor's own timings launch that kernel too, as often as they like.
    replays(bench, "trees", report, PROGRAM, "TREES", 19)
    bench.check("trees-launches", report["graph_launches"] == 19, f"{report['graph_launches']} launches of graphs, 20 steps")
    elsewhere = [frames for frames, kernel, _ in folded(folder) if kernel.startswith("triton_") and not any(PROGRAM in frame for frame in frames)]
    bench.check("trees-elsewhere", not elsewhere, f"stacks of Triton's kernels without a line of the program's: {elsewhere[:2]}")


def jax_graphs(bench):
    program = "jax_program.py"
    outcome, folder = bench.traced("jax-graphs", bench.script(program, "graphs"), limit_s=180)
    report = bench.report("jax-graphs", folder) if outcome.code == 0 else None
    if not report:
        bench.row("jax-graphs", "SKIP", f"{outcome.ending()} {outcome.stderr[-300:]!r}")
        return
    replays(bench, "jax-graphs", report, program, "GRAPHS", 20)


def jax(bench):
    """JAX's compiled functions are named: by XLA's own ranges, or by what its modules and kernels are called."""
    outcome, folder = bench.traced("jax", bench.script("jax_program.py"), limit_s=180)
    if outcome.code != 0:
        bench.row("jax", "SKIP", f"{outcome.ending()} {outcome.stderr[-300:]!r}")
        return
    stacks = folded(folder)
    lines = [frames for frames, _, _ in stacks if any("jax_program.py" in frame for frame in frames)]
    bench.check("jax-line", lines, f"{len(lines)} of {len(stacks)} stacks have a line of the program's")
    named = sorted({frame for frames, _, _ in stacks for frame in frames if "jit_step" in frame or "jit(step)" in frame})
    bench.check("jax-function", named, f"{named[:3]}")


def run(bench):
    for what in ("plain", "threads", "graph"):
        report, folder = traced(bench, what, () if what == "plain" else (what,))
        if report:
            counts(bench, what, report, wanted_of(what))
        if report and what != "graph":
            nodes(bench, what, folded(folder))
    report, folder = traced(bench, "operators", (), "--torch-ops")
    if report:
        counts(bench, "operators", report, wanted_of("plain"))
        stacks = folded(folder)
        nodes(bench, "operators", stacks)
        for operator, line in (("aten::mul", "forward"), ("aten::tanh", "forward"), ("aten::tanh_backward", "[autograd]")):
            found = any(operator in frames and any(frame.startswith(line) for frame in frames) for frames, _, _ in stacks)
            bench.check(f"operators-{operator}", found, f"under {line}")
        # The backward pass launches in other operators, for the one of the forward pass: not in the first of the twenty steps.
        rows = {one["name"]: (one["calls"], one["backward_calls"], one["self_calls"]) for one in report.get("operators", {}).get("list", ())}
        for operator, want in (("aten::tanh", (39, 19, 20)), ("aten::tanh_backward", (20, 20, 20))):
            bench.check(f"operators-table-{operator}", rows.get(operator) == want, f"calls, backward, itself {rows.get(operator)}, by hand {want}")
    paused_operators(bench)
    modules(bench)
    report, folder = traced(bench, "compiled", ("compile",))
    if report:
        found = lines_of(report, PROGRAM)
        for line, which in marked(PROGRAM, "COMPILED").items():
            got = found[line]["calls"] if line in found else 0
            bench.check(f"compiled-{which}", got >= 20, f"{got} operations with line {line} among their frames, at least one a step")
        launchers = [entry for entry in report["lines"] if entry["path"] == "<string>" and entry["charged_calls"]]
        bench.check("compiled-launchers", not launchers, f"launchers that Triton makes answer for kernels: {launchers[:1]}")
        triton = [kernel for frames, kernel, _ in folded(folder) if kernel.startswith("triton_")]
        for kernel in sources(report, "triton_"):
            got = kernel["source"] or {"file": "", "line": 0}
            path = Path(got["file"])
            lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
            said = lines[got["line"] - 1] if 0 < got["line"] <= len(lines) else ""
            bench.check(f"compiled-source-{kernel['name']}", said.startswith("def "), f"{got['file']}:{got['line']}: {said[:60]!r}")
        bench.row("compiled-kernels", "INFO", f"{sorted(set(triton))[:4]}; {sum('[dynamo]' in frames for frames, _, _ in folded(folder))} stacks with [dynamo]")
    trees(bench)
    jax(bench)
    jax_graphs(bench)
