"""What a hook costs in a real program, an eager Llama decode, without stacks, with Python's, with native ones: by the hooks' own samples, and as the
program sees it, in a process of its own by stretches of launches that go past the hook by chance.

With --beside FILE, which may be given several times, another gputrace is measured in turn with the one under test, on the same machine; its rows have the file's name,
and the ratios are to the last one. With --only, which may be given several times, only these settings or ways, round after round until the section's time is over. The setting `paused` is there if it is asked for: a paused hook reads no clock and records nothing.
"""

import itertools
import json
import statistics
import subprocess
import time

from .. import paired
from ..build import PROGRAMS

SETTINGS = {"without stacks": "none", "python": "python", "native": "python,native"}
PAUSED = "paused"
BY_SAMPLES, AS_SEEN = "by samples", "as the program sees it"
SECONDS = 6
ROUNDS = 2
READY_LIMIT_S = 120
# A round that would begin with less time left is not begun: loading PyTorch, and SECONDS of each process.
LOADING_S = 30


class Measured:
    """A process that is warm and waits for its turn; with a library it measures what the program sees."""

    def __init__(self, bench, name, gputrace, setting, library):
        self.folder = bench.scratch / "hook_cost" / name
        self.folder.mkdir(parents=True)
        log = bench.log(name)
        log.parent.mkdir(parents=True, exist_ok=True)
        recorded = ["--start-paused"] if setting == PAUSED else ["--stacks", SETTINGS[setting]]
        command = [gputrace, "run", "--device-times", "off", *recorded, "-o", self.folder / "out", "--",
                   bench.python, PROGRAMS / "hook_cost.py", "llama", SECONDS, self.folder, *([library] if library else [])]
        with open(log.with_suffix(".out"), "wb") as out, open(log.with_suffix(".err"), "wb") as err:
            self.child = subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=PROGRAMS)
        self.gputrace, self.library, self.out, self.err = gputrace, library, log.with_suffix(".out"), log.with_suffix(".err")

    def is_ready(self):
        return (self.folder / "ready").exists()

    def measure(self):
        """(ns, half of the 95 % interval, text) of a hook; None where the program failed. The mean of samples has no interval, which is a half of 0."""
        (self.folder / "go").touch()
        try:
            code = self.child.wait(SECONDS + 60)
        except subprocess.TimeoutExpired:
            self.child.kill()
            return None
        if code != 0:
            return None
        if self.library:
            seen = [line.split()[1:] for line in self.out.read_text(errors="replace").splitlines() if line.startswith("SEEN ")]
            if not seen:
                return None
            ns, half, known, launches, apart_ns = map(float, seen[0])
            return ns, half, f"{ns:.0f} ± {half:.0f} ns, by {known:.0f} differences of {launches:.0f} launches, {apart_ns / 1e3:.1f} us apart"
        report = subprocess.run([self.gputrace, "report", "--json", self.folder / "out"], capture_output=True, text=True, check=False)
        costs = [process["hook_cost_ns"] for process in json.loads(report.stdout)["processes"] if process["hook_cost_ns"]]
        return (max(costs), 0, f"{max(costs)} ns") if costs else None


def run(bench):
    tools = {"tested": bench.gputrace, **{beside.name: beside for beside in bench.beside}}
    library = bench.programs.get("hook_bypass")
    if not library:
        bench.row("hook_bypass", "FAIL", "the library was not built")
    plan = planned(bench.only or (), library)
    if not plan:
        bench.row("only", "FAIL", f"choose from {', '.join([*SETTINGS, PAUSED, BY_SAMPLES, AS_SEEN])}; paused only by samples")
        return
    found = {}
    for of_round in itertools.count():
        processes = [(setting, way, tool) for setting, way in plan for tool in tools if setting != PAUSED or tool == "tested"]
        if of_round and not bench.only and of_round == (1 if bench.quick else ROUNDS):
            return
        if of_round and bench.time_left() < LOADING_S + (SECONDS + 1) * len(processes):
            bench.row("rounds", "INFO", f"{of_round}; there was no time for another one")
            return
        # The first one to run has the others waiting beside it: each is first in turn, in both orders.
        first = of_round // 2 % len(processes)
        processes = processes[first:] + processes[:first]
        if of_round % 2:
            processes.reverse()
        waiting = [(setting, way, tool, Measured(bench, f"{tool}-{setting}-{way}-{of_round}".replace(" ", "-"), tools[tool], setting, library if way == AS_SEEN else None))
                   for setting, way, tool in processes]
        until = time.monotonic() + READY_LIMIT_S
        while time.monotonic() < until and not all(one.is_ready() or one.child.poll() is not None for *_, one in waiting):
            time.sleep(0.1)
        for setting, way, tool, one in waiting:
            cost = one.measure()
            bench.row(f"{tool}, {setting}, {way}, {of_round}", "INFO" if cost else "FAIL", cost[2] if cost else one.err.read_text(errors="replace")[-300:])
            if cost:
                found.setdefault((setting, way, tool), []).append(cost[:2])
        # After each round: what is cut off leaves what it measured.
        for setting, way in plan:
            costs = {tool: found[setting, way, tool] for tool in tools if (setting, way, tool) in found}
            bench.row(f"{setting}, {way}, {of_round + 1} of each", "INFO" if costs else "FAIL", compared(costs) or "no figure")


def planned(only, library):
    """(setting, way) of what is measured; nothing if something unknown is asked for."""
    settings, ways = [*SETTINGS, PAUSED], [BY_SAMPLES, *[AS_SEEN] * bool(library)]
    if set(only) - {*settings, BY_SAMPLES, AS_SEEN}:
        return []
    settings = [name for name in settings if name in only] or list(SETTINGS)
    ways = [name for name in ways if name in only] or ways
    return [(setting, way) for setting in settings for way in ways if setting != PAUSED or way == BY_SAMPLES]


def together(costs):
    """Of several processes: (ns, half), by their intervals if they have any, or else the median."""
    return paired.weighted(costs) if all(half for _, half in costs) else (statistics.median(ns for ns, _ in costs), 0)


def compared(costs):
    """What the tools' processes found, the median by samples with the lowest and the highest, and ratios to the last tool of these."""
    texts, last = [], next(reversed(costs), None)
    for tool, of_processes in costs.items():
        ns, half = together(of_processes)
        each = [ns for ns, _ in of_processes]
        text = f"{tool} {ns:.0f} ns" + (f" ± {half:.0f}" if half > 0 else f" ({min(each):.0f}–{max(each):.0f})")
        of_last, half_of_last = together(costs[last])
        if tool != last and ns > half and of_last > half_of_last:
            text += f", ratio {ns / of_last:.2f}"
        texts.append(text)
    return "; ".join(texts)
