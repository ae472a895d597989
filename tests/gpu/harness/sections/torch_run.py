"""A PyTorch training run behaves as without us, and its outputs are there when it ends."""

import time

from .. import reports


def check_training(bench, name, start, bare, command, code):
    outcome, folder = start(name, command, limit_s=60 + 6 * bare.seconds)
    missing = bench.outputs(name, folder)
    bench.check(f"{name}-exit", outcome.code == code, f"{outcome.ending()}, wanted {code}; {outcome.seconds:.1f}s, untraced {bare.seconds:.1f}s; {'' if outcome.code == code else outcome.stderr[-300:]!r}")
    bench.check(f"{name}-losses", outcome.stdout == bare.stdout, f"{len(bare.stdout.splitlines())} lines identical" if outcome.stdout == bare.stdout else f"{outcome.stdout[:200]!r} for {bare.stdout[:200]!r}")
    bench.check(f"{name}-files", not missing, f"missing {missing}" if missing else "all four written")
    report = bench.report(name, folder)
    if report:
        got = reports.counts(report)
        good = got["launches"] and got["kernel_calls"] and not got["dropped"] and not got["device_only"] and report.get("device_time_coverage", 0) > 0.999
        bench.check(f"{name}-report", good, f"{got} coverage={report.get('device_time_coverage')} kernel_ms={reports.kernel_ns(report) / 1e6:.2f}")
        bench.launches[name] = got["launches"]


def information(stderr):
    return " ".join(line[5:] for line in stderr.splitlines() if line.startswith("INFO "))


def children(bench, vadd):
    """wait(-1) and captured children inside a traced process."""
    command = bench.script("wait_children.py", vadd)
    bare = bench.bare("children", command)
    bench.row("children-untraced", "INFO" if bare.code == 0 else "SKIP", f"{bare.ending()} {information(bare.stderr)} {bare.stdout!r} {'' if bare.code == 0 else bare.stderr[-300:]!r}")
    if bare.code != 0:
        return
    for name, start in (("children-run", bench.traced), ("children-preload", bench.preloaded)):
        outcome, _ = start(name, command, limit_s=60 + 6 * bare.seconds)
        same = outcome.stdout == bare.stdout and outcome.code == bare.code
        bench.check(name, same, f"{outcome.ending()} {information(outcome.stderr)} " + ("as untraced" if same else f"{outcome.stdout!r} {outcome.stderr[-300:]!r}"))


def captured(bench, command, bare):
    """subprocess.run(capture_output=True) around a bare-preloaded program: same stdout, and back when the program is."""
    folder = bench.scratch / "traces" / "torch" / "captured"
    variable = bench.output_variable()
    script = (
        "import subprocess, sys, time\n"
        "start = time.monotonic()\n"
        "done = subprocess.run(sys.argv[1:], capture_output=True, timeout=100)\n"
        "print(f'INFO captured_seconds={time.monotonic() - start:.2f} stderr_bytes={len(done.stderr)}', file=sys.stderr)\n"
        "sys.stdout.buffer.write(done.stdout)\n"
        "sys.exit(done.returncode)\n"
    )
    # Only the inner program is preloaded: the outer one is what a test harness or a notebook would be.
    inner = ["/usr/bin/env", f"LD_PRELOAD={bench.library()}", f"{variable}={folder}", *command]
    start = time.monotonic()
    outcome = bench.bare("captured", [bench.python, "-c", script, *inner], limit_s=110)
    took = time.monotonic() - start
    good = outcome.stdout == bare.stdout and outcome.code == bare.code and took < 3 * bare.seconds + 20
    bench.check("captured-output", good, f"{outcome.ending()} {information(outcome.stderr)}, untraced {bare.seconds:.2f}s" + ("" if good else f" {outcome.stdout[-200:]!r} {outcome.stderr[-300:]!r}"))
    missing = bench.outputs("captured", folder)
    bench.check("captured-files", not missing, f"missing {missing}" if missing else f"all four there when the pipe closed, in the folder that {variable} names")


def run(bench):
    command = bench.script("torch_train.py", "--steps", "10")
    bare = bench.bare("train", command, limit_s=150)
    if not bench.check("untraced", bare.code == 0, f"{bare.ending()} in {bare.seconds:.1f}s {bare.stderr.strip()[-300:] if bare.code else ''}"):
        return
    again = bench.bare("train-again", command)
    bench.check("deterministic", again.stdout == bare.stdout, "two untraced runs agree" if again.stdout == bare.stdout else "the program itself is not deterministic here")
    seven = [*command, "--exit", "7"]
    jobs = {
        "run": lambda: check_training(bench, "run", bench.traced, bare, command, 0),
        "preload": lambda: check_training(bench, "preload", bench.preloaded, bare, command, 0),
        "run-7": lambda: check_training(bench, "run-7", bench.traced, bare, seven, 7),
        "preload-7": lambda: check_training(bench, "preload-7", bench.preloaded, bare, seven, 7),
        "hooks": lambda: check_hooks(bench, bare, command),
        "captured": lambda: captured(bench, command, bare),
    }
    if bench.programs.get("vadd"):
        jobs["children"] = lambda: children(bench, bench.programs["vadd"])
    bench.launches = {}
    bench.parallel(jobs, workers=7)
    bench.check("launches-agree", len(set(bench.launches.values())) == 1, bench.launches)


def check_hooks(bench, bare, command):
    """Without CUPTI: the same launches, no device times, and the summary says so."""
    outcome, folder = bench.traced("hooks-only", command, "--device-times", "off")
    bench.check("hooks-only-exit", outcome.code == 0 and outcome.stdout == bare.stdout, outcome.ending())
    bench.outputs("hooks-only", folder)
    report = bench.report("hooks-only", folder)
    if report:
        got = reports.counts(report)
        bench.launches["hooks-only"] = got["launches"]
        bench.check("hooks-only-report", bool(got["launches"]) and not report.get("device_time_coverage"), f"{got} coverage={report.get('device_time_coverage')} kernel_ns={reports.kernel_ns(report)}")
