"""What every section works with: the gputrace under test, the compiled programs, a scratch folder and the table of results.

Scratch is outside the output folder; the output folder gets table.txt (written row by row, so that a killed run still
says what it knew), results.json and logs.tar.gz.
"""

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import machine, process, reports
from .build import PROGRAMS

LOG_FILE_BYTES = 600_000
LOGS_BYTES = 15_000_000
KEPT = {".out", ".err", ".cmd", ".hang", ".txt", ".json", ".jsonl", ".md", ".folded", ".crash"}


class Bench:
    def __init__(self, gputrace, out, scratch, builder, programs, limit_s):
        self.out, self.scratch, self.builder, self.programs = Path(out), Path(scratch), builder, programs
        self.logs = self.scratch / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        self.out.mkdir(parents=True, exist_ok=True)
        self.deadline = time.monotonic() + limit_s
        self.rows, self.section = [], "start"
        self.overhead_seconds, self.soak_records, self.quick = 400, 25_000_000, False
        self.only = None  # Parts of a section that can run alone; None for all.
        self.beside = []  # Others of gputrace, for the section hook.
        self.table = open(self.out / "table.txt", "a", encoding="utf-8")
        # A carried file may have lost its executable bit.
        self.gputrace = self.scratch / "gputrace"
        shutil.copyfile(gputrace, self.gputrace)
        self.gputrace.chmod(0o755)
        self.python = sys.executable
        self.demangle = reports.Demangler()

    # Results.

    def row(self, name, verdict, detail=""):
        """Adds a row: verdict is PASS, FAIL, SKIP or INFO."""
        self.rows.append({"section": self.section, "name": name, "verdict": verdict, "detail": str(detail)})
        line = f"{verdict:4} {self.section}/{name}: {detail}"
        self.table.write(line + "\n")
        self.table.flush()
        print(line if len(line) < 700 else line[:700] + "…", flush=True)

    def check(self, name, good, detail=""):
        self.row(name, "PASS" if good else "FAIL", detail)
        return good

    def time_left(self):
        return self.deadline - time.monotonic()

    def log(self, name):
        return self.logs / self.section / name

    def keep(self, name, text):
        path = self.log(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def write_out(self):
        (self.out / "results.json").write_text(json.dumps(self.rows, indent=1))
        files = [path for path in sorted(self.logs.rglob("*")) if path.is_file() and path.suffix in KEPT]
        packed = self.scratch / "logs.tar.gz"
        for most in (LOG_FILE_BYTES, LOG_FILE_BYTES // 10, LOG_FILE_BYTES // 100):
            with tarfile.open(packed, "w:gz", compresslevel=6) as tar:
                for path in files:
                    data = path.read_bytes()
                    if len(data) > most:
                        data = data[:most // 2] + b"\n... cut ...\n" + data[-most // 2:]
                    entry = tarfile.TarInfo(str(path.relative_to(self.logs)))
                    entry.size = len(data)
                    tar.addfile(entry, io.BytesIO(data))
            if packed.stat().st_size < LOGS_BYTES:
                break
        shutil.copyfile(packed, self.out / "logs.tar.gz")

    def wants(self, part):
        """Whether that part of a section is to run."""
        return self.only is None or part in self.only

    # Programs.

    def script(self, name, *options):
        return [self.python, PROGRAMS / name, *options]

    def bare(self, name, command, limit_s=90, env=None, cwd=None):
        return process.run(command, self.log(f"{name}-bare"), self.limit(limit_s), env, cwd)

    def traced(self, name, command, *options, limit_s=120, env=None, cwd=None, meant_to_die=False):
        """Runs under `gputrace run`; the outcome, and the folder of its outputs. A crash that is not meant is looked at."""
        folder = self.scratch / "traces" / self.section / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        full = [self.gputrace, "run", "-o", folder, *options, "--", *command]
        outcome = process.run(full, self.log(name), self.limit(limit_s), env, cwd)
        if not meant_to_die:
            self.after_crash(name, command, outcome, env)
        return outcome, folder

    def preloaded(self, name, command, limit_s=120, env=None):
        """Runs with LD_PRELOAD alone, in a folder of its own; the outcome, and that folder, which gets gputrace-out/."""
        folder = self.scratch / "traces" / self.section / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        full = {"LD_PRELOAD": self.library(), **(env or {})}
        outcome = process.run(command, self.log(name), self.limit(limit_s), full, folder)
        self.after_crash(name, command, outcome, env)
        return outcome, folder

    def counted(self, name, command, names=False, limit_s=120, env=None, cwd=None, library=None):
        """Runs under the bare CUPTI client; the outcome and the client's totals, None if it wrote none."""
        path = self.log(f"{name}-client.jsonl")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        if not self.programs.get("cupti_client"):
            return None, None
        full = {"CUDA_INJECTION64_PATH": self.programs["cupti_client"], "CUPTI_CLIENT_OUT": path, "CUPTI_CLIENT_LIB": library or machine.toolkit_cupti(),
                "CUPTI_CLIENT_NAMES": "1" if names else None, **(env or {})}
        outcome = process.run(command, self.log(f"{name}-client"), self.limit(limit_s), full, cwd)
        try:
            return outcome, reports.client_totals(path)
        except (ValueError, KeyError, TypeError) as error:
            self.row(f"{name}-client", "INFO", f"the client's totals cannot be read: {error}")
            return outcome, None

    def after_crash(self, name, command, outcome, env):
        """Runs a crashed program once more, preloaded with a handler that prints where it died."""
        shim = self.programs.get("crash_trace")
        if not outcome.crashed or not shim or self.time_left() < 60:
            return
        full = {"LD_PRELOAD": f"{self.library()}:{shim}", **(env or {})}
        folder = self.scratch / "traces" / f"{name}-crash"
        folder.mkdir(parents=True, exist_ok=True)
        again = process.run(command, self.log(f"{name}-crash"), self.limit(60), full, folder)
        self.row(f"{name}-crash", "INFO", f"once more, preloaded with crash_trace: {again.ending()}; {again.stderr[-300:]!r}")

    def library(self):
        if not hasattr(self, "_library"):
            done = subprocess.run([self.gputrace, "lib"], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=30, check=False)
            self._library = (done.stdout.decode().strip().splitlines() or ["gputrace-lib-printed-nothing"])[-1]
        return self._library

    def output_variable(self):
        """The environment variable that names the output folder, as the help text spells it."""
        found = re.search(r"\bGPUTRACE_OUT[A-Z]*\b", machine.output_of([str(self.gputrace), "run", "--help"]))
        return found[0] if found else "GPUTRACE_OUT"

    def limit(self, limit_s):
        return max(5, min(limit_s, self.time_left() - 5))

    def report(self, name, folder):
        """The JSON report of every trace under `folder`, or None with the reason in the log and a FAIL row."""
        traces = sorted(Path(folder).rglob("trace.gputrace")) if Path(folder).exists() else []
        if not traces:
            self.row(f"{name}-report", "FAIL", f"no trace.gputrace under {folder}")
            return None
        try:
            done = subprocess.run([self.gputrace, "report", "--json", *traces], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=self.limit(90), check=False)
            self.keep(f"{name}-report.json", done.stdout.decode(errors="replace"))
            if done.returncode:
                self.row(f"{name}-report", "FAIL", f"report --json: exit {done.returncode}: {done.stderr.decode(errors='replace')[-300:]}")
                return None
            return reports.parse(done.stdout.decode(errors="replace"))
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            self.row(f"{name}-report", "FAIL", error)
            return None

    def outputs(self, name, folder):
        """Which of a run's four files are missing or empty; small ones are copied to the log."""
        missing = []
        for file in ("trace.gputrace", "flame.folded", "flame.svg", "summary.txt"):
            found = sorted(Path(folder).rglob(file)) if Path(folder).exists() else []
            if not found or not found[0].stat().st_size:
                missing.append(file)
            elif file in ("flame.folded", "summary.txt"):
                self.keep(f"{name}-{file}", found[0].read_text(errors="replace"))
        return missing

    def parallel(self, jobs, workers=6):
        """Runs functions at the same time, for when timings do not matter; an exception becomes a FAIL row."""
        def guarded(item):
            name, function = item
            try:
                function()
            except Exception as error:  # One broken check must not cost the others their device time.
                self.row(name, "FAIL", f"harness: {type(error).__name__}: {error}")
        with ThreadPoolExecutor(max_workers=min(workers, max(2, os.cpu_count() or 2))) as pool:
            list(pool.map(guarded, jobs.items()))
