"""What a hook costs in a real program, an eager Llama decode: hooks' own sampled time, without stacks, with Python's, with native ones.

With --beside FILE, another gputrace is measured in turn with the one under test, on the same machine.
"""

import json
import os
import statistics
import subprocess
import time
from pathlib import Path

from ..build import PROGRAMS

SETTINGS = {"without stacks": "none", "python": "python", "native": "python,native"}
SECONDS = 6
ROUNDS = 2
READY_LIMIT_S = 120


class Measured:
    """A process that is warm and waits for its turn."""

    def __init__(self, bench, name, gputrace, stacks):
        self.folder = bench.scratch / "hook_cost" / name
        self.folder.mkdir(parents=True)
        log = bench.log(name)
        log.parent.mkdir(parents=True, exist_ok=True)
        command = [gputrace, "run", "--device-times", "off", "--stacks", stacks, "-o", self.folder / "out", "--",
                   bench.python, PROGRAMS / "hook_cost.py", "llama", SECONDS, self.folder]
        with open(log.with_suffix(".out"), "wb") as out, open(log.with_suffix(".err"), "wb") as err:
            self.child = subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                          cwd=PROGRAMS, env={**os.environ, "GPUTRACE_STEPS_OUT": "1"})
        self.gputrace, self.err = gputrace, log.with_suffix(".err")

    def is_ready(self):
        return (self.folder / "ready").exists()

    def measure(self):
        """The mean cost of a hook in ns; None where the program failed."""
        (self.folder / "go").touch()
        try:
            code = self.child.wait(SECONDS + 60)
        except subprocess.TimeoutExpired:
            self.child.kill()
            return None
        if code != 0:
            return None
        report = subprocess.run([self.gputrace, "report", "--json", self.folder / "out"], capture_output=True, text=True, check=False)
        costs = [process["hook_cost_ns"] for process in json.loads(report.stdout)["processes"] if process["hook_cost_ns"]]
        return max(costs, default=None)


def run(bench):
    tools = {"tested": bench.gputrace}
    if bench.beside:
        tools["beside"] = Path(bench.beside)
    found = {}
    for of_round in range(1 if bench.quick else ROUNDS):
        waiting = [(setting, tool, Measured(bench, f"{tool}-{setting.replace(' ', '-')}-{of_round}", tools[tool], stacks))
                   for setting, stacks in SETTINGS.items() for tool in tools]
        until = time.monotonic() + READY_LIMIT_S
        while time.monotonic() < until and not all(one.is_ready() or one.child.poll() is not None for _, _, one in waiting):
            time.sleep(0.1)
        for setting, tool, one in waiting:
            cost = one.measure()
            bench.row(f"{tool}, {setting}, {of_round}", "INFO" if cost else "FAIL", f"{cost} ns a hook" if cost else one.err.read_text(errors="replace")[-300:])
            if cost:
                found.setdefault((setting, tool), []).append(cost)
            for line in one.err.read_text(errors="replace").splitlines():
                if line.startswith("STEPS"):
                    bench.row(f"{tool}, {setting}, steps", "INFO", line)
    for setting in SETTINGS:
        medians = {tool: statistics.median(found[setting, tool]) for tool in tools if (setting, tool) in found}
        detail = ", ".join(f"{tool} {median:.0f} ns" for tool, median in medians.items())
        if len(medians) == 2:
            detail += f", ratio {medians['tested'] / medians['beside']:.2f}"
        bench.row(setting, "INFO" if medians else "FAIL", detail or "no figure")
