"""Every libcupti on the machine under an nvcc program, then none at all.

A libcupti that a bare client cannot use with this driver either is the library's limit: there, the program must still
run and its launches must still be counted."""

import os
import re

from .. import reports
from .smoke import cupti_versions

PROGRAMS = {"vadd": ("vadd",), "graph": ("graph_capture", "100")}


def one_library(bench, label, path):
    for kind, (program, *options) in PROGRAMS.items():
        if not bench.programs.get(program):
            bench.row(f"{label}-{kind}", "FAIL", "was not built")
            continue
        command = [bench.programs[program], *options]
        name = f"{label}-{kind}"
        bare = bench.bare(name, command, 60)
        want = reports.expected(bare.stdout)
        if bare.code or not want:
            bench.row(name, "SKIP", f"does not run here untraced: {bare.ending()} {bare.stderr[-200:]!r}")
            continue
        client_run, client = bench.counted(name, command, limit_s=60, library=path)
        usable = bool(client) and not reports.differences(want, reports.client_counts(client), reports.DEVICE_KEYS)
        outcome, folder = bench.traced(name, command, limit_s=60, env={"GPUTRACE_CUPTI": path})
        bench.outputs(name, folder)
        report = bench.report(name, folder)
        if outcome.code != 0 or outcome.stdout != bare.stdout or not report:
            bench.row(name, "FAIL", f"{outcome.ending()}; a bare client there: {client_run.ending() if client_run else 'not built'}, {client and reports.client_counts(client)}; {outcome.stderr[-250:]!r}")
            continue
        keys = None if usable else ("launches", "captured_launches", "graph_launches")
        wrong = reports.differences(want, reports.counts(report), keys)
        coverage = report.get("device_time_coverage")
        if usable and (coverage or 0) < 0.999:
            wrong.append(f"device_time_coverage {coverage}")
        note = "" if usable else f" (a bare client cannot use it: {client_run.ending() if client_run else 'not built'} {client and reports.client_counts(client)})"
        bench.check(name, not wrong, ("; ".join(wrong) if wrong else "counts equal") + f" coverage={coverage}{note}")


def without_cupti(bench):
    for kind, (program, *options) in PROGRAMS.items():
        if not bench.programs.get(program):
            continue
        name, command = f"off-{kind}", [bench.programs[program], *options]
        want = reports.expected(bench.bare(name, command, 60).stdout)
        for way, start in (("option", lambda n, c: bench.traced(n, c, "--device-times", "off")), ("variable", lambda n, c: bench.preloaded(n, c, env={"GPUTRACE_DEVICE_TIMES": "off"}))):
            outcome, folder = start(f"{name}-{way}", command)
            missing = bench.outputs(f"{name}-{way}", folder)
            report = bench.report(f"{name}-{way}", folder)
            if outcome.code != 0 or missing or not report or not want:
                bench.row(f"{name}-{way}", "FAIL", f"{outcome.ending()} missing {missing} {outcome.stderr[-250:]!r}")
                continue
            wrong = reports.differences(want, reports.counts(report), ("launches", "captured_launches", "graph_launches"))
            if report.get("device_time_coverage"):
                wrong.append(f"device_time_coverage {report['device_time_coverage']}")
            summary = "\n".join(path.read_text(errors="replace") for path in folder.rglob("summary.txt"))
            said = re.search(r"^.*(device times?|host times?|CUPTI).*$", summary, re.MULTILINE | re.IGNORECASE)
            if not said:
                wrong.append("the summary does not say that there are no device times")
            bench.check(f"{name}-{way}", not wrong, "; ".join(wrong) if wrong else f"launches equal; {said[0].strip()[:120]!r}")


def run(bench):
    versions = cupti_versions(bench)
    distinct = {}  # 11.8, 12.0 and 12.1 all report version 18, so the size counts too.
    for path, version in versions.items():
        distinct.setdefault((version, os.path.getsize(path)), path)
    jobs = {}
    for number, ((version, _), path) in enumerate(distinct.items()):
        label = f"{number}-{version if version.isdigit() else 'unloadable'}"
        bench.row(f"library-{label}", "INFO", f"{path} {version}")
        jobs[f"cupti-{label}"] = lambda label=label, path=path: one_library(bench, label, path)
    jobs["off"] = lambda: without_cupti(bench)
    bench.parallel(jobs, workers=6)
