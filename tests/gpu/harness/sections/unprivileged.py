"""The GPU tests again as a user without any privilege, in a copy of the tests that this user owns."""

import json
import os
import shutil
import tempfile
from pathlib import Path

from .. import process
from ..build import GPU_TESTS

NOBODY = 65534
SECTIONS = ("smoke", "torch", "programs", "sharing")
# Folders of the privileged user's that he cannot write to; programs then use those in HOME.
FOLDERS = ("XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "TRITON_CACHE_DIR", "TRITON_HOME", "TORCH_HOME", "TORCHINDUCTOR_CACHE_DIR",
           "CUDA_CACHE_PATH", "CUPY_CACHE_DIR", "NUMBA_CACHE_DIR", "PYTHONPYCACHEPREFIX", "GPUTRACE_CACHE")
# Who runs this, and what he may; then the files that everything else needs.
WHO = """
import os, re, subprocess, sys
status = open("/proc/self/status").read()
print("uid", os.getuid(), "groups", os.getgroups(), "capabilities", re.search(r"CapEff:\\s*(\\w+)", status)[1])
open(os.path.join(os.environ["TMPDIR"], "written"), "w").close()
sys.path.insert(0, os.path.join(os.environ["HOME"], "tests", "gpu"))
import harness.bench
# setpriv itself still gets into folders that are closed to the user.
subprocess.run([sys.executable, "-c", "pass"], check=True)
"""


def copy_tests(bench, home):
    """What scripts/gpu-test needs, readable and writable for nobody but its new owner."""
    root = GPU_TESTS.parent.parent
    shutil.copytree(GPU_TESTS, home / "tests" / "gpu", ignore=shutil.ignore_patterns("__pycache__"))
    (home / "scripts").mkdir()
    for name in ("gpu-test", "bench-overhead"):
        shutil.copy2(root / "scripts" / name, home / "scripts" / name)
    shutil.copy2(bench.gputrace, home / "gputrace")
    (home / "tmp").mkdir()
    for folder, _, files in os.walk(home):
        os.chown(folder, NOBODY, NOBODY)
        for name in files:
            os.chown(Path(folder) / name, NOBODY, NOBODY)


def reachable(bench, setpriv, env, home):
    """Whether the user can run this python, the tests and gputrace at all: folders on the way may be closed to him."""
    who = process.run([*setpriv, bench.python, "-c", WHO], bench.log("who"), bench.limit(30), env, home)
    tool = process.run([*setpriv, home / "gputrace", "--version"], bench.log("version"), bench.limit(30), env, home)
    good = who.code == 0 and tool.code == 0
    detail = f"{who.stdout.strip()}; {tool.stdout.strip()}" if good else f"{who.ending()} {who.stderr[-300:]!r}; gputrace {tool.ending()} {tool.stderr[-200:]!r}"
    bench.row("user", "INFO" if good else "SKIP", detail)
    return good


def restricted():
    """What the driver says of who may read performance counters; activity records must not depend on it."""
    try:
        lines = Path("/proc/driver/nvidia/params").read_text().splitlines()
    except OSError as error:
        return str(error)
    return next((line for line in lines if "RmProfilingAdminOnly" in line), "RmProfilingAdminOnly is not among the driver's parameters")


def run(bench):
    setpriv = shutil.which("setpriv")
    if os.geteuid() != 0 or not setpriv:
        bench.row("unprivileged", "SKIP", "setpriv is not on this machine" if os.geteuid() == 0 else "this run has no privilege to begin with")
        return
    # Not in the scratch folder, which another user may not enter.
    home = Path(tempfile.mkdtemp(prefix="gpu-test-nobody-"))
    try:
        copy_tests(bench, home)
        user = [setpriv, "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]
        env = {"HOME": home, "TMPDIR": home / "tmp", "USER": "nobody", "LOGNAME": "nobody", "PYTHONDONTWRITEBYTECODE": "1", **dict.fromkeys(FOLDERS)}
        bench.row("driver", "INFO", restricted())
        if not reachable(bench, user, env, home):
            return
        seconds = int(min(330, bench.time_left() - 20))
        command = [*user, bench.python, home / "scripts" / "gpu-test", "--quick",
                   "--bin", home / "gputrace", "--out", home / "out", "--builds", home / "build", "--limit", seconds, *SECTIONS]
        outcome = process.run(command, bench.log("gpu-test"), seconds + 15, env, home)
        results = home / "out" / "results.json"
        rows = json.loads(results.read_text()) if results.is_file() else []
        bench.check("ran", bool(rows) and outcome.code in (0, 1), f"{outcome.ending()} in {outcome.seconds:.0f}s, {len(rows)} rows {'' if rows else outcome.stderr[-400:]!r}")
        for section in SECTIONS:
            inner = [row for row in rows if row["section"] == section]
            counted = {verdict: sum(row["verdict"] == verdict for row in inner) for verdict in ("PASS", "FAIL", "SKIP")}
            # What fails with privileges too, in the same run, is no matter of privileges.
            known = {row["name"] for row in bench.rows if row["section"] == section and row["verdict"] == "FAIL"}
            new = [row["name"] for row in inner if row["verdict"] == "FAIL" and row["name"] not in known]
            bench.check(section, counted["PASS"] and not new, f"as uid {NOBODY}: {counted}" + (f", {counted['FAIL'] - len(new)} of which fail with privileges too" if counted["FAIL"] > len(new) else ""))
            for row in inner:
                if row["verdict"] in ("FAIL", "SKIP"):
                    bench.row(f"{section}-{row['name']}", "INFO" if row["verdict"] == "FAIL" and row["name"] in known else row["verdict"], row["detail"])
        if (home / "out" / "logs.tar.gz").is_file():
            shutil.copyfile(home / "out" / "logs.tar.gz", bench.out / "unprivileged-logs.tar.gz")
    finally:
        shutil.rmtree(home, ignore_errors=True)
