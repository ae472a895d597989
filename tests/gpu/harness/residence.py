"""Resident memory of running processes, by the file they execute, looked at twice a second while something else runs."""

import os
import threading
import time
from pathlib import Path


def resident_bytes(pid):
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return 0


class Residence:
    """`with Residence({"collector": path}) as seen:` and afterwards `seen.samples["collector"]`: [(seconds, bytes)]."""

    def __init__(self, files):
        self.files = {os.path.realpath(path): name for name, path in files.items()}
        self.samples = {name: [] for name in files}
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)

    def watch(self):
        start = time.monotonic()
        while not self.stopped.wait(0.5):
            found = dict.fromkeys(self.samples, 0)
            for entry in os.listdir("/proc"):
                if not entry.isdigit():
                    continue
                try:
                    name = self.files.get(os.readlink(f"/proc/{entry}/exe"))
                except OSError:
                    continue
                if name:
                    found[name] = max(found[name], resident_bytes(entry))
            for name, size in found.items():
                if size:
                    self.samples[name].append((time.monotonic() - start, size))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        self.thread.join(10)

    def growth(self, name):
        """(bytes at a quarter of the time, most afterwards), which are equal for what stays flat."""
        samples = self.samples[name]
        if len(samples) < 8:
            return None
        quarter = samples[len(samples) // 4][1]
        return quarter, max(size for _, size in samples[len(samples) // 4:])
