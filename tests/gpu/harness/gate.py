"""Processes that start early, wait at a gate without using the processor, and take turns.

A workload that is given BENCH_READY, BENCH_GO and BENCH_DONE makes the first file once it has imported what it needs, and then blocks
on opening the second, a FIFO. So start-up overlaps, and measuring does not. A byte there is a turn. A workload that has several
repeats writes a byte to the third after each and waits for its next turn, so that processes which are compared
measure within a second of each other; one that has a single turn just ends."""

import errno
import os
import select
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
        self.go, self.seconds = None, 0.0  # Seconds of all its turns.
        os.mkfifo(self.go_path)
        os.mkfifo(self.folder / "done")
        self.done = os.open(self.folder / "done", os.O_RDONLY | os.O_NONBLOCK)
        self.stdout_path, self.stderr_path = self.folder / "out", self.folder / "err"
        full = dict(os.environ)
        full.update({name: str(value) for name, value in env.items()})
        full.update(BENCH_READY=str(self.ready_path), BENCH_GO=str(self.go_path), BENCH_DONE=str(self.folder / "done"), PYTHONHASHSEED="0")
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

    def turn(self, limit_s):
        """Lets it work until its turn is over or it has ended; False where that took longer. It is to be alive and waiting."""
        start = time.monotonic()
        while self.go is None and self.child.poll() is None and time.monotonic() - start < 10:
            try:
                self.go = os.open(self.go_path, os.O_WRONLY | os.O_NONBLOCK)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                time.sleep(0.01)
        try:
            os.write(self.go, b"g")
        except (OSError, TypeError):
            pass  # It has ended, or does not come to its gate: the wait below finds out.
        while time.monotonic() - start < limit_s:
            if self.child.poll() is not None:
                break
            # A pipe that no process has open for writing yet is readable too, and empty.
            readable, _, _ = select.select([self.done], [], [], 0.02)
            if readable and os.read(self.done, 1):
                break
            if readable:
                time.sleep(0.002)
        else:
            return False
        self.seconds += time.monotonic() - start
        return True

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
        for descriptor in (self.go, self.done):
            if descriptor is not None:
                os.close(descriptor)
        self.go = self.done = None

    def results(self):
        """{name: values} of the RESULT lines."""
        found = {}
        for line in self.stdout_path.read_text(errors="replace").splitlines():
            if line.startswith("RESULT ") and "=" in line:
                name, values = line[7:].split("=", 1)
                found[name] = [float(value) for value in values.split(",")]
        return found
