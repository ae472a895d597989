"""The overhead measurement: which processes run, in which order, for how long.

A machine's speed varies within seconds by more than what is measured. So the processes of a round, one of each variant, are
all there at once and take turns, a repeat each in shuffled order; a round's ratio is the median over those of their repeats
(figures.py). A process's own luck, such as where its memory lies, stays: rounds have new processes.
"""

import random
import re
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from . import machine
from .gate import Gated

PROCESSES_WAITING = 24  # Python processes that have imported PyTorch at one time: about half a gigabyte each.
WAITING_WITH_MUCH_MEMORY = 6  # Of the device: the GPU-bound step takes some ten gigabytes.
RUN_LIMIT_S = 90
REPEATS = 12  # Turns of a workload in PyTorch.
# Variants that run only if asked for: options of gputrace run, and variables.
IF_ASKED_FOR = {
    "off": ([], {"GPUTRACE": "off"}),
    "paused": (["--start-paused"], {}),
    "paused-hooks": (["--start-paused", "--device-times", "off"], {}),
    "paused-full-buffers": (["--start-paused"], {"GPUTRACE_DELIVERY": "full"}),
}


@dataclass
class Group:
    """Processes that are compared with each other: a workload command and the variants it runs under."""

    name: str
    command: list
    variants: dict  # Variant: in every how many rounds it runs.
    share: float  # Of the time.
    waiting: int = PROCESSES_WAITING  # The most processes that are warm at one time.


class Overhead:
    def __init__(self, gputrace, python, programs, scratch, script, seed=1):
        self.gputrace, self.python, self.programs, self.script = gputrace, python, programs, script
        self.scratch = Path(scratch)
        self.random = random.Random(seed)
        self.samples, self.failures, self.summaries, self.serial = [], [], {}, 0
        self.broken = {}  # (group, variant): failures; a variant that fails twice is left out.
        self.hard_end = time.monotonic() + 3600
        self.otlp_url = None  # Of a live back end, for the variant that sends to one.
        self.prefix, self.env = [], {}  # Of every program's command.

    def groups(self, wanted, peers, only=None):
        """The measuring plan, without what this machine cannot run, and of the variants only those that are asked for."""
        torch = [self.python, self.script, "--repeats", REPEATS, "--workloads"]
        basic = {"untraced": 1, "hooks": 1, "client": 1, "full": 1}
        if not self.programs.get("cupti_client"):
            del basic["client"]
        peer = {"untraced": 1, "profiler-cuda": 1, "profiler-cpu+cuda": 1}
        empty = dict(basic)
        if peers and machine.nsys():
            peer["nsys"] = 1
            empty["nsys"] = 3
        plan = []
        # The parts of the step, where they are asked for.
        small = [name for name in ("small", "launches", "blocks") if name in wanted]
        if small:
            live = {"otlp": 1} if self.otlp_url else {}
            asked_for = {name: 1 for name in IF_ASKED_FOR if name in (only or ())}
            plan.append(Group("small", [*torch, ",".join(small)], {**basic, **asked_for, **live, "native": 1, "torch-ops": 1}, 0.45))
        if "empty" in wanted and self.programs.get("empty_kernels"):
            plan.append(Group("empty", [self.programs["empty_kernels"], "6"], empty, 0.20))
        rest = [name for name in ("graph", "gpu") if name in wanted]
        if rest:
            plan.append(Group("graph and gpu", [*torch, ",".join(rest)], {**basic, "by-node": 1, "by-graph": 1}, 0.20, WAITING_WITH_MUCH_MEMORY))
        torch_names = [name for name in ("small", "graph", "gpu") if name in wanted]
        if peers and torch_names:
            plan.append(Group("peers", [*torch, ",".join(torch_names)], peer, 0.15, WAITING_WITH_MUCH_MEMORY))
        for group in plan if only else ():
            group.variants = {name: every for name, every in group.variants.items() if name in only}
        return [group for group in plan if group.variants]

    def start(self, variant, command):
        """One waiting process of a variant."""
        command = [*self.prefix, *command]
        self.serial += 1
        folder = self.scratch / f"{self.serial:04}-{re.sub('[^a-z]+', '-', variant)}"
        traces, env = self.scratch / f"{self.serial:04}-trace", {}
        if variant == "hooks":
            command = [self.gputrace, "run", "-o", traces, "--device-times", "off", "--", *command]
        elif variant in IF_ASKED_FOR:
            options, env = IF_ASKED_FOR[variant]
            command = [self.gputrace, "run", "-o", traces, *options, "--", *command]
        elif variant == "torch-ops":
            command = [self.gputrace, "run", "-o", traces, "--torch-ops", "--", *command]
        elif variant == "otlp":
            command = [self.gputrace, "run", "-o", traces, "--otlp", self.otlp_url, "--", *command]
        elif variant == "native":
            command = [self.gputrace, "run", "-o", traces, "--stacks", "python,native,nvtx", "--", *command]
        elif variant in ("full", "full-buffers", "by-node", "by-graph"):
            # What users get, unless a row is about one of the ways to time graphs.
            env = {"GPUTRACE_GRAPH_TIMES": variant[3:] if variant.startswith("by-") else "auto"}
            if variant == "full-buffers":
                env["GPUTRACE_DELIVERY"] = "full"
            command = [self.gputrace, "run", "-o", traces, "--", *command]
        elif variant == "client":
            env = {"CUDA_INJECTION64_PATH": self.programs["cupti_client"], "CUPTI_CLIENT_OUT": f"{folder}.jsonl", "CUPTI_CLIENT_LIB": machine.toolkit_cupti() or ""}
        elif variant.startswith("profiler-"):
            command = [*command, "--profiler", variant[9:]]
        elif variant == "nsys":
            command = [machine.nsys(), "profile", "-t", "cuda", "--sample=none", "--cpuctxsw=none", "-f", "true", "-o", f"{folder}-nsys", *command]
        gated = Gated(variant, command, {**self.env, **env}, folder)
        gated.traces = traces
        return gated

    def take_turns(self, row):
        """Lets the processes of a round measure, one at a time, a repeat each and then the next, until all have ended."""
        row, late = list(row), []
        while row:
            self.random.shuffle(row)
            for gated in list(row):
                limit_s = max(5, min(RUN_LIMIT_S, self.hard_end - time.monotonic()))
                if not gated.turn(limit_s):
                    late.append(gated)
                    gated.kill()  # It would measure, or hang, beside the others.
                if gated in late or gated.child.poll() is not None:
                    row.remove(gated)
        return late

    def finish(self, group, number, gated, late):
        """Keeps one process's figures."""
        code, results = gated.child.poll(), gated.results()
        # nsys here collects but cannot always make its report: the figures are printed before that.
        if not results or (code != 0 and gated.label != "nsys"):
            self.fail(group, gated, "a turn of its did not end in time" if late else f"exit {code} after {gated.seconds:.0f}s")
        for name, values in results.items():
            self.samples.append({"group": group.name, "round": number, "variant": gated.label, "workload": name, "values": values, "process_seconds": round(gated.seconds, 2)})
        summary = gated.traces / "summary.txt"
        if summary.exists():
            self.summaries[f"{group.name} {gated.label}"] = summary.read_text(errors="replace")[:4000]
        gated.kill()
        shutil.rmtree(gated.traces, ignore_errors=True)

    def fail(self, group, gated, why):
        error = gated.stderr_path.read_text(errors="replace").strip()[-300:]
        self.failures.append(f"{group.name}/{gated.label}: {why}: {error}")
        key = group.name, gated.label
        self.broken[key] = self.broken.get(key, 0) + 1
        if self.broken[key] >= 2:
            group.variants.pop(gated.label, None)

    def measure(self, group, seconds, progress):
        """Runs rounds of a group until its time is over; the first round is always finished."""
        begun = time.monotonic()
        deadline, number, longest = begun + seconds, 0, 0.0
        while group.variants and time.monotonic() < self.hard_end and (number == 0 or time.monotonic() + longest < deadline):
            # Enough rounds for the time that is left, started together so that their imports overlap.
            per_round = len(group.variants)
            fitting = 1 if not longest else int((deadline - time.monotonic()) / longest) + 1
            batch = []
            for extra in range(max(1, min(fitting, group.waiting // per_round))):
                labels = [name for name, every in group.variants.items() if (number + extra) % every == 0]
                self.random.shuffle(labels)
                batch.append([self.start(label, group.command) for label in labels])
            ready_by = min(time.monotonic() + 90, self.hard_end)
            waiting = [[gated for gated in row if self.admit(group, gated, ready_by)] for row in batch]
            for row in waiting:
                start = time.monotonic()
                if number and start + longest > deadline:
                    break
                row = [gated for gated in row if self.broken.get((group.name, gated.label), 0) < 2]
                late = self.take_turns(row)
                for gated in row:
                    self.finish(group, number, gated, gated in late)
                longest = max(longest, time.monotonic() - start)
                number += 1
            for row in batch:
                for gated in row:
                    if gated.child.poll() is None:
                        gated.kill()
            if not any(sample["group"] == group.name for sample in self.samples):
                break  # Nothing works: another round would not either.
        progress(f"{group.name}: {number} rounds in {time.monotonic() - begun:.0f}s")

    def admit(self, group, gated, ready_by):
        if gated.wait_ready(ready_by):
            return True
        self.fail(group, gated, "never became ready")
        gated.kill()
        return False

    def run(self, plan, seconds, progress):
        """Measures every group; time that one leaves unused goes to those after it."""
        end = time.monotonic() + seconds
        self.hard_end = end + 30
        for i, group in enumerate(plan):
            left = end - time.monotonic()
            share = group.share / sum(later.share for later in plan[i:])
            if left > 0:
                self.measure(group, left * share, progress)
