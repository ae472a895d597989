"""torch.profiler and Proton inside a traced process, compared with the same program untraced, and our own counts through it all.

The process's own stderr goes to a file of its own, so that what Kineto says there can be compared.
"""

import re
import shutil

from . import chrome, machine, reports
from .sections.programs import compare_copies, verdict
from .shared_cupti import warnings

# Two processes' kernels differ by this much in time, each at its median.
TIME_TOLERANCE = 0.10


def said(path):
    """The process's own stderr by line, numbers taken out, our own lines left out."""
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    return [re.sub(r"\d+", "#", line).strip() for line in lines if line.strip() and not line.startswith(("gputrace", "INFO "))]


def windows(bench, mode, way):
    folder = bench.scratch / "windows" / f"{mode}-{way}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def command_of(bench, mode, folder, *options):
    inner = bench.script("torch_windows.py", mode, folder, *options)
    return ["/bin/sh", "-c", 'exec 2>"$0"; exec "$@"', folder / "stderr", *inner]


class Pair:
    """One mode's untraced and traced run."""

    def __init__(self, bench, mode, env=None, label=None):
        self.bench, self.mode, self.name, self.env = bench, mode, label or mode, env
        self.bare = self.outcome = self.report = None
        self.want, self.got = windows(bench, self.name, "bare"), windows(bench, self.name, "traced")

    def run(self):
        self.bare = self.bench.bare(self.name, command_of(self.bench, self.mode, self.want), 120, self.env)
        if self.bare.code != 0:
            self.bench.row(self.name, "SKIP", f"does not run here untraced: {self.bare.ending()} {self.text(self.want)[-300:]!r}")
            return False
        self.outcome, folder = self.bench.traced(self.name, command_of(self.bench, self.mode, self.got), limit_s=60 + 5 * self.bare.seconds, env=self.env)
        self.bench.keep(f"{self.name}-own-stderr.txt", f"untraced:\n{self.text(self.want)}\ntraced:\n{self.text(self.got)}")
        same = self.outcome.code == 0 and self.outcome.stdout == self.bare.stdout
        self.bench.check(f"{self.name}-output", same, f"{self.outcome.ending()} {self.outcome.seconds:.1f}s, untraced {self.bare.seconds:.1f}s; " + (repr(self.bare.stdout[-160:]) if same else f"{self.outcome.stdout[-300:]!r} for {self.bare.stdout[-300:]!r} {self.text(self.got)[-300:]!r}"))
        new = [line for line in said(self.got / "stderr") if line not in said(self.want / "stderr")]
        self.bench.check(f"{self.name}-stderr", not new, f"new lines: {new[:4]}" if new else f"{len(said(self.want / 'stderr'))} lines, none new")
        self.report = self.bench.report(self.name, folder) if not self.outcome.hung else None
        return self.outcome.code == 0

    def text(self, folder):
        path = folder / "stderr"
        return path.read_text(errors="replace") if path.exists() else ""

    def own_counts(self, client, promised=True):
        """Our report against an independent count of the same work."""
        if not self.report:
            return
        lines = warnings(self.report)
        if not client:
            self.bench.row(f"{self.name}-own-counts", "FAIL", "there is no independent count to compare with")
            return
        want = reports.client_counts(client)
        if not promised:
            wrong = reports.differences(want, reports.counts(self.report), ("launches", "graph_launches"))
            self.bench.check(f"{self.name}-own-counts", not wrong, f"{'; '.join(wrong) or 'launches exact'}; coverage {self.report.get('device_time_coverage')}; said {lines}")
            return
        verdict(self.bench, f"{self.name}-own-counts", self.report, want, None)
        compare_copies(self.bench, f"{self.name}-own", self.report, client)
        self.bench.check(f"{self.name}-own-times", not lines and (self.report.get("device_time_coverage") or 0) >= 0.9999 and not self.report.get("invalid_timing"), f"coverage {self.report.get('device_time_coverage')} invalid {self.report.get('invalid_timing')} warnings {lines}")


def check_windows(pair, timed):
    """What torch.profiler recorded."""
    bench, name = pair.bench, pair.name
    want, got = chrome.summary(pair.want), chrome.summary(pair.got)
    if not want["windows"]:
        bench.row(f"{name}-events", "SKIP", "torch.profiler wrote no trace untraced")
        return
    wrong = chrome.differences(want["counts"], got["counts"])
    bench.check(f"{name}-events", not wrong and want["windows"] == got["windows"], f"{sum(want['counts'].values())} device events in {len(want['windows'])} windows" + (f"; traced {sum(got['counts'].values())} in {len(got['windows'])}: {wrong[:4]} windows {got['windows'][:8]} for {want['windows'][:8]}" if wrong or want["windows"] != got["windows"] else " equal by kind and name"))
    calls = chrome.differences(want["host_calls"], got["host_calls"])
    bench.check(f"{name}-host-calls", not calls, f"{sum(want['host_calls'].values())} calls" + (f": {calls[:4]}" if calls else " equal by name"))
    for key, what in (("uncorrelated", "device events without a call"), ("early", "starting before their call"), ("outside", "outside the window"), ("bad", "without times")):
        bench.check(f"{name}-{key}", got[key] <= want[key], f"{got[key]} {what}, untraced {want[key]}")
    late, usual = chrome.median_us(got["latencies"]), chrome.median_us(want["latencies"])
    bench.check(f"{name}-latency", -chrome.SLACK_US <= late <= 5 * abs(usual) + 200, f"call to start, median {late:.1f} us, untraced {usual:.1f} us")
    mine, theirs = chrome.typical_us(got), chrome.typical_us(want)
    ratio = mine / theirs if theirs else 0.0
    bench.row(f"{name}-kernel-time", ("PASS" if abs(ratio - 1) <= TIME_TOLERANCE else "FAIL") if timed else "INFO", f"traced/untraced {ratio:.4f} ({mine:.0f} us, {theirs:.0f} us)")


def check_proton(pair):
    """What Proton recorded; where it refuses or sees nothing untraced, no better is asked for."""
    bench, name = pair.bench, pair.name
    for path in sorted(pair.want.glob("proton-*.hatchet")):
        twin = pair.got / path.name
        want, got = chrome.hatchet(path), chrome.hatchet(twin) if twin.exists() else {}
        counts, mine = {key: count for key, (count, _) in want.items()}, {key: count for key, (count, _) in got.items()}
        bench.check(f"{name}-{path.stem}", counts == mine, f"{len(counts)} kernels, {sum(counts.values())} calls" + (" equal" if counts == mine else f"; traced {len(mine)}, {sum(mine.values())}: {[(key[:50], counts.get(key), mine.get(key)) for key in sorted({*counts, *mine}) if counts.get(key) != mine.get(key)][:4]}"))
        total, other = sum(ns for _, ns in want.values()), sum(ns for _, ns in got.values())
        bench.row(f"{name}-{path.stem}-time", "INFO", f"traced/untraced {other / total if total else 0:.4f} ({other / 1e3:.0f} us, {total / 1e3:.0f} us)")
    if not list(pair.want.glob("proton-*.hatchet")):
        bench.row(f"{name}-proton", "INFO", f"Proton wrote no file untraced: {pair.text(pair.want)[-200:]!r}")


def count_plain(bench, name, mode, *options):
    """A bare client's count of the same work without any profiler, or None with a row that says why."""
    outcome, client = bench.counted(f"{name}-plain", command_of(bench, mode, windows(bench, name, "plain"), "plain", *options))
    if not client:
        bench.row(f"{name}-plain", "INFO", f"no independent count: {outcome.ending() if outcome else 'client not built'} {outcome.stderr[-200:] if outcome else ''!r}")
    return client


def count_what_worked(pair):
    """As above, but without the windows whose profiler refused to start: those did no work in the traced run."""
    found = re.search(r"^worked (.*)$", pair.outcome.stdout, re.MULTILINE) if pair.outcome else None
    return count_plain(pair.bench, pair.name, pair.mode, f"only={found[1]}") if found else None


def shared_copy_folder(bench):
    """A folder in which Proton finds, under the name it asks for, the libcupti that PyTorch has loaded already."""
    wheel = next((path for path in machine.find_libraries("libcupti.so") if "nvidia" in path and "triton" not in path and "site-packages" in path), None)
    if not wheel:
        return None
    folder = bench.scratch / "shared-cupti"
    folder.mkdir(exist_ok=True)
    link = folder / "libcupti.so"
    if not link.exists():
        link.symlink_to(wheel)
    return folder


def run(bench):
    counted = {}
    modes = ("once",) if bench.quick else ("once", "loop", "schedule", "stacks")
    bench.parallel({f"{mode}-plain": (lambda mode=mode: counted.update({mode: count_plain(bench, mode, mode)})) for mode in modes}, workers=6)
    once = Pair(bench, "once")  # Alone, since its times are compared.
    if once.run():
        check_windows(once, timed=True)
    once.own_counts(counted.get("once"))
    if bench.quick:
        return

    def one(mode, env=None, label=None, promised=True):
        pair = Pair(bench, mode, env, label)
        if pair.run():
            if mode != "proton":
                check_windows(pair, timed=False)
            if "proton" in mode:
                check_proton(pair)
        pair.own_counts(count_what_worked(pair) if "proton" in mode else counted.get(mode), promised)

    jobs = {mode: (lambda mode=mode: one(mode)) for mode in ("loop", "schedule", "stacks")}
    folder = shared_copy_folder(bench)
    for mode in ("proton", "torch-proton", "proton-torch"):
        # Triton brings an older libcupti of its own, in whose place it gets the one in use.
        jobs[mode] = lambda mode=mode: one(mode)
        if folder:
            jobs[f"{mode}-one-copy"] = lambda mode=mode: one(mode, {"TRITON_CUPTI_LIB_PATH": folder}, f"{mode}-one-copy")
    bench.parallel(jobs, workers=5)
