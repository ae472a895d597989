"""`%%gputrace`: records a cell of a notebook whose kernel is traced, and shows the flamegraph of that cell alone.

The kernel must have been started under gputrace (`gputrace run -- jupyter lab`): a library cannot be preloaded into a
process that runs already. In another kernel the cell runs as it would without the magic, and a message says what to do.
"""

import base64
import ctypes
import html
import json
import os
import re
import shlex
import subprocess
import tempfile
import time

from IPython.core.error import UsageError
from IPython.display import display

from gputrace import executable

UNTRACED = """gputrace: this kernel is not traced, so the cell runs without it. Start Jupyter by
    gputrace run --start-paused -- jupyter lab
and open the notebook there; with --start-paused only cells with %%gputrace are recorded."""
# The height of a flamegraph's frame, at most.
HEIGHT_MAX = 900


class Recorder:
    """What `gputrace ctl` says of this process, and does with it."""

    def __init__(self):
        self.pid = os.getpid()
        # The session itself, where the variable names it: before its first use of CUDA, a process is in none.
        folder = re.search(r"/gputrace-([0-9]+)-[^/]*/", os.environ.get("GPUTRACE_SESSION", ""))
        self.session = int(folder.group(1)) if folder else self.pid
        # How the session was started: paused until somebody or something starts it, or recording.
        self.begins_paused = is_on("GPUTRACE_START_PAUSED") or is_on("GPUTRACE_CAPTURE_RANGE") or is_on("GPUTRACE_DELAY")
        # Whether it recorded before the cell, so that it is left as it was found.
        self.was_recording = not self.begins_paused

    def gputrace(self, *words):
        """Runs gputrace, and returns its exit code, its stdout and its stderr."""
        variables = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        ended = subprocess.run([executable()] + [str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               stdin=subprocess.DEVNULL, universal_newlines=True, env=variables)
        return ended.returncode, ended.stdout, ended.stderr.strip()

    def ctl(self, question):
        """The answer; None if no session records this process."""
        code, out, said = self.gputrace("ctl", self.session, question, "--json")
        if code == 66:
            return None
        if code == 1 and out.strip():
            # Another program of the session did not answer; the others have changed.
            print(said)
        elif code != 0:
            raise UsageError("gputrace ctl {}: {}".format(question, said))
        return json.loads(out)

    def start(self):
        """Seconds since the session's begin from which on this process is recorded; None if it is not recorded yet."""
        answer = self.ctl("start")
        if answer is not None and answer.get("was_recording") is not None:
            self.was_recording = answer["was_recording"]
        return answer and answer["at_s"]

    def stop(self):
        """The same for the end. The trace is on disk then."""
        answer = self.ctl("stop")
        if answer is not None and self.was_recording:
            self.ctl("start")
        return answer and answer["at_s"]

    def draw(self, begin, end, options):
        """The flamegraph of this process between two times, drawn and as folded lines."""
        status = self.ctl("status")
        if status is None:
            raise UsageError("gputrace: the session has ended")
        part = ["--to", "{:.6f}".format(end)]
        # All of one filter must hold, and of several filters one: so each of the cell's gets this process.
        options, own = list(options), "process={}".format(self.pid)
        for at, word in enumerate(options):
            if word == "--filter" and at + 1 < len(options):
                options[at + 1] = own + "," + options[at + 1]
            elif word.startswith("--filter="):
                options[at] = "--filter=" + own + "," + word[len("--filter="):]
        if not any(word.startswith("--filter") for word in options):
            part += ["--filter", own]
        if begin is not None:
            part += ["--from", "{:.6f}".format(begin)]
        with tempfile.TemporaryDirectory() as folder:
            outputs = []
            for name in ("cell.svg", "cell.folded"):
                path = os.path.join(folder, name)
                code, _, said = self.gputrace("flamegraph", "-o", path, *part, *options, status["output"])
                # 3: the trace is still being written.
                if code not in (0, 3):
                    raise UsageError(said or "gputrace flamegraph: exit {}".format(code))
                with open(path, encoding="utf-8") as file:
                    outputs.append(file.read())
        return outputs[0], outputs[1], status


def is_on(variable):
    """Whether a variable of gputrace is set to something that is not off."""
    return os.environ.get(variable, "") not in ("", "off", "0", "no", "false")


class Flamegraph:
    """A flamegraph as notebooks show it: in a frame of its own, where its scripts and styles work and touch nothing else."""

    def __init__(self, svg, text):
        self.svg, self.text = svg, text

    def __repr__(self):
        return self.text

    def _repr_mimebundle_(self, include=None, exclude=None):
        encoded = base64.b64encode(self.svg.encode()).decode()
        frame = '<iframe src="data:image/svg+xml;base64,{}" width="100%" height="{}" style="border:0"></iframe>'
        frame = frame.format(encoded, min(HEIGHT_MAX, height_of(self.svg)))
        return {"text/html": "<p>{}</p>{}".format(html.escape(self.text), frame), "image/svg+xml": self.svg, "text/plain": self.text}


def height_of(svg):
    """The height that the drawing names, with a margin for the frame's own."""
    found = re.search(r'<svg[^>]* height="([0-9]+)"', svg)
    return int(found.group(1)) + 20 if found else HEIGHT_MAX


def is_preloaded():
    """Whether the preload library is in this process."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        return any("libgputrace" in line for line in maps)


def wait_for_device():
    """Waits until the GPU has done what the cell asked for, in the current context: it is part of the cell."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return
    # Its error, if any, is the program's to see at its next call.
    cuda.cuCtxSynchronize()


def seconds(value):
    """A length of time as people read it."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if value * factor >= 1:
            break
    return "{:.3g} {}".format(value * factor, unit)


def summary(folded, took, begin, end, status):
    """One line about a cell that took so many seconds."""
    weight = sum(int(line.rsplit(" ", 1)[1]) for line in folded.splitlines()) / 1e6
    text = "GPU time {} in {}".format(seconds(weight), seconds(took))
    if begin is None:
        text += "; recorded from the first use of CUDA to {:.3f} s of the session".format(end)
    else:
        text += "; recorded from {:.3f} to {:.3f} s of the session".format(begin, end)
    lost = sum(status["recording"]["dropped"].values()) + status["recording"]["not_in_trace"]
    return text + ("; nothing lost" if lost == 0 else "; the session has lost {:,} events".format(lost))


def run_cell(ipython, line, cell):
    """`%%gputrace [OPTIONS OF gputrace flamegraph]`: runs the cell, and shows its flamegraph."""
    options = shlex.split(line)
    if not is_preloaded():
        print(UNTRACED)
        return finish(ipython.run_cell(cell))
    recorder = Recorder()
    try:
        begin = recorder.start()
    except UsageError as error:
        print("{}\ngputrace: the cell runs, and is not recorded".format(error))
        return finish(ipython.run_cell(cell))
    began = time.perf_counter()
    try:
        result = ipython.run_cell(cell)
        wait_for_device()
    finally:
        took = time.perf_counter() - began
        end = recorder.stop()
    if end is None:
        print("gputrace: the cell made no use of CUDA, or its session has ended; there is nothing to show")
        return finish(result)
    # Without work of the device the flamegraph is one of host time, and has our own wait in it.
    svg, folded, status = recorder.draw(begin, end, options)
    if folded and " of GPU time" in svg:
        display(Flamegraph(svg, summary(folded, took, begin, end, status)))
    else:
        print("gputrace: the GPU did nothing in this cell, or its times are not known (gputrace doctor says why)")
    return finish(result)


def finish(result):
    """Says that a cell failed, so that the notebook stops at it; its traceback was printed already."""
    if not result.success:
        raise UsageError("the cell ended with an error")


def register(ipython):
    """Adds the magic to an IPython shell."""
    ipython.register_magic_function(lambda line, cell: run_cell(ipython, line, cell), "cell", "gputrace")
