"""Runs one program with a hard time limit and keeps its output in files.

Output never goes through a pipe of ours, so that a process left behind with an inherited descriptor cannot hold the
harness up. A program past its limit is looked at with cuda-gdb where there is one, then killed with its whole session.
"""

import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

LOOKS_LEFT = [3]  # Backtraces of hung programs are slow; a few tell enough.


@dataclass
class Outcome:
    """How one run of a program ended. `code` is None after a hang."""

    command: list
    code: int | None
    seconds: float
    stdout_path: Path
    stderr_path: Path
    notes: list = field(default_factory=list)

    @property
    def stdout(self):
        return self.stdout_path.read_text(errors="replace")

    @property
    def stderr(self):
        return self.stderr_path.read_text(errors="replace")

    @property
    def hung(self):
        return self.code is None

    def ending(self):
        """The ending in a word: an exit code, a signal, or a hang."""
        if self.code is None:
            return f"HUNG after {self.seconds:.0f}s"
        if self.code < 0 or self.code in (134, 135, 136, 139):
            number = -self.code if self.code < 0 else self.code - 128
            return f"SIGNAL {signal.Signals(number).name}"
        return f"exit {self.code}"

    @property
    def crashed(self):
        return self.code is not None and (self.code < 0 or self.code in (134, 135, 136, 139))


def session_members(leader):
    """Processes whose session is the one that `leader` started."""
    members = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            after = Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()
            if int(after[3]) == leader:
                members.append(int(entry))
        except (OSError, IndexError, ValueError):
            continue
    return members


def look_at(pid, out):
    """Writes what a hung process's threads wait in, and their stacks if cuda-gdb can attach."""
    for task in sorted(Path(f"/proc/{pid}/task").glob("*")):
        try:
            parts = [(task / name).read_text(errors="replace").strip() for name in ("comm", "wchan", "syscall")]
            out.write(f"task {task.name}: {' | '.join(parts)}\n")
        except OSError as error:
            out.write(f"task {task.name}: {error}\n")
    debugger = shutil.which("cuda-gdb") or "/usr/local/cuda/bin/cuda-gdb"
    if not os.path.exists(debugger) or LOOKS_LEFT[0] <= 0:
        return
    LOOKS_LEFT[0] -= 1
    out.flush()
    command = [debugger, "-q", "-batch", "-ex", "thread apply all bt 25", "-p", str(pid)]
    try:
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, timeout=40, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        out.write(f"cuda-gdb: {error}\n")


def run(command, log, limit_s=90, env=None, cwd=None):
    """Runs `command`; `log` is the path that .out, .err and, after a hang, .hang are written beside."""
    log = Path(log)
    log.parent.mkdir(parents=True, exist_ok=True)
    stdout_path, stderr_path = Path(f"{log}.out"), Path(f"{log}.err")
    command = [str(part) for part in command]
    full = dict(os.environ)
    full.update({name: str(value) for name, value in (env or {}).items() if value is not None})
    for name in (env or {}):
        if env[name] is None:
            full.pop(name, None)
    start = time.monotonic()
    with open(stdout_path, "wb") as out, open(stderr_path, "wb") as err:
        try:
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=full, cwd=cwd, start_new_session=True)
        except OSError as error:
            err.write(f"cannot start: {error}\n".encode())
            return Outcome(command, 127, 0.0, stdout_path, stderr_path, [str(error)])
        try:
            code = child.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = None
    seconds = time.monotonic() - start
    if code is None:
        with open(f"{log}.hang", "w") as hang:
            for pid in session_members(child.pid):
                hang.write(f"== pid {pid}: {Path(f'/proc/{pid}/cmdline').read_bytes()[:300]!r}\n" if os.path.exists(f"/proc/{pid}") else "")
                look_at(pid, hang)
        for pid in session_members(child.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        try:
            child.wait(20)
        except subprocess.TimeoutExpired:
            pass
    outcome = Outcome(command, code, seconds, stdout_path, stderr_path)
    with open(f"{log}.cmd", "w") as note:
        shown = " ".join(f"{name}={value}" for name, value in (env or {}).items())
        note.write(f"{shown} {' '.join(command)}\n{outcome.ending()} in {seconds:.2f}s\n")
    return outcome
