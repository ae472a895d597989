"""Programs with workers, and programs that are killed; nothing that ran is lost silently."""

import json
import random
import struct

from .programs import check_program

WORKERS = ("loader-fork", "loader-spawn", "loader-forkserver", "processes-spawn", "processes-forkserver")
# PROCESSES of torch_workers.py.
PROCESSES = 4
# Promised from a record's end to its delivery while no kernel runs longer than that; the rest is what the measure is off by.
LAG_LIMIT_MS, MEASURE_MS = 250, 30
KILLS = 5


def ended(outcome):
    """An ending as a shell sees it, so that a signal compares equal with and without `gputrace run` between."""
    return outcome.code if outcome.code is None or outcome.code >= 0 else 128 - outcome.code


class Counters:
    """The four numbers that a killed program leaves behind."""

    def __init__(self, path):
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(32))

    def read(self):
        self.begun, self.returned, self.loop_ns, self.last_ns = struct.unpack("4Q", self.path.read_bytes()[:32])
        return self


def steady(report):
    """(calls, timed calls, longest ns) of the loop's kernel."""
    found = [kernel for kernel in report.get("kernels") or [] if (kernel.get("full_name") or kernel.get("name", "")).startswith("steady")]
    longest = max((kernel.get("max_ns") or 0 for kernel in report.get("kernels") or []), default=0)
    return sum(kernel["calls"] for kernel in found), sum(kernel["timed_calls"] for kernel in found), longest


def killed(bench, name, ending, seconds, bare_code):
    """One traced run that ends badly; its report against what the program counted."""
    counters = Counters(bench.scratch / "counters" / name)
    outcome, folder = bench.traced(name, bench.script("torch_killed.py", ending, counters.path, f"{seconds:.3f}"), limit_s=90, meant_to_die=True)
    counters.read()
    bench.check(f"{name}-exit", ended(outcome) == bare_code, f"{outcome.ending()}, untraced {bare_code}; stdout {outcome.stdout!r} {'' if ended(outcome) == bare_code else outcome.stderr[-300:]!r}")
    report = bench.report(name, folder)
    if not report:
        return None
    calls, timed, longest_ns = steady(report)
    # The signal can fall between the driver's taking a launch and our noting it, so one may be missing of those that had not returned.
    good = counters.returned <= calls <= counters.begun and counters.returned > 20
    bench.check(f"{name}-launches", good, f"{calls} launches recorded, the program counted {counters.returned} returned of {counters.begun} begun; dropped {report.get('dropped')} complete {report.get('complete')}")
    loop_s = (counters.last_ns - counters.loop_ns) / 1e9
    if ending != "illegal" and loop_s > 0:
        lag_ms = 1000 * (calls - timed) / ((counters.returned - 20) / loop_s)
        limit_ms = LAG_LIMIT_MS + longest_ns / 1e6 + MEASURE_MS
        bench.check(f"{name}-lag", lag_ms <= limit_ms, f"{calls - timed} launches without device times, {lag_ms:.0f} ms of the loop (at most {limit_ms:.0f}), {(counters.returned - 20) / loop_s:.0f} launches/s, longest kernel {longest_ns / 1e3:.0f} us")
    ends = [process.get("end") for process in report.get("processes") or []]
    bench.row(f"{name}-end", "INFO", f"the report says {ends}")
    return report


def untraced(bench, ending):
    counters = Counters(bench.scratch / "counters" / f"{ending}-bare")
    return bench.bare(ending, bench.script("torch_killed.py", ending, counters.path, "0.5"), 90)


def names_in_order(entry, wanted):
    """The kernels named in a part of the report, in the order they come."""
    text = json.dumps(entry)
    spots = sorted((text.find(name, at), name) for name in wanted for at in range(len(text)) if text.startswith(name, at))
    return [name for _, name in spots]


def check_in_flight(bench, report):
    """Which launches were in flight when the bad kernel ended everything: it, and those behind it, newest first."""
    flight = report.get("in_flight")
    if not flight:
        bench.row("illegal-in-flight", "FAIL", f"the report has no `in_flight`: {sorted(report)}")
        return
    order = names_in_order(flight, ("steady", "bad_store"))
    bench.keep("illegal-in-flight.json", json.dumps(flight, indent=1))
    behind = order.index("bad_store") if "bad_store" in order else -1
    bench.check("illegal-in-flight", behind > 0 and order[0] == "steady", f"{order[:12]} {json.dumps(flight)[:300]}")


def endings(bench):
    bare = {}
    wanted = ("sigkill", "sigterm", "abort", "exit", "illegal")

    def one(ending):
        outcome = untraced(bench, ending)
        started = outcome.stdout.startswith("started") and not outcome.hung
        bench.row(f"{ending}-untraced", "INFO" if started else "SKIP", f"{outcome.ending()} {outcome.stderr.strip()[-160:]!r}")
        if started:
            bare[ending] = ended(outcome)

    bench.parallel({ending: (lambda ending=ending: one(ending)) for ending in wanted}, workers=5)

    def traced(ending):
        report = killed(bench, ending, ending, 0.5, bare[ending])
        if report and ending == "illegal":
            check_in_flight(bench, report)

    bench.parallel({ending: (lambda ending=ending: traced(ending)) for ending in ("sigterm", "abort", "exit", "illegal") if ending in bare}, workers=4)
    if "sigkill" in bare:
        for number in range(KILLS):  # One at a time: the lag is measured.
            killed(bench, f"sigkill-{number}", "sigkill", random.uniform(0.3, 1.5), bare["sigkill"])


def workers(bench, kind):
    """A process that forkserver made leaves by os._exit, so that no client in it can write its totals: one process's are taken as many times."""
    many = {"client_command": bench.script("torch_workers.py", "one-process"), "client_times": PROCESSES} if kind.startswith("processes-") else {}
    check_program(bench, kind, bench.script("torch_workers.py", kind), **many)


def run(bench):
    bench.parallel({kind: (lambda kind=kind: workers(bench, kind)) for kind in WORKERS}, workers=5)
    endings(bench)
