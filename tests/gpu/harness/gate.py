"""Processes that start early, wait at a gate without using the processor, and are let through one at a time.

A workload that is given BENCH_READY and BENCH_GO makes the first file once it has imported what it needs and then blocks
on opening the second, a FIFO. So start-up overlaps, and measuring does not."""

import errno
import os
import signal
import subprocess
import time
from pathlib import Path

from .process import session_members


class Gated:
    """One waiting process. `label` says which variant it is."""

    def __init__(self, label, command, env, folder):
        self.label, self.folder = label, Path(folder)
        self.folder.mkdir(parents=True)
        self.ready_path, self.go_path = self.folder / "ready", self.folder / "go"
        os.mkfifo(self.go_path)
        self.stdout_path, self.stderr_path = self.folder / "out", self.folder / "err"
        full = dict(os.environ)
        full.update({name: str(value) for name, value in env.items()})
        full.update(BENCH_READY=str(self.ready_path), BENCH_GO=str(self.go_path), PYTHONHASHSEED="0")
        with open(self.stdout_path, "wb") as out, open(self.stderr_path, "wb") as err:
            self.child = subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=full, start_new_session=True)

    def wait_ready(self, deadline):
        while time.monotonic() < deadline:
            if self.ready_path.exists():
                return True
            if self.child.poll() is not None:
                return False
            time.sleep(0.05)
        return False

    def go(self, limit_s):
        """Lets it run to its end; (exit code or None after the limit, seconds)."""
        start = time.monotonic()
        while time.monotonic() - start < 10:
            try:
                gate = os.open(self.go_path, os.O_WRONLY | os.O_NONBLOCK)
                os.write(gate, b"g")
                os.close(gate)
                break
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                if self.child.poll() is not None:
                    break
                time.sleep(0.01)
        try:
            return self.child.wait(limit_s), time.monotonic() - start
        except subprocess.TimeoutExpired:
            self.kill()
            return None, time.monotonic() - start

    def kill(self):
        for pid in session_members(self.child.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        try:
            self.child.wait(10)
        except subprocess.TimeoutExpired:
            pass

    def results(self):
        """{name: values} of the RESULT lines."""
        found = {}
        for line in self.stdout_path.read_text(errors="replace").splitlines():
            if line.startswith("RESULT ") and "=" in line:
                name, values = line[7:].split("=", 1)
                found[name] = [float(value) for value in values.split(",")]
        return found
