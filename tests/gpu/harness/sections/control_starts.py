"""Many processes that begin paused and go on in the midst of eight threads' launches, six at once: each must follow every order, and end by itself
with exit code 0. Crashes here are rare, so that the few processes of section control seldom show one."""

import itertools
import shutil
import time
from concurrent.futures import ThreadPoolExecutor

from .control import Running

AT_ONCE, SWITCHES = 6, 3
SECONDS_MOST, SECONDS_LEFT = 240, 60


def run_process(bench, kind, number):
    """Exit code of a process, how many of its switches were not answered, and if it failed, where it died or the end of what it said."""
    program = [bench.programs["control_threads"], *([] if kind == "graphs" else [kind])]
    # It says where a program died.
    trace = bench.programs.get("crash_trace")
    running = Running(bench, f"starts-{kind}-{number}", ["--start-paused", "--graph-times", "node"], program, trace)
    unanswered = 0
    if running.is_ready():
        # The first start comes at another moment each time.
        time.sleep(number % 8 * 0.02)
        for question in ("start", "stop") * SWITCHES:
            is_followed, _ = running.order(question)
            unanswered += not is_followed
            if running.child.poll() is not None:
                break
    code, did, _ = running.end(has_report=False)
    shutil.rmtree(running.folder, ignore_errors=True)
    said = running.err.read_text(errors="replace")
    frames = [line for line in said.split("== crash_trace: maps ==")[0].splitlines() if ".so" in line]
    return code, unanswered, None if code == 0 and did else "\n".join(frames[:16]) or said[-300:]


def run(bench):
    until = time.monotonic() + (20 if bench.quick else min(SECONDS_MOST, bench.time_left() - SECONDS_LEFT))
    # Two of three make graphs, since the three that crashed when this was written did.
    kinds = ["graphs", "graphs", "plain"]
    numbers = itertools.count()
    found = {kind: [] for kind in kinds}

    def worker(index):
        while time.monotonic() < until:
            kind = kinds[index % len(kinds)]
            found[kind].append(run_process(bench, kind, next(numbers)))

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(worker, range(AT_ONCE)))
    for kind, processes in found.items():
        wrong = [f"exit {code}: {said}" for code, _, said in processes if said is not None]
        unanswered = sum(count for _, count, _ in processes)
        bench.check(kind, processes and not wrong and not unanswered, f"{len(processes)} processes, {len(wrong)} failed, {unanswered} switches unanswered; {' | '.join(wrong)[:3000]}")
