"""Limits on the GPU's memory in tests: what a marked test may hold, and what it may leave behind.

    @pytest.mark.limit_gpu_memory("2 GiB")
    @pytest.mark.limit_gpu_leaks("0 B")

The tests run traced: `gputrace run -- pytest`, or `pytest --gputrace`, which starts itself so. In a pytest that is not
traced, the marks are not checked, and the header says so. docs/guide/memory.md describes what is counted.
"""

import gc
import json
import os
import re
import subprocess
import sys

import pytest

from gputrace import executable

UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
MARKS = {
    "limit_gpu_memory": "limit_gpu_memory(size): the test fails if the program holds more memory of GPUs while it runs",
    "limit_gpu_leaks": "limit_gpu_leaks(size): the test fails if more of the GPU memory allocated in it is live after it",
}
# Lines of a failure.
LINES_SHOWN = 10


class Unknown(Exception):
    """The figures of a test cannot be had."""


def size(text):
    """The bytes of "2 GiB"; a bare number is bytes."""
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?)\s*([A-Za-z]*)\s*", str(text))
    factor = found and UNITS.get(found.group(2) or "B")
    if not factor:
        raise pytest.UsageError("{!r} is no size, as '2 GiB' or '100 MB' are".format(text))
    return int(float(found.group(1)) * factor)


def shown(count):
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if count >= UNITS[unit]:
            return "{:.3g} {}".format(count / UNITS[unit], unit)
    return "{} B".format(count)


def is_traced():
    """Whether the preload library is in this process."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            return any("libgputrace" in line for line in maps)
    except OSError:
        return False


def gputrace(*words):
    """Runs gputrace, and returns its exit code, its stdout and its stderr."""
    variables = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    ended = subprocess.run([executable()] + [str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           stdin=subprocess.DEVNULL, universal_newlines=True, env=variables)
    return ended.returncode, ended.stdout, ended.stderr.strip()


def ctl(question):
    """A session's answer. The process that began the session is in the name of its folder."""
    folder = re.search(r"/gputrace-([0-9]+)-[^/]*/", os.environ.get("GPUTRACE_SESSION", ""))
    code, out, said = gputrace("ctl", folder.group(1) if folder else os.getpid(), question, "--json")
    if code != 0:
        raise Unknown("gputrace ctl {}: {}".format(question, said))
    return json.loads(out)


def settle():
    """Frees what nobody refers to, and PyTorch's cache of free memory, so that what is live is in use."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def moment():
    """The time in the session. All that was recorded before is in the trace's file."""
    at = ctl("stop")["at_s"]
    ctl("start")
    return at


def used(begin, end):
    """What `gputrace memory` says of the time between: of the process that held the most, and of the lines."""
    code, out, said = gputrace("memory", "--json", "--churn", "--from", "{:.9f}".format(begin), "--to", "{:.9f}".format(end),
                               ctl("status")["output"])
    # 3: the trace is still being written.
    if code not in (0, 3):
        raise Unknown(said)
    return json.loads(out)


def table(lines, name):
    rows = sorted((line for line in lines if line[name + "_bytes"]), key=lambda line: -line[name + "_bytes"])
    text = []
    for row in rows[:LINES_SHOWN]:
        at = row["line"] or {}
        where = "{} {}:{}".format(at.get("function"), at.get("path") or at.get("file"), at.get("line")) if at else "(no line known)"
        text.append("  {:>10} in {:>5} ({})  {}".format(shown(row[name + "_bytes"]), row[name + "_allocations"], row["kind"], where))
    if len(rows) > LINES_SHOWN:
        text.append("  and {} more lines".format(len(rows) - LINES_SHOWN))
    return text


def failures(limits, memory):
    """The texts of the limits that do not hold."""
    texts = []
    most = max((process["peak_bytes"] for process in memory["processes"]), default=0)
    if most > limits.get("limit_gpu_memory", most):
        first = "limit_gpu_memory: {} of GPU memory at most, more than {}".format(shown(most), shown(limits["limit_gpu_memory"]))
        texts.append("\n".join([first] + table(memory["lines"], "peak")))
    left = sum(process["leaked_bytes"] for process in memory["processes"])
    if left > limits.get("limit_gpu_leaks", left):
        first = "limit_gpu_leaks: {} of GPU memory allocated in the test is live after it, more than {}".format(
            shown(left), shown(limits["limit_gpu_leaks"]))
        texts.append("\n".join([first] + table(memory["lines"], "leaked")))
    return texts


def pytest_addoption(parser):
    parser.addoption("--gputrace", action="store_true", help="run the tests under gputrace, so that limit_gpu_memory and limit_gpu_leaks are checked")


def pytest_configure(config):
    for text in MARKS.values():
        config.addinivalue_line("markers", text)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    if config.getoption("--gputrace") and not is_traced():
        words = [executable(), "run", "--", sys.executable, "-m", "pytest"] + [str(word) for word in config.invocation_params.args]
        sys.stdout.flush()
        os.execv(words[0], words)


def pytest_report_header(config):
    return None if is_traced() else "gputrace: not traced, limits of GPU memory are not checked (pytest --gputrace)"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item):
    limits = {mark.name: size(*mark.args) for name in MARKS for mark in list(item.iter_markers(name))[:1]}
    if not limits or not is_traced():
        yield
        return
    item.gputrace_failures = []
    try:
        settle()
        begin = moment()
    except Unknown as error:
        item.gputrace_failures = [str(error)]
        yield
        return
    yield
    try:
        settle()
        item.gputrace_failures = failures(limits, used(begin, moment()))
    except Unknown as error:
        item.gputrace_failures = [str(error)]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    texts = getattr(item, "gputrace_failures", None)
    if call.when != "call" or not texts:
        return
    if report.passed:
        report.outcome, report.longrepr = "failed", "\n".join(texts)
    else:
        report.sections.append(("GPU memory", "\n".join(texts)))
