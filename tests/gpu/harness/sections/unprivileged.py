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


def run(bench):
    setpriv = shutil.which("setpriv")
    if os.geteuid() != 0 or not setpriv:
        bench.row("unprivileged", "SKIP", "setpriv is not on this machine" if os.geteuid() == 0 else "this run has no privilege to begin with")
        return
    # Not in the scratch folder, which another user may not enter.
    home = Path(tempfile.mkdtemp(prefix="gpu-test-nobody-"))
    try:
        copy_tests(bench, home)
        seconds = int(min(330, bench.time_left() - 20))
        command = [setpriv, "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", bench.python, home / "scripts" / "gpu-test", "--quick",
                   "--bin", home / "gputrace", "--out", home / "out", "--builds", home / "build", "--limit", seconds, *SECTIONS]
        env = {"HOME": home, "TMPDIR": home / "tmp", "USER": "nobody", "LOGNAME": "nobody", "XDG_RUNTIME_DIR": None, "XDG_CACHE_HOME": None, "PYTHONDONTWRITEBYTECODE": "1"}
        outcome = process.run(command, bench.log("gpu-test"), seconds + 15, env, home)
        results = home / "out" / "results.json"
        rows = json.loads(results.read_text()) if results.is_file() else []
        bench.check("ran", bool(rows) and outcome.code in (0, 1), f"{outcome.ending()} in {outcome.seconds:.0f}s, {len(rows)} rows {'' if rows else outcome.stderr[-400:]!r}")
        for section in SECTIONS:
            inner = [row for row in rows if row["section"] == section]
            counted = {verdict: sum(row["verdict"] == verdict for row in inner) for verdict in ("PASS", "FAIL", "SKIP")}
            bench.check(section, counted["PASS"] and not counted["FAIL"], f"as uid {NOBODY}: {counted}")
            for row in inner:
                if row["verdict"] in ("FAIL", "SKIP"):
                    bench.row(f"{section}-{row['name']}", row["verdict"], row["detail"])
        if (home / "out" / "logs.tar.gz").is_file():
            shutil.copyfile(home / "out" / "logs.tar.gz", bench.out / "unprivileged-logs.tar.gz")
    finally:
        shutil.rmtree(home, ignore_errors=True)
