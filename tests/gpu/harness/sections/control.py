"""A session that is paused and goes on: sums of what was recorded and what was only counted, under threads, copies, and graphs by node and as a
whole; settings that change meanwhile; another CUPTI client meanwhile; what a switch takes."""

import json
import os
import re
import subprocess
import time

from .. import process
from . import control_ranges

NODES, GRAPH_COPIES, GRAPH_FILLS = 4, 1, 1


class Running:
    """The program under `gputrace run`, until its stdin is closed."""

    def __init__(self, bench, name, options, program=None, preload=None):
        self.bench, self.name = bench, name
        self.folder = bench.scratch / f"control-{name}"
        log = bench.log(name)
        log.parent.mkdir(parents=True, exist_ok=True)
        self.out, self.err = log.with_suffix(".out"), log.with_suffix(".err")
        command = [bench.gputrace, "run", "-o", self.folder, *options, "--", *(program or [bench.programs["control_threads"]])]
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            env = {**os.environ, "LD_PRELOAD": str(preload)} if preload else None
            self.child = subprocess.Popen([str(part) for part in command], stdin=subprocess.PIPE, stdout=out, stderr=err, env=env, start_new_session=True)

    def is_ready(self):
        until = time.monotonic() + 40
        while time.monotonic() < until and self.child.poll() is None:
            if "ready" in self.out.read_text(errors="replace"):
                return True
            time.sleep(0.02)
        return False

    def order(self, *order):
        """Whether the one process followed, and how long that took in ms."""
        begin = time.monotonic()
        try:
            answer, took = self.ctl(*order)
        except subprocess.TimeoutExpired:
            return False, (time.monotonic() - begin) * 1e3
        return bool(answer and answer["processes"] == 1 and not answer["unanswered"]), took

    def ctl(self, *question):
        """Its answer, and how long that took in ms; None where there is none."""
        begin = time.monotonic()
        done = subprocess.run([self.bench.gputrace, "ctl", str(self.child.pid), *question, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=30, check=False)
        took = (time.monotonic() - begin) * 1e3
        return (json.loads(done.stdout), took) if done.returncode == 0 else (None, took)

    def end(self, has_report=True):
        """Exit code of the program, what it did, and the report if it is asked for."""
        self.child.stdin.close()
        try:
            code = self.child.wait(self.bench.limit(60))
        except subprocess.TimeoutExpired:
            for pid in process.session_members(self.child.pid):
                subprocess.run(["kill", "-KILL", str(pid)], check=False)
            code = "hang"
        said = re.search(r"DID (.*)", self.out.read_text(errors="replace"))
        did = {key: int(value) for key, value in (pair.split("=") for pair in said[1].split())} if said else None
        if not has_report:
            return code, did, None
        shown = subprocess.run([self.bench.gputrace, "report", "--json", self.folder], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        report = json.loads(shown.stdout) if shown.returncode in (0, 3) else None
        if report:
            self.bench.keep(f"{self.name}.json", json.dumps(report, indent=1))
        return code, did, report


def sums(report):
    """What was recorded and what was only counted, by kind of call."""
    paused = report.get("recording") or {}
    by_class = {row["class"]: row["calls"] for row in report["call_classes"]}
    return {
        "launches": (report["launches"], paused.get("paused_launches", 0)),
        "replays": (report["graph_launches"], paused.get("paused_graph_launches", 0)),
        "copies": (by_class.get("copy", 0), paused.get("paused_copies", 0)),
        "memsets": (by_class.get("fill", 0), paused.get("paused_memsets", 0)),
        "waits": (by_class.get("wait", 0), paused.get("paused_waits", 0)),
    }


def judge(bench, name, code, did, report, by_node):
    if not bench.check(f"{name}-exit", code == 0 and did and report, f"exit {code}, {did}"):
        return
    found = sums(report)
    # Captured calls are recorded in any case: copies and fills of captured graphs, each once a graph.
    captured = did["captured"] // NODES
    expected = {"launches": did["launches"], "replays": did["replays"], "copies": did["copies"] + captured, "memsets": did["memsets"] + captured, "waits": did["waits"]}
    wrong = {kind: (found[kind], expected[kind]) for kind in expected if sum(found[kind]) != expected[kind]}
    text = " ".join(f"{kind} {one}+{other}" for kind, (one, other) in found.items())
    bench.check(f"{name}-sums", not wrong, f"recorded+paused: {text}" + (f"; WRONG (found, done) {wrong}" if wrong else ""))
    bench.check(f"{name}-complete", report["complete"] and not report["dropped"], f"complete {report['complete']}, dropped {report['dropped']}")
    executed, timed, alone = report["executed_operations"], report["timed_operations"], report["device_only"]
    switched = report.get("switched_times") or {}
    off = switched.get("switched_off_operations", 0)
    missing = executed - timed - off
    bench.check(f"{name}-joined", alone <= executed * 1e-4, f"{alone} of {executed} records without their call")
    if report["device_times"] == "none":
        bench.check(f"{name}-timed", report["timed_operations"] == 0 and report["untimed_operations"] == 0, f"no device times, as asked: {executed} operations")
        return
    bench.check(f"{name}-timed", missing <= executed * 5e-3 and missing >= 0, f"{missing} of {executed} operations without device times (those under way when the kinds went off), {off} while these were off")
    if by_node:
        # Each recorded replay has all its nodes, none has any of another's.
        recorded = found["launches"][0] + found["replays"][0] * NODES
        kernels = sum(row["calls"] for row in report["kernels"])
        bench.check(f"{name}-kernels", abs(kernels - recorded) <= max(alone, executed * 1e-3), f"{kernels} kernels, {recorded} by recorded launches and replays")
    intervals = (report.get("recording") or {}).get("intervals") or []
    recorded_ns = (report.get("recording") or {}).get("recorded_ns", report["wall_ns"])
    timed_ns = switched.get("timed_ns", recorded_ns)
    bench.row(f"{name}-intervals", "INFO", f"{len(intervals)} intervals, {recorded_ns / 1e9:.2f} of {report['wall_ns'] / 1e9:.2f} s recorded, {timed_ns / 1e9:.2f} s with device times")


def toggle(bench, name, options, seconds, by_node, starts_paused=False):
    running = Running(bench, name, options)
    if not bench.check(f"{name}-ready", running.is_ready(), running.err.read_text(errors="replace")[-300:]):
        running.end()
        return
    took, failed, until = {"stop": [], "start": []}, 0, time.monotonic() + seconds
    questions = ["start", "stop"] if starts_paused else ["stop", "start"]
    while time.monotonic() < until and running.child.poll() is None:
        for question in questions:
            is_followed, ms = running.order(question)
            failed += not is_followed
            took[question].append(ms)
    text = "; ".join(f"{question} {sorted(ms)[len(ms) // 2]:.0f} ms median, {max(ms):.0f} most" for question, ms in took.items() if ms)
    bench.check(f"{name}-switches", failed == 0, f"{sum(map(len, took.values()))} switches, {failed} failed; {text}")
    judge(bench, name, *running.end(), by_node)


START_MOST_MS = 2000
FIRST_STARTS = ["plain"] * 4 + ["blocking"] * 2


def first_starts(bench):
    """CUPTI begins to note launches in the midst of eight threads' launches and copies: once a process, so there are
    several processes."""
    for number, kind in enumerate(FIRST_STARTS):
        name = f"first-start-{kind}-{number}"
        running = Running(bench, name, ["--start-paused"], [bench.programs["control_threads"], kind])
        is_started = False
        if bench.check(f"{name}-ready", running.is_ready(), running.err.read_text(errors="replace")[-300:]):
            time.sleep(0.3 + 0.01 * number)
            is_started, took = running.order("start")
            bench.check(f"{name}-took", took < START_MOST_MS, f"{took:.0f} ms")
            time.sleep(0.5)
        code, did, report = running.end()
        judge(bench, name, code, did, report, False)
        if report:
            bench.check(f"{name}-exact", is_started and report["launches"] > 0 and report["device_only"] == 0, f"{report['launches']} launches from the first start on, {report['device_only']} records without their call, {report['untimed_operations']} operations without device times")


TRAINING = """
import sys, threading, torch
layers = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(8)]).cuda()
optimizer = torch.optim.SGD(layers.parameters(), 1e-3)
x = torch.randn(64, 256, device="cuda")
print("ready", flush=True)
over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
steps = 0
while not over.is_set():
    optimizer.zero_grad()
    layers(x).pow(2).mean().backward()
    optimizer.step()
    x.cosh()
    steps += 1
torch.cuda.synchronize()
print(f"DID steps={steps}")
"""


def settings_torch(bench):
    """PyTorch's operators, stacks and device times are switched while it trains; a kernel a step is counted by name."""
    script = bench.scratch / "control_training.py"
    script.write_text(TRAINING)
    running = Running(bench, "settings-torch", [], [bench.python, script])
    if not bench.check("settings-torch-ready", running.is_ready(), running.err.read_text(errors="replace")[-300:]):
        running.end()
        return
    orders, failed, changes = ("torch-ops=on", "stacks=python,native", "device-times=off", "torch-ops=off", "stacks=off", "device-times=on", "stacks=python"), 0, 0
    until = time.monotonic() + 10
    while time.monotonic() < until and running.child.poll() is None:
        for order in orders:
            answer, _ = running.ctl("set", order)
            failed += not (answer and not answer["refused"] and not answer["unanswered"])
            changes += 1
    code, did, report = running.end()
    counted = sum(row["calls"] for row in report["kernels"] if "cosh" in row["name"] + row["full_name"]) if report else None
    good = code == 0 and did and report and counted == did["steps"] and report["complete"] and report["device_only"] == 0
    detail = f"exit {code}, {did}, {counted} counted, {changes} changes, {failed} failed"
    if report:
        off = (report.get("switched_times") or {}).get("switched_off_operations", 0)
        detail += f"; {report['executed_operations']} operations, {report['timed_operations']} timed, {off} while device times were off; complete {report['complete']}, device-only {report['device_only']}"
    bench.check("settings-torch", good and failed == 0, detail)


def settings(bench, name, options, seconds, pauses):
    """Stacks and device times are switched while eight threads launch; in one round in four the session is paused meanwhile."""
    running = Running(bench, name, options)
    if not bench.check(f"{name}-ready", running.is_ready(), running.err.read_text(errors="replace")[-300:]):
        running.end()
        return
    took, failed, until, rounds = [], 0, time.monotonic() + seconds, 0
    while time.monotonic() < until and running.child.poll() is None:
        rounds += 1
        stacks = ("stacks=native", "stacks=off", "stacks=python,native")[rounds % 3]
        orders = [("set", "device-times=off"), ("set", stacks), ("set", "device-times=on")]
        if pauses and rounds % 4 == 0:
            orders[1:1] = [("stop",), ("set", "device-times=on"), ("set", "device-times=off"), ("start",)]
        for order in orders:
            answer, ms = running.ctl(*order)
            failed += not (answer and answer["processes"] == 1 and not answer["unanswered"])
            took.append(ms)
    bench.check(f"{name}-switches", failed == 0 and rounds > 5, f"{len(took)} changes in {rounds} rounds, {failed} failed; {sorted(took)[len(took) // 2]:.0f} ms median, {max(took):.0f} most")
    code, did, report = running.end()
    judge(bench, name, code, did, report, False)
    if report:
        switched = report.get("switched_times") or {}
        off = switched.get("switched_off_operations", 0)
        bench.check(f"{name}-switched", off > 0 and report["timed_operations"] > 0 and len(switched["intervals"]) > rounds // 2, f"{off} operations while device times were off, {len(switched.get('intervals', []))} intervals with them")


def other_client(bench):
    """torch.profiler comes and goes in a program whose session is paused and goes on."""
    program = """
import sys, threading, torch
from torch.profiler import profile, ProfilerActivity
x = torch.randn(256, 256, device="cuda")
print("ready", flush=True)
over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
windows = counted = 0
while not over.is_set():
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(200):
            x = (x @ x).tanh()
        torch.cuda.synchronize()
    counted += sum(event.count for event in profiler.key_averages() if "tanh" in event.key and "aten" not in event.key)
    windows += 1
print(f"DID windows={windows} tanh={counted}")
"""
    script = bench.scratch / "control_profiler.py"
    script.write_text(program)
    running = Running(bench, "profiler", [], [bench.python, script])
    if not bench.check("profiler-ready", running.is_ready(), running.err.read_text(errors="replace")[-300:]):
        running.end()
        return
    until, failed, switches = time.monotonic() + 8, 0, 0
    while time.monotonic() < until and running.child.poll() is None:
        for question in ("stop", "start"):
            answer, _ = running.ctl(question)
            failed += not answer
            switches += 1
    code, did, report = running.end()
    good = code == 0 and did and did["windows"] > 0 and did["tanh"] == did["windows"] * 200
    bench.check("profiler", good and failed == 0, f"exit {code}, {did}, {switches} switches, {failed} failed: the profiler has all of its kernels")


def run(bench):
    toggle(bench, "nodes", ["--graph-times", "node"], 12, True)
    toggle(bench, "graphs", ["--graph-times", "graph"], 8, False)
    toggle(bench, "auto", [], 8, False)
    toggle(bench, "hooks", ["--device-times", "off"], 4, False)
    toggle(bench, "start-paused", ["--start-paused", "--graph-times", "node"], 6, True, starts_paused=True)
    first_starts(bench)
    settings(bench, "settings-nodes", ["--graph-times", "node"], 10, pauses=True)
    settings(bench, "settings-graphs", ["--graph-times", "graph", "--stacks", "none"], 6, pauses=False)
    settings_torch(bench)
    other_client(bench)
    control_ranges.run(bench)
