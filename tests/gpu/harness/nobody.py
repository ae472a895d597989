"""The same sections as a user without any privilege, in a copy of the tests that this user owns."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from . import machine
from .build import GPU_TESTS

NOBODY = 65534
ROOT = GPU_TESTS.parent.parent
# Folders of the privileged user's that he cannot write to; programs then use those in HOME.
FOLDERS = ("XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "TRITON_CACHE_DIR", "TRITON_HOME", "TORCH_HOME", "TORCHINDUCTOR_CACHE_DIR",
           "CUDA_CACHE_PATH", "CUPY_CACHE_DIR", "NUMBA_CACHE_DIR", "PYTHONPYCACHEPREFIX", "GPUTRACE_CACHE")
# setpriv itself still gets into folders that are closed to the user, so this python starts another.
REACHES_PYTHON = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'pass'], check=True)"


def copy_tests(gputrace, home):
    """What scripts/gpu-test needs, readable and writable for nobody but its new owner."""
    shutil.copytree(GPU_TESTS, home / "tests" / "gpu", ignore=shutil.ignore_patterns("__pycache__"))
    (home / "scripts").mkdir()
    for name in ("gpu-test", "bench-overhead"):
        shutil.copy2(ROOT / "scripts" / name, home / "scripts" / name)
    if (ROOT / ".carry").is_dir():
        shutil.copytree(ROOT / ".carry", home / ".carry", ignore=shutil.ignore_patterns("gputrace"))
    shutil.copy2(gputrace, home / "gputrace")
    (home / "gputrace").chmod(0o755)
    (home / "tmp").mkdir()
    for folder, _, files in os.walk(home):
        os.chown(folder, NOBODY, NOBODY)
        for name in files:
            os.chown(Path(folder) / name, NOBODY, NOBODY)


def tell_user(bench, is_nobody):
    """A row of who runs this and what he may: a check where it is to be nobody."""
    capabilities = re.search(r"CapEff:\s*(\w+)", Path("/proc/self/status").read_text())[1]
    # What the driver says of who may read performance counters; activity records must not depend on it.
    try:
        lines = Path("/proc/driver/nvidia/params").read_text().splitlines()
    except OSError as error:
        lines = [str(error)]
    driver = next((line for line in lines if "RmProfilingAdminOnly" in line), "RmProfilingAdminOnly is not among the driver's parameters")
    who = f"uid {os.getuid()}, groups {os.getgroups()}, capabilities {capabilities}; {driver}"
    if is_nobody:
        bench.check("user", os.getresuid() == (NOBODY,) * 3 and int(capabilities, 16) == 0, who)
    else:
        bench.row("user", "INFO", who)


def check_passed(bench):
    """Adds a row that fails where all of the section was skipped, so that nothing goes untested for want of a privilege."""
    rows = [row for row in bench.rows if row["section"] == bench.section]
    if any(row["verdict"] in ("PASS", "FAIL") for row in rows) or bench.section == "two" and machine.gpu_count() < 2:
        return
    bench.row("passed", "FAIL", f"nothing passed in {bench.section} as nobody")


def run(options):
    """Runs scripts/gpu-test again as that user, with the options that it was given; its exit code, 2 where that cannot be."""
    setpriv = shutil.which("setpriv")
    if os.geteuid() != 0 or not setpriv:
        print("gpu-test: --as-nobody: " + ("setpriv is not on this machine" if os.geteuid() == 0 else "only root can become another user; run it as that user"), file=sys.stderr)
        return 2
    # Not in the privileged user's scratch folder, which another user may not enter.
    home = Path(tempfile.mkdtemp(prefix="gpu-test-nobody-"))
    try:
        copy_tests(options.bin, home)
        user = [setpriv, "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups"]
        env = {name: value for name, value in os.environ.items() if name not in FOLDERS}
        env |= {"HOME": str(home), "TMPDIR": str(home / "tmp"), "USER": "nobody", "LOGNAME": "nobody", "PYTHONDONTWRITEBYTECODE": "1"}
        for command in ([sys.executable, "-c", REACHES_PYTHON], [str(home / "gputrace"), "--version"]):
            tried = subprocess.run([*user, *command], env=env, cwd=home, capture_output=True, text=True)
            if tried.returncode:
                print(f"gpu-test: --as-nobody: uid {NOBODY} cannot run {command[0]} on this machine (exit {tried.returncode}): {tried.stderr[-300:]}", file=sys.stderr)
                return 2
        command = [*user, sys.executable, str(home / "scripts" / "gpu-test"), "--bin", str(home / "gputrace"), "--out", str(home / "out"), "--builds", str(home / "build"),
                   "--limit", str(options.limit), "--overhead-seconds", str(options.overhead_seconds), "--soak-records", str(options.soak_records), "--is-nobody",
                   *(["--quick"] if options.quick else []), *(["--keep-traces"] if options.keep_traces else []), *options.sections]
        return subprocess.run(command, env=env, cwd=home).returncode
    finally:
        # Also where this was ended before: each section's rows are written as they come.
        if (home / "out").is_dir():
            shutil.copytree(home / "out", options.out, dirs_exist_ok=True)
        shutil.rmtree(home, ignore_errors=True)
