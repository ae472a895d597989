"""The overhead measurement inside one traced program: its session is switched between states while the program makes steps.

The program (tests/gpu/programs/in_process.py says how one talks) makes steps all the time, also during a switch, so that clocks and caches stay
as they are. A block of at least 100 ms is measured in each state. Switching device times off takes some turns of the tracer's service thread, so states are
visited in groups with the same device times, several times each in an order drawn at random (`walk`).
"""

import contextlib
import json
import math
import os
import random
import select
import shutil
import socket
import statistics
import subprocess
import time

from . import paired

BASE = "paused"
CLIENT, PROFILER = "CUPTI client", "torch.profiler"
OFF = {"device-times": "off", "stacks": "off", "torch-ops": "off"}
# What each state sets; None: the session is paused.
STATES = {
    BASE: None,
    "hooks": OFF,
    "hooks with Python stacks": {**OFF, "stacks": "python"},
    "full without stacks": {**OFF, "device-times": "on"},
    "full": {**OFF, "device-times": "on", "stacks": "python"},
    "torch-ops": {**OFF, "device-times": "on", "stacks": "python", "torch-ops": "on"},
    "native": {**OFF, "device-times": "on", "stacks": "python,native"},
}
# With a profiler of the program's own, for a process of its own: what Kineto leaves behind stays.
PROFILED = {BASE: None, "full": STATES["full"], PROFILER: None}
BLOCK_MS, STEPS_MIN = 100, 5
# How often a group's states are measured before the next group's turn.
VISITS = 3
# After device times go on, the tracer flushes nothing for 10 turns of 50 ms: blocks begin later, when it does.
QUIET_S = 0.6
ANSWER_LIMIT_S = 30
# The columns of figures: the one that is to be read, and those beside it.
WALL, CPU, MEAN = "wall", "cpu", "mean"


def group_of(state):
    """States between which a switch is cheap have the same group."""
    settings = STATES.get(state)
    if settings is None:
        return state if state in (CLIENT, PROFILER) else "off"
    return settings["device-times"]


def walk(states, draw):
    """The states to measure, without an end: group after group, and a group's states several times, in orders drawn at random."""
    groups, last, last_group = {}, None, None
    for state in states:
        groups.setdefault(group_of(state), []).append(state)
    while True:
        order = list(groups)
        draw.shuffle(order)
        if order[0] == last_group:
            order.append(order.pop(0))
        for name in order:
            for _ in range(VISITS):
                visit = groups[name][:]
                draw.shuffle(visit)
                if visit[0] == last:
                    visit.append(visit.pop(0))
                for last in visit:
                    yield last
        last_group = name


def chosen(states, only):
    """Those states that are asked for, and the base."""
    return {state: settings for state, settings in states.items() if state in only or state == BASE} if only else states


def command(python, programs, workload, empty, more, has_client):
    """The program of a workload, and its states."""
    states = {**STATES, CLIENT: None} if has_client else STATES
    if workload == "empty":
        return [empty] if empty else None, states
    script = [python, programs / "in_process.py"]
    if workload == "profiler":
        return [*script, "small", *more], PROFILED
    return [*script, workload, *more], states


class Failed(Exception):
    """A program or a session that does not do what it is asked for."""


class InProcess:
    """One traced program, and its session."""

    def __init__(self, gputrace, command, options, scratch, serial, client):
        self.folder, self.runtime = scratch / f"in-process-{serial}", scratch / f"runtime-{serial}"
        self.runtime.mkdir(mode=0o700)
        self.errors = open(scratch / f"in-process-{serial}.err", "w+b")
        run = [gputrace, "run", "-o", self.folder, *options, "--", *command]
        env = {**os.environ, "XDG_RUNTIME_DIR": str(self.runtime)}
        self.child = subprocess.Popen([str(part) for part in run], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, env=env)
        self.values, self.is_paused, self.client, self.user, self.rest = {}, False, client, None, b""

    def line(self, limit_s=ANSWER_LIMIT_S):
        until = time.monotonic() + limit_s
        while b"\n" not in self.rest:
            ready = select.select([self.child.stdout], [], [], max(0, until - time.monotonic()))[0]
            more = os.read(self.child.stdout.fileno(), 65536) if ready else b""
            if not more:
                self.errors.seek(0)
                raise Failed(f"the program gave no answer: {self.errors.read().decode(errors='replace')[-400:]}")
            self.rest += more
        line, self.rest = self.rest.split(b"\n", 1)
        return line.decode(errors="replace")

    def say(self, text):
        self.child.stdin.write(text.encode() + b"\n")
        self.child.stdin.flush()

    def order(self, questions):
        """Asks the session as `gputrace ctl` does, without starting a process for each question. It answers several at once, each when its
        programs have followed: they are sent together, and take as long as the longest."""
        path = next(self.runtime.glob(f"gputrace-{self.child.pid}-*/control"), None)
        if not path:
            raise Failed("the session has no control socket")
        with contextlib.ExitStack() as open_sockets:
            talks = []
            for question in questions:
                talk = open_sockets.enter_context(socket.socket(socket.AF_UNIX))
                talk.settimeout(ANSWER_LIMIT_S)
                talk.connect(str(path))
                talk.sendall(question.encode() + b"\n")
                talks.append((question, talk))
            for question, talk in talks:
                answer = json.loads(b"".join(iter(lambda talk=talk: talk.recv(65536), b"")))
                if answer.get("error") or answer.get("refused") or answer.get("unanswered") or answer.get("processes") != 1:
                    raise Failed(f"{question}: {json.dumps(answer)[:300]}")

    def user_of_cupti(self, state):
        """Switches the program's own user of CUPTI, where the state has another than now."""
        wanted = {CLIENT: f"client {{}} {self.client}", PROFILER: "profiler {}"}.get(state)
        if wanted == self.user:
            return
        for line in [self.user and self.user.format("off"), wanted and wanted.format("on")]:
            if line:
                self.say(line)
                said = self.line()
                if said != "DONE":
                    raise Failed(said)
        self.user = wanted

    def switch(self, state, settings):
        """Orders only what differs from now: the session is paused before the program's own user of CUPTI begins, and goes on after it has ended."""
        if settings is None:
            if not self.is_paused:
                self.order(["stop"])
            self.is_paused = True
            self.user_of_cupti(state)
            return
        self.user_of_cupti(state)
        times_before = not self.is_paused and self.values.get("device-times")
        questions = [f"set {key}={value}" for key, value in settings.items() if self.values.get(key) != value]
        self.values.update(settings)
        if questions:
            self.order(questions)
        if self.is_paused:
            self.order(["start"])
        self.is_paused = False
        if settings["device-times"] == "on" != times_before:
            time.sleep(QUIET_S)

    def block(self, state, steps):
        """Measures at least so many steps, and 100 ms: each step's time, and the processor time of the thread in it."""
        self.say(f"measure {steps} {BLOCK_MS} {state}")
        word, times = self.line().split(" ", 1)
        if word != "BLOCK":
            raise Failed(f"no block, but {word} {times[:200]}")
        times = json.loads(times)
        return times["ns"], times["cpu_ns"]

    def end(self):
        self.child.stdin.close()
        try:
            return self.child.wait(60)
        except subprocess.TimeoutExpired:
            self.child.kill()
            return "hang"


def measure(gputrace, command, options, states, switches, seed, scratch, serial, until, client=None):
    """One process: its blocks as (seconds, state, ns of each step, processor ns of each step, seconds of the switch), and what was wrong."""
    draw = random.Random(seed)
    traced, blocks, wrong, begin = InProcess(gputrace, command, options, scratch, serial, client), [], None, time.monotonic()
    try:
        if traced.line(180) != "READY":
            raise Failed("the program did not begin with READY")
        # All blocks of a process have as many steps: the fastest of few are slower than those of many.
        traced.switch(BASE, None)
        first = traced.block(BASE, STEPS_MIN)[0]
        steps = max(STEPS_MIN, math.ceil(BLOCK_MS * 1.1e6 / statistics.median(first)))
        for state in walk(states, draw):
            if len(blocks) >= switches or time.monotonic() >= until:
                break
            switched = time.monotonic()
            traced.switch(state, states[state])
            switched = time.monotonic() - switched
            ns, cpu_ns = traced.block(state, steps)
            blocks.append((round(time.monotonic() - begin, 3), state, ns[:steps], cpu_ns[:steps], round(switched, 4)))
    except (Failed, OSError, ValueError, KeyError) as error:
        wrong = f"after {len(blocks)} switches: {error}"
    code = traced.end()
    if not wrong and code != 0:
        wrong = f"exit {code}"
    shown = subprocess.run([gputrace, "report", "--json", traced.folder], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    report = json.loads(shown.stdout) if shown.returncode in (0, 3) else {}
    if not wrong and (not report.get("complete") or report.get("dropped")):
        wrong = f"the trace is not complete: {report.get('dropped')}"
    shutil.rmtree(traced.folder, ignore_errors=True)
    return blocks, wrong


def summarize(name, states, processes, location="fastest half"):
    """The figures of a workload, by state: of the location, of the plain mean, and of the processor time's location."""
    place, found = paired.LOCATIONS[location], {}
    for column, by, at in ((WALL, place, 2), (MEAN, statistics.fmean, 2), (CPU, place, 3)):
        # A clock with coarse ticks may show none in a block.
        of = [[(block[1], max(1, by(block[at]))) for block in blocks] for blocks in processes]
        found[column] = paired.pooled([paired.of_process(blocks, BASE) for blocks in of])
    every = [block for blocks in processes for block in blocks]
    rows = []
    for state in states:
        own = [block for block in every if block[1] == state]
        row = {"workload": name, "state": state, "blocks": len(own), "steps": sum(len(block[2]) for block in own)}
        if own:
            row["step_us"] = statistics.median(place(block[2]) for block in own) / 1e3
            row["switch_s"] = statistics.median(block[4] for block in own)
        row.update(found[WALL].get(state, {}))
        row.update({column: found[column][state] for column in (MEAN, CPU) if state in found[column]})
        rows.append(row)
    return rows


def effect(figures):
    return f"{figures['ratio']:.4f} [{figures['low']:.4f}–{figures['high']:.4f}]" if figures and "ratio" in figures else ""


def markdown(rows):
    lines = ["| workload | state | to paused, 95 % | µs a step | by the mean | CPU time of the thread | blocks | steps | s a switch to it |", "|---|---|---|---:|---|---|---:|---:|---:|"]
    base_us = {row["workload"]: row.get("step_us") for row in rows if row["state"] == BASE}
    for row in rows:
        us, is_base = base_us.get(row["workload"]), row["state"] == BASE
        wall = effect(row) or ("1" if is_base and us else "not measured")
        step = f"{us:.1f}" if is_base and us else f"{us * (row['ratio'] - 1):+.1f}" if us and "ratio" in row else ""
        switch = f"{row['switch_s']:.3f}" if "switch_s" in row else ""
        lines.append(f"| {row['workload']} | {row['state']} | {wall} | {step} | {effect(row.get(MEAN))} | {effect(row.get(CPU))} | {row['blocks']:,} | {row['steps']:,} | {switch} |")
    return "\n".join(lines)


def pool(files, location):
    """The figures of several runs' blocks together."""
    processes, states = {}, {}
    for file in files:
        with open(file, encoding="utf-8") as opened:
            blocks = json.load(opened)["blocks"]
        for workload, each in blocks.items():
            for own in each:
                if own and len(own[0]) != 5:
                    raise ValueError(f"{file}: its blocks have no times of steps; it is of an older version of this script")
                processes.setdefault(workload, []).append(own)
                states.setdefault(workload, {}).update(dict.fromkeys(block[1] for block in own))
    order = [BASE, *(state for state in [*STATES, CLIENT, PROFILER] if state != BASE)]
    return [row for workload in processes for row in summarize(workload, sorted(states[workload], key=order.index), processes[workload], location)]
