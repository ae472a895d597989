"""The overhead measurement inside one traced program: its session is switched between states while the program makes steps.

The program (tests/gpu/programs/in_process.py says how to talk to it) makes steps all the time, also during a switch, so that clocks and caches stay
as they are. A block of at least 5 steps and 100 ms is measured in each state, and then the next state is drawn at random from the others.
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
import sys
import time

from . import figures, paired

BASE, CLIENT, PROFILER, UNTRACED = "paused", "CUPTI client", "torch.profiler", "hooks taken out"
OFF = {"device-times": "off", "stacks": "off", "torch-ops": "off"}
# What each state sets; None: the session is paused.
STATES = {
    BASE: None,
    # A paused session whose hooks are not called (tests/gpu/programs/hook_tables.py).
    UNTRACED: None,
    "hooks": OFF,
    "hooks with stacks": {**OFF, "stacks": "python"},
    "full without stacks": {**OFF, "device-times": "on"},
    "full": {**OFF, "device-times": "on", "stacks": "python"},
    "torch-ops": {**OFF, "device-times": "on", "stacks": "python", "torch-ops": "on"},
    "native": {**OFF, "device-times": "on", "stacks": "python,native"},
}
# With a profiler of the program's own, for a process of its own: what Kineto leaves behind stays.
PROFILED = {BASE: None, "full": STATES["full"], PROFILER: None}
BLOCK_MS, STEPS_MIN = 100, 5
# After device times or a client's records went on, nothing is flushed for half a second, so a block that came at once would lack that cost. After
# they went off, the records of before are still read. Where a client's follow the session's, or the other way
# round, the longer one covers both.
LEAD_ON_S, LEAD_OFF_S = 0.7, 0.2
ANSWER_LIMIT_S = 30


def command(python, programs, workload, empty, more, has_client):
    """The program of a workload, and its states."""
    states = {**STATES, CLIENT: None} if has_client else STATES
    if workload in ("empty", "tiny"):
        # A program in C is bound to the hooks, and Python's addresses are in the heap.
        states = {state: settings for state, settings in states.items() if state != UNTRACED}
    if workload == "empty":
        return [empty] if empty else None, states
    script = [python, programs / "in_process.py", "--samples"]
    if workload == "profiler":
        return [*script, "small", *more], PROFILED
    return [*script, workload, *more], states


class Failed(Exception):
    """A program or a session that does not do what it is asked for."""


class Program:
    """A program that makes steps, and measures blocks of them where it is asked to."""

    def __init__(self, command, env, errors):
        self.errors, self.rest = open(errors, "w+b"), b""
        self.child = subprocess.Popen([str(part) for part in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, env={**os.environ, **env})

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

    def ask(self, order):
        """Gives an order that is done before the next step."""
        self.say(order)
        said = self.line()
        if said != "DONE":
            raise Failed(said)

    def block(self, state, steps, ms):
        """Measures at least so many steps and ms: (steps, ns, each step's ns, and of two kinds of samples of the processor's speed each step's mean ns if there are any)."""
        self.say(f"measure {steps} {ms} {state}")
        word, done, ns, *each = self.line().split()
        assert word == "BLOCK"
        return int(done), int(ns), *([int(one) for one in part.split(",")] for part in each)

    def end(self):
        self.child.stdin.close()
        try:
            return self.child.wait(60)
        except subprocess.TimeoutExpired:
            self.child.kill()
            return "hang"


class InProcess(Program):
    """One traced program, and its session."""

    def __init__(self, gputrace, command, options, scratch, serial, client=None, cores=()):
        self.folder, self.runtime = scratch / f"in-process-{serial}", scratch / f"runtime-{serial}"
        self.runtime.mkdir(mode=0o700)
        prefix = ["taskset", "-c", ",".join(map(str, cores))] if cores else []
        run = [*prefix, gputrace, "run", "-o", self.folder, *options, "--", *command]
        super().__init__(run, {"XDG_RUNTIME_DIR": str(self.runtime)}, scratch / f"in-process-{serial}.err")
        self.values, self.is_paused, self.client, self.user = {}, False, client, None

    def order(self, questions):
        """Asks the session as `gputrace ctl` does, without starting a process for each question. They are sent together: each is answered when the
        program has followed, which takes a turn of the tracer's service thread."""
        path = next(self.runtime.glob(f"gputrace-{self.child.pid}-*/control"), None)
        if not path:
            raise Failed("the session has no control socket")
        with contextlib.ExitStack() as sockets:
            talks = []
            for question in questions:
                talk = sockets.enter_context(socket.socket(socket.AF_UNIX))
                talk.settimeout(ANSWER_LIMIT_S)
                talk.connect(str(path))
                talk.sendall(question.encode() + b"\n")
                talks.append(talk)
            for question, talk in zip(questions, talks):
                answer = json.loads(b"".join(iter(lambda talk=talk: talk.recv(65536), b"")))
                if answer.get("error") or answer.get("refused") or answer.get("unanswered") or answer.get("processes") != 1:
                    raise Failed(f"{question}: {json.dumps(answer)[:300]}")

    def use_without_session(self, state):
        """Begins and ends the program's own use of CUPTI, and its calls past the hooks."""
        wanted = {CLIENT: f"client {{}} {self.client}", PROFILER: "profiler {}", UNTRACED: "untraced {}"}.get(state)
        if wanted == self.user:
            return
        for order in [self.user and self.user.format("off"), wanted and wanted.format("on")]:
            if order:
                self.ask(order)
        self.user = wanted

    def switch(self, state, settings):
        """Orders only what differs from now; the session is paused while the program uses CUPTI itself."""
        if settings is None:
            if not self.is_paused:
                self.order(["stop"])
            self.is_paused = True
            self.use_without_session(state)
            return
        self.use_without_session(state)
        self.order([f"set {key}={value}" for key, value in settings.items() if self.values.get(key) != value])
        self.values.update(settings)
        if self.is_paused:
            self.order(["start"])
        self.is_paused = False


def recorder(state, settings):
    """Who has device times recorded in that state; None if nobody."""
    if state in (CLIENT, PROFILER):
        return state
    return "session" if (settings or {}).get("device-times") == "on" else None


def measure(gputrace, command, options, states, switches, seed, scratch, serial, until, client=None, block=(STEPS_MIN, BLOCK_MS), settling_s=0, keep=None, leads=(0, 0), cores=()):
    """One process, on these processors if there are any: its blocks, each of at least so many (steps, ms), and what was wrong. A block is (seconds, state, steps, ns, each
    step's ns, seconds that the switch took, of each kind of samples each step's mean). Nothing is measured in the first `settling_s`, nor in the `leads`: seconds after
    device times went on, and off. `keep` gets the session's report."""
    draw = random.Random(seed)
    traced, blocks, wrong, begin, state = InProcess(gputrace, command, options, scratch, serial, client, cores), [], None, time.monotonic(), None
    try:
        if traced.line(180) != "READY":
            raise Failed("the program did not begin with READY")
        time.sleep(settling_s)
        has = "session"
        while len(blocks) < switches and time.monotonic() < until:
            state = draw.choice([other for other in states if other != state])
            from_s = time.monotonic()
            traced.switch(state, states[state])
            took_s = time.monotonic() - from_s
            had, has = has, recorder(state, states[state])
            if had != has:
                time.sleep(leads[0] if has else leads[1])
            done, ns, steps, *samples = traced.block(state, *block)
            blocks.append((round(time.monotonic() - begin, 3), state, done, ns, steps, round(took_s, 4), samples))
    except (Failed, OSError, ValueError, KeyError) as error:
        wrong = f"after {len(blocks)} switches: {error}"
    code = traced.end()
    if not wrong and code != 0:
        wrong = f"exit {code}"
    shown = subprocess.run([gputrace, "report", "--json", traced.folder], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    report = json.loads(shown.stdout) if shown.returncode in (0, 3) else {}
    if not wrong and (not report.get("complete") or report.get("dropped")):
        wrong = f"the trace is not complete: {report.get('dropped')}"
    if keep:
        keep(report)
    shutil.rmtree(traced.folder, ignore_errors=True)
    return blocks, wrong


def quartile(times):
    """The lower quartile: what else runs on the machine makes some steps slower, and none faster."""
    return figures.quartiles(times)[0]


def speeds(block):
    """The mean logarithm of either kind of a block's samples of speed; empty if the program takes none."""
    return [statistics.fmean(map(math.log, steps)) for steps in block[6]]


def mean(block):
    return statistics.geometric_mean(block[4])


def lower_quartile(block):
    return quartile(block[4])


def mean_sample(block):
    return math.exp(statistics.fmean(speeds(block)))


# What a row has besides: a figure of each block, relative to which state, and whether at the same speed of the processor.
COLUMNS = {"client": (mean, CLIENT, False), "quartile": (lower_quartile, BASE, False), "same_speed": (mean, BASE, True), "client_same_speed": (mean, CLIENT, True), "samples": (mean_sample, BASE, False)}
OF_SAMPLES = {"same_speed", "client_same_speed", "samples"}


def summarize(name, states, processes):
    """The figures of a workload, by state: of the geometric means of the blocks' steps, to the base and to the client, also at the same speed of the
    processor; of the steps' lower quartiles; and of the samples of that speed: where a state slows these, that part is missing at the same speed."""
    def effects(figure, base, is_same_speed):
        return paired.pooled([paired.of_process([(block[1], figure(block), speeds(block) if is_same_speed else ()) for block in blocks], base) for blocks in processes])

    every = [block for blocks in processes for block in blocks]
    has_client, has_samples = any(block[1] == CLIENT for block in every), all(block[6] for block in every)
    found = effects(mean, BASE, False)
    others = {column: effects(*of) for column, of in COLUMNS.items() if (has_client or of[1] != CLIENT) and (has_samples or column not in OF_SAMPLES)}
    base = sorted(mean(block) for block in every if block[1] == BASE)
    rows = []
    for state in states:
        of_state = [block for block in every if block[1] == state]
        row = {"workload": name, "state": state, "blocks": len(of_state), "steps": sum(block[2] for block in of_state)}
        row |= {column: others.get(column, {}).get(state) for column in COLUMNS}
        if state == BASE and base:
            row["step_us"] = base[len(base) // 2] / 1e3
        rows.append({**row, **found.get(state, {})})
    return rows


def pool(files):
    """The figures of several runs' in-process.json together."""
    blocks, states = {}, {}
    for file in files:
        run = json.loads(file.read_text(encoding="utf-8"))
        # Those ended with the seconds that the switch took.
        if any(isinstance(block[6], float) for processes in run["blocks"].values() for process in processes for block in process):
            sys.exit(f"{file}: of an older version of this script, whose figures were others; take that version's --pool")
        for row in run["figures"]:
            known = states.setdefault(row["workload"], [])
            known += [row["state"]] * (row["state"] not in known)
        for workload, processes in run["blocks"].items():
            blocks.setdefault(workload, []).extend(processes)
    return [row for workload, processes in blocks.items() for row in summarize(workload, states[workload], processes)]


def effect(found):
    return f"{found['ratio']:.3f} [{found['low']:.3f}–{found['high']:.3f}]"


def markdown(rows):
    lines = ["| workload | state | to paused, 95 % | to the client | by the lower quartile, to paused | at the same speed: to paused | to the client | the samples | µs a step | blocks | steps |", "|---|---|---|---|---|---|---|---|---:|---:|---:|"]
    base_us = {row["workload"]: row.get("step_us") for row in rows if row["state"] == BASE}
    for row in rows:
        us = base_us.get(row["workload"])
        if "ratio" in row:
            cells = [effect(row), *(effect(row[column]) if row[column] else "" for column in COLUMNS), f"{us * (row['ratio'] - 1):+.1f}" if us else ""]
        else:
            cells = ["1", *[""] * len(COLUMNS), f"{us:.1f}"] if row["state"] == BASE and us else ["not measured", *[""] * len(COLUMNS), ""]
        lines.append(f"| {row['workload']} | {row['state']} | {' | '.join(cells)} | {row['blocks']:,} | {row['steps']:,} |")
    return "\n".join(lines)
